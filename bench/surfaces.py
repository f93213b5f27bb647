"""Call times of each surface, compared with code that does the same work without remit."""

import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

TASKS = 3
PEERS = Path(__file__).parent / "peers"
# Users have compiled files; without them, a start takes two to three times as long.
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
}


class Workspace(NamedTuple):
    """Create a workspace with some tasks."""

    folder: Path
    token: str

    @property
    def database(self) -> str:
        return str(self.folder / ".remit" / "remit.db")

    def remit(self, *arguments: str) -> list[str]:
        return [
            str(Path(sys.executable).parent / "remit"),
            *arguments,
            "--workspace",
            str(self.folder),
        ]


def workspace(folder: Path) -> Workspace:
    made = Workspace(folder, "")
    run(made.remit("init"))
    for number in range(TASKS):
        run(
            made.remit(
                "task",
                "create",
                f"Task {number}",
                "--owner",
                "general",
                "--step",
                "Read",
                "--step",
                "Write",
            )
        )
    return made._replace(token=run(made.remit("token", "show")).strip())


def run(command: list[str]) -> str:
    return subprocess.run(
        command, check=True, capture_output=True, text=True, env=ENVIRONMENT
    ).stdout


# REST.


def rest(place: Workspace, calls: int, rounds: int) -> tuple[float, float]:
    """Median seconds to read a task over HTTP, with remit and with plain Starlette."""
    ours, bare = _free_port(), _free_port()
    peer = [sys.executable, str(PEERS / "starlette_app.py"), place.database, place.token, str(bare)]
    with _running(place.remit("serve", "--port", str(ours))), _running(peer):
        pairs = [
            (_reads(ours, place.token, calls), _reads(bare, place.token, calls))
            for _ in range(rounds)
        ]
    first, second = zip(*pairs, strict=True)
    return min(first), min(second)


def _reads(port: int, token: str, calls: int) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    times: list[float] = []
    for number in range(calls):
        started = time.perf_counter()
        connection.request(
            "GET", f"/api/tasks/{1 + number % TASKS}", headers={"Authorization": f"Bearer {token}"}
        )
        response = connection.getresponse()
        body = response.read()
        times.append(time.perf_counter() - started)
        assert response.status == 200, body
    connection.close()
    return statistics.median(times)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _running(command: list[str]) -> Iterator[None]:
    """Run a server until the end of the block."""
    child = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT
    )
    port = int(command[command.index("--port") + 1] if "--port" in command else command[-1])
    try:
        deadline = time.monotonic() + 30
        while not _answers(port):
            assert child.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.02)  # polling interval; the measurement starts later
        yield
    finally:
        child.terminate()
        child.wait()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


# MCP.


def mcp(command: list[str], calls: int) -> tuple[float, float]:
    """Seconds until the first answer of a stdio server, and median seconds of later calls."""
    started = time.perf_counter()
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=ENVIRONMENT,
    )
    client = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    }
    _ask(child, 1, "initialize", client)
    _say(child, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    ready = time.perf_counter() - started
    times: list[float] = []
    for number in range(2, calls + 2):
        at = time.perf_counter()
        reply = _ask(
            child,
            number,
            "tools/call",
            {"name": "get_task", "arguments": {"task_id": str(1 + number % TASKS)}},
        )
        times.append(time.perf_counter() - at)
        assert not reply["result"].get("isError"), reply
    assert child.stdin is not None
    child.stdin.close()
    child.wait()
    return ready, statistics.median(times)


def _say(child: "subprocess.Popen[str]", message: dict[str, Any]) -> None:
    assert child.stdin is not None
    child.stdin.write(json.dumps(message) + "\n")
    child.stdin.flush()


def _ask(
    child: "subprocess.Popen[str]", number: int, method: str, params: dict[str, Any]
) -> dict[str, Any]:
    _say(child, {"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    assert child.stdout is not None
    while True:
        reply: dict[str, Any] = json.loads(child.stdout.readline())
        if reply.get("id") == number:
            return reply


# Commands.


def starts(commands: dict[str, list[str]], rounds: int) -> dict[str, float]:
    """Seconds per command, best of several interleaved runs."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            started = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True, env=ENVIRONMENT)
            times[name].append(time.perf_counter() - started)
    return {name: min(taken) for name, taken in times.items()}
