"""A tool call written as text is not an answer: the model reads once how to call tools."""

import json
import re
from pathlib import Path

import pytest

from remit.adapters.models.registry import ModelRegistry
from remit.domain.llm.messages import Request, Response
from remit.domain.llm.selection import Choices, ModelChoice
from remit.domain.task.task import State
from tests.agents.endpoint import Body, RuledServer
from tests.agents.stage import calls, results, says, stage, texts
from tests.modelserver import Dialect, Reply, Say
from tests.unit.written_examples import CALL, GLM, HONEST, LAZY, LOOSE, PYTHONIC, REACT, TAGGED

HOW_TO_CALL = "as text, so it was not executed"
LFM2 = f"<|tool_call_start|>[{PYTHONIC}]<|tool_call_end|>"
WRITTEN = [
    TAGGED,
    f"Let me read the file first.\n```json\n{CALL}\n```\n",
    '[TOOL_CALLS] Read[ARGS]{"file_path": "a.txt"}',
    "<function=Read>\n<parameter=file_path>\na.txt\n</parameter>\n</function>",
    PYTHONIC,
    CALL[:45],
    LOOSE,
    f"{TAGGED}\nI will wait for the result.",
    f"~~~json\n{CALL}\n~~~",
    f"content = await {PYTHONIC}",
    'Read("a.txt")',
    f'{{"tool_calls": [{CALL}]}}',
    f"The file comes first. {TAGGED}",
    f"<|tool_call|>[{CALL}]",
    LFM2,
    REACT,
    f"Sure. {LOOSE}",
    f"I will call Read: {CALL}",
]


def told(request: Request) -> int:
    """How often a model was told how to call tools."""
    return texts(request).count(HOW_TO_CALL)


@pytest.mark.parametrize("text", WRITTEN)
async def test_the_agent_reads_how_to_call_a_tool_and_continues(
    any_url: str,
    tmp_path: Path,
    text: str,
) -> None:
    def rule(request: Request) -> Response:
        if results(request):
            return says("It says hello.")
        if HOW_TO_CALL in texts(request):
            return calls(("Read", {"file_path": "a.txt"}))
        return says(text)

    (tmp_path / "a.txt").write_text("hello")
    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(owner="explore")
        found = (task.state, task.summary, len(at.script.asked))
        assert found == (State.DONE, "It says hello.", 3)
        said = [message["parts"][0].get("text", "") for message in await at.transcript(task.id)]
        assert (
            sum("Your last message contains a call of Read as text, so" in text for text in said)
            == 1
        )


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "read_file", "arguments": {"path": "a.txt"}}',
        '{"name": "Write", "arguments": {"file_path": "a.txt", "content": ""}}',
        'Bash(command="cat a.txt")',
    ],
)
async def test_a_call_of_a_tool_that_the_agent_does_not_have_is_not_its_answer(
    any_url: str,
    tmp_path: Path,
    text: str,
) -> None:
    async with stage(any_url, tmp_path, [says(text), says("Done.")]) as at:
        task = await at.run(owner="explore")
        assert (task.state, task.summary) == (State.DONE, "Done.")
        assert told(at.script.asked[-1]) == 1
        first, last = at.script.asked
        said = last.messages[-2].text
        assert " is not one of your tools. Your tools are " in said
        assert ", ".join(tool.name for tool in first.tools) in said
        assert not re.search("Call (Write|Bash|read_file) again", said)


@pytest.mark.parametrize("tool", ["Write", "Bash", "read_file"])
async def test_a_task_that_fails_for_a_missing_tool_does_not_blame_its_endpoint(
    any_url: str, tmp_path: Path, tool: str
) -> None:
    text = json.dumps({"name": tool, "arguments": {"file_path": "a.md"}})
    async with stage(any_url, tmp_path, lambda _: says(text)) as at:
        task = await at.run(owner="explore")
        assert (task.state, len(at.script.asked)) == (State.FAILED, 2)
        said = task.failure_reason or ""
        assert f"it wrote a call of {tool} as text" in said
        assert " another call as text. The task has " in said
        assert "endpoint" not in said
        assert "--jinja" not in said
        assert (f"If the work needs {tool}" in said) is (tool != "read_file")


