"""The result of a task holds everything that its agent said as an answer, however the task ends."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from remit.catalog.model_schemas import CHANGE_FIELDS, change_summary
from remit.domain.llm.failures import ModelFailed
from remit.domain.llm.messages import Request, Response, TextPart, Tokens
from remit.domain.task.task import State
from tests.agents.stage import Gate, calls, says, stage, texts
from tests.patience import patient

ANSWER = "The answer is 42."
REMINDER = "[Open steps]\n"
CALENDAR = {"cron": "0 0 1 1 *"}


def spoken(text: str, response: Response) -> Response:
    """A text and calls in one message."""
    return Response((TextPart(text), *response.parts), "tool_calls", Tokens(10, 5), "scripted")


def planned(request: Request) -> bool:
    return any(message.role == "tool" for message in request.messages)


def plan() -> Response:
    return calls(("update_steps", {"steps": ["Look"]}))


class Planner:
    """Plans, answers without ticking a step, and says something else whenever it is asked again."""

    def __init__(self, *later: Any) -> None:
        self._later = list(later)
        self.answers = 0

    def __call__(self, request: Request) -> Any:
        if not planned(request):
            return plan()
        self.answers += 1
        if self.answers <= 2:
            return says(ANSWER)
        following = self._later.pop(0)
        if isinstance(following, ModelFailed):
            raise following
        return following


async def parked(at: Any) -> str:
    """A task that has answered and waits for its tick."""
    task_id: str = await at.create(schedule=CALENDAR)
    await at.call("run_task", task_id=task_id)
    await at.waiting(task_id)
    return task_id


async def test_an_answer_given_before_a_caller_waits_is_in_the_result(
    durable_url: str, tmp_path: Path
) -> None:
    rule = Planner(says("Nothing is left to do."))
    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        task_id = await parked(at)
        found = await at.call("task_output", task_id=task_id, wait_seconds=60)
        assert found["data"]["status"] == "completed"
        assert (found["data"]["result"], rule.answers) == (ANSWER, 2), "no other run is needed"


async def test_an_answer_is_in_the_result_if_a_caller_begins_to_wait_during_a_later_run(
    durable_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    rule = Planner(gate.then(says("Nothing is left to do.")))
    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        task_id = await parked(at)
        await at.call("run_task", task_id=task_id)
        await gate.reached.wait()
        await at.call("task_output", task_id=task_id)
        gate.open.set()
        task = await at.team.ended(task_id)
        assert task.summary == f"{ANSWER}\n\nNothing is left to do."


@pytest.mark.parametrize("wake", ["run_task", "send_message"])
async def test_a_run_that_adds_only_words_does_not_replace_the_answer(
    durable_url: str, tmp_path: Path, wake: str
) -> None:
    rule = Planner(*[says("All done.")] * 3)
    fields = {"message": "Hurry."} if wake == "send_message" else {}
    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        task_id = await parked(at)
        await at.call(wake, task_id=task_id, **fields)
        await at.team.until(task_id, lambda task: task.counts.runs == 2 and task.run is None)
        found = await at.call("task_output", task_id=task_id, wait_seconds=60)
        assert found["data"]["result"] == f"{ANSWER}\n\nAll done."


async def test_an_answer_stands_if_the_model_fails_once_a_caller_waits(
    durable_url: str, tmp_path: Path
) -> None:
    rule = Planner(ModelFailed("authentication", "no"))
    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        task_id = await parked(at)
        found = await at.call("task_output", task_id=task_id, wait_seconds=60)
        assert (found["data"]["status"], found["data"]["result"]) == ("completed", ANSWER)


async def test_an_answer_to_earlier_instructions_is_not_in_the_result(
    durable_url: str, tmp_path: Path
) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        if "Something else." in texts(request):
            return says("Something else is done.")
        if REMINDER in texts(request):
            return gate.then(calls(("LS", {})))
        return says(ANSWER) if planned(request) else plan()

    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        task_id = (await at.call("task", objective="Go", wait=False))["data"]["task_id"]
        await gate.reached.wait()
        await at.call("update_task", task_id=task_id, instructions="Something else.")
        gate.open.set()
        task = await at.team.ended(task_id)
        assert (task.state, task.summary) == (State.DONE, "Something else is done.")


async def test_a_later_caller_does_not_get_an_answer_to_earlier_instructions(
    durable_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    rule = Planner(gate.then(says("Something else is done.")), says("Something else is done."))
    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        task_id = await parked(at)
        await at.call("update_task", task_id=task_id, instructions="Something else.")
        await gate.reached.wait()
        await at.call("task_output", task_id=task_id)
        gate.open.set()
        task = await at.team.ended(task_id)
        assert (task.state, task.summary) == (State.DONE, "Something else is done.")


async def test_a_summary_after_the_reminder_is_added_to_the_answer(
    durable_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Any:
        if REMINDER in texts(request):
            return calls(("complete_task", {"summary": "All is done."}))
        return says(ANSWER) if planned(request) else plan()

    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        found = await at.call("task", objective="Go")
        assert found["data"]["result"] == f"{ANSWER}\n\nAll is done."


@pytest.mark.parametrize(
    ("first", "second", "result"),
    [
        ("4", "All 4 steps are done.", "4\n\nAll 4 steps are done."),
        ("Yes", "Yesterday I checked.", "Yes\n\nYesterday I checked."),
        ("No.", "No. That is all.", "No. That is all."),
        ("The port is 8420", "As I said: The port is 8420.", "As I said: The port is 8420."),
        ("7", "Done.\n7", "Done.\n7"),
    ],
)
async def test_a_short_answer_is_left_out_only_if_a_later_one_says_it_again(
    durable_url: str, tmp_path: Path, first: str, second: str, result: str
) -> None:
    script = [plan(), says(first), says(second)]
    async with stage(durable_url, tmp_path, script) as at, asyncio.timeout(patient(60)):
        found = await at.call("task", objective="Go", subagent_type="build")
        assert found["data"]["result"] == result


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        ({}, ANSWER),
        ({"summary": "Done."}, f"{ANSWER}\n\nDone."),
        ({"summary": f"In short: {ANSWER}"}, f"In short: {ANSWER}"),
        ({"summary": ANSWER}, ANSWER),
    ],
)
@pytest.mark.parametrize("tool", ["complete_task", "mark_task_complete"])
async def test_the_text_beside_complete_task_is_in_the_result(
    durable_url: str, tmp_path: Path, tool: str, arguments: dict[str, Any], result: str
) -> None:
    def rule(_: Request) -> Any:
        return spoken(ANSWER, calls((tool, arguments)))

    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        found = await at.call("task", objective="Go")
        assert (found["data"]["status"], found["data"]["result"]) == ("completed", result)
        shown = await at.call("get_transcript", task_id="1")
        sent: Sequence[Any] = [
            part["arguments"]
            for message in shown["messages"]
            for part in message["parts"]
            if part["type"] == "tool_call"
        ]
        assert list(sent) == [arguments]


async def test_the_text_beside_the_completion_of_another_task_is_not_its_result(
    durable_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Any:
        done = [
            part for message in request.messages if message.role == "tool" for part in message.parts
        ]
        if len(done) == 0:
            return calls(("create_task", {"title": "Other", "status": "draft"}))
        if len(done) == 1:
            return spoken(ANSWER, calls(("complete_task", {"task_id": "2", "summary": "Other."})))
        return says("Mine.")

    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        found = await at.call("task", objective="Go", subagent_type="build")
        assert found["data"]["result"] == "Mine."
        assert (await at.team.task("2")).summary == "Other."


@pytest.mark.parametrize(
    ("summary", "result"),
    [(None, ANSWER), ("Handed over.", f"{ANSWER}\n\nHanded over.")],
)
async def test_an_answer_without_its_outputs_is_in_the_result_once_they_are_there(
    durable_url: str, tmp_path: Path, summary: str | None, result: str
) -> None:
    def rule(request: Request) -> Any:
        if "[Not accepted yet]" not in request.messages[-2].text:
            return says(ANSWER)
        handed = {"outputs": {"report": "42"}}
        return calls(
            ("complete_task", handed if summary is None else handed | {"summary": summary})
        )

    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        found = await at.call("task", objective="Go", outputs=["report"])
        assert (found["data"]["status"], found["data"]["result"]) == ("completed", result)
        assert found["data"]["outputs"] == {"report": "42"}


async def test_a_model_that_says_nothing_when_outputs_are_missing_fails_as_before(
    durable_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Any:
        is_told = any("[Not accepted yet]" in message.text for message in request.messages)
        return says("" if is_told else ANSWER)

    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        found = await at.call(
            "task", objective="Go", outputs=["report"], limits={"max_attempts": 1}
        )
        assert found["data"]["status"] == "failed"
        assert "its answer was empty twice" in found["data"]["result"]
        assert (await at.team.events("1")).count("AcceptanceRejected") == 1


async def test_a_claim_without_a_word_has_the_last_text_as_its_result(
    durable_url: str, tmp_path: Path
) -> None:
    script = [spoken(ANSWER, calls(("LS", {}))), calls(("complete_task", {}))]
    async with stage(durable_url, tmp_path, script) as at, asyncio.timeout(patient(60)):
        found = await at.call("task", objective="Go")
        assert (found["data"]["status"], found["data"]["result"]) == ("completed", ANSWER)


@pytest.mark.parametrize("delegated", [True, False])
async def test_the_task_block_after_a_reminder_agrees_with_it(
    durable_url: str, tmp_path: Path, delegated: bool
) -> None:
    async with stage(durable_url, tmp_path, Planner()) as at, asyncio.timeout(patient(60)):
        if delegated:
            await at.call("task", objective="Go")
        else:
            await parked(at)
        ends = [
            request.messages[-1].text.rpartition("To finish: ")[2] for request in at.script.asked
        ]
    assert ends[1].startswith(
        "do or mark step 0, then end with one message that holds the whole result."
    )
    kept = "end with one last message. Your last answer above is kept"
    assert ends[2].startswith(kept if delegated else f"do or mark the open steps, then {kept}.")


HANDED = {"outputs": {"port": "42"}}
IN_OUTPUTS = "The result is in the outputs: port."


@pytest.mark.parametrize(
    ("before", "result"),
    [
        ([ANSWER], ANSWER),
        ([ANSWER, ""], ANSWER),
        ([ANSWER, "Let me check the folder once more."], ANSWER),
        ([ANSWER, "Great! Now I will hand it over."], ANSWER),
        (["The port may be 41.", ANSWER], ANSWER),
        (["Let me look at the folder."], IN_OUTPUTS),
        ([], IN_OUTPUTS),
    ],
)
async def test_a_claim_with_outputs_alone_has_the_last_statement_as_its_result(
    durable_url: str, tmp_path: Path, before: list[str], result: str
) -> None:
    looks = [spoken(text, calls(("LS", {}))) for text in before]
    async with (
        stage(durable_url, tmp_path, [*looks, calls(("complete_task", HANDED))]) as at,
        asyncio.timeout(patient(60)),
    ):
        found = await at.call("task", objective="Go", outputs=["port"])
        assert (found["data"]["status"], found["data"]["result"]) == ("completed", result)
        assert found["data"]["outputs"] == HANDED["outputs"]


async def test_a_statement_does_not_replace_the_answer_before_missing_outputs(
    durable_url: str, tmp_path: Path
) -> None:
    script = [
        says(ANSWER),
        spoken("The output was still missing.", calls(("LS", {}))),
        calls(("complete_task", HANDED)),
    ]
    async with stage(durable_url, tmp_path, script) as at, asyncio.timeout(patient(60)):
        found = await at.call("task", objective="Go", outputs=["port"])
        assert found["data"]["result"] == ANSWER


async def test_a_statement_does_not_replace_the_answer_of_an_earlier_run(
    durable_url: str, tmp_path: Path
) -> None:
    rule = Planner(
        spoken("Nothing has changed since.", calls(("LS", {}))), calls(("complete_task", HANDED))
    )
    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        task_id = await parked(at)
        found = await at.call("task_output", task_id=task_id, wait_seconds=60)
        assert found["data"]["result"] == ANSWER


async def test_a_statement_about_earlier_instructions_is_not_the_result(
    durable_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    script: list[Any] = [
        spoken(ANSWER, calls(("LS", {}))),
        gate.then(calls(("LS", {}))),
        calls(("complete_task", HANDED)),
    ]
    async with (
        stage(durable_url, tmp_path, lambda _: script.pop(0)) as at,
        asyncio.timeout(patient(60)),
    ):
        task_id = (await at.call("task", objective="Go", outputs=["port"], wait=False))["data"][
            "task_id"
        ]
        await gate.reached.wait()
        await at.call("update_task", task_id=task_id, instructions="Something else.")
        gate.open.set()
        await at.team.ended(task_id)
        found = await at.call("task_output", task_id=task_id)
        assert found["data"]["result"] == IN_OUTPUTS


CHECKED = [{"text": "The port is right.", "check": {"output": "port", "equals": "42"}}]


@pytest.mark.parametrize(
    ("summary", "result"),
    [(None, IN_OUTPUTS), ("The port is 42.", "The port is 42.")],
)
async def test_a_summary_that_checks_refused_is_not_the_result_of_the_next_claim(
    durable_url: str, tmp_path: Path, summary: str | None, result: str
) -> None:
    wrong = {"outputs": {"port": "41"}, "summary": "The port is 41."}
    right = HANDED if summary is None else {**HANDED, "summary": summary}
    script = [calls(("complete_task", wrong)), calls(("complete_task", right))]
    async with stage(durable_url, tmp_path, script) as at, asyncio.timeout(patient(60)):
        found = await at.call("task", objective="Go", outputs=["port"], acceptance=CHECKED)
        assert (found["data"]["status"], found["data"]["result"]) == ("completed", result)


def test_an_awaited_subtask_with_outputs_alone_names_them_in_its_result() -> None:
    unset = dict.fromkeys(("summary", "final_message", "failure_reason"))
    task = {
        **dict.fromkeys(CHANGE_FIELDS),
        **unset,
        "state": "done",
        "completion_outputs": HANDED["outputs"],
    }
    assert change_summary(task, is_awaited=True)["result"] == IN_OUTPUTS
    assert change_summary({**task, "state": "running"}, is_awaited=True)["result"] == ""


FILE_CHECK = {"text": "The port is in r.md", "check": {"file": "r.md", "contains": "8420"}}
WHOLE = "end with one message that holds the whole result."


def last_block(request: Request) -> str:
    return request.messages[-1].text


async def test_a_refused_answer_is_not_kept_if_a_caller_begins_to_wait(
    durable_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    written = calls(("Write", {"file_path": "r.md", "content": "8420"}))
    answers: list[Any] = [says("The whole report."), gate.then(written), says("It is written.")]
    async with stage(durable_url, tmp_path, lambda _: answers.pop(0)) as at:
        async with asyncio.timeout(patient(60)):
            task_id = await at.create(tools=["Write"], acceptance=[FILE_CHECK])
            await gate.reached.wait()
            found = asyncio.create_task(at.call("task_output", task_id=task_id, wait_seconds=60))
            await at.team.until(task_id, lambda task: task.awaited)
            gate.open.set()
            assert (await found)["data"]["status"] == "completed"
        assert WHOLE in last_block(at.script.asked[1])
        assert WHOLE in last_block(at.script.asked[2]), "the refused report is not part of a result"
        assert not (await at.team.task(task_id)).reminded


async def test_an_answer_is_not_kept_after_a_refused_claim_that_began_with_it(
    durable_url: str, tmp_path: Path
) -> None:
    answers = [
        plan(),
        says(ANSWER),
        calls(("complete_task", {"summary": "The proof is long."})),
        calls(("Write", {"file_path": "r.md", "content": "8420"})),
        says(f"{ANSWER} The proof is long. It is written."),
    ]
    async with stage(durable_url, tmp_path, lambda _: answers.pop(0)) as at:
        found = await at.call(
            "task", objective="Go", tools=["Write", "TodoWrite"], acceptance=[FILE_CHECK]
        )
        blocks = [last_block(request) for request in at.script.asked]
        assert ["Your last answer above is kept" in block for block in blocks] == [
            False,
            False,
            True,
            False,
            False,
        ]
        assert found["data"]["result"] == f"{ANSWER} The proof is long. It is written."


STATUS = "The answer is RED, as far as I know before the subtask ends."
WAITS = "The message with which you do so is not part of the result."
DROPPED = "No earlier message of yours is part of the result."
BELOW = {"title": "Below", "owner": "explore", "wait": "wake"}


@pytest.mark.parametrize("steps", [[], ["Look"]], ids=["no plan", "open step"])
async def test_an_agent_is_told_that_its_message_before_the_end_of_a_subtask_is_not_kept(
    durable_url: str, tmp_path: Path, steps: list[str]
) -> None:
    """The result of a parent that repeats its answer, as it is told to, holds it."""
    gate = Gate()
    below = calls(("update_steps", {"steps": steps}), ("create_subtask", BELOW))

    def rule(request: Request) -> Any:
        read = texts(request)
        if request.agent == "explore":
            return gate.then(says("Found."))
        if not planned(request):
            return below
        if REMINDER in read:
            return says(STATUS if "repeat from those what belongs to the result" in read else "No.")
        if "[Subtask ended]" not in read:
            return says(STATUS)
        return says("All finished." if steps or DROPPED not in read else STATUS)

    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        made = await at.call("task", objective="Go", subagent_type="build", wait=False)
        await at.waiting(made["data"]["task_id"])
        gate.open.set()
        task = await at.team.ended(made["data"]["task_id"])
        asked = [request for request in at.script.asked if request.agent == "build"]
        ends = [request.messages[-1].text.rpartition("To finish: ")[2] for request in asked]
        assert [WAITS in end for end in ends[:3]] == [False, True, False]
        assert [DROPPED in end for end in ends[:3]] == [False, False, True]
        assert task.summary == (f"All finished.\n\n{STATUS}" if steps else STATUS)


async def test_an_answer_that_is_kept_over_a_wait_is_not_called_dropped(
    durable_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Any:
        if request.agent == "explore":
            return says("Found.")
        if not planned(request):
            return plan()
        if REMINDER not in texts(request):
            return says(ANSWER)
        made = "create_subtask" in str([message.parts for message in request.messages])
        return says("All done.") if made else calls(("create_subtask", BELOW))

    async with stage(durable_url, tmp_path, rule) as at, asyncio.timeout(patient(60)):
        await at.call("task", objective="Go", subagent_type="build")
        told = "\n".join(request.messages[-1].text for request in at.script.asked)
        assert (WAITS in told, DROPPED in told) == (False, False)
        assert ((await at.team.task("1")).summary or "").startswith(ANSWER)


REPORT = "REPORT: The port is 8420. It is in line 12 of config/server.toml."
NOTHING = "Nothing is new."
REFUSED = f"{REPORT}\n\n{NOTHING}"
KEEPS = "without a summary, it hands over your last result again"
WRITE = calls(("Write", {"file_path": "r.md", "content": "8420"}))
MARK = calls(("update_step", {"index": 0, "done": True}))
CLAIM = calls(("complete_task", {}))


async def result_of(at: Any) -> str:
    """The result of a delegated task with a criterion that only a file meets."""
    tools = ["Write", "update_steps", "update_step"]
    found = await at.call("task", objective="Go", tools=tools, acceptance=[FILE_CHECK])
    assert found["data"]["status"] == "completed", found
    return str(found["data"]["result"])


async def test_a_refused_answer_that_is_repeated_and_then_kept_is_in_the_result(
    durable_url: str, tmp_path: Path
) -> None:
    script = [says(REPORT), WRITE, plan(), says(REPORT), MARK, says(NOTHING)]
    async with stage(durable_url, tmp_path, script) as at, asyncio.timeout(patient(60)):
        assert await result_of(at) == REFUSED
        told = [last_block(request) for request in at.script.asked]
    assert ["Your last answer above is kept" in block for block in told] == [False] * 4 + [True] * 2
    assert DROPPED not in "\n".join(told[4:])


@pytest.mark.parametrize(
    ("before", "claim", "result"),
    [
        ("", CLAIM, REFUSED),
        ("The file was missing. It is there now.", CLAIM, REFUSED),
        ("", spoken(ANSWER, CLAIM), ANSWER),
        ("", calls(("complete_task", {"summary": ANSWER})), ANSWER),
    ],
)
async def test_a_claim_without_a_word_repeats_the_result_that_checks_refused(
    durable_url: str, tmp_path: Path, before: str, claim: Response, result: str
) -> None:
    script = [plan(), says(REPORT), MARK, says(NOTHING), spoken(before, WRITE), claim]
    async with stage(durable_url, tmp_path, script) as at, asyncio.timeout(patient(60)):
        assert await result_of(at) == result
        asked = at.script.asked
        told = [KEEPS in last_block(request) for request in asked]
        assert told == [False] * 4 + [True] * 2
        rejection = asked[4].messages[-2].text
        assert rejection.startswith("[Not accepted yet]")
        assert KEEPS in rejection
        assert rejection.endswith(WHOLE)


async def test_a_claim_that_is_written_as_text_repeats_the_result_that_checks_refused(
    durable_url: str, tmp_path: Path
) -> None:
    written = says('<tool_call>{"name": "complete_task", "arguments": {}}</tool_call>')
    script = [says(REPORT), WRITE, written, written]
    async with stage(durable_url, tmp_path, script) as at, asyncio.timeout(patient(60)):
        assert await result_of(at) == REPORT


async def test_a_claim_without_a_word_does_not_repeat_an_answer_given_before_the_last_one(
    durable_url: str, tmp_path: Path
) -> None:
    script = [says(REPORT), WRITE, plan(), says(ANSWER), CLAIM]
    async with stage(durable_url, tmp_path, script) as at, asyncio.timeout(patient(60)):
        assert await result_of(at) == ANSWER
        reminder = at.script.asked[4].messages[-2].text
        assert "Only your last message above stays part of the result" in reminder


async def test_a_claim_without_a_word_does_not_repeat_a_result_of_earlier_instructions(
    durable_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    stated = "Something else is written to the file."
    script: list[Any] = [says(REPORT), gate.then(WRITE), spoken(stated, WRITE), CLAIM]
    async with stage(durable_url, tmp_path, lambda _: script.pop(0)) as at:
        async with asyncio.timeout(patient(60)):
            task_id = await at.create(tools=["Write"], acceptance=[FILE_CHECK])
            await gate.reached.wait()
            await at.call("update_task", task_id=task_id, instructions="Something else.")
            gate.open.set()
            task = await at.team.ended(task_id)
        assert (task.state, task.summary) == (State.DONE, stated)
        told = [KEEPS in last_block(request) for request in at.script.asked]
        assert told == [False, True, False, False]
