"""A sub-agent asks, and somebody else answers: from another process, another day, with this one stopped in between if need be."""

import asyncio
import tempfile

from remit import Remit
from remit.errors import Conflict
from remit.testing import Answer, Asked, scripted_model


def painter(asked: Asked) -> Answer:
    """A model that cannot go on without an answer."""
    if asked.results:
        return f"The shed is painted. {asked.results[-1]}"
    return [("ask_user", {"question": "Which color?", "options": ["red", "green"]})]


async def person(url: str) -> None:
    """Somebody who looks at what waits for an answer; on the command line that is `remit inbox` and `remit interact respond`."""
    async with Remit.open(database_url=url, actor="user:ann", worker=False) as ann:
        async for event in ann.events(after="0"):
            if event["type"] == "UserInteractionRequested":
                break
        (question,) = (await ann.list_interactions())["interactions"]
        print(f"task {question['task_id']} asks: {question['question']} {question['options']}")
        await ann.respond(interaction_id=question["id"], answer="green")
        try:
            await ann.respond(interaction_id=question["id"], answer="red")
        except Conflict as refused:
            print(f"a second answer is refused: {refused}")


async def main() -> None:
    """Hand out work, and answer what is asked about it."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/remit.db"
        async with scripted_model(painter), Remit.open(folder, url) as remit, asyncio.TaskGroup() as group:
            group.create_task(person(url))
            found = await remit.task(objective="Paint the shed")
            print(found["text"])
            assert found["data"]["result"] == "The shed is painted. The person answered: green"


if __name__ == "__main__":
    asyncio.run(main())
