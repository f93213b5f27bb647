"""Text of strangers on a terminal: nothing in it moves the cursor, hides or pretends.

Tables fit.
"""

import re
import unicodedata
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.surfaces.cli.command_table import COMMANDS
from remit.surfaces.text.display import cut, display, display_line, pad, width, wrap
from tests.surfaces.cli_host import Said, Shop, shop

ESCAPES = {
    "clipboard (OSC 52)": ("\x1b]52;c;cm0gLXJmIH4=\x07", ""),
    "link (OSC 8)": ("\x1b]8;;https://evil.example\x1b\\here\x1b]8;;\x1b\\", "here"),
    "window title": ("\x1b]0;owned\x07", ""),
    "title, ended by C1": ("\x9d2;owned\x9c", ""),
    "clear": ("\x1b[2J\x1b[H", ""),
    "colours": ("\x1b[38;2;255;0;0mred\x1b[0m", "red"),
    "C1 CSI": ("\x9b31mred\x9b0m", "red"),
    "up and over": ("good\x1b[1A\x1b[2Kbad", "goodbad"),
    "alternate screen": ("\x1b[?1049h", ""),
    "report status": ("\x1b[6n\x1b[c", ""),
    "device control": ("\x1bPq#0;2;0;0;0~\x1b\\", ""),
    "device control, C1": ("\x90q~\x9c", ""),
    "application, privacy, string": ("\x1b_a\x1b\\\x1b^b\x1b\\\x1bXc\x1b\\", ""),
    "reset": ("\x1bc", ""),
    "charset": ("\x1b(0lqk\x1b(B", "lqk"),
    "keypad": ("\x1b=\x1b>", ""),
    "lone escape": ("a\x1bbus", "abus"),
    "escape at the end": ("a\x1b", "a"),
    "doubled": ("\x1b\x1b[31m[31m", "[31m"),
    "nested": ("\x1b]0;a\x1b[31mb\x07", "]0;ab"),
    "unfinished CSI": ("\x1b[31", "[31"),
    "unfinished OSC": ("\x1b]0;rest", "]0;rest"),
    "return and backspace": ("good\rbad\b\b\b", "goodbad"),
    "bell, form feed, vertical tab, delete": ("\a\f\v\x7f", ""),
    "C1 next line and index": ("a\x85\x84b", "ab"),
    "bidi override": ("\u202etxt.exe\u202c", "txt.exe"),
    "bidi isolates and marks": ("\u2066a\u2067b\u2068c\u2069\u200e\u200f\u061c", "abc"),
    "zero width": ("pass\u200bword\u200c\u200d\u2060\ufeff", "password"),
    "invisible letters": ("a\u3164\u115f\u1160\uffa0\u00ad\u034fb", "ab"),
    "tags": ("a\U000e0041\U000e0042\U000e007f", "a"),
    "lone surrogate": ("a\ud83db", "ab"),
    "line separators": ("a\u2028b\u2029c", "a\nb\nc"),
    "decomposed": ("Cafe\u0301", "Café"),
    "NUL": ("a\0b", "ab"),
}
PLAIN = [
    "",
    "plain text",
    "two\nlines\tand a tab",
    "Grüße",
    "日本語",
    "😀 fine",
    "é",
    "السلام عليكم",
    "naïve ‖ “quoted”",
]


@pytest.mark.parametrize(("text", "shown"), ESCAPES.values(), ids=ESCAPES)
def test_control_characters_are_not_shown(text: str, shown: str) -> None:
    assert display(text) == shown
    assert display_line(text) == shown.replace("\n", " ")


@pytest.mark.parametrize("text", PLAIN)
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert display(text) == text


@given(st.text(st.characters() | st.sampled_from("\x1b\x9b\x9d\x90\x9c\x07\\[];m1")))
def test_whatever_is_shown_is_safe_and_shown_again_the_same(text: str) -> None:
    shown = display(text)
    assert not _unsafe(shown.replace("\t", ""))
    assert display(shown) == shown


def test_a_megabyte_of_openings_is_read_in_a_moment() -> None:
    """Quadratic work would take hours here, and the test would never end."""
    for opening in ("\x1b]", "\x9d", "\x1b[", "\x1b[1;", "\x1bP"):
        assert "\x1b" not in display(opening * 300_000)


