"""Front matter: strict where it can be, line by line where it must be, and never in the way."""

import subprocess
import sys
from time import process_time
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from remit.app.agents.front_matter import FrontMatter, Refused, read, read_yaml

KNOWN = ("name", "description", "tools", "model")
YAML = (
    "name: reviewer\ntools: Read, Grep\n",
    (
        "a: 'it''s'\nb: \"two\\nlines \\u00e9 \\U0001F600 \\x41\"\nc: \"over\n  two\n\n "
        " lines\"\nd: 'over\n  two'\n"
    ),
    "text: |\n  one\n    two\n\n  three\nnext: 1\n",
    "text: >\n  one\n  two\n\n  three\n    four\n  five\nnext: 1\n",
    "a: |-\n  x\nb: |+\n  y\n\nc: >-\n  z\nd: |2\n   w\n",
    "tools: [Read, 'Grep', \"Glob\", ]\nmap: {a: b, c: [d, {e: f}], g: }\nempty: []\nnone: {}\n",
    "tools:\n  - Read\n  - Grep # why\nsame:\n- a\n- 'b'\n-\n- c: 1\n  d: 2\n- - e\n  - f\n",
    "permission:\n  edit: deny\n  bash:\n    'git *': allow\n    \"*\": ask\n",
    (
        "# a comment\n\nint: 12\nneg: -3\nfloat: 1.5\nyes: true\nno: false\nnull1: ~\nnull2:\nzip:"
        " 1-2\n"
    ),
    "long: one\n  two\n\n  three # not this\nurl: http://example.org/#a\nhash: a#b\n",
    "description:\n  on the next line\n  and the next\nmodel: x # and a comment\n",
    "spread: [\n  a,\n  b # why\n  ,\n  c\n]\nafter: d\n",
    (
        "hooks:\n  PreToolUse:\n    - matcher: Bash\n      hooks:\n        - type: command\n       "
        "   command: ./check.sh\n"
    ),
    "-a: b\n'q k': c\n\"d k\": e\na b: c d\n",
    "",
    "# nothing but a comment\n",
)


@pytest.mark.parametrize("text", YAML)
def test_it_reads_what_yaml_reads(text: str) -> None:
    expected: dict[Any, Any] = yaml.safe_load(text) or {}
    # YAML 1.1 takes yes and no for booleans even where they are keys.
    assert read_yaml(text) == {
        {True: "yes", False: "no"}.get(key, key): value for key, value in expected.items()
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("description: Use it when. user: 'Hi'", "second colon"),
        ("tools: *", "expected alphabetic or numeric character"),
        ("a: &anchor b", "anchor"),
        ("a: !tag b", "tag"),
        ("a: @b", "cannot start any token"),
        ("a: &x [b]\nc: *x", "anchor"),
        ("a: *x", "alias"),
        ("? [a]\n: b", "key that is not a text"),
        ("a: 1\n--- \nb: 2", "more than one document"),
        ("a: 1\na: 2", "a second time"),
        ("a: {b: 1, b: 2}", "a second time"),
        ("a: [b", "expected ',' or '\\]'"),
        ("a: [b,", "expected the node content"),
        ("a: {b: }c", "expected <block end>"),
        ("a: 'b", "unexpected end of stream"),
        ('a: "b" c', "expected <block end>"),
        ('a: "\\q"', "unknown escape character"),
        ('a: "\\ud800"', "unpaired surrogate"),
        ('a: "\\U00110000"', "not YAML"),
        ('a: "\\0"', "NUL"),
        ("a:\n\t- b", "cannot start any token"),
        ("a: 1\n  b: 2", "second colon"),
        ("a:\n   b: 1\n  c: 2", "expected <block end>"),
        ("a: b # c\n  d", "expected <block end>"),
        ("- a", "not a list of keys"),
        ("just text", "not a list of keys"),
        ("a: 1\nb", "could not find expected ':'"),
        ("a: " + "[" * 50, "deeper"),
        ("a:\n" + "".join(f"{' ' * depth}- \n" for depth in range(1, 50)), "deeper"),
    ],
)
def test_it_refuses_what_it_does_not_know_and_says_why(text: str, why: str) -> None:
    with pytest.raises(Refused, match=why):
        read_yaml(text)


