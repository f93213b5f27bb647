"""`remit` commands in processes that are forked from one that has imported remit.

A command takes ten times as long to import remit as to do its work. Each command still has a
process, an environment, a folder and streams of its own. `tests/surfaces/test_cli_start.py` and
everything that starts a server or a worker begin with a new Python.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

from coverage import process_startup

IMPORTED = (
    "asyncpg",
    "uvicorn",
    "remit.bootstrap.local_host",
    "remit.bootstrap.embedded_worker",
    "remit.bootstrap.runner_selection",
    "remit.bootstrap.store_opening",
    "remit.bootstrap.workspace",
    "remit.adapters.models.registry",
    "remit.adapters.tools",
    "remit.app.agent_loop.runner",
    "remit.surfaces.agent_tools",
    "remit.surfaces.cli.main",
)


MEASURING = ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
"""Each command is measured for itself."""
STARTS_PYTHON = ("PYTHON", "LANG", "LC_", "LD_", "COVERAGE_")
"""How variables begin that Python reads when it starts."""


def can_fork(env: Mapping[str, str]) -> bool:
    """True if a new Python with these variables would start as this one has."""
    return _of_start(env) == _of_start(os.environ)


def _of_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(STARTS_PYTHON)}


class Forkers:
    """The processes that fork commands: as many as there are commands at once."""

    def __init__(self) -> None:
        self._free: list[Forker] = []

    def run(
        self, arguments: Sequence[str], folder: Path, env: Mapping[str, str], timeout: float
    ) -> tuple[int, str, str]:
        """Run a command to its end; return its exit code and what it wrote."""
        try:
            forker = self._free.pop()
        except IndexError:
            forker = Forker()
            atexit.register(forker.close)
        with (
            Path(os.devnull).open("rb") as empty,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            streams = [empty.fileno(), out.fileno(), err.fileno()]
            code = forker.run(arguments, folder, env, streams, timeout)
            self._free.append(forker)
            return code, _text(out), _text(err)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode().replace("\r\n", "\n")


class Forker:
    """A process that forks one command after the other."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._socket = ours
        root = Path(__file__).resolve().parents[2]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.surfaces.forked", str(theirs.fileno())],
            cwd=root,
            env={key: value for key, value in os.environ.items() if key not in MEASURING},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        theirs.close()
        self._answers = ours.makefile("rb")

    def run(
        self,
        arguments: Sequence[str],
        folder: Path,
        env: Mapping[str, str],
        streams: Sequence[int],
        timeout: float,
    ) -> int:
        """Run a command to its end; return its exit code."""
        wanted = {"arguments": list(arguments), "folder": str(folder), "env": dict(env)}
        request = json.dumps(wanted).encode()
        self._socket.settimeout(None)
        socket.send_fds(self._socket, [f"{len(request):10}".encode()], list(streams))
        self._socket.sendall(request)
        pid = int(self._answers.readline())
        self._socket.settimeout(timeout)
        try:
            return int(self._answers.readline())
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(["remit", *arguments], timeout) from None

    def close(self) -> None:
        """Its requests end, and so does it."""
        self._answers.close()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._process.wait()


FORKERS = Forkers()


def serve(requests: socket.socket) -> None:
    """Fork a command for each request, and answer with its id and its exit code."""
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    while True:
        head, streams, _, _ = socket.recv_fds(requests, 10, 3, socket.MSG_WAITALL)
        if not head:
            return
        wanted = json.loads(requests.recv(int(head), socket.MSG_WAITALL))
        pid = os.fork()
        if pid == 0:
            requests.close()
            _become_command(wanted, streams)
        for stream in streams:
            os.close(stream)
        requests.sendall(f"{pid}\n".encode())
        _, status = os.waitpid(pid, 0)
        requests.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _become_command(wanted: Any, streams: Sequence[int]) -> NoReturn:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["env"])
    sys.argv = ["remit", *wanted["arguments"]]
    sys.path[0] = wanted["folder"]
    time.tzset()
    if any(name in os.environ for name in MEASURING):
        process_startup()
    code = _exit_code()
    threading._shutdown()  # type: ignore[attr-defined]  # wait for threads, as Python does
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(code)


def _exit_code() -> int:
    try:
        runpy.run_module("remit", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    except BaseException:  # noqa: BLE001 - as Python itself ends
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