@pytest.mark.parametrize("text", LAZY)
async def test_a_model_that_writes_only_calls_never_completes(
    any_url: str,
    tmp_path: Path,
    text: str,
) -> None:
    async with stage(any_url, tmp_path, lambda _: says(text)) as at:
        task = await at.run(owner="explore")
        found = (task.state, task.reason, len(at.script.asked))
        assert found == (State.FAILED, "error", 2)
        said = task.failure_reason or ""
        assert "did not make its tool call: it wrote a call of Read as text twice, and" in said
        assert "LLM_MODEL_ID" in said
        assert "--jinja" in said
        assert task.usage.requests == 2


@pytest.mark.parametrize("text", HONEST)
async def test_an_answer_that_ends_with_a_call_costs_one_turn(
    any_url: str,
    tmp_path: Path,
    text: str,
) -> None:
    async with stage(any_url, tmp_path, lambda _: says(text)) as at:
        task = await at.run(owner="explore")
        found = (task.state, task.summary, len(at.script.asked))
        assert found == (State.DONE, text, 2)


@pytest.mark.parametrize(
    "text",
    [
        f"To read a file, send this:\n\n```json\n{CALL}\n```",
        f"An agent reads a file by calling the tool with its path, for example:\n\n{PYTHONIC}",
        f"GLM writes calls like this:\n\n{GLM}\n\nThe server parses the keys and the values.",
    ],
)
async def test_an_answer_that_quotes_a_call_costs_nothing(
    any_url: str,
    tmp_path: Path,
    text: str,
) -> None:
    async with stage(any_url, tmp_path, [says(text)]) as at:
        task = await at.run(owner="explore")
        assert (task.state, task.summary) == (State.DONE, text)


async def test_json_that_the_instructions_ask_for_is_the_answer(
    any_url: str,
    tmp_path: Path,
) -> None:
    asks = "Which call reads a.txt? Answer with JSON that has the keys name and arguments."
    async with stage(any_url, tmp_path, [says(CALL)]) as at:
        task = await at.run(owner="explore", instructions=asks)
        assert (task.state, task.summary) == (State.DONE, CALL)


CLAIM = {"summary": "The port is 8420.", "outputs": {"report": "8420"}}


@pytest.mark.parametrize(
    "text",
    [
        f'complete_task(summary="The port is 8420.", outputs={CLAIM["outputs"]!r})',
        f"```python\ncomplete_task({CLAIM!r})\n```",
        f"I will call complete_task({CLAIM!r}).",
        json.dumps({"name": "complete_task", "arguments": CLAIM}),
        f"<tool_call>{json.dumps({'name': 'complete_task', 'arguments': CLAIM})}</tool_call>",
        json.dumps({"tool_calls": [{"function": {"name": "complete_task", "arguments": CLAIM}}]}),
        f"complete_task {json.dumps(CLAIM)}",
    ],
)
async def test_a_claim_that_is_written_twice_and_can_be_read_completes_the_task(
    any_url: str,
    tmp_path: Path,
    text: str,
) -> None:
    async with stage(any_url, tmp_path, lambda _: says(text)) as at:
        task = await at.run(owner="explore", outputs=["report"])
        found = (task.state, task.summary, task.completion_outputs, len(at.script.asked))
        assert found == (State.DONE, CLAIM["summary"], CLAIM["outputs"], 2), task.failure_reason
        assert told(at.script.asked[-1]) == 1


async def test_a_claim_for_another_task_that_is_written_twice_completes_no_task(
    any_url: str, tmp_path: Path
) -> None:
    text = 'complete_task(task_id="7", summary="The port is 8420.")'
    async with stage(any_url, tmp_path, lambda _: says(text)) as at:
        task = await at.run(owner="explore")
        assert (task.state, task.reason) == (State.FAILED, "error")
        assert "it wrote a call of complete_task as text twice" in (task.failure_reason or "")


@pytest.mark.parametrize(
    "text",
    [
        'To finish, an agent calls complete_task(summary="Done").',
        'I called Read(file_path="a.txt") and found the port 8420.',
        "The loop ends where the run calls complete_task(…), in agent_run.py.",
    ],
)
async def test_prose_that_mentions_a_call_is_an_answer(
    any_url: str,
    tmp_path: Path,
    text: str,
) -> None:
    async with stage(any_url, tmp_path, [says(text)]) as at:
        task = await at.run(owner="explore")
        assert (task.state, task.summary) == (State.DONE, text)