@given(st.text(), st.integers(1, 30))
def test_text_is_cut_padded_and_wrapped_by_cells(text: str, cells: int) -> None:
    shown = display_line(text)
    assert width(cut(shown, cells)) <= cells
    assert width(pad(cut(shown, cells), cells)) == cells
    lines = wrap(shown, cells + 1)
    assert all(width(line) <= cells + 1 for line in lines)
    assert "".join("".join(lines).split()) == "".join(shown.split())


def test_wide_and_combining_characters_count_as_they_look() -> None:
    assert [width(text) for text in ("abc", "日本", "e\u0301", "😀", "ﾊ")] == [3, 4, 1, 2, 1]
    assert (cut("日本語", 5), cut("日本語", 6), cut("abc", 0)) == ("日本…", "日本語", "")
    assert wrap("  the quick brown fox", 12) == ["  the quick", "  brown fox"]
    assert wrap("a   b", 5) == ["a   b"]


# The whole corpus in every field that a person can be shown, by every command.

HOSTILE = "".join(text for text, _ in ESCAPES.values() if "\0" not in text and "\ud83d" not in text)
SHORT = "a\x1b[2J\x9b31m\u202eb\x1b]0;t\x07"
LINE = SHORT.replace(" ", "")


def test_no_command_lets_a_control_character_through() -> None:
    with shop() as at:
        worked = 0
        for told, said in _everything(at, None):
            worked += said.code == 0
            assert not _unsafe(said.out), told
            assert not _unsafe(said.err), told
        assert worked > 40


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_at_a_terminal_nothing_but_our_own_colours_gets_through(columns: int) -> None:
    with shop() as at:
        painted = 0
        for told, said in _everything(at, columns):
            plain, count = re.subn(r"\x1b\[(?:[0-2]|3[1-46])m", "", said.out)
            painted += count
            assert not _unsafe(plain), told
            # A tree that is drawn anew goes back to its first line.
            assert not _unsafe(re.sub(r"\x1b\[(?:\d+F|K|J)", "", said.err)), told
        assert painted > 100


def test_json_is_printable_ascii_and_exact() -> None:
    with shop() as at:
        _fill(at)
        said = at("task", "show", "1", "--json")
        assert said.out.rstrip("\n").isascii()
        assert said.out.rstrip("\n").isprintable()
        assert said.json == at.host.call("get_task", {"task_id": "1"})
        assert said.json["instructions"] == HOSTILE


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_refused(env: dict[str, str]) -> None:
    with shop() as at:
        at.create("Plain")
        assert "\x1b" in at("task", "list", columns=80).out
        assert "\x1b" not in at("task", "list", columns=80, **env).out
        assert "\x1b" not in at("task", "list").out


@pytest.mark.parametrize("title", ["x" * 200, "日本語" * 60, "e\u0301😀" * 50, "short"])
@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_tables_fit_the_terminal_and_keep_what_matters(columns: int, title: str) -> None:
    with shop() as at:
        task = at.create(title, "--owner", "general", "--priority", "urgent")
        at("task", "subtask", task, title, "explore")
        run = at.ask(task, "Which?")
        at.do("YieldRun", "agent:general", run, task_id=task)
        at("guide", "add", title, "Text.")
        tables = [
            at(*argv, columns=columns, NO_COLOR="1").out
            for argv in (("task", "list"), ("ready",), ("guide", "list"), ("agents", "list"))
        ]
        for line in "".join(tables).splitlines():
            assert width(line) <= columns
        assert tables[0].splitlines()[2].startswith("1   ◐ waiting")
        assert "TITLE" in tables[0]
        assert "WAITS FOR" in tables[0] or columns < 80
        assert unicodedata.normalize("NFC", title) in at("task", "list").out


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_pages_are_wrapped_to_the_terminal(columns: int) -> None:
    long = "many words " * 50
    with shop() as at:
        task = at.create(
            "T",
            "--instructions",
            long,
            "--accept",
            "日本語" * 40,
            "--step",
            "A step",
            "--set",
            f"a={long}",
            "--owner",
            "general",
        )
        run = at.ask(task, long, [long, "日本語" * 40])
        at.do("NotifyUser", "agent:general", run, task_id=task, message=long)
        at("task", "message", task, long)
        for argv in (
            ("task", "show", task),
            ("task", "updates", task),
            ("notifications",),
            ("inbox",),
        ):
            for line in at(*argv, columns=columns, NO_COLOR="1").out.splitlines():
                assert width(line) <= columns or "remit interact respond" in line


