"""The real `remit` command in real processes: a workspace, a server, MCP on its standard
streams, moving to another store.
"""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from remit.surfaces.cli.output.page_parts import format_work_time
from tests.crash.process import environment
from tests.patience import patient
from tests.postgres import PostgresForTests
from tests.surfaces.shell import Served, Shell, events_of, served, serving, until


def test_a_command_outside_a_workspace_says_how_to_make_one(tmp_path: Path) -> None:
    ran = Shell(tmp_path).remit("task", "list")
    assert (ran.code, ran.out) == (3, "")
    assert "remit init" in ran.err


def test_the_same_commands_work_through_a_server(shell: Shell) -> None:
    shell.remit("task", "create", "Here", "--owner", "general")
    with serving(shell) as url:
        away = Shell(shell.folder, REMIT_URL=url)
        assert away.remit("task", "create", "There", "--json").json["task_id"] == "2"
        assert (
            away.remit("task", "list", "--json").json == shell.remit("task", "list", "--json").json
        )
        missing = away.remit("task", "show", "9")
        assert (missing.code, "There is no task 9." in missing.err) == (3, True)
        stranger = Shell(shell.folder, REMIT_URL=url, REMIT_TOKEN="wrong").remit("task", "list")
        assert (stranger.code, "token" in stranger.err) == (5, True)
    gone = Shell(shell.folder, REMIT_URL=url).remit("task", "list")
    assert gone.code == 7


def test_the_options_of_parallel_hold_for_work_that_does_not_say_otherwise(shell: Shell) -> None:
    work = 'First\n{"objective": "Second", "subagent_type": "plan"}\n'
    (shell.folder / "work.txt").write_text(work)
    options = ("--agent", "explore", "--effort", "low", "--timeout", "77")
    ran = shell.remit("parallel", "work.txt", *options, "--json")
    agents = [item["data"]["subagent_type"] for item in ran.json["results"]]
    assert agents == ["explore", "plan"]
    tasks = [shell.remit("task", "show", number, "--json").json for number in ("1", "2")]
    assert [task["effort"] for task in tasks] == ["low", "low"]
    assert [task["limits"]["timeout_seconds"] for task in tasks] == [77, 77]


def test_a_server_listens_only_on_this_machine_by_default(shell: Shell) -> None:
    ran = shell.remit("serve", "--host", "0.0.0.0", "--port", "0")
    assert ran.code == 2
    assert "--insecure" in ran.err


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_mcp_on_the_standard_streams(shell: Shell, mode: str) -> None:
    shell.remit("task", "create", "Here")
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "remit", "mcp"], cwd=str(shell.folder), env=shell.env
    )
    async with Client(stdio_client(server), mode=mode) as client:
        made = await client.call_tool("create_task", {"title": "By MCP", "owner": "explore"})
        assert made.structured_content is not None
        assert made.structured_content["task_id"] == "2"
        wrong = await client.call_tool("get_task", {"task_id": "9"})
        assert wrong.is_error
    assert shell.remit("task", "show", "2", "--json").json["title"] == "By MCP"


async def test_mcp_on_the_standard_streams_through_a_server(
    shell: Shell, tmp_path_factory: pytest.TempPathFactory
) -> None:
    token, elsewhere = (
        shell.remit("token", "show").out.strip(),
        tmp_path_factory.mktemp("elsewhere"),
    )
    told: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        assert (progress, total) == (len(told) + 1, None)
        told.append(message)

    with serving(shell) as url:
        env = shell.env | {"REMIT_URL": url, "REMIT_TOKEN": token}
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "remit", "mcp"], cwd=str(elsewhere), env=env
        )
        async with Client(stdio_client(server), mode="legacy") as client:
            done = await client.call_tool(
                "task",
                {"objective": "Look around", "subagent_type": "explore"},
                progress_callback=hear,
            )
            assert done.structured_content is not None
            assert (done.structured_content["task_id"], done.structured_content["status"]) == (
                "1",
                "completed",
            )
            assert (await client.call_tool("get_task", {"task_id": "9"})).is_error
            assert (await client.call_tool("task", {"objective": "x", "operation": "x"})).is_error
    assert told[-1] == "#1 completed"
    assert shell.remit("task", "show", "1", "--json").json["state"] == "done"


