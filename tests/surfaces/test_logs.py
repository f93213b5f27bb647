"""Logs of `remit worker` and `remit serve`: a line for every important event, as text or JSON,
without secrets.
"""

import json
import logging
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from remit.bootstrap.logging_setup import JsonFormatter, TextFormatter
from tests.crash.process import environment
from tests.patience import patient
from tests.surfaces.cli_host import Shop, shop
from tests.surfaces.shell import Shell

SECRET = "Tell nobody about the treasure"
TITLE = "Look \x1b[2Jhere\nand there"


@pytest.fixture
def shell(durable_url: str, tmp_path: Path) -> Shell:
    """A workspace whose workers follow scripts."""
    heartbeat = f"{patient(1):.1f}"  # a busy machine must not look like a dead worker
    variables = {
        "REMIT_DATABASE_URL": durable_url,
        "REMIT_RUNNER": "remit.testing:Scripted",
        "REMIT_HEARTBEAT_SECONDS": heartbeat,
    }
    made = Shell(tmp_path, PYTHONPATH=environment()["PYTHONPATH"], **variables)
    assert made.remit("init").code == 0
    return made


class Logging:
    """A process that logs into a file."""

    def __init__(self, process: "subprocess.Popen[bytes]", path: Path) -> None:
        self.process, self.path = process, path

    @property
    def text(self) -> str:
        """Everything that it has logged so far."""
        return self.path.read_text()

    def until(self, true: Callable[[str], bool]) -> None:
        """Wait until something is true of what it has logged."""
        deadline = time.monotonic() + patient(30)
        while not true(self.text):
            assert time.monotonic() < deadline, self.text
            assert self.process.poll() is None, self.text
            time.sleep(0.02)

    def lines(self) -> list[dict[str, Any]]:
        """What it has logged as JSON."""
        return [json.loads(line) for line in self.text.splitlines()]

    def of(self, task_id: str) -> list[str]:
        """The messages on a task, in order."""
        return [line["message"] for line in self.lines() if line.get("task") == task_id]


@contextmanager
def logged(shell: Shell, *arguments: str, name: str = "log") -> Iterator[Logging]:
    """A command that runs until the end of the block, and what it logs."""
    path = shell.folder / name
    command = [sys.executable, "-m", "remit", *arguments]
    with path.open("wb") as log:
        process = subprocess.Popen(command, cwd=shell.folder, env=shell.env, stderr=log, stdout=log)
    try:
        yield Logging(process, path)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(patient(20))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def create(shell: Shell, *steps: list[Any], title: str = TITLE) -> str:
    """A task that follows a script; what it is told and asks must not be logged."""
    given = [
        "--owner",
        "general",
        "--instructions",
        SECRET,
        "--set",
        f"script={json.dumps(list(steps))}",
    ]
    made = shell.remit("task", "create", title, *given, "--json")
    assert made.code == 0, made.err
    return str(made.json["task_id"])


def test_the_life_of_a_task_is_logged_as_json(shell: Shell) -> None:
    task = create(shell, ["ask", SECRET], ["finish", SECRET])
    with logged(shell, "worker", "--log-format", "json") as log:
        log.until(lambda text: '"Question asked"' in text and "yielded" in text)
        assert shell.remit("interact", "respond", f"{task}-q1", SECRET).code == 0
        log.until(lambda text: '"Task done"' in text)
        assert log.of(task) == [
            "Task started",
            "Run started",
            "Question asked",
            "Run ended",
            "Question answered",
            "Run started",
            "Run ended",
            "Task done",
        ]
        first, *others = log.lines()
    # A slow server is logged too.
    lines = [line for line in others if line["logger"] == "remit.task"]
    assert first["message"].startswith("Worker started: up to 8 runs, agents build, ")
    assert first["message"].endswith(
        ". Ctrl-C to stop and hand over running tasks, twice to quit now."
    )
    assert SECRET not in log.text
    for line in lines:
        assert (line["task"], line["title"], line["agent"]) == (
            task,
            "Look here and there",
            "general",
        )
        assert line["worker"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line["time"])
    ended = [line for line in lines if line["message"] == "Run ended"]
    assert [line["outcome"] for line in ended] == ["yielded", "completed"]
    assert all(
        line["seconds"] >= 0 and line["tokens"] == 0 and "cost" not in line for line in ended
    )
    answered = next(line for line in lines if line["message"] == "Question answered")
    assert answered["interaction_id"] == f"{task}-q1"
    assert answered["by"].startswith("user:")


