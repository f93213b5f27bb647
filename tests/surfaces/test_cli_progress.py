"""The progress display: the tree of tasks fits the terminal, figures and the way to answer are
never cut off, and time advances.
"""

import asyncio
import io
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext, redirect_stderr
from itertools import cycle
from pathlib import Path
from threading import Event, Thread
from typing import Any, cast

import pytest

from remit.adapters.stores.sqlite.driver import connect
from remit.bootstrap import open_store
from remit.errors import Unavailable
from remit.surfaces.cli.actions.watch_actions import tell_watch_ended
from remit.surfaces.cli.command import Session
from remit.surfaces.cli.output.live_progress import Progress
from remit.surfaces.text.display import width
from remit.surfaces.text.printed_commands import repeat_options
from tests.patience import patient
from tests.surfaces.cli_host import Shop, Terminal, shop

ANSWER = {
    "status": "error",
    "data": {
        "status": "timeout",
        "task_id": "7",
        "result": "Too late.",
        "tool_summary": [],
        "model_used": "main",
        "subagent_type": "general",
    },
    "text": "Too late.",
    "stats": {"time_ms": 6000, "tool_calls": 0, "model": "main", "tokens": 0},
    "context": {"cwd": "/", "params_input": {}},
    "error": {"code": "TIMEOUT", "message": "Too late."},
}
LONG = (
    "Read the notes and say what there is to be known about apples and pears in there, and about"
    " plums"
)


def item(
    task_id: int, kind: str = "task_updated", parent: int | None = None, **changed: Any
) -> dict[str, Any]:
    """An item of progress as the catalogue gives it."""
    return {
        "type": kind,
        "index": 0,
        "task_id": str(task_id),
        "parent_id": None if parent is None else str(parent),
        "title": f"Work {task_id}",
        "owner": "general",
        "state": "running",
        "tool": "Grep",
        "tool_calls": 12,
        "tokens": 123_456,
        "cost": 0.1234,
        "questions": [],
        "waits_for": None,
        "seconds": 0.0,
    } | changed


@pytest.fixture
def progress() -> Progress:
    with redirect_stderr(io.StringIO()):
        return Progress(lambda: False)


def test_in_a_narrow_terminal_title_state_and_agent_are_cut_and_figures_stay(
    progress: Progress,
) -> None:
    progress.take(item(1, title=LONG))
    progress.take(item(2, parent=1, title=LONG))
    wide, narrow = progress.picture(200), progress.picture(100)
    assert [LONG in line for line in wide] == [True, True]
    assert [line.endswith(" s elapsed") for line in [*wide, *narrow]] == [True, True, False, False]
    assert all(
        _timeless(line).endswith(
            "general · running · Grep · 12 tool calls · 123,456 tokens · $0.1234"
        )
        for line in [*wide, *narrow]
    )
    assert [line.split(" · ")[0] for line in narrow] == [
        "▸ #1 Read the notes a…",
        "  ▸ #2 Read the notes…",
    ]
    progress.take(item(2, parent=1, title=LONG, state="waiting", tokens=1234))
    assert (
        _timeless(progress.picture(80)[1])
        == "  … #2 Read the note… · general · 12 tool calls · 1,234 tokens · $0.1234"
    )
    assert (
        _timeless(progress.picture(79)[0])
        == "▸ #1 Read the notes… · Grep · 12 tool calls · 123,456 tokens · $0.1234"
    )
    assert all(width(line) <= 30 for line in progress.picture(30))


def _timeless(line: str) -> str:
    """A line without its last figure, the seconds."""
    shown, _, seconds = line.rpartition(" · ")
    assert re.fullmatch(r"\d+\.\d s( elapsed)?", seconds)
    return shown