async def test_once_in_a_while_is_not_again(any_url: str, tmp_path: Path) -> None:
    script = [says(CALL), calls(("LS", {"path": "."})), says(CALL), says("Done.")]
    async with stage(any_url, tmp_path, script) as at:
        task = await at.run(owner="explore")
        assert (task.state, task.summary) == (State.DONE, "Done.")


LOOK = calls(("LS", {"path": "."}))


@pytest.mark.parametrize("text", [PYTHONIC, 'Bash(command="ls")'])
async def test_a_model_that_calls_tools_may_answer_with_a_quoted_call(
    any_url: str, tmp_path: Path, text: str
) -> None:
    async with stage(any_url, tmp_path, [LOOK, says(text), says(f"{text}\n")]) as at:
        task = await at.run(owner="explore")
        found = (task.state, (task.summary or "").strip(), len(at.script.asked))
        assert found == (State.DONE, text, 3)


@pytest.mark.parametrize(
    ("first", "second"), [(PYTHONIC, PYTHONIC.replace("a.txt", "b.txt")), (TAGGED, TAGGED)]
)
async def test_a_model_that_called_tools_and_then_only_writes_calls_fails_for_a_true_reason(
    any_url: str, tmp_path: Path, first: str, second: str
) -> None:
    async with stage(any_url, tmp_path, [LOOK, says(first), says(second)]) as at:
        task = await at.run(owner="explore")
        assert (task.state, len(at.script.asked)) == (State.FAILED, 3)
        said = task.failure_reason or ""
        assert "wrote a call of Read as text twice, although it has called tools before" in said
        assert "support" not in said


async def test_an_empty_message_in_between_does_not_start_over(
    any_url: str,
    tmp_path: Path,
) -> None:
    script = [says(CALL), says(""), says(CALL)]
    async with stage(any_url, tmp_path, script) as at:
        task = await at.run(owner="explore")
        assert (task.state, task.reason) == (State.FAILED, "error")
        assert "did not make its tool call" in (task.failure_reason or "")


async def test_an_update_does_not_replace_the_explanation(any_url: str, tmp_path: Path) -> None:
    async def rule(request: Request) -> Response:
        if len(at.script.asked) == 1:
            await at.call("send_message", task_id=task_id, message="Hurry up.")
            return says(CALL)
        assert "Hurry up." in texts(request)
        return says("Done." if told(request) == 1 else CALL)

    async with stage(any_url, tmp_path, rule, workers=0) as at:
        task_id = await at.create(owner="explore")
        await at.hire()
        task = await at.team.ended(task_id)
        assert (task.state, task.summary) == (State.DONE, "Done.")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dialect", ["openai", "responses", "anthropic"])
@pytest.mark.parametrize("text", [LFM2, f"<think>Read it.</think>\n\n{TAGGED}"])
async def test_every_wire_follows_the_same_rule(
    any_url: str,
    tmp_path: Path,
    dialect: Dialect,
    stream: bool,
    text: str,
) -> None:
    answers = [text, f"GLM writes a call between two tags:\n\n{GLM}"]

    async def rule(_: Body) -> Reply:
        return Say(tuple(answers.pop(0)))

    async with RuledServer(rule, dialect).running() as server:
        is_anthropic = dialect == "anthropic"
        choice = ModelChoice(
            "anthropic:claude-x" if is_anthropic else "gpt-x",
            server.url if is_anthropic else f"{server.url}/v1",
            "key",
            api="responses" if dialect == "responses" else "chat",
            stream=stream,
        )
        async with stage(any_url, tmp_path, [], workers=0) as at:
            desk = ModelRegistry(Choices({"main": choice}, {}))
            await at.hire(models=desk)
            task = await at.run(owner="explore", model="main")
            await desk.close()
    assert (task.state, (task.summary or "")[:10], answers) == (State.DONE, "GLM writes", [])
    assert HOW_TO_CALL in str(server.asked[1].body)