def test_failures_are_warnings_and_quiet_logs_nothing_else(shell: Shell) -> None:
    create(shell, ["finish", "Fine"], title="Fine")
    task = create(shell, *[["raise", "no luck"]] * 9)
    with logged(shell, "worker", "-q") as log:
        log.until(lambda text: "WARNING Task failed" in text)
    lines = [line for line in log.text.splitlines() if f" task={task} " in line]
    assert re.match(
        r'\S+Z WARNING Run ended task=\d+ title="Look here and there" agent=general worker=\S+'
        r" outcome=failed seconds=\S+ tokens=0 error=",
        lines[0],
    )
    assert "no luck" in lines[0]
    assert "WARNING Task failed" in lines[-1]
    assert "reason=error" in lines[-1]
    assert "Fine" not in log.text
    assert "INFO" not in log.text


def test_delegations_and_updates_are_logged_if_wanted(shell: Shell) -> None:
    below = {"title": "Below", "owner": "general", "metadata": {"script": [["finish", "x"]]}}
    task = create(shell, ["block", below], ["sleep", 0.1], ["finish", "Done"])
    assert shell.remit("task", "update", task, "--instructions", "Something new").code == 0
    with logged(shell, "worker", "-v", "--log-format", "json") as log:
        log.until(lambda text: text.count('"Task done"') == 2)
        delegated = next(line for line in log.lines() if line["message"] == "Delegated")
        assert (delegated["task"], delegated["child_id"]) == (task, str(int(task) + 1))
        assert "Subtask settled" in log.of(task)
    assert "Something new" not in log.text


def test_a_task_that_is_canceled_elsewhere_is_logged(shell: Shell) -> None:
    task = create(shell, ["sleep", 600])
    with logged(shell, "worker", "--log-format", "json") as log:
        log.until(lambda text: '"Run started"' in text)
        assert shell.remit("task", "cancel", task).code == 0
        log.until(lambda text: '"Task canceled"' in text)
        assert log.of(task)[-2:] == ["Run ended", "Task canceled"]
        ended, canceled = [line for line in log.lines() if line.get("task") == task][-2:]
    assert (ended["outcome"], canceled["reason"]) == ("canceled", "user")


def test_a_task_that_is_paused_during_a_run_and_resumed_is_logged(shell: Shell) -> None:
    task = create(shell, ["sleep", 600], ["sleep", 600])
    with logged(shell, "worker", "--log-format", "json") as log:
        for count in (1, 2):
            log.until(lambda text, count=count: text.count('"Run started"') == count)  # type: ignore[misc]
            assert shell.remit("task", "pause", task).code == 0
            log.until(lambda text, count=count: text.count('"Task paused"') == count)  # type: ignore[misc]
            assert shell.remit("task", "resume", task).code == 0
        log.until(lambda text: '"Task done"' in text)
        first, *parts, end, done = log.of(task)
        assert (first, end, done) == ("Task started", "Run ended", "Task done")
        for count in (0, 4):
            assert parts[count] == "Run started"
            assert sorted(parts[count + 1 : count + 3]) == ["Run ended", "Task paused"]
            assert parts[count + 3] == "Task resumed"
        paused = next(line for line in log.lines() if line["message"] == "Task paused")
    assert paused["by"].startswith("user:")


def test_a_pause_is_logged_while_the_run_is_in_a_call(shell: Shell) -> None:
    """Before, it was logged when the run ended, with the time of that."""
    shell.env["REMIT_RUNNER"] = "tests.surfaces.stubborn:Stubborn"
    task = create(shell, title="Stubborn")
    with logged(shell, "worker", "--log-format", "json") as log:
        log.until(lambda text: '"Run started"' in text)
        assert shell.remit("task", "pause", task).code == 0
        log.until(lambda text: '"Task paused"' in text)
        assert shell.remit("task", "resume", task).code == 0
        log.until(lambda text: '"Task resumed"' in text)
        log.process.kill()
    assert log.of(task) == ["Task started", "Run started", "Task paused", "Task resumed"]


def test_a_lost_run_and_its_new_worker_are_logged(shell: Shell) -> None:
    task = create(shell, ["sleep", 1.5], ["finish", "Done"])
    with logged(shell, "worker", "--log-format", "json", name="first") as first:
        first.until(lambda text: '"Run started"' in text)
        first.process.kill()
        first.process.wait()
        begun = next(line for line in first.lines() if line["message"] == "Run started")
        with logged(shell, "worker", "--log-format", "json", name="second") as second:
            second.until(lambda text: '"Task done"' in text)
            assert second.of(task)[:2] == ["Run lost", "Run started, taken over"]
            lost, started = [line for line in second.lines() if line.get("task") == task][:2]
    assert (lost["level"], started["attempt"]) == ("warning", 2)
    assert (lost["run"], lost["worker"]) == (begun["run"], begun["worker"])
    assert lost["found_by"] == started["worker"] != begun["worker"]


