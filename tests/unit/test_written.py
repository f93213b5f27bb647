"""A tool call written as text is told apart from an answer, in every known form."""

from time import process_time

import pytest

from remit.domain.llm.text_calls import Written, written_call
from tests.unit.written_examples import (
    ANSWERS,
    CALL,
    FOREIGN,
    GLM,
    HONEST,
    JSON_CALLS,
    KEYED,
    KIMI,
    LAZY,
    LOOSE,
    NAMED,
    NAMED_CALLS,
    OFFERED,
    PYTHONIC_CALLS,
    QWEN,
    REACT,
    REACT_CALLS,
    TAGGED,
    WRITTEN,
)

FORMS = [CALL, TAGGED, GLM, KIMI, QWEN, REACT, 'Read("a")', KEYED, NAMED, LOOSE]


@pytest.mark.parametrize("text", WRITTEN)
def test_a_call_as_text_is_recognized(text: str) -> None:
    found = written_call(text, OFFERED)
    assert found is not None
    assert found.tool == "Read"


@pytest.mark.parametrize("text", FOREIGN)
def test_a_call_of_an_unknown_tool_in_the_shape_of_a_call_is_recognized(text: str) -> None:
    assert written_call(text, OFFERED) == Written("read_file", has_prose=False)


@pytest.mark.parametrize("text", [*JSON_CALLS, *NAMED_CALLS, *PYTHONIC_CALLS, *REACT_CALLS])
def test_another_word_in_place_of_a_tool_is_an_answer_without_a_mark(text: str) -> None:
    is_marked = "<tool_call>" in text
    assert is_marked or written_call(text, ("Write",)) is None


@pytest.mark.parametrize("text", ANSWERS)
def test_an_answer_is_not_taken_for_a_call(text: str) -> None:
    assert written_call(text, OFFERED) is None


@pytest.mark.parametrize("text", HONEST)
def test_an_answer_that_ends_with_a_call_has_prose(text: str) -> None:
    assert written_call(text, OFFERED) == Written("Read", has_prose=True)


@pytest.mark.parametrize("text", LAZY)
def test_a_message_that_only_announces_calls_has_no_prose(text: str) -> None:
    assert written_call(text, OFFERED) == Written("Read", has_prose=False)


@pytest.mark.parametrize("call", FORMS)
def test_prose_before_and_after_a_call_makes_it_an_answer(call: str) -> None:
    text = f"The server sends this:\n\n{call}\n\nIt answers with the content of the file."
    assert written_call(text, OFFERED) is None


@pytest.mark.parametrize("call", FORMS)
def test_a_code_block_after_prose_quotes_a_call(call: str) -> None:
    text = f"The server sends what the model has written.\n\n```\n{call}\n```"
    assert written_call(text, OFFERED) is None


@pytest.mark.parametrize("call", FORMS)
def test_a_quoted_line_quotes_a_call(call: str) -> None:
    quoted = "\n".join(f"> {line}" for line in call.splitlines())
    assert written_call(f"The model has written:\n\n{quoted}", OFFERED) is None


@pytest.mark.parametrize("text", ['<tool_call>\n{"name": "Re', '<tool_call>{"na', "<tool_call>\n{"])
def test_a_call_that_ends_before_its_name_is_a_call(text: str) -> None:
    assert written_call(text, OFFERED) == Written("a tool", has_prose=False)


@pytest.mark.parametrize(
    "instructions",
    [
        'Which call reads a.txt? Answer with JSON: {"name": ..., "arguments": ...}.',
        "Return a JSON object with the fields `name` and `arguments`.",
    ],
)
def test_json_that_the_instructions_ask_for_is_an_answer(instructions: str) -> None:
    assert written_call(CALL, OFFERED, instructions) is None
    assert written_call(f"```json\n{CALL}\n```", OFFERED, instructions) is None
    assert written_call(f"Sure. {CALL}", OFFERED, instructions) is None
    assert written_call(TAGGED, OFFERED, instructions) is not None


