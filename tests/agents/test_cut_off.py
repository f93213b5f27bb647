"""An answer that ends at a limit of the endpoint is continued, but not for ever."""

from pathlib import Path
from typing import Any

import pytest

from remit.adapters.models.registry import ModelRegistry
from remit.domain.llm.messages import Request, Response, TextPart, Tokens, ToolCall
from remit.domain.llm.selection import Choices, ModelChoice
from remit.domain.task.task import State
from tests.agents.endpoint import Body, RuledServer
from tests.agents.stage import Gate, calls, reached, results, says, stage
from tests.modelserver import Reply, Say

LINE = "2026-01-01 12:00:00 INFO the worker of the shop has started job "


def cut_off(text: str = "And the most important th") -> Response:
    return says(text)._replace(stop="length")


async def test_an_endpoint_that_always_cuts_off_fails_the_task(
    any_url: str,
    tmp_path: Path,
) -> None:
    async with stage(any_url, tmp_path, lambda _: cut_off()) as at:
        task = await at.run(owner="explore")
        found = (task.state, task.reason, len(at.script.asked))
        assert found == (State.FAILED, "error", 3)
        said = task.failure_reason or ""
        assert "did not complete its answer: its last 3 answers ended at its limit" in said
        assert "--ctx-size" in said
        assert task.usage.requests == 3


async def test_calls_that_are_cut_off_fail_the_task_too(any_url: str, tmp_path: Path) -> None:
    def rule(request: Request) -> Response:
        call = ToolCall(f"c{len(request.messages)}", "Read", {}, '{"file_pa')
        return Response((call,), "length", Tokens(10, 5), "scripted")

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(owner="explore")
        assert (task.state, len(at.script.asked)) == (State.FAILED, 3)


async def test_a_model_is_told_that_its_call_was_cut_off(any_url: str, tmp_path: Path) -> None:
    call = ToolCall("c1", "Read", {}, '{"file_path": "a')
    script = [Response((call,), "length", Tokens(10, 5), "scripted"), says("Done.")]
    async with stage(any_url, tmp_path, script) as at:
        await at.run(owner="explore")
        (result,) = results(at.script.asked[1])
        assert "was cut off at the limit of output tokens" in result
        assert "several calls" in result
        assert "JSON" not in result


@pytest.mark.parametrize(
    ("parts", "result"),
    [
        (["The causes are: heat, du", "st, and age."], "The causes are: heat, dust, and age."),
        (["One, ", "two, ", "three."], "One, two, three."),
        (["The answer is 4", "The answer is 42."], "The answer is 42."),
        (["1", "10 people"], "110 people"),
        (["The causes are heat and dust.", ""], "The causes are heat and dust."),
        (
            ["The causes are heat, dust and", "are heat, dust and age."],
            "The causes are heat, dust and age.",
        ),
        (["[0, 0, 0, 0, 0, 0,", " 0, 0, 0, 0, 0, 0]"], "[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]"),
        (["|--------------", "--------------|"], "|----------------------------|"),
        ([f"{LINE}1\n{LINE}2\n", f"{LINE}3"], f"{LINE}1\n{LINE}2\n{LINE}3"),
        (["```py\nprint(", "1)\n```"], "```py\nprint(1)\n```"),
    ],
)
async def test_an_answer_that_was_cut_off_is_in_the_result_as_a_whole(
    any_url: str,
    tmp_path: Path,
    parts: list[str],
    result: str,
) -> None:
    script = [*map(cut_off, parts[:-1]), says(parts[-1])]
    async with stage(any_url, tmp_path, script) as at:
        task = await at.run(owner="explore")
        assert (task.state, task.summary, task.final_message) == (State.DONE, result, result)
        assert at.script.asked[1].messages[-2].text.startswith("[Cut off]\n")


async def test_a_part_before_complete_task_is_in_the_result(any_url: str, tmp_path: Path) -> None:
    claim = calls(("complete_task", {"summary": "All is said."}))
    script = [
        cut_off("The causes are heat and du"),
        claim._replace(parts=(TextPart("st."), *claim.parts)),
    ]
    async with stage(any_url, tmp_path, script) as at:
        task = await at.run(owner="explore")
        assert task.summary == "The causes are heat and dust.\n\nAll is said."


async def test_a_call_written_as_text_is_recognized_across_a_cut(
    any_url: str, tmp_path: Path
) -> None:
    parts = ['{"name": "Read", "argum', 'ents": {"file_path": "a.txt"}}']
    script = [cut_off(parts[0]), says(parts[1]), says("It is empty.")]
    async with stage(any_url, tmp_path, script) as at:
        task = await at.run(owner="explore")
        assert (task.summary, len(at.script.asked)) == ("It is empty.", 3)


@pytest.mark.parametrize(
    ("operation", "change", "answer", "result"),
    [
        ("send_message", {"message": "Hurry."}, "st.", "The causes are heat and dust."),
        ("update_task", {"instructions": "Count."}, "Three.", "Three."),
    ],
)
async def test_an_update_while_an_answer_is_cut_off(
    any_url: str,
    tmp_path: Path,
    operation: str,
    change: dict[str, str],
    answer: str,
    result: str,
) -> None:
    gate = Gate()
    script: list[Any] = [gate.then(cut_off("The causes are heat and du")), says(answer)]
    async with stage(any_url, tmp_path, lambda _: script.pop(0)) as at:
        task_id = await at.create(owner="explore")
        await reached(gate)
        await at.call(operation, task_id=task_id, **change)
        gate.open.set()
        task = await at.team.ended(task_id)
        assert task.summary == result
        told = at.script.asked[1].messages[-2].text
        assert told.startswith("[Task Update: ")
        assert ("[Cut off]" in told) == (operation == "send_message")


async def test_only_answers_in_a_row_count(any_url: str, tmp_path: Path) -> None:
    look = calls(("LS", {"path": "."}))
    script = [cut_off(), cut_off(), look, cut_off(), cut_off(), says("Done.")]
    async with stage(any_url, tmp_path, script) as at:
        task = await at.run(owner="explore")
        assert (task.state, len(at.script.asked)) == (State.DONE, 6)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_paused_turn_of_anthropic_is_continued(
    any_url: str,
    tmp_path: Path,
    stream: bool,
) -> None:
    answers = [Say(("Half an ans",), finish="pause_turn"), Say(("wer.",))]

    async def rule(_: Body) -> Reply:
        return answers.pop(0)

    async with RuledServer(rule, "anthropic").running() as server:
        choice = ModelChoice("anthropic:claude-x", server.url, "key", stream=stream)
        async with stage(any_url, tmp_path, [], workers=0) as at:
            desk = ModelRegistry(Choices({"main": choice}, {}))
            await at.hire(models=desk)
            task = await at.run(owner="explore", model="main")
            await desk.close()
    assert (task.state, answers) == (State.DONE, [])
    assert task.summary == "Half an answer."
    assert "Half an ans" in str(server.asked[1].body)
