"""MCP on standard input and output: a real process, real clients, and every way it can end."""

import asyncio
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from remit.adapters.stores.sqlite.driver import connect
from remit.app.maintenance.verify import verify
from remit.bootstrap import open_store
from remit.store_queries.event_queries import STREAMS
from tests.crash.process import environment, until
from tests.patience import patient
from tests.surfaces.mcp_http import MODERN, MODES, ok, tell_story
from tests.surfaces.mcp_pipe import asking, client, command, hello, piped, url

HELLO = json.dumps(hello("2025-11-25")).encode() + b"\n"


@pytest.mark.parametrize("mode", MODES)
async def test_a_story_over_stdio(tmp_path: Path, mode: str) -> None:
    async with client(tmp_path, mode) as connected:
        assert connected.protocol_version == (MODERN if mode == MODERN else "2025-11-25")
        await tell_story(connected)


async def test_a_client_that_knows_no_version_in_advance_gets_the_newest(tmp_path: Path) -> None:
    async with client(tmp_path, "auto") as connected:
        assert connected.protocol_version == MODERN


@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25"])
async def test_older_versions_are_spoken(tmp_path: Path, version: str) -> None:
    async with piped(tmp_path) as server:
        assert (await server.hello(version))["result"]["protocolVersion"] == version
        await server.send(asking(1, "create_task", title="Write"))
        created = (await server.receive())["result"]
        assert json.loads(created["content"][0]["text"]) == created["structuredContent"]
        await server.send(asking(2, "get_task", task_id="99"))
        missing = (await server.receive())["result"]
        assert missing["isError"] is True
        assert missing["content"][0]["text"].startswith("NOT_FOUND: There is no task 99.")


async def test_nothing_but_the_protocol_is_on_standard_output(tmp_path: Path) -> None:
    async with piped(tmp_path, "noisy") as server:
        await server.hello()
        await server.send(
            asking(1, "create_task", title="Quiet"),
            {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
        )
        assert {(await server.receive())["id"], (await server.receive())["id"]} == {1, 2}
        server.stdin.close()
        assert await server.rest() == []
        assert server.process.stderr is not None
        assert set((await server.process.stderr.read()).split()) == {b"stray"}
        assert await server.process.wait() == 0


async def test_no_text_can_end_a_line(tmp_path: Path) -> None:
    title = "one\u2028two\u2029three\u0085four\r\nfive 🙂"
    async with piped(tmp_path) as server:
        await server.hello()
        await server.send(asking(1, "create_task", title=title))
        await server.receive()
        await server.send(asking(2, "get_task", task_id="1"))
        line = await server.stdout.readline()
        assert line.isascii()
        assert json.loads(line)["result"]["structuredContent"]["title"] == title


async def test_requests_before_the_end_of_input_are_answered(tmp_path: Path) -> None:
    async with piped(tmp_path) as server:
        await server.send(
            hello("2025-11-25"),
            *(asking(number, "create_task", title=f"Task {number}") for number in range(1, 21)),
        )
        server.stdin.close()
        answers = await server.rest()
        assert {answer["id"] for answer in answers} == set(range(21))
        assert all("result" in answer for answer in answers)
        await server.ends_well()


def test_files_do_as_well_as_pipes(tmp_path: Path) -> None:
    asked, answered = tmp_path / "asked", tmp_path / "answered"
    asked.write_text(
        "\n".join(json.dumps(message) for message in (hello("2025-11-25"), asking(1, "list_tasks")))
    )
    with asked.open() as source, answered.open("w") as target:
        ended = subprocess.run(
            command(tmp_path),
            env=environment(),
            stdin=source,
            stdout=target,
            stderr=subprocess.PIPE,
            timeout=patient(60),
            check=True,
        )
    assert [json.loads(line)["id"] for line in answered.read_text().splitlines()] == [0, 1]
    assert ended.stderr == b""
    nothing = subprocess.run(
        command(tmp_path),
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=patient(60),
        check=True,
    )
    assert (nothing.stdout, nothing.stderr) == (b"", b"")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_well(tmp_path: Path, number: signal.Signals) -> None:
    async with piped(tmp_path) as server:
        await server.hello()
        server.process.send_signal(number)
        assert await server.rest() == []
        await server.ends_well()


async def test_a_call_that_a_locked_store_holds_up_is_answered_at_the_end(tmp_path: Path) -> None:
    async with piped(tmp_path) as server:
        await server.hello()
        with closing(connect(tmp_path / "remit.db")) as other:
            other.execute("BEGIN IMMEDIATE")
            listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
            await server.send(asking(1, "create_task", title="A"), listing)
            assert (await server.receive())["id"] == 2, "so the call before it was read"
            server.process.send_signal(signal.SIGTERM)
            answer = await server.receive()
            other.execute("ROLLBACK")
    assert answer["id"] == 1
    assert "UNAVAILABLE" in answer["error"]["message"]
    assert "may or may not be stored" in answer["error"]["message"]


@asynccontextmanager
async def unread(folder: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """A server whose answers wait in a pipe that nobody reads."""
    reading, writing = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *command(folder), env=environment(), stdin=subprocess.PIPE, stdout=writing
    )
    os.close(writing)
    try:
        async with asyncio.timeout(patient(60)):
            yield process, reading
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
        os.close(reading)


def full(pipe: int) -> bool:
    """A pipe holds what it can: 16 pages, of which the last one of each answer is not filled."""
    (held,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"    "))
    return int(held) > 50_000


