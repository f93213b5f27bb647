"""A tool call that a model writes as text is not its answer: it is told once how to call."""

from pathlib import Path
from time import process_time

import pytest

from remit.domain.message import Request, Response
from remit.domain.value import State
from remit.domain.written import written_call
from tests.agents.stage import calls, results, says, stage, texts

OFFERED = ("Read", "LS", "complete_task")
CALL = '{"name": "Read", "arguments": {"file_path": "a.txt"}}'
PYTHONIC = 'Read(file_path="a.txt")'
PROSE = (
    "The task asks for the first line of a.txt. The workspace holds several files, and the brief"
    " names only this one, so nothing else is needed here.\n\n"
    "The file is short according to the listing, so it can be read as a whole without an offset"
    " or a limit.\n\n"
    "Let me read the file now and report its first line afterwards, as the brief asks for it."
)
"""Three paragraphs that announce a call."""

WRITTEN = [
    f"<tool_call>\n{CALL}\n</tool_call>",
    f"I will read it.\n\n<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call>",
    f"<tool_call>{CALL}",
    f"```json\n{CALL}\n```",
    f"Let me read the file first.\n```json\n{CALL}\n```\n",
    f"```\n[{CALL}]\n```",
    CALL,
    f"[{CALL}]",
    '{"function": "Read", "parameters": {"file_path": "a.txt"}}',
    '{"type": "function", "function": {"name": "Read", "arguments": "{}"}}',
    f"[TOOL_CALLS][{CALL}]",
    '[TOOL_CALLS]Read{"file_path": "a.txt"}',
    '[TOOL_CALLS] Read[ARGS]{"file_path": "a.txt"}',
    "<function=Read>\n<parameter=file_path>\na.txt\n</parameter>\n</function>",
    '<invoke name="Read">\n<parameter name="file_path">a.txt</parameter>\n</invoke>',
    f"<|python_tag|>{CALL}",
    f"{CALL}\n{CALL}",
    f"{CALL}; {CALL}",
    CALL.replace("Read", "functions.Read"),
    "<tool_call>Read\n<arg_key>file_path</arg_key>\n<arg_value>a.txt</arg_value>\n</tool_call>",
    '<|tool_calls_section_begin|><|tool_call_begin|>functions.Read:0<|tool_call_argument_begin|>{"file_path": "a.txt"}<|tool_call_end|>',
    "<|channel|>commentary to=functions.Read <|constrain|>json<|message|>{}",
    "<\uff5ctool▁calls▁begin\uff5c><\uff5ctool▁call▁begin\uff5c>function<\uff5ctool▁sep\uff5c>Read\n"
    '```json\n{"file_path": "a.txt"}\n```<\uff5ctool▁call▁end\uff5c><\uff5ctool▁calls▁end\uff5c>',
    "<\uff5ctool▁calls▁begin\uff5c><\uff5ctool▁call▁begin\uff5c>Read<\uff5ctool▁sep\uff5c>{}<\uff5ctool▁call▁end\uff5c>",
    PYTHONIC,
    f'[{PYTHONIC}, LS(path=".")]',
    f'{PYTHONIC}\nLS(path=".")',
    f"I will read it.\n\n{PYTHONIC}",
    f"I will read it:\n\n[{PYTHONIC}]\n",
    f"```python\n{PYTHONIC}\n```",
    f"```tool_code\n{PYTHONIC}\n```",
    f"I read the file first.\n```tool_code\nprint({PYTHONIC})\n```",
    f"```tool_code\nprint(default_api.{PYTHONIC})\n```",
    '```tool_code\nRead("a.txt")\n```',
    "Read()",
    "[Read(file_path='a (1).txt', offset=2)]",
    f"<|python_start|>[{PYTHONIC}]<|python_end|>",
    '<|python_tag|>Read.call(file_path="a.txt")',
    'Read(\n    file_path="a.txt",\n)',
    f"{PROSE}\n\n{CALL}",
    f"{PROSE}\n\n```json\n{CALL}\n```",
    f"{PROSE}\n\n{PYTHONIC}",
    CALL[:-1],
    CALL[:-10],
    CALL[:40],
    f"I read it.\n```json\n{CALL[:45]}",
    f"```json\n{CALL}",
    f"[{CALL}, {CALL[:45]}",
    f"<tool_call>\n{CALL[:20]}",
    f"<tool_call>\n{CALL[:-3]}",
    f"<tool_call>\n{CALL}\n</tool_c",
    f"[TOOL_CALLS][{CALL[:45]}",
    "<function=Read>\n<parameter=file_path>\na.t",
    "<function=Read>",
    '<function_calls><invoke name="Read">\n<parameter name="file_path">a.t',
    PYTHONIC[:-5],
    f"[{PYTHONIC}, LS(pa",
    "Read(file_pa",
    '<tool_call>\n{"name": "Read", "arguments": {"file_path": "a.txt",}}\n</tool_call>',
    '<tool_call>\n{"name": "Read", "arguments": {"file_path": "line\nbreak"}}\n</tool_call>',
    f"In the log:\n```\n<tool_call>{CALL}</tool_call>\n```\nNow me:\n<tool_call>{CALL}</tool_call>",
]
ANSWERS = [
    "Done.",
    "",
    f"The log says that the agent sent {CALL} to the server.",
    f"You call it like this:\n```json\n{CALL}\n```\nThen the file is read.",
    f"{'A long report. ' * 30}\n```json\n{CALL}\n```",
    f"In a prompt you write `<tool_call>{CALL}</tool_call>` and the server parses it.",
    f"```\n<tool_call>{CALL}</tool_call>\n```",
    f"<tool_call>{CALL}</tool_call>\nThe file holds three lines, as the call above shows.",
    '{"name": "Ann", "age": 7}',
    '{"name": "Read", "version": "1.0", "arguments": {}}',
    '```json\n{"name": "read_users", "arguments": {}}\n```',
    '[{"name": "Read"}, {"name": "LS"}]',
    "<tool_call> is the tag that Qwen uses.",
    "[TOOL_CALLS] is a token of Mistral.",
    "{not json",
    "<|channel|> is a token of gpt-oss.",
    "```\n<tool_call>Read\n<arg_key>a</arg_key>\n</tool_call>\n```",
    "The log holds <|tool_call_begin|>functions.Read:0<|tool_call_argument_begin|>{}.",
    f"Use {PYTHONIC}",
    f"{PYTHONIC} reads the file.",
    f"{PYTHONIC}\n\nThis reads the file.",
    f"`{PYTHONIC}`",
    f"The agent called `[{PYTHONIC}]`.",
    f"```python\nresult = {PYTHONIC}\n```",
    f"```python\n{PYTHONIC}\nprint(open('b.txt').read())\n```",
    f"```python\n{PYTHONIC}\n```\nThis reads the file.",
    f"```text\n{PYTHONIC}\n```",
    "```python\ndef Read(file_path):\n    return open(file_path).read()\n```",
    'The function is\n\nRead("a.txt")',
    "It takes no arguments:\n\nRead()",
    "Read (3 files) and LS (2 folders) were used.",
    "Read(er) beware",
    "print(hello)",
    "[Read(ing) the docs](https://example.com)",
    f"{'A long report. ' * 30}\n{PYTHONIC}",
    f"{'A long report. ' * 30}\n\nThe agent sent:\n\n{CALL}",
    f"{'A long report. ' * 120}\n\nLet me read it.\n\n{CALL}",
    f"# Report\n\n{PROSE}\n\n{CALL}",
    f"{PROSE}\n\n- one\n- two\n\nLet me show the call of the log.\n\n{CALL}",
    "<function=Read> is the form that Qwen uses.",
    '<invoke name="Read"> is the form that Claude uses.',
    '{"name": "Read", "description": "It reads',
    '{"name": "Ann", "arguments": {"for": "the',
    f"```json\n{CALL[:45]}\n```\nThe log is cut off there.",
    "<tool_call>",
]