@pytest.mark.parametrize("options", [[], ["red", "blue"]])
def test_how_to_answer_is_never_cut_off(progress: Progress, options: list[str]) -> None:
    progress.take(item(1))
    progress.take(
        item(
            2,
            parent=1,
            questions=[{"id": "2-q1", "question": f"{LONG}? " * 20, "options": options}],
        )
    )
    lines = progress.picture(79)
    assert all(width(line) <= 79 for line in lines)
    typed = "N" if options else "'YOUR ANSWER'"
    assert any(line.endswith(f"answer with: remit interact respond 2-q1 {typed}") for line in lines)
    assert [line.strip() for line in lines if line.strip() in ("1: red", "2: blue")] == (
        ["1: red", "2: blue"] if options else []
    )
    assert any("remit inbox" in line for line in lines)
    assert len(lines) < 12


def test_more_tasks_than_rows_are_those_that_go_on_and_a_count(progress: Progress) -> None:
    progress.take(item(1))
    for number in range(2, 102):
        progress.take(item(number, parent=1, state="done" if number < 92 else "running"))
    lines = progress.picture(79, 24)
    assert [re.findall(r"#\d+", line) for line in lines] == [
        ["#1"],
        *([f"#{number}"] for number in range(92, 102)),
        [],
    ]
    assert lines[-1] == "101 tasks: 11 running, 90 done"
    assert len(progress.picture(79, 5)) == 5
    assert len(progress.picture(79)) == 101


def test_the_shown_time_advances_without_news() -> None:
    with redirect_stderr(Terminal()) as err, Progress(lambda: False) as progress:
        progress.take(item(1, cost=0, tokens=0))
        _until(lambda: bool(re.search(r" · [1-9]\d*\.\d s", err.getvalue())))
    assert "\x1b[2J" not in err.getvalue()
    assert re.fullmatch(r"(?:(?:\x1b\[1F)?▸ #1 [^\x1b]*\x1b\[K\n\x1b\[J)+", err.getvalue()), (
        "pictures are drawn over each other, line by line"
    )


def test_commands_in_a_live_tree_are_whole_and_their_rows_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = "/home/ann/the workspace of a project"
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("remit.surfaces.cli.output.live_progress._SILENCE_SECONDS", 0.1)
    repeat_options({"workspace": folder})
    question = {"id": "1-q1", "question": "Which?", "options": []}
    with redirect_stderr(Terminal()) as err, Progress(lambda: True) as progress:
        progress.take(item(1, questions=[question]))
        _until(lambda: "No worker is running now" in err.getvalue())
        lines = progress.picture(39)
        drawn = f"\x1b[{sum(width(line) // 40 + 1 for line in lines)}F"
        _until(lambda: drawn in err.getvalue())
    repeat_options({})
    answer = f"remit --workspace '{folder}' interact respond 1-q1 'YOUR ANSWER'"
    note = "No worker is running now. Start one with:"
    assert " ".join(lines[-3:]) == f"{note} remit --workspace '{folder}' worker"
    assert answer in lines


@pytest.mark.parametrize("output", [Terminal, io.StringIO])
def test_a_wait_without_a_worker_is_reported_until_a_worker_returns(
    monkeypatch: pytest.MonkeyPatch, output: type[io.StringIO]
) -> None:
    monkeypatch.setattr("remit.surfaces.cli.output.live_progress._SILENCE_SECONDS", 0.1)
    looks: Iterator[bool | Exception] = iter([False, Unavailable("The store is away."), True])

    def unattended() -> bool:
        if isinstance(found := next(looks, True), Exception):
            raise found
        return found

    with redirect_stderr(output()) as err, Progress(unattended) as progress:
        progress.take(item(1))
        _until(lambda: "No worker is running now" in err.getvalue())
        monkeypatch.setattr("remit.surfaces.cli.output.live_progress._SILENCE_SECONDS", 60.0)
        progress.take(item(1, state="done"))
        assert [line.split(" · ")[0] for line in progress.picture(200)] == ["✓ #1 Work 1"]
    if output is io.StringIO:
        assert err.getvalue().count("No worker") == 1