def test_json_with_other_keys_than_the_instructions_ask_for_is_a_call() -> None:
    instructions = "Report the name of the file as JSON."
    assert written_call(CALL, OFFERED, instructions) is not None


@pytest.mark.parametrize("text", [KEYED, NAMED])
@pytest.mark.parametrize(
    ("instructions", "is_asked"),
    [
        ('Which call reads a.txt? Answer with JSON such as {"Read": {"path": "b"}}.', True),
        ("Answer with the arguments of Read as a JSON object with `file_path`.", True),
        ("Read config.json and report the port.", False),
        ("Read the file at file_path.", False),
    ],
)
def test_a_tool_and_its_arguments_are_an_answer_if_they_are_asked_for(
    text: str, instructions: str, is_asked: bool
) -> None:
    assert (written_call(text, OFFERED, instructions) is None) == is_asked


HOSTILE = [
    "Read\n",
    "Read\n{",
    "Read {",
    "Read\n{}\n",
    '{"Read": {',
    '{"Read": {}}\n',
    "Read\n\n",
    "\n",
    " ",
    "\n ",
    "\n\t",
    "=",
    "```\n{\n",
    "\n```\n",
    "\n```\n```json\n",
    f"{CALL}\n",
    f"{TAGGED} and ",
    f"{TAGGED}\n<tool_response>\n",
    "<tool_call>",
    "<tool_call>\n",
    "<tool_call>{\n",
    "<tool_call>[",
    "<tool_call>{} ",
    "<tool_call>{a} ",
    "<tool_call>Read</tool_call> x ",
    "<tool_call>Read\n<arg_key>",
    "<Read>\n<a>",
    "<a>\n",
    "[",
    "{",
    "\n{",
    '\n{"',
    "<function=Read>\n",
    "<function=Read>{</function>x",
    '<invoke name="Read">\n',
    "<invoke ",
    "Read(",
    "Read(a=1)\n",
    "\nRead(a='",
    '\nRead(a="""',
    "`",
    "` <tool_call>",
    "```python\nRead(\n",
    "<|channel|>",
    "assistantcommentary to=functions.",
    "assistantfinal",
    "analysisa",
    "Read[ARGS]{",
    "\n>>>all\n",
    "<read_file>\n<path>",
    "<|start|>assistant",
    "<|channel|> to=functions.Read ",
    "<\uff5ctool▁calls▁begin\uff5c>",
    "<|tool_calls_section_begin|>\n",
    "<|tool_call_start|>[",
    "<|tool_call|>[Read(",
    "</tool_call",
    "<tool_call>a",
    "[TOOL_CALLS]\n",
    "[TOOL_CALLS]Read{",
    "functools[",
    "Action:\n",
    "Action: Read\nAction Input: {\n",
    "Action: Read\nAction Input: a\n",
    "Action: ```\n",
    "Thought: a\n",
    "Let me ",
    "a. ",
    "\u6211",
    "<think>",
    "> ",
    "a-",
    '\\"',
    ";",
    "{'a': ",
    "{a: ",
    "{'",
    ", ",
    "a:",
    "a = ",
    "await ",
    "~~~\n",
    '<tool name="Read">',
    "<tool ",
    "Tool: Read\n{",
    "Tool: Read\n```\n",
    "I will wait. ",
    "I will read it. {",
    " {'a': ",
    ' {"a": 1}',
    f"{CALL} ",
]
HEADS = ["", "analysisa", f"<tool_call>{CALL}", 'Read(a="', "Let me look.\n", "Sure. "]


@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("head", HEADS)
def test_a_text_that_repeats_itself_costs_little(piece: str, head: str) -> None:
    text = head + piece * (100_000 // len(piece))
    started = process_time()
    for tail in ("x", TAGGED):
        written_call(text + tail, OFFERED)
    assert process_time() - started < 3  # in quadratic time it would be minutes