def test_events_and_tasks_move_to_another_store(
    shell: Shell, tmp_path: Path, postgres: PostgresForTests
) -> None:
    shell.remit("task", "create", "One", "--owner", "general", "--step", "a")
    shell.remit("task", "create", "Two")
    shell.remit("task", "complete", "2", "--summary", "Done.")
    shell.remit("guide", "add", "Disk is full", "--body", "Delete the caches.")
    dump, folder = tmp_path / "all.jsonl", tmp_path / "files"
    assert shell.remit("export", "events", str(dump)).code == 0
    assert shell.remit("export", "tasks", str(folder), "--json").json["count"] == 2
    named = shell.remit("export", "tasks", str(folder))
    assert (named.out.split("\n")[0], named.code) == (f"Exported 2 tasks to {folder}", 0)

    other = Shell(shell.folder, REMIT_DATABASE_URL=postgres.new_database())
    assert other.remit("import", str(dump)).code == 0
    assert (
        other.remit("task", "show", "1", "--json").json
        == shell.remit("task", "show", "1", "--json").json
    )
    assert other.remit("task", "create", "Three", "--json").json["task_id"] == "3"
    assert other.remit("import", str(dump)).code == 4
    checked = other.remit("doctor", "--verify", "--json").json
    assert checked["verified"]["faults"] == []

    third = Shell(shell.folder, REMIT_DATABASE_URL=f"sqlite:///{tmp_path / 'third.db'}")
    assert third.remit("import", str(folder), "--json").json == {
        "what": "tasks",
        "source": str(folder),
        "count": 2,
        "changes": [],
    }
    assert third.remit("task", "history", "--json").json["tasks"][0]["title"] == "Two"
    assert third.remit("import", str(tmp_path / "nothing")).code == 3
    (folder / "tasks.json").write_text('{"tasks": [{"id": 1, "title": "A", "color": "red"}]}')
    (folder / "history.jsonl").unlink()
    fourth = Shell(tmp_path / "fourth")
    fourth.folder.mkdir()
    fourth.remit("init")
    said = fourth.remit("import", str(folder))
    assert (
        said.out
        == f"Imported 1 task from {folder}\n  #1 dropped color: task files do not have this"
        " field\n"
    )


def test_doctor_shows_where_settings_come_from_and_no_secret(
    shell: Shell, postgres: PostgresForTests
) -> None:
    url = postgres.new_database().replace("postgres@", "postgres:hunter2@")
    ran = Shell(shell.folder, REMIT_DATABASE_URL=url, REMIT_TOKEN="hunter3").remit(
        "doctor", "--json"
    )
    assert ran.code == 0, ran.err
    settings = {item["name"]: item for item in ran.json["settings"]}
    assert settings["database_url"]["origin"] == "REMIT_DATABASE_URL"
    assert "hunter" not in ran.out


def test_a_store_that_does_not_hold_together_fails_the_doctor(shell: Shell) -> None:
    from remit.adapters.stores.sqlite.driver import connect

    shell.remit("task", "create", "One")
    connection = connect(shell.folder / ".remit" / "remit.db")
    connection.execute("UPDATE task SET title = 'Another'")
    connection.close()
    ran = shell.remit("doctor", "--verify")
    assert ran.code == 1
    assert "differs from its events in title" in ran.out


def test_changes_acknowledged_by_a_killed_command_are_stored(shell: Shell) -> None:
    child = shell.started("mcp")
    assert child.stdin is not None
    assert child.stdout is not None
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    for message in (
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "create_task", "arguments": {"title": "Kept"}},
        },
    ):
        child.stdin.write(json.dumps(message) + "\n")
        child.stdin.flush()
    while json.loads(child.stdout.readline()).get("id") != 2:
        pass
    child.kill()
    child.communicate()
    assert shell.remit("task", "list", "--json").json["tasks"][0]["title"] == "Kept"
    assert shell.remit("doctor", "--verify").code == 0


@contextmanager
def working(shell: Shell, *arguments: str) -> "Iterator[subprocess.Popen[str]]":
    """A running `remit worker` that follows scripts."""
    child = shell.started("worker", *arguments)
    assert child.stderr is not None
    assert "Worker started: up to " in child.stderr.readline()
    try:
        yield child
    finally:
        child.kill()
        child.communicate(timeout=patient(20))


@pytest.fixture
def stubborn(tmp_path: Path, durable_url: str) -> Shell:
    """A shell whose workers work until they are told to stop."""
    runner = {
        "REMIT_RUNNER": "tests.surfaces.stubborn:Stubborn",
        "PYTHONPATH": environment()["PYTHONPATH"],
    }
    shell = Shell(
        tmp_path, **runner, REMIT_HEARTBEAT_SECONDS=str(patient(1)), REMIT_DATABASE_URL=durable_url
    )
    assert shell.remit("init").code == 0
    return shell