def test_a_missing_worker_is_not_reported_before_the_first_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("remit.surfaces.cli.output.live_progress._SILENCE_SECONDS", 0.0)
    with redirect_stderr(io.StringIO()) as err:
        progress = Progress(lambda: True)
        blinks = cycle([False, False, True])
        monkeypatch.setattr(progress._over, "wait", lambda _: next(blinks))
        progress._keep_watch()
        assert err.getvalue() == "", "the first worker may still be on its way"
        progress.take(item(1))
        progress._keep_watch()
        _until(lambda: "No worker is running now" in err.getvalue())


def test_a_line_printed_during_live_progress_stays_on_the_screen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    with redirect_stderr(Terminal()) as err, Progress(lambda: False) as progress:
        _until(lambda: "· starting" in err.getvalue())
        progress.take({"type": "left_alone", "task_ids": ["1", "2"]})
        progress.take(item(3, state="done"))
    shown = _screen(err.getvalue())
    assert (
        " ".join(shown[:-1])
        == "2 other unfinished tasks were not run: #1, #2. Run them with: remit worker"
    )
    assert shown[-1].startswith("✓ #3 Work 3")


def _screen(written: str) -> list[str]:
    """The lines that a terminal shows, which knows how to go up and to clear what follows."""
    lines, row = [""], 0
    for up, clears_line, clears_rest, text in re.findall(
        r"\x1b\[(\d+)F|(\x1b\[K)|(\x1b\[J)|([^\x1b\n]+|\n)", written
    ):
        if up:
            row -= int(up)
        elif clears_rest:
            del lines[row + 1 :]
            lines[row] = ""
        elif text == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif not clears_line:
            lines[row] = text
    return [line for line in lines if line]


def test_a_clock_moves_before_anything_has_started() -> None:
    with redirect_stderr(Terminal()) as err, Progress(lambda: False) as progress:
        _until(lambda: bool(re.search(r"· starting · [1-9]\d*\.\d s", err.getvalue())))
        progress.take({"type": "waiting", "seconds": 5.0})
        assert progress.picture(200)[0].startswith("· starting · ")
    assert "starting" not in err.getvalue().rpartition("\x1b[1F")[2], "it is not left behind"


@pytest.mark.parametrize("to_write", [True, False], ids=["while it opens", "while it writes"])
def test_a_clock_says_that_the_store_is_waited_for_while_it_is_locked(
    to_write: bool, tmp_path: Path
) -> None:
    file = tmp_path / "remit.db"

    async def write(*, to_write: bool) -> None:
        async with open_store(f"sqlite:///{file}", to_write=to_write) as store:
            await store.new_ids(1)

    asyncio.run(write(to_write=True))
    with closing(connect(file)) as other:
        other.execute("BEGIN IMMEDIATE")
        with redirect_stderr(Terminal()), Progress(lambda: False) as progress:
            writing = Thread(target=lambda: asyncio.run(write(to_write=to_write)))
            writing.start()
            _until(lambda: "· waiting for the store · " in "".join(progress.picture(200)))
            other.execute("ROLLBACK")
            writing.join()
            assert progress.picture(200)[0].startswith("· starting · ")


def test_piped_output_repeats_the_state_regularly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("remit.surfaces.cli.output.live_progress.REPEAT_SECONDS", 0.05)
    with redirect_stderr(io.StringIO()) as err, Progress(lambda: False) as progress:
        progress.take(item(1, "task_started"))
        _until(lambda: err.getvalue().count("▸ #1 Work 1 · general · running · Grep") >= 3)
        progress.take(item(1, state="done"))
        for number in range(2, 9):
            progress.take(item(number, "task_started"))
        _until(lambda: "8 tasks: 1 done, 7 running" in err.getvalue())
    for line in err.getvalue().splitlines():
        assert "\x1b" not in line


def test_a_store_that_does_not_answer_keeps_no_line_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit.surfaces.cli.output.live_progress.REPEAT_SECONDS", 0.05)
    monkeypatch.setattr("remit.surfaces.cli.output.live_progress._SILENCE_SECONDS", 0.1)
    answered, asked = Event(), Event()

    def unattended() -> bool:
        asked.set()
        return answered.wait()

    with redirect_stderr(io.StringIO()) as err, Progress(unattended) as progress:
        progress.take(item(1, "task_started"))
        assert asked.wait(patient(10))
        before = err.getvalue().count("▸ #1 Work 1")
        _until(lambda: err.getvalue().count("▸ #1 Work 1") >= before + 3)
        progress.stop(signal.SIGINT)
        _until(lambda: "Stopping… " in err.getvalue())
        answered.set()