@pytest.mark.parametrize("text", WRITTEN)
def test_a_call_as_text_is_recognized(text: str) -> None:
    assert written_call(text, OFFERED) == "Read"
    assert written_call(text, ("Write",)) == ""


@pytest.mark.parametrize("text", ANSWERS)
def test_an_answer_that_quotes_json_is_an_answer(text: str) -> None:
    assert written_call(text, OFFERED) == ""


def test_a_call_that_ends_before_its_name_is_a_call() -> None:
    for text in ('<tool_call>\n{"name": "Re', '<tool_call>{"na', "<tool_call>\n{"):
        assert written_call(text, OFFERED) == "a tool"


HOSTILE = [
    "\n",
    " ",
    "\n ",
    "\n\t",
    "```\n{\n",
    f"{CALL}\n",
    "<tool_call>\n",
    "<tool_call>{\n",
    "[",
    "{",
    "\n{",
    '\n{"',
    "<function=Read>\n",
    '<invoke name="Read">\n',
    "Read(",
    "Read(a=1)\n",
    "\nRead(a='",
    '\nRead(a="""',
    "`",
    "```python\nRead(\n",
    "<|channel|>",
    "<\uff5ctool▁calls▁begin\uff5c>",
    "<|tool_calls_section_begin|>\n",
    "</tool_call",
    "<tool_call>a",
    "[TOOL_CALLS]\n",
    "a-",
    '\\"',
    ";",
]


@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("head", ["", CALL, f"<tool_call>{CALL}", 'Read(a="', '{"name": "Read", "args": "'])
def test_a_text_that_repeats_itself_costs_little(piece: str, head: str) -> None:
    text = head + piece * (1_000_000 // len(piece)) + "x"
    started = process_time()
    written_call(text, OFFERED)
    assert process_time() - started < 5  # in quadratic time it would be hours


@pytest.mark.parametrize("text", [WRITTEN[0], WRITTEN[4], WRITTEN[11], WRITTEN[13], PYTHONIC, CALL[:45]])
async def test_the_agent_is_told_how_to_call_and_goes_on(any_url: str, tmp_path: Path, text: str) -> None:
    def rule(request: Request) -> Response:
        if results(request):
            return says("It says hello.")
        if "Text calls no tool" in texts(request):
            return calls(("Read", {"file_path": "a.txt"}))
        return says(text)

    (tmp_path / "a.txt").write_text("hello")
    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(owner="explore")
        assert (task.state, task.summary, len(at.script.asked)) == (State.DONE, "It says hello.", 3)
        said = [message["parts"][0].get("text", "") for message in await at.transcript(task.id)]
        assert sum("Your last message holds a call of Read as text." in found for found in said) == 1


async def test_a_model_that_does_it_again_is_said_to_make_no_tool_calls(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, lambda _: says(WRITTEN[0])) as at:
        task = await at.run(owner="explore")
        assert (task.state, task.reason, len(at.script.asked)) == (State.FAILED, "error", 2)
        said = task.failure_reason or ""
        assert "tool_calls_as_text: it wrote a call of Read as text twice" in said
        assert "LLM_MODEL_ID" in said
        assert "--jinja" in said
        assert task.usage.requests == 2


async def test_once_in_a_while_is_not_again(any_url: str, tmp_path: Path) -> None:
    script = [says(CALL), calls(("LS", {"path": "."})), says(CALL), says("Done.")]
    async with stage(any_url, tmp_path, script) as at:
        task = await at.run(owner="explore")
        assert (task.state, task.summary) == (State.DONE, "Done.")