def test_the_log_lines_of_a_killed_worker_are_not_repeated(shell: Shell) -> None:
    task = create(shell, ["ask", SECRET], ["sleep", 1.5], ["finish", "Done"])
    with logged(shell, "worker", "--log-format", "json", name="first") as first:
        first.until(lambda text: "yielded" in text)
        assert shell.remit("interact", "respond", f"{task}-q1", "Yes").code == 0
        first.until(lambda text: text.count('"Run started"') == 2)
        first.process.kill()
        first.process.wait()
        assert first.of(task)[-2:] == ["Question answered", "Run started"]
    with logged(shell, "worker", "--log-format", "json", name="second") as second:
        second.until(lambda text: '"Task done"' in text)
        assert second.of(task) == ["Run lost", "Run started, taken over", "Run ended", "Task done"]


def test_an_answer_that_no_worker_has_seen_is_logged_by_the_next(shell: Shell) -> None:
    task = create(shell, ["ask", SECRET], ["finish", "Done"])
    with logged(shell, "worker", "--log-format", "json", name="first") as first:
        first.until(lambda text: "yielded" in text)
    assert shell.remit("interact", "respond", f"{task}-q1", "Yes").code == 0
    with logged(shell, "worker", "--log-format", "json", name="second") as second:
        second.until(lambda text: '"Task done"' in text)
        assert second.of(task) == ["Question answered", "Run started", "Run ended", "Task done"]


def test_a_server_logs_its_tasks_and_requests_that_it_could_not_answer(shell: Shell) -> None:
    token = shell.remit("token", "show").out.strip()
    with logged(shell, "serve", "--port", "0", "--no-worker", "--log-format", "json") as log:
        log.until(lambda text: "Server started" in text)
        address = re.search(r"http://127\.0\.0\.1:\d+", log.text)
        assert address is not None
        body = json.dumps({"objective": SECRET}).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{address[0]}/api/delegate", body, headers)
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(request, timeout=patient(20))
        log.until(lambda text: "Request failed" in text)
        failed = next(
            line
            for line in log.lines()
            if line["message"].startswith("Request failed: No running worker works on task")
        )
    assert (failed["level"], failed["method"], failed["path"], failed["status"]) == (
        "warning",
        "POST",
        "/api/delegate",
        503,
    )
    assert failed["code"] == "UNAVAILABLE"
    assert SECRET not in log.text
    assert token not in log.text


