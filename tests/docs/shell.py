"""A reader's machine: an empty home and folder in which the blocks of one page are run in order."""

import asyncio
import os
import re
import shlex
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from tests.patience import patient

HOST = re.compile(r"^(?:\w+=\S+ )*remit (?P<kind>serve|worker)\b")
"""Commands that run until they are stopped. A reader gives each a terminal of its own."""
OURS = ("REMIT_", "LLM_", "LIGHT_LLM_", "OPENAI_", "ANTHROPIC_", "XDG_")
ANY = "…"
VARIABLE = (
    re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?Z?"),
    re.compile(r"\d+(?:\.\d+)? s\b"),
    re.compile(r"[\w.-]+-\d+-[0-9a-f]{8}\b"),
    re.compile(r"seconds=[\d.]+"),
    re.compile(r"(?:just now|\d+ (?:s|min|h) ago)"),
    re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]+"),
)
"""Parts of shown output that differ from run to run: times, durations, workers and ids."""


class Said(NamedTuple):
    """What a command wrote, and its exit code."""

    code: int
    out: str
    err: str


class Host(NamedTuple):
    """A server or worker that runs until the page ends."""

    kind: str
    process: asyncio.subprocess.Process
    log: Path


class Shell:
    """Runs commands one after the other; folder, variables and exit code carry over."""

    def __init__(self, folder: Path, home: Path, environment: Mapping[str, str]) -> None:
        self.folder, self.home = folder, home
        self.environment = dict(environment)
        self._state = home / "state.sh"
        self._folder_file = home / "folder"
        self._hosts: list[Host] = []
        self._code = 0

    async def run(self, command: str, **more: str) -> Said:
        """Run a command to its end."""
        keep = f"{{ code=$?; export -p > {self._state}; pwd > {self._folder_file}; exit $code; }}"
        script = f"set -a\n{self._begin()}\ntrap '{keep}' EXIT\n(exit {self._code})\n{command}\n"
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", script,
            cwd=self.folder, env=self.environment | more,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(patient(120)):
            out, err = await process.communicate()
        assert process.returncode is not None
        self._code = process.returncode
        if self._folder_file.exists():
            self.folder = Path(self._folder_file.read_text().rstrip("\n"))
        return Said(process.returncode, out.decode(), err.decode())

    async def host(self, command: str) -> None:
        """Start a server or worker, and return once it has started.

        A new server replaces the one before.
        """
        kind = host_kind(command)
        assert kind is not None
        if kind == "serve":
            await self._stop([host for host in self._hosts if host.kind == "serve"])
        log = self.home / f"host-{len(self._hosts)}.log"
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                "bash", "-c", f"{self._begin()}\n{exec_of(command)}",
                cwd=self.folder, env=self.environment,
                stdin=asyncio.subprocess.DEVNULL, stdout=file, stderr=file,
            )  # fmt: skip
        host = Host(kind, process, log)
        self._hosts.append(host)
        async with asyncio.timeout(patient(30)):
            while "started:" not in log.read_text():
                assert process.returncode is None, log.read_text()
                await asyncio.sleep(0.05)

    async def logged(self, pattern: re.Pattern[str]) -> None:
        """Return once the log of one of the hosts matches."""
        limit = asyncio.get_running_loop().time() + patient(30)
        while not pattern.search(logs := self._logs()):
            assert asyncio.get_running_loop().time() < limit, (
                f"{pattern.pattern}\nis not in\n{logs}"
            )
            await asyncio.sleep(0.05)

    def _logs(self) -> str:
        return "".join(host.log.read_text() for host in self._hosts)

    @property
    def path(self) -> str:
        """The PATH of the reader."""
        return self.environment["PATH"]

    @property
    def last_pid(self) -> int:
        """The process of the host that was started last."""
        return self._hosts[-1].process.pid

    async def close(self) -> None:
        """Stop every host."""
        await self._stop(self._hosts)

    async def _stop(self, hosts: list[Host]) -> None:
        for host in hosts:
            if host.process.returncode is None:
                host.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(patient(30)):
                await host.process.wait()

    def _begin(self) -> str:
        return f". {self._state}" if self._state.exists() else ":"


@asynccontextmanager
async def new_shell(root: Path, environment: Mapping[str, str]) -> AsyncGenerator[Shell, None]:
    """A shell in an empty folder, with remit on the PATH and without any setting of the person
    who runs the tests.
    """
    folder, home = root / "shop", root / "home"
    folder.mkdir()
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    binaries = str(Path(sys.executable).parent)
    own = {
        "HOME": str(home),
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    shell = Shell(folder, home, kept | own | dict(environment))
    try:
        yield shell
    finally:
        await shell.close()


def host_kind(command: str) -> str | None:
    """Whether a command is a server or a worker."""
    found = HOST.match(command)
    return found["kind"] if found else None


def exec_of(command: str) -> str:
    """The command without a shell around it, so that its process id is that of remit."""
    words = shlex.split(command, comments=True)
    return f"exec env {shlex.join(words)}"


def pattern_of(shown: tuple[str, ...]) -> re.Pattern[str]:
    """The output that a page shows, as a pattern for what is really said."""
    lines = [line.rstrip() for line in shown]
    whole = [r"(?:.*\n)*?" if line == ANY else _line_pattern(line) + r" *\n" for line in lines]
    return re.compile("".join(whole), re.MULTILINE)


def _line_pattern(line: str) -> str:
    for variable in VARIABLE:
        found = variable.search(line)
        if found:
            before, after = line[: found.start()], line[found.end() :]
            return _line_pattern(before) + variable.pattern + _line_pattern(after)
    return re.escape(line).replace(re.escape(ANY), ".*")