@pytest.mark.parametrize("columns", [40, 70])
@pytest.mark.parametrize(
    "argv", [("--owner", "general", "--draft"), ("--owner", "nobody")], ids=["note", "error"]
)
def test_notes_and_errors_are_broken_between_words(columns: int, argv: tuple[str, ...]) -> None:
    with shop() as at, shop() as other:
        lines = at("task", "create", "Work", *argv, columns=columns).err.splitlines()
        piped = other("task", "create", "Work", *argv).err
    assert 1 <= len(piped.splitlines()) <= len(lines) - (columns == 40)
    assert all(width(line) <= columns or line.startswith("remit ") for line in lines), lines
    assert " ".join(lines).split() == piped.split()


def test_hidden_characters_in_a_question_are_pointed_out() -> None:
    with shop() as at:
        at.ask(at.create("Deploy", "--owner", "general"), "Delete \u202eexe.tset?", ["yes"])
        assert "careful: this text contains hidden characters" in at("inbox").out
        at.ask(at.create("Other", "--owner", "general"), "Größe? Cafe\u0301?")
        assert at("inbox").out.count("careful") == 1


def _unsafe(text: str) -> list[str]:
    bidi = (
        "\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
        "\u200b\u200c\u200d\u2060\ufeff"
    )
    return [
        char
        for char in text
        if (unicodedata.category(char) in ("Cc", "Cs") and char != "\n") or char in bidi
    ]


def _fill(at: Shop) -> None:
    """Task 1 has the corpus wherever a stranger can write, and so has everything around it."""
    at("guide", "add", SHORT, HOSTILE, "--id", "g")
    at(
        *(
            "task",
            "create",
            SHORT,
            "--instructions",
            HOSTILE,
            "--description",
            f"why {HOSTILE}",
            "--accept",
            HOSTILE,
            "--output",
            SHORT,
        ),
        *(
            "--step",
            f"{SHORT} 0",
            "--step",
            SHORT,
            "--resource",
            f"https://e.example/{HOSTILE}",
            "--resource",
            f"/tmp/{HOSTILE}",
            "--guide",
            "g",
        ),
        *(
            "--label",
            SHORT,
            "--set",
            f"{SHORT}={HOSTILE}",
            "--set",
            f'o={{"{"k"}": "\\u001b[2J\\u202e"}}',
            "--model",
            f"p:{LINE}",
            "--channel",
            SHORT,
        ),
        *(
            "--allow",
            SHORT,
            "--deny",
            HOSTILE[:60].replace(",", ""),
            "--parent-session",
            SHORT,
            "--owner",
            "build",
        ),
    )
    at("task", "resource", "add", "1", "https://e.example", "--label", SHORT)
    at("task", "step", "1", "0", "--details", HOSTILE)
    at("task", "subtask", "1", SHORT, "general", "--for-step", "0")
    at("task", "subtask", "1", SHORT, "general", "--instructions", HOSTILE)
    actor = f"user:{LINE}"
    at.do("SendMessage", actor, task_id="1", message=HOSTILE)
    run = at.do("StartRun", "system:engine", task_id="1", worker=SHORT).task.run.id
    at.do("AskUser", "agent:build", run, task_id="1", question=HOSTILE, options=[SHORT, HOSTILE])
    at.do("AskUser", "agent:build", run, task_id="1", question="Answered")
    at.do("Respond", actor, interaction_id="1-q2", answer=HOSTILE)
    at.do("NotifyUser", "agent:build", run, task_id="1", message=HOSTILE)
    at.do(
        "FailRun",
        "agent:build",
        run,
        task_id="1",
        error=HOSTILE,
        tool_summary=[{"tool": SHORT, "count": 1}],
    )
    at.do("UpdateTask", actor, task_id="1", instructions=HOSTILE)


