"""Updates to an agent during its work, and when it gets them."""

from pathlib import Path

from remit.domain.llm.messages import Request
from remit.domain.task.task import State
from tests.agents.stage import Gate, calls, reached, results, says, stage, texts


async def test_a_message_reaches_the_running_agent_with_its_next_request(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()

    def rule(request: Request) -> object:
        return (
            says("Done.")
            if results(request) or len(at.script.asked) > 1
            else gate.then(calls(("LS", {"path": "."})))
        )

    # The rule answers now or later.
    async with stage(any_url, tmp_path, rule) as at:  # type: ignore[arg-type]
        task_id = await at.create()
        await reached(gate)
        sent = await at.call("send_message", task_id=task_id, message="Mind the gap.")
        assert sent["delivery"] == "with the next model request of the live run"
        gate.open.set()
        task = await at.team.ended(task_id)
        assert (task.counts.runs, len(at.script.asked)) == (1, 2)
        assert at.script.asked[1].messages[-2].text == "[Task Update: Message]\nMind the gap."
        (update,) = (await at.call("list_updates", task_id=task_id))["updates"]
        assert (update["status"], update["run_id"], update["turn"]) == ("delivered", "1-r000001", 2)


async def test_a_message_during_the_last_answer_is_not_lost(any_url: str, tmp_path: Path) -> None:
    gate = Gate()

    def rule(request: Request) -> object:
        return (
            says("With the change.")
            if "One more thing" in texts(request)
            else gate.then(says("Done."))
        )

    # The rule answers now or later.
    async with stage(any_url, tmp_path, rule) as at:  # type: ignore[arg-type]
        task_id = await at.create()
        await reached(gate)
        await at.call("send_message", task_id=task_id, message="One more thing.")
        await at.call("update_task", task_id=task_id, instructions="Do it twice.")
        gate.open.set()
        task = await at.team.ended(task_id)
        assert (task.state, task.summary, task.counts.runs) == (State.DONE, "With the change.", 1)
        assert task.usage.requests == 2
        updates = (await at.call("list_updates", task_id=task_id))["updates"]
        receipt = ("delivered", "1-r000001", 2)
        assert [
            (item["type"], item["status"], item["run_id"], item["turn"]) for item in updates
        ] == [
            ("message", *receipt),
            ("instructions", *receipt),
        ]
        told = at.script.asked[1].messages[-2].text
        assert (
            told
            == "[Task Update: Message]\nOne more thing.\n\n[Task Update: Instructions Modified]\nDo"
            " it twice."
        )


async def test_a_message_during_a_last_answer_that_does_not_complete_is_not_lost(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()

    def rule(request: Request) -> object:
        if "One more thing" in texts(request):
            return calls(("complete_task", {"summary": "Now it is."}))
        return gate.then(says("For now."))

    # The rule answers now or later.
    async with stage(any_url, tmp_path, rule) as at:  # type: ignore[arg-type]
        task_id = await at.create(completion="explicit")
        await reached(gate)
        await at.call("send_message", task_id=task_id, message="One more thing.")
        gate.open.set()
        assert (await at.team.ended(task_id)).summary == "Now it is."


async def test_an_update_during_the_writing_of_a_prompt_is_delivered_with_the_next(
    any_url: str, tmp_path: Path
) -> None:
    """The update that lands between composing and storing a prompt is in the next one."""
    gate = Gate()

    def rule(request: Request) -> object:
        return gate.then(says("Done.")) if not gate.open.is_set() else says("Done.")

    # The rule answers now or later.
    async with stage(any_url, tmp_path, rule) as at:  # type: ignore[arg-type]
        task_id = await at.create()
        await reached(gate)
        for number in range(5):
            await at.call("send_message", task_id=task_id, message=f"Word {number}.")
        gate.open.set()
        await at.team.ended(task_id)
        updates = (await at.call("list_updates", task_id=task_id))["updates"]
        said = "\n".join(
            part["text"]
            for message in await at.transcript(task_id)
            if message["role"] == "user"
            for part in message["parts"]
        )
        assert [
            said.count(item["content"]) for item in updates if item["status"] == "delivered"
        ] == [1] * 5


async def test_a_message_before_the_first_request_is_part_of_it(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, [says("Done.")], workers=0) as at:
        task_id = await at.create(instructions="Old.")
        await at.call("update_task", task_id=task_id, instructions="New.")
        await at.call("send_message", task_id=task_id, message="Quickly.")
        await at.hire()
        await at.team.ended(task_id)
        first = at.script.asked[0].messages[0].text
        assert first == "New.\n\n[Task Update: Message]\nQuickly."
        updates = (await at.call("list_updates", task_id=task_id))["updates"]
        assert [(item["status"], item["turn"]) for item in updates] == [("delivered", 1)] * 2


async def test_a_message_wakes_a_task_that_rests_but_not_one_with_an_open_call(
    any_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> object:
        if "Anything" in texts(request):
            return (
                says("Done.")
                if results(request) or "Blue" in texts(request)
                else calls(("ask_user", {"question": "Which?"}))
            )
        return says("Resting.")

    # The rule is loosely typed.
    async with stage(any_url, tmp_path, rule) as at:  # type: ignore[arg-type]
        task_id = await at.create(steps=["One"])
        await at.waiting(task_id)
        await at.call("send_message", task_id=task_id, message="Anything new?")
        asked = await at.team.until(task_id, lambda task: bool(task.questions) and task.run is None)
        await at.call("send_message", task_id=task_id, message="Still there?")
        still = await at.team.task(task_id)
        assert (still.state, len(still.queued), still.counts.runs) == (State.WAITING, 1, 2)
        await at.call("respond", interaction_id=asked.questions[0].id, answer="Blue")
        await at.team.until(task_id, lambda task: task.counts.runs == 3 and task.run is None)
        assert results_and_news(at.script.asked[-1]) == (
            ["The person answered: Blue"],
            "[Task Update: Message]\nStill there?",
        )


def results_and_news(request: Request) -> tuple[list[str], str]:
    """The results of the last calls, and what was said after them."""
    tool, said = request.messages[-3], request.messages[-2]
    # A message of results.
    return [part.text for part in tool.parts], said.text  # type: ignore[union-attr]