def test_a_repeat_over_the_wire_does_not_count_as_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for a living worker goes on while the server only repeats itself."""
    monkeypatch.setattr("remit.surfaces.cli.output.live_progress._SILENCE_SECONDS", 0.2)
    with redirect_stderr(io.StringIO()) as err, Progress(lambda: True) as progress:
        progress.take(item(1, "task_started"))
        for seconds in range(3000):
            progress.take(item(1, "task_progress", seconds=float(seconds)))
            if "No worker is running now" in err.getvalue():
                return
            time.sleep(0.01)
    raise AssertionError("it never came")


def test_a_line_tells_what_a_task_waits_for_after_a_moment(progress: Progress) -> None:
    waits = item(1, state="pending", tool=None, waits_for="a worker")
    progress.take(waits)
    assert "waits for" not in progress.picture(200)[0]
    progress.take(waits | {"seconds": 3.0})
    assert "pending · waits for a worker · 12 tool calls" in progress.picture(200)[0]
    assert progress.picture(74)[0].endswith(" s"), "the figures stay"


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + patient(30)
    while not true():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


@pytest.fixture
def at() -> Iterator[Shop]:
    with shop() as opened:
        yield opened


@pytest.mark.parametrize("columns", [None, 80])
def test_after_the_answer_the_command_says_why_it_continues(
    at: Shop, monkeypatch: pytest.MonkeyPatch, columns: int | None
) -> None:
    monkeypatch.setattr("remit.surfaces.cli.output.live_progress._HANDOVER_SECONDS", 0.1)
    lead, ends, stays = at.create(), at.create(), at.create()

    def delegate(*_: Any, **_options: Any) -> Iterator[dict[str, Any]]:
        yield item(int(lead))
        yield item(int(ends), parent=int(lead))
        yield item(int(stays), parent=int(lead))
        yield item(int(lead), state="failed")
        try:
            yield {"type": "end", "answer": ANSWER}
        finally:
            told = (
                f"#{ends}, #{stays} are handed over at their next step. Ctrl-C ends without"
                " waiting."
            )
            _until(lambda: told in cast("io.StringIO", sys.stderr).getvalue())
            at.do("CancelTask", task_id=ends)

    monkeypatch.setattr(at.host, "delegate", delegate)
    said = at("run", "Work", columns=columns)
    assert said.code == 124
    assert said.err.replace("\x1b[J", "").splitlines()[-3:-1] == [
        f"#{stays} has not ended. A worker is running for it.",
        f"Cancel with: remit task cancel {stays}",
    ]


def test_the_result_is_printed_if_the_store_disappears(
    at: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: Any) -> Any:
        raise Unavailable("The store is away.")

    monkeypatch.setattr(
        at.host,
        "delegate",
        lambda *_, **_options: iter(
            [item(7), item(8, parent=7), {"type": "end", "answer": ANSWER}]
        ),
    )
    monkeypatch.setattr(at.host, "call", gone)
    monkeypatch.setattr("remit.surfaces.cli.actions.delegation_actions.closing", nullcontext)
    said = at("run", "Work")
    assert (said.code, said.out.splitlines()[0]) == (124, "Too late.")


@pytest.mark.parametrize("columns", [None, 80])
@pytest.mark.parametrize(
    ("attended", "server", "told"),
    [
        (True, None, "Stopped waiting. #1 continues (pending): a worker is running elsewhere."),
        (False, None, "No worker is running for it now. Continue it with: remit task run 1"),
        (
            True,
            "http://there",
            (
                "Stopped waiting. The server at http://there keeps #1 (pending); its workers"
                " continue it."
            ),
        ),
    ],
)
def test_an_interrupted_wait_says_what_is_true(
    at: Shop,
    monkeypatch: pytest.MonkeyPatch,
    columns: int | None,
    attended: bool,
    server: str | None,
    told: str,
) -> None:
    waits, ended = at.create("Wait", "--owner", "general"), at.create("End", "--owner", "general")
    at.host.attended, at.host.url = attended, server

    def delegate(
        _operation: str, _fields: Any, stopping: Callable[[int], None], **_options: Any
    ) -> Iterator[dict[str, Any]]:
        yield item(int(waits))
        yield item(int(ended))
        stopping(signal.SIGINT)
        _until(
            lambda: (
                "Stopping… Ctrl-C or SIGTERM again to quit now."
                in cast("io.StringIO", sys.stderr).getvalue()
            )
        )
        at.do("CompleteTask", task_id=ended)
        raise KeyboardInterrupt

    monkeypatch.setattr(at.host, "delegate", delegate)
    said = at("run", "Work", columns=columns)
    assert said.code == 130
    words = " ".join(said.err.replace("\x1b[J", "").split())
    assert told in words
    assert "#2 has ended: it is done. See it with: remit task result 2" in words
    assert words.rindex("Stopping…") < words.index("#2 has ended")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("update", "1", "--status", "canceled"), "#1 has ended: it is canceled."),
        (("pause", "1"), "It is paused. Continue it with: remit task resume 1"),
        (("assign", "1", "s1"), "It is assigned to session s1"),
    ],
)
def test_an_interrupted_wait_knows_every_state(
    at: Shop, monkeypatch: pytest.MonkeyPatch, change: tuple[str, ...], told: str
) -> None:
    at.create("Wait", "--owner", "general")
    at("task", *change)

    def delegate(*_: Any, **_options: Any) -> Iterator[dict[str, Any]]:
        yield item(1)
        raise KeyboardInterrupt

    monkeypatch.setattr(at.host, "delegate", delegate)
    assert told in at("run", "Work").err


@pytest.mark.parametrize(
    ("items", "told"),
    [
        ([], "Stopped. No task was created.\n"),
        ([{"type": "opened"}], "Stopped. Tasks may have been created. See them with: remit task"),
    ],
    ids=["waiting for the store", "opened"],
)
def test_an_interrupt_says_whether_a_task_may_have_been_created(
    at: Shop, monkeypatch: pytest.MonkeyPatch, items: list[Any], told: str
) -> None:
    def delegate(*_: Any, **_options: Any) -> Iterator[dict[str, Any]]:
        yield from items
        raise KeyboardInterrupt

    monkeypatch.setattr(at.host, "delegate", delegate)
    assert told in at("run", "Work").err


@pytest.mark.parametrize("server", [None, "http://there"])
def test_an_interrupted_wait_names_the_open_questions(
    at: Shop, monkeypatch: pytest.MonkeyPatch, server: str | None
) -> None:
    at.create("Ask", "--owner", "general")
    run = at.ask("1", "Which?")
    at.do("YieldRun", "agent:general", run, task_id="1")
    shown = [item(1)]

    def delegate(*_: Any, **_options: Any) -> Iterator[dict[str, Any]]:
        yield from shown
        raise KeyboardInterrupt

    monkeypatch.setattr(at.host, "delegate", delegate)
    at.host.url = server
    one = at("run", "Work").err
    assert "It waits for an answer from you. See the question with: remit inbox\n" in one
    at.create("Other", "--owner", "general")
    shown.append(item(2))
    several = at("run", "Work").err
    assert "#1 waits for an answer from you. See the question with: remit inbox\n" in several
    assert "\nWorkers continue the others.\nFollow one with: remit task watch 2\n" in several
    assert "its workers continue it" not in one + several


def test_a_stopped_command_says_that_its_task_is_not_in_the_store(
    at: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    tell_watch_ended(Session(lambda _: at.host, {}), {"task_id": "9"})
    said = " ".join(capsys.readouterr().err.split())
    assert said == (
        "Stopping… Ctrl-C or SIGTERM again to quit now. Stopped watching."
        " #9 is not in the store. It may have been lost with a rollback."
    )