@pytest.fixture
def at() -> Iterator[Shop]:
    with shop() as opened:
        yield opened


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_how_much_is_logged_is_an_option(at: Shop, command: str) -> None:
    for given in ([], ["-v"], ["-q"]):
        assert at(command, *given).code == 0
    assert at.host.details == ["normal", "verbose", "quiet"]
    both = at(command, "-v", "-q")
    assert (both.code, "-v and -q cannot be combined." in both.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "env", "said"),
    [
        (["serve", "--port", "{port}"], {}, "Cannot use port"),
        (["serve", "--host", "0.0.0.0"], {}, "without encryption"),
        (["worker"], {"REMIT_RUNNER": "nowhere:Nothing"}, "runner"),
        (["worker"], {"REMIT_SCHEDULER_CRON": "x"}, "cron"),
        (["worker", "--agents", "nobody"], {}, "unknown agent"),
        (["worker", "--concurrency", "many"], {}, "--concurrency"),
        (["worker", "--nonsense"], {}, "--nonsense"),
        (["worker"], {"REMIT_PORT": "x"}, "port"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.parametrize("chosen", ["option", "variable", "file"])
def test_an_error_at_the_start_is_json_too(
    tmp_path: Path, arguments: list[str], env: dict[str, str], said: str, chosen: str
) -> None:
    shell = Shell(tmp_path, **env, **({"REMIT_LOG_FORMAT": "json"} if chosen == "variable" else {}))
    if chosen == "file":
        if said in ("--concurrency", "--nonsense", "port"):
            pytest.skip("the file is not read before these are refused")
        assert Shell(tmp_path).remit("init").code == 0
        (tmp_path / ".remit" / "config.toml").write_text('log_format = "json"\n')
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = [word.format(port=taken.getsockname()[1]) for word in arguments]
        refused = shell.remit(*given, *(["--log-format", "json"] if chosen == "option" else []))
    lines = [json.loads(line) for line in refused.err.splitlines()]
    assert (refused.code != 0, lines[-1]["level"], said in lines[-1]["message"]) == (
        True,
        "error",
        True,
    ), refused
    assert {"time", "level", "logger", "message", "code"} <= lines[-1].keys()


@pytest.mark.parametrize(
    ("heartbeat", "seconds", "said"),
    [
        (
            "1",
            600,
            (
                " s. Gave up 1 run here. A worker continues it only if its task is in the store"
                " that is used from now on."
            ),
        ),
        ("60", 2, "could not be put back"),
    ],
    ids=["while it runs", "when it ends"],
)
def test_a_worker_whose_database_file_was_deleted_logs_no_traceback(
    tmp_path: Path, heartbeat: str, seconds: int, said: str
) -> None:
    variables = {
        "REMIT_RUNNER": "remit.testing:Scripted",
        "REMIT_HEARTBEAT_SECONDS": heartbeat,
        "PYTHONPATH": environment()["PYTHONPATH"],
    }
    shell = Shell(tmp_path, **variables)
    assert shell.remit("init").code == 0
    create(shell, ["sleep", seconds], ["finish", "Done"])
    with logged(shell, "worker", "--log-format", "json") as log:
        log.until(lambda _: _sleeps(tmp_path / ".remit" / "remit.db"))
        for name in ("remit.db", "remit.db-wal", "remit.db-shm"):
            (tmp_path / ".remit" / name).unlink()
        log.until(lambda text: said in text)
        assert not [line for line in log.lines() if "exception" in line], log.text
        assert "The store has recovered" not in log.text, "the file was never put back"


def _sleeps(database: Path) -> bool:
    """Whether a script has begun to sleep: it writes nothing until the sleep ends."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return connection.execute("SELECT 1 FROM call WHERE tool = 'sleep'").fetchone() is not None


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_process_that_is_stopped_while_it_starts_does_not_log_its_start_afterwards(
    shell: Shell, command: str
) -> None:
    shell.env["REMIT_RUNNER"] = "tests.surfaces.hasty:Hasty"
    port = ["--port", "0"] if command == "serve" else []
    with logged(shell, command, *port) as log:
        log.process.wait(patient(20))
        assert "started" not in log.text
        said = [line.split(" INFO ")[1] for line in log.text.splitlines()]
        assert said == ["Stopping. Ctrl-C or SIGTERM again to quit now.", "Stopped."]
        assert log.process.returncode == 0


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    for env, given in (({}, ["--log-format", "xml"]), ({"REMIT_LOG_FORMAT": "xml"}, [])):
        shell.env |= env
        refused = shell.remit("worker", *given)
        assert refused.code == 2
        assert "is 'xml'; expected one of text, json" in refused.err


def _record(message: str, **fields: Any) -> logging.LogRecord:
    record = logging.LogRecord("remit.x", logging.INFO, "", 0, message, (), None)
    record.fields = fields
    return record


def test_values_are_quoted_where_they_must_be() -> None:
    record = _record(
        "Done",
        plain="a-b",
        words="a b",
        sign='a="b"',
        empty="",
        number=1.5,
        wild="a\x1b[31m\nb\u202e",
    )
    text = TextFormatter().format(record).partition("Z ")[2]
    assert text == r'INFO Done plain=a-b words="a b" sign="a=\"b\"" empty="" number=1.5 wild="a b"'
    shown = json.loads(JsonFormatter().format(record))
    assert (shown["words"], shown["number"], shown["wild"], shown["level"]) == (
        "a b",
        1.5,
        "a b",
        "info",
    )


def test_an_exception_is_below_its_line_or_a_field_of_it() -> None:
    try:
        raise ValueError("wrong\x1b[2J")
    except ValueError:
        record = _record("Broken")
        record.exc_info = sys.exc_info()
    text = TextFormatter().format(record)
    assert text.splitlines()[-1] == "ValueError: wrong"
    lines = JsonFormatter().format(record).splitlines()
    assert len(lines) == 1
    assert "ValueError: wrong" in json.loads(lines[0])["exception"]


def test_small_amounts_are_logged_without_an_exponent() -> None:
    record = logging.LogRecord("remit.task", logging.INFO, __file__, 1, "Run ended", None, None)
    record.fields = {"cost": 1e-06, "seconds": 3.0}
    assert TextFormatter().format(record).endswith("INFO Run ended cost=0.000001 seconds=3.0")


@pytest.mark.parametrize("command", ["run", "worker", "serve"])
def test_settings_that_do_not_count_are_named_once(tmp_path: Path, command: str) -> None:
    at = Shell(tmp_path)
    assert at.remit("init").code == 0
    config = tmp_path / ".remit" / "config.toml"
    config.write_text('colour = "red"\n[models.main]\nmodle = "m"\n"\\u001b[2J" = 1\n')
    told = f"Ignored: colour in {config}; models.main.modle in {config}; models.main."
    if command == "run":
        said = at.remit("run", "Look").err
    else:
        options = ("--port", "0") if command == "serve" else ()
        with logged(at, command, *options) as process:
            process.until(lambda text: "started" in text)
            said = process.text
    assert said.count("Ignored: ") == 1
    assert told in said
    assert f"in {config}. See what is in force with: remit doctor" in said
    assert "\x1b" not in said
    assert "IgnoreRules" not in at.remit("task", "list").err