def _everything(at: Shop, columns: int | None) -> Iterator[tuple[str, Said]]:
    """Every command that says something, with hostile text in what it is given and in what it
    finds.
    """
    _fill(at)
    # Each line works on a task of its own where it ends one.
    at("task", "create", SHORT, "--accept", HOSTILE, "--output", SHORT)  # 4
    at("task", "create", SHORT)  # 5
    at("task", "create", SHORT, "--session", SHORT)  # 6
    at("task", "create", SHORT, "--draft", "--accept", HOSTILE)  # 7
    typed: list[tuple[str, ...]] = [
        ("init", "--workspace", HOSTILE),
        ("task create", HOSTILE[:200]),
        ("task list",),
        ("task list", "--label", SHORT),
        ("task list", "--owner", HOSTILE),
        ("task show", "1"),
        ("task show", "6"),
        ("task show", HOSTILE),
        ("task update", "7", "--title", SHORT),
        ("task complete", "4", "--output", f"{SHORT}={HOSTILE}", "--summary", HOSTILE),
        ("task complete", "1", "--output", f"{SHORT}?={HOSTILE}"),
        ("task show", "4"),
        ("task fail", "5", HOSTILE),
        ("task show", "5"),
        ("task rerun", "5"),
        ("task pause", "1"),
        ("task resume", "1"),
        ("task run", "2"),
        ("task assign", "3", SHORT),
        ("task steps", "7", SHORT),
        ("task step", "7", "0", "--title", SHORT),
        ("task subtask", "7", SHORT, "plan"),
        ("task resource add", "7", f"https://x/{HOSTILE}"),
        ("task resource remove", "7", "0"),
        ("task guide", "7", "g"),
        ("task guide", "7", HOSTILE),
        ("task waive", "7", "c1", HOSTILE),
        ("task waive", "7", HOSTILE, HOSTILE),
        ("task show", "7"),
        ("task message", "1", HOSTILE),
        ("task updates", "1"),
        ("task events", "1"),
        ("task events", "7"),
        ("task watch", "4"),
        ("ready",),
        ("inbox",),
        ("interact list", "--status", "answered"),
        ("interact respond", "1-q1", "--option", "2"),
        ("interact respond", HOSTILE, HOSTILE),
        ("notifications",),
        ("guide add", SHORT, HOSTILE),
        ("guide list",),
        ("guide show", "g"),
        ("guide show", HOSTILE),
        ("agents list",),
        ("agents show", "build"),
        ("agents show", HOSTILE),
        ("agents check",),
        ("agents new", HOSTILE),
        ("agents new", "x", "--model", HOSTILE),
        ("doctor", "--database-url", HOSTILE),
        ("export", "events", f"/no/such/folder/{HOSTILE}"),
        ("import", f"/no/such/folder/{HOSTILE}"),
        ("token show",),
        ("serve", "--port", HOSTILE),
        ("run", HOSTILE),
        ("run", "Work", "--agent", HOSTILE, "--model", HOSTILE),
        ("parallel", f"/no/such/{HOSTILE}"),
        ("task transcript", "1"),
        ("task result", "1"),
        ("session tasks", SHORT, "--role", "created"),
        ("session tasks", HOSTILE),
        ("session pre-request", SHORT),
        ("session cancel", HOSTILE),
        ("hook",),
        ("worker", "--agents", HOSTILE),
        ("schedule show",),
        ("schedule tick",),
        ("migrate",),
        ("mcp",),
        ("completion", HOSTILE),
        ("help", HOSTILE),
        ("task cancel", "1", "--message", HOSTILE),
        ("task history",),
        (HOSTILE,),
        ("task " + LINE,),
        ("task list", f"--{HOSTILE}"),
        ("task list", "--limit", HOSTILE),
        ("task show", "1", HOSTILE),
    ]
    assert {line[0] for line in typed} >= COMMANDS.keys()
    for path, *argv in typed:
        words = path.split(" ") if path in COMMANDS or path.startswith("task ") else [path]
        yield path, at(*words, *argv, columns=columns)