@contextmanager
def serving_and_working(shell: Shell) -> "Iterator[subprocess.Popen[str]]":
    with served(shell) as server:
        yield server.process


@pytest.mark.parametrize("start", [working, serving_and_working], ids=["worker", "serve"])
def test_a_stopped_worker_releases_its_runs_and_a_second_signal_ends_it(
    stubborn: Shell, start: "Callable[[Shell], AbstractContextManager[subprocess.Popen[str]]]"
) -> None:
    stubborn.remit("task", "create", "Gentle", "--owner", "general")
    with start(stubborn) as worker:
        until(lambda: "RunStarted" in events_of(stubborn, "1"))
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(patient(20)) == 0
    assert events_of(stubborn, "1")[-1] == "RunReleased"
    stubborn.remit("task", "cancel", "1")
    stubborn.remit("task", "create", "Stubborn", "--owner", "general")
    with start(stubborn) as worker:
        until((stubborn.folder / "begun").exists)
        worker.send_signal(signal.SIGTERM)
        until((stubborn.folder / "deaf").exists)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(patient(20)) == 128 + signal.SIGTERM
    assert events_of(stubborn, "2")[-1] == "RunStarted"
    with working(stubborn):
        until(lambda: events_of(stubborn, "2")[-2:] == ["RunLost", "RunStarted"])


@pytest.mark.parametrize("command", [["serve", "--port", "0"], ["worker"]], ids=["serve", "worker"])
def test_a_signal_right_after_the_first_word_is_heard(shell: Shell, command: list[str]) -> None:
    child = shell.started(*command)
    assert child.stderr is not None
    assert child.stderr.readline()
    child.send_signal(signal.SIGTERM)
    _, rest = child.communicate(timeout=patient(20))
    assert (child.returncode, "Traceback" in rest) == (0, False)


@pytest.mark.parametrize(
    ("agents", "problem"),
    [
        ("nobody", "unknown agent 'nobody'. Available: build, explore,"),
        (" , ", "is empty; expected some of build, explore,"),
    ],
    ids=["unknown", "none"],
)
def test_a_worker_without_agents_prints_only_that(shell: Shell, agents: str, problem: str) -> None:
    ran = shell.remit("worker", "--agents", agents)
    assert (ran.code, f"agents: {problem}" in ran.err, "Worker started: up to " in ran.err) == (
        2,
        True,
        False,
    )


@pytest.mark.parametrize("command", ["worker", "serve"])
def test_a_worker_does_not_take_another_store_for_that_of_the_server_that_is_named(
    tmp_path: Path, command: str
) -> None:
    ran = Shell(tmp_path).remit(command, "--url", "http://127.0.0.1:9")
    assert (
        ran.code,
        "This command opens the database itself, but a server is set (http://127.0.0.1:9)."
        in ran.err,
    ) == (2, True)
    assert not (tmp_path / ".remit").exists()