LISTING = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}\n'


async def test_a_client_that_does_not_read_blocks_no_other(tmp_path: Path) -> None:
    async with (
        open_store(url(tmp_path)) as store,
        store.watch() as watch,
        unread(tmp_path) as (server, answers),
    ):
        start = await store.tail()
        assert server.stdin is not None
        server.stdin.write(
            HELLO
            + LISTING * 60
            + json.dumps(asking(2, "create_task", title="Done all the same")).encode()
            + b"\n"
        )
        while await store.tail() == start:
            await watch.wait()
        await until(lambda: full(answers))
        with os.fdopen(os.dup(answers), "rb") as lines:
            read = await asyncio.to_thread(
                lambda: [json.loads(lines.readline()) for _ in range(62)]
            )
        assert sorted(answer["id"] for answer in read) == [0, *[1] * 60, 2]
        assert sum(len(json.dumps(answer)) for answer in read) > 1_000_000, (
            "far more than a pipe holds"
        )


@pytest.mark.parametrize("line", [LISTING, b"no message\n"])
async def test_a_client_that_is_stuck_can_still_be_left(tmp_path: Path, line: bytes) -> None:
    async with unread(tmp_path) as (server, answers):
        assert server.stdin is not None
        server.stdin.write(HELLO + line * (1_000_000 // len(line)))
        await until(lambda: full(answers))
        server.send_signal(signal.SIGTERM)
        assert await server.wait() == 0


@pytest.mark.parametrize("line", [HELLO, b"no message\n"])
def test_it_ends_when_the_client_stops_reading(tmp_path: Path, line: bytes) -> None:
    with subprocess.Popen(
        command(tmp_path), env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdout.close()
        server.stdin.write(line)
        server.stdin.flush()
        assert server.wait(patient(60)) == 0


def test_it_ends_when_a_client_on_a_socket_dies_with_answers_unread(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with (
        subprocess.Popen(
            command(tmp_path),
            env=environment(),
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.PIPE,
        ) as server,
        ours,
        theirs,
    ):
        theirs.close()
        ours.sendall(HELLO)
        assert ours.recv(1) == b"{"
        ours.close()
        assert server.wait(patient(60)) == 0
        assert server.stderr is not None
        assert server.stderr.read() == b""


@pytest.mark.parametrize("mode", MODES)
async def test_many_calls_at_once_on_one_connection(tmp_path: Path, mode: str) -> None:
    titles = [f"Task {number}" for number in range(60)]
    async with client(tmp_path, mode) as connected:
        created = await asyncio.gather(
            *(ok(connected, "create_task", title=title) for title in titles)
        )
        assert len({each["task_id"] for each in created}) == len(titles)
        shown = await asyncio.gather(
            *(ok(connected, "get_task", task_id=each["task_id"]) for each in created)
        )
        assert [task["title"] for task in shown] == titles


async def test_acknowledged_changes_survive_a_kill_and_a_new_server_continues(
    tmp_path: Path,
) -> None:
    acknowledged: set[str] = set()
    for enough in (3, 40):
        async with piped(tmp_path) as server:
            await server.hello()
            await server.send(
                *(asking(number, "create_task", title=f"Task {number}") for number in range(1, 60))
            )
            for _ in range(enough):
                acknowledged.add((await server.receive())["result"]["structuredContent"]["task_id"])
            server.process.kill()
            for answer in await server.rest():
                acknowledged.add(answer["result"]["structuredContent"]["task_id"])
        async with open_store(url(tmp_path)) as store:
            report = await verify(store)
            assert report.faults == ()
            streams = {
                row.stream for row in await store.select(STREAMS, {"after_id": "", "limit": 1000})
            }
            assert acknowledged <= streams
    assert len(acknowledged) >= 43
    async with client(tmp_path, MODERN) as connected:
        await tell_story(connected)