def test_simple_fields_are_read_without_the_yaml_library() -> None:
    code = (
        "import sys; from remit.app.agents.front_matter import read\n"
        "assert read('---\\nname: a\\ntools: Read, Grep\\nmaxTurns: 3\\n---\\nBody', ()).fields =="
        " {'name': 'a', 'tools': 'Read, Grep', 'maxTurns': 3}\n"
        "assert 'yaml' not in sys.modules\n"
        "read('---\\ntools: [Read]\\n---\\n', ())\n"
        "assert 'yaml' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_very_long_text_is_refused() -> None:
    with pytest.raises(Refused, match="longer than"):
        read_yaml("a: [b]\n" * 100_000)


def test_numbers_that_cannot_be_kept_stay_text() -> None:
    assert read_yaml(f"a: {'9' * 5000}\nb: 1.{'0' * 60}\nc: 0123\nd: 1.0e+999") == {
        "a": "9" * 5000,
        "b": f"1.{'0' * 60}",
        "c": "0123",
        "d": "1.0e+999",
    }


def test_fields_and_body_are_parted() -> None:
    assert read(
        "\ufeff\n---\r\nname: a\r\n---\r\n\r\nYou are a.\r\n---\r\nMore.\r\n", KNOWN
    ) == FrontMatter({"name": "a"}, "You are a.\n---\nMore.")
    assert read("---\n---\nBody", KNOWN) == FrontMatter({}, "Body")
    assert read("No front matter\n---\n", KNOWN) == FrontMatter({}, "No front matter\n---")
    assert read("", KNOWN) == FrontMatter({}, "")


EXAMPLES = """\
---
name: designer
description: Use this agent for screens. Examples: <example>Context: A form.
user: "Make a form"
assistant: "Here: a form"
</example>
tools: Read, Write
model: "sonnet"
color: blue: ish
name: other
---
You design.
"""


def test_front_matter_that_yaml_refuses_is_read_line_by_line() -> None:
    found = read(EXAMPLES, (*KNOWN, "color"))
    assert found.fields == {
        "name": "designer",
        "description": (
            'Use this agent for screens. Examples: <example>Context: A form.\nuser: "Make a'
            ' form"\nassistant: "Here: a form"\n</example>'
        ),
        "tools": "Read, Write",
        "model": "sonnet",
        "color": "blue: ish",
    }
    assert (found.body, found.repeated) == ("You design.", ("name",))
    assert "second colon" in found.refusal


def test_lists_and_blocks_survive_the_reading_by_lines() -> None:
    found = read(
        "---\ndescription: a: b\ntools:\n  - Read\n  - Grep\nmodel: >\n  light\nname: 'a: b' c:"
        " 'd'\n---\n",
        KNOWN,
    )
    assert found.fields == {
        "description": "a: b",
        "tools": ["Read", "Grep"],
        "model": "light\n",
        "name": "a: b' c: 'd",
    }


def test_front_matter_without_an_end_reaches_to_the_first_empty_line() -> None:
    found = read("---\nname: a\ntools: Read\n\nYou are a.\n", KNOWN)
    assert found == FrontMatter(
        {"name": "a", "tools": "Read"}, "You are a.", "the closing --- is missing"
    )


PIECES = [
    "a",
    "k: ",
    "\n",
    "\n  ",
    "\n- ",
    "- ",
    "'",
    '"',
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    ": ",
    "#",
    " #",
    "|",
    ">",
    "|+2",
    "\t",
    "\\",
    "*",
    "&",
    "---\n",
]


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), max_size=30).map("".join))
def test_no_text_breaks_it(text: str) -> None:
    for whole in (text, f"---\n{text}", f"---\n{text}\n---\n{text}"):
        assert all(isinstance(key, str) for key in read(whole, KNOWN).fields)


@given(
    st.lists(
        st.sampled_from(
            [*PIECES, "b: c", "\nx: y", "\nz:\n  - 1\n", "true", "word", "\nw: |\n  l\n"]
        ),
        max_size=12,
    ).map("".join)
)
def test_strict_front_matter_agrees_with_yaml(text: str) -> None:
    try:
        found = read_yaml(text)
    except Refused:
        return
    try:
        expected = yaml.safe_load(text + "\n") or {}
    except yaml.YAMLError:
        return
    assert _trimmed(found) == _trimmed(expected)


def _trimmed(value: Any) -> Any:
    """Spaces at ends of lines do not matter here, and keys are text."""
    if isinstance(value, dict):
        return {str(key).lower(): _trimmed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_trimmed(item) for item in value]
    return "".join(value.split()) if isinstance(value, str) else value


@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_long_run_of_blanks_costs_little(quote: str) -> None:
    started = process_time()
    read(f"---\nname: {quote}{' ' * 250_000}x{quote}\n---\nBody", KNOWN)
    assert process_time() - started < 5  # in quadratic time it would be a minute
