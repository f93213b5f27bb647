"""A sub-agent asks a question, and a person answers it.

The answer can come from another process and on another day. This process could stop in between.
"""

import asyncio
import tempfile

from remit import Answer, Asked, Conflict, Remit, scripted_model


def painter(asked: Asked) -> Answer:
    """A model that needs an answer before it can continue."""
    if asked.results:
        return f"The shed is painted. {asked.results[-1]}"
    return [("ask_user", {"question": "Which color?", "options": ["red", "green"]})]


async def person(url: str) -> None:
    """Answer the open question.

    On the command line, use `remit inbox` and `remit interact respond`.
    """
    async with Remit.open(database_url=url, actor="user:ann", worker=False) as ann:
        async for event in ann.events(after="0"):
            if event.type == "UserInteractionRequested":
                break
        (question,) = (await ann.list_interactions()).interactions
        print(f"Task {question.task_id} asks: {question.question} {question.options}")
        await ann.respond(interaction_id=question.id, answer="green")
        try:
            await ann.respond(interaction_id=question.id, answer="red")
        except Conflict as refused:
            print(f"A second answer is refused: {refused}")


async def main() -> None:
    """Delegate a task and answer its question."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/remit.db"
        async with (
            scripted_model(painter),
            Remit.open(folder, url) as remit,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(person(url))
            found = await remit.task(objective="Paint the shed")
            print(found.text)
            assert found.text == "The shed is painted. The person answered: green"


if __name__ == "__main__":
    asyncio.run(main())