@pytest.mark.parametrize(
    "command",
    [("task", "list"), ("run", "hi"), ("task", "watch"), ("run", "hi", "--allow", "Edit")],
)
def test_a_command_for_a_server_says_that_its_token_is_missing(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    ran = Shell(tmp_path).remit(*command, "--url", "http://127.0.0.1:9")
    assert (ran.code, ran.err.splitlines()) == (
        5,
        [
            "error: There is no token for the server at http://127.0.0.1:9.",
            "Set REMIT_TOKEN. On the server's machine, this prints it: remit token show",
        ],
    )
    assert not (tmp_path / ".remit").exists()


def test_an_unreachable_server_is_named_without_a_variable_that_is_not_set(
    tmp_path: Path,
) -> None:
    at = Shell(tmp_path, REMIT_TOKEN="any")
    ran = at.remit("run", "hi", "--url", "http://127.0.0.1:9")
    assert (
        ran.code,
        "Check the address, or start a server" in ran.err,
        "REMIT_URL" in ran.err,
    ) == (
        7,
        True,
        False,
    )
    assert not (tmp_path / ".remit").exists()


@contextmanager
def asked(
    server: Served, target: str, body: Any = None, accept: str = "*/*"
) -> Iterator[HTTPConnection]:
    """A request that was sent and is not answered yet; with a body it is a POST."""
    headers = {
        "Authorization": f"Bearer {server.token}",
        "Content-Type": "application/json",
        "Accept": accept,
    }
    with closing(
        HTTPConnection(server.url.removeprefix("http://"), timeout=patient(60))
    ) as connection:
        connection.request(
            "GET" if body is None else "POST",
            target,
            None if body is None else json.dumps(body),
            headers,
        )
        yield connection


def test_a_caller_of_a_stopping_server_is_told_that_the_work_continues(stubborn: Shell) -> None:
    stubborn.remit("task", "create", "Gentle", "--owner", "general")
    work = {"objective": "Gentle", "subagent_type": "general"}
    stream = "text/event-stream"
    with served(stubborn) as server, ExitStack() as stack:
        result = stack.enter_context(asked(server, "/api/tasks/1/result?wait=600"))
        events = stack.enter_context(asked(server, "/api/events", accept=stream)).getresponse()
        one = stack.enter_context(asked(server, "/api/delegate", work))
        until(lambda: "RunStarted" in events_of(stubborn, "2"))
        two = stack.enter_context(asked(server, "/api/delegate/parallel", {"tasks": [work, work]}))
        until(lambda: "RunStarted" in events_of(stubborn, "4"))
        told = stack.enter_context(
            asked(server, "/api/delegate", work, accept=stream)
        ).getresponse()
        until(lambda: "RunStarted" in events_of(stubborn, "5"))
        server.process.send_signal(signal.SIGINT)
        for connection, ids in (
            (result, {"task_id": "1"}),
            (one, {"task_id": "2"}),
            (two, {"task_ids": ["3", "4"]}),
        ):
            answer = connection.getresponse()
            said = json.load(answer)
            assert (answer.status, said["error"]["code"], said["error"]["details"]) == (
                503,
                "UNAVAILABLE",
                ids,
            )
            assert "is stopping" in said["error"]["message"]
            assert "kept; work continues when a worker runs" in said["error"]["message"]
            assert said.keys() == (
                {"error"}
                if connection is result
                else {"status", "data", "text", "stats", "context", "error"}
            )
        assert b"event: TaskCreated" in events.read()
        *_, last, end = told.read().decode().split("\n\n")
        assert (last.splitlines()[0], end) == ("event: error", "")
        assert json.loads(last.splitlines()[1].removeprefix("data: "))["error"]["details"] == {
            "task_id": "5"
        }
        assert server.process.wait(patient(20)) == 128 + signal.SIGINT
    assert [events_of(stubborn, str(task_id))[-1] for task_id in range(1, 6)] == ["RunReleased"] * 5


def test_a_stopping_server_starts_nothing_and_a_second_signal_ends_it(
    stubborn: Shell,
) -> None:
    stubborn.remit("task", "create", "Stubborn", "--owner", "general")
    with served(stubborn) as server:
        until(lambda: "RunStarted" in events_of(stubborn, "1"))
        host, _, port = server.url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as slow:
            head = (
                f"POST /api/tasks HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer"
                f" {server.token}\r\n"
            )
            # And no more.
            slow.sendall(
                f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n".encode()
            )
            server.process.send_signal(signal.SIGTERM)
            until(lambda: not listens(host, int(port)))
            stubborn.remit("task", "create", "Gentle", "--owner", "general")
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(patient(20)) == 128 + signal.SIGTERM
    assert "RunReleased" not in events_of(stubborn, "1"), "it was ended, not handed over"
    assert "RunStarted" not in events_of(stubborn, "2")


@pytest.mark.parametrize(
    "command",
    [["serve", "--port", "0"], ["worker"], ["run", "Saboteur"]],
    ids=["serve", "worker", "run"],
)
def test_a_command_whose_worker_fails_ends_with_an_error(
    tmp_path: Path, command: list[str]
) -> None:
    url = f"sqlite:///{tmp_path / 'remit.db'}"
    shell = Shell(
        tmp_path,
        REMIT_RUNNER="tests.surfaces.stubborn:Stubborn",
        PYTHONPATH=environment()["PYTHONPATH"],
        REMIT_DATABASE_URL=url,
    )
    shell.remit("init")
    if command[0] != "run":
        shell.remit("task", "create", "Saboteur", "--owner", "general")
    child = shell.started(*command)
    _, said = child.communicate(timeout=patient(60))
    assert child.returncode == 1
    assert said.count("It stops claiming tasks and hands over its runs.") == 1
    assert "The worker has failed: RuntimeError: boom." in said.splitlines()[-2]
    assert events_of(shell, "1")[-1] == "RunReleased"
    assert shell.remit("doctor", "--json").json["workers"] == []


def listens(host: str, port: int) -> bool:
    """Whether somebody takes connections there."""
    try:
        socket.create_connection((host, port)).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_server_serves_schedules_and_works_in_one_process(
    tmp_path: Path, durable_url: str
) -> None:
    shell = Shell(tmp_path, REMIT_RUNNER="remit.testing:Scripted", REMIT_DATABASE_URL=durable_url)
    assert shell.remit("init").code == 0
    shell.remit("task", "create", "Work", "--owner", "general")
    with served(shell) as server:
        until(lambda: events_of(shell, "1")[-1] == "TaskCompleted")
        (worker,) = shell.remit("doctor", "--json").json["workers"]
        assert (worker["pid"], worker["alive"]) == (server.process.pid, True)
        assert shell.remit("schedule", "show", "--json").json["due"] is not None
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(patient(20)) == 0
    assert shell.remit("doctor", "--json").json["workers"] == []


def test_a_server_without_a_worker_leaves_the_work_to_others_and_shows_them(
    stubborn: Shell,
) -> None:
    began = datetime.now(UTC)
    with served(stubborn, "--no-worker") as server:
        request = urllib.request.Request(
            f"{server.url}/readyz", headers={"Authorization": f"Bearer {server.token}"}
        )

        def ready() -> list[Any]:
            with urllib.request.urlopen(request, timeout=patient(20)) as answer:
                return json.load(answer)["workers"]  # type: ignore[no-any-return]

        for owner in ("general", "general", "plan"):
            stubborn.remit("task", "create", "Gentle", "--owner", owner)
        assert (ready(), stubborn.remit("doctor", "--json").json["workers"]) == ([], [])
        with working(stubborn, "--agents", "general,explore", "--concurrency", "3") as worker:
            for look in (ready, lambda: stubborn.remit("doctor", "--json").json["workers"]):
                row = busy(look)
                assert (row["host"], row["pid"]) == (socket.gethostname(), worker.pid)
                assert (row["agents"], row["concurrency"]) == (["explore", "general"], 3)
                assert began < datetime.fromisoformat(row["since"]) < datetime.now(UTC)
            pulses = [ready()[0]["heartbeat_seconds_ago"] for _ in range(2)]
            until(
                lambda: (
                    pulses.append(ready()[0]["heartbeat_seconds_ago"]) or pulses[-1] < pulses[-2]  # type: ignore[func-returns-value]
                )
            )
        assert [
            task["state"]
            for task in stubborn.remit("task", "list", "--json").json["tasks"]
            if task["owner"] == "plan"
        ] == ["pending"]


def busy(look: Callable[[], list[Any]]) -> Any:
    """The one worker there is, once it is seen alive with both of its runs.

    Between two heartbeats a short lease may seem to be over.
    """
    found: list[Any] = []

    def seen() -> bool:
        found[:] = look()
        return [(row["alive"], row["running"]) for row in found] == [(True, 2)]

    until(seen)
    return found[0]


def test_delegation_needs_no_key_server_or_worker(shell: Shell) -> None:
    (shell.folder / "notes.txt").write_text("The zebra is striped.\n")
    ran, again = (
        shell.remit("run", "Where is the zebra?", "--agent", "explore", "--cache", "--json")
        for _ in range(2)
    )
    assert (ran.code, again.code) == (0, 0)
    assert [item.json["data"]["cached"] for item in (ran, again)] == [False, True]
    assert again.json["data"]["result"] == ran.json["data"]["result"]
    assert "notes.txt:1" in ran.json["data"]["result"]
    assert "No language model was used" in ran.json["data"]["result"]
    assert [
        item["role"] for item in shell.remit("task", "transcript", "1", "--json").json["messages"]
    ][:2] == ["user", "assistant"]
    shell.remit("task", "create", "Look for the zebra", "--owner", "explore", "--explicit")
    assert shell.remit("task", "run", "2", "--json").json["task"]["state"] == "waiting"


def test_the_time_worked_is_rounded_to_milliseconds_first() -> None:
    assert format_work_time(0.3504) == format_work_time(0.350)


def test_the_footer_and_the_task_tell_the_same_time_worked(shell: Shell) -> None:
    ran = shell.remit("run", "Look around", "--agent", "explore")
    footer = re.search(r", worked for ([\d.]+ s)$", ran.err, re.MULTILINE)
    shown = re.search(
        r"worked for +([\d.]+ s)$", shell.remit("task", "show", "1").out, re.MULTILINE
    )
    assert footer is not None, ran.err
    assert shown is not None
    assert footer[1] == shown[1]
