"""The complete torture test: workers and clients as real processes, a process that kills and stops
them, and the checker at the end.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import asyncpg

import remit
from remit.bootstrap import open_store
from tests.patience import patient
from tests.postgres import PostgresForTests
from tests.torture import checker
from tests.torture.checker import Faults, History, Limits

ROOT = Path(__file__).resolve().parents[2]
LOOK_SECONDS = 0.1
LEFT_IN_ORDER = (0, -signal.SIGTERM)
"""How a worker ends that is asked to leave.

One that has only just been started knows no better than to die of it.
"""
STUCK_SECONDS = 60
"""After this long without a change, what is left counts as stuck."""
NOTHING: Mapping[str, str] = {}
QUIET_LOOKS = 3
"""How many looks in a row must find nothing left to do."""


class Settings(NamedTuple):
    """The plan of the ordeal, all of it from one seed."""

    seed: int
    tasks: int
    kills: int
    stops: int = 3
    restarts: int = 0
    cuts: int = 0
    workers: int = 3
    clients: int = 2
    concurrency: int = 8
    lease_seconds: float = 2.5
    fleet: int = 16
    explore: int = 4


class Report(NamedTuple):
    """The outcome."""

    settings: Settings
    seconds: float
    tasks: int
    events: int
    kills: int
    suicides: int
    stops: int
    restarts: int
    cuts: int
    lost_runs: int
    violations: list[str]

    def __str__(self) -> str:
        figures = ", ".join(
            f"{getattr(self, name)} {name}"
            for name in (
                "tasks",
                "events",
                "kills",
                "suicides",
                "stops",
                "restarts",
                "cuts",
                "lost_runs",
            )
        )
        shown = "".join(f"\n  {line}" for line in self.violations[:40])
        return (
            f"seed {self.settings.seed}: {figures} in {self.seconds:.1f} s; {len(self.violations)}"
            f" violations{shown}"
        )


class Place:
    """The database of the ordeal, with access to its raw tables while it runs."""

    def __init__(self, url: str, server: PostgresForTests | None = None) -> None:
        self.url, self.server = url, server
        self._runner: asyncio.Runner | None = None
        self._connection: Any = None

    def ask(self, statement: str) -> list[tuple[Any, ...]] | None:
        """The rows of a statement; nothing while the server is away."""
        if self.server is None:
            self._connection = self._connection or checker.sqlite(
                self.url.removeprefix("sqlite:///")
            )
            return self._connection.execute(statement).fetchall()  # type: ignore[no-any-return]
        self._runner = self._runner or asyncio.Runner()
        try:
            return self._runner.run(self._fetch(statement))
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            self._connection = None
            return None

    def close(self) -> None:
        """Close it."""
        if self._connection is not None and self._runner is None:
            self._connection.close()
        elif self._connection is not None:
            self._connection.terminate()
        if self._runner is not None:
            self._runner.close()

    async def _fetch(self, statement: str) -> list[tuple[Any, ...]]:
        if self._connection is None:
            self._connection = await asyncpg.connect(
                self.url,
                server_settings={"search_path": "remit", "application_name": "ordeal"},
                timeout=patient(5),
            )
        return [tuple(row) for row in await self._connection.fetch(statement)]


class Worker:
    """A worker process."""

    def __init__(
        self,
        url: str,
        folder: Path,
        name: str,
        options: dict[str, Any],
        more: Mapping[str, str] = NOTHING,
    ) -> None:
        self.errors = folder / f"{name}.errors"
        command = [sys.executable, "-m", "tests.torture.worker", url, name, json.dumps(options)]
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment() | dict(more),
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        self.until: float | None = None
        """Stopped until then."""

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        return self.process.poll() is None

    def end(self, number: int = signal.SIGKILL) -> int:
        """Send a signal and wait for its end."""
        self.process.send_signal(number)
        return self.process.wait(patient(60))


class Ordeal:
    """One run of it."""

    def __init__(self, settings: Settings, place: Place, folder: Path) -> None:
        self._settings = settings._replace(lease_seconds=patient(settings.lease_seconds))
        self._place, self._folder = place, folder
        self._random = Random(settings.seed)
        self._workers: list[Worker] = []
        self._started = 0
        self._killed: list[int] = []
        self._stopped: list[int] = []
        self._spans: list[tuple[datetime, datetime]] = []
        self.suicides = self.restarts = self.cuts = 0

    def run(self) -> Report:
        """Run the ordeal, and check its outcome."""
        began = time.monotonic()
        asyncio.run(made(self._place.url))
        with closing(self._place), self._fleet(), self._clients() as clients:
            self._torment(clients)
            for client in clients:
                client.stdin.close()  # type: ignore[union-attr]
            codes = [client.wait(patient(60)) for client in clients]
            said = [
                (self._folder / f"c{number}.errors").read_text()[-600:]
                for number in range(len(codes))
            ]
            trouble = [
                f"client {number} ended with {code}: {said[number]}"
                for number, code in enumerate(codes)
                if code
            ]
            trouble += self._dismiss()
        raw = checker.read(self._place.url)
        history = History(raw, self._log(), self._effects(), self._faults(), self._limits())
        lost = sum(event.type == "RunLost" for event in raw.events)
        figures = (
            len(raw.task),
            len(raw.events),
            len(self._killed),
            self.suicides,
            len(self._stopped),
            self.restarts,
            self.cuts,
            lost,
        )
        return Report(
            self._settings,
            time.monotonic() - began,
            *figures,
            [*trouble, *checker.violations(history)],
        )

    # The processes.

    @contextmanager
    def _fleet(self) -> Iterator[None]:
        try:
            for _ in range(self._settings.workers):
                self._hire()
            yield
        finally:
            for worker in self._workers:
                if worker.alive:
                    worker.end()

    def _hire(self) -> None:
        settings = self._settings
        options = {
            "concurrency": settings.concurrency,
            "heartbeat_seconds": settings.lease_seconds,
            "fleet_limit": settings.fleet,
            "agent_limits": {"explore": settings.explore},
        }
        self._started += 1
        self._workers.append(
            Worker(self._place.url, self._folder, f"worker-{self._started}", options)
        )

    @contextmanager
    def _clients(self) -> Iterator[list["subprocess.Popen[bytes]"]]:
        with ExitStack() as stack:
            yield [
                stack.enter_context(self._client(f"c{number}"))
                for number in range(self._settings.clients)
            ]

    @contextmanager
    def _client(self, name: str) -> Iterator["subprocess.Popen[bytes]"]:
        options = {
            "seed": self._settings.seed,
            "folder": str(self._folder),
            "tasks": self._settings.tasks // self._settings.clients,
        }
        command = [
            sys.executable,
            "-m",
            "tests.torture.client",
            self._place.url,
            name,
            str(self._folder / f"{name}.log"),
            json.dumps(options),
        ]
        with (self._folder / f"{name}.errors").open("wb") as errors:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stderr=errors
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdin and not process.stdin.closed:
                process.stdin.close()

    def _dismiss(self) -> list[str]:
        """Ask every worker to leave, and see that it does so in order."""
        for worker in self._workers:
            worker.process.send_signal(signal.SIGCONT)
        codes = {worker.errors.name: worker.end(signal.SIGTERM) for worker in self._workers}
        bad = [
            f"{name} left with {code}: {(self._folder / name).read_text()[-600:]}"
            for name, code in codes.items()
            if code not in LEFT_IN_ORDER
        ]
        unforeseen = [
            path.name
            for path in self._folder.glob("worker-*.errors")
            if "nobody foresaw" in path.read_text()
        ]
        return bad + [f"{name} has something that nobody foresaw" for name in unforeseen]

    # Faults.

    def _torment(self, clients: list["subprocess.Popen[bytes]"]) -> None:
        """Do one cruel thing after the other, spread over the work that is done, until all is
        done and quiet.
        """
        deeds = self._deeds()
        quiet, seen, patience = 0, (-1, -1), time.monotonic() + patient(STUCK_SECONDS)
        while quiet < QUIET_LOOKS:
            time.sleep(LOOK_SECONDS)
            self._replace_the_dead()
            self._continue_the_stopped()
            counted = self._place.ask(PROGRESS)
            if counted is None:
                continue
            ended, events, jobs, questions = counted[0]
            if deeds and ended >= deeds[0][0] and self._do(deeds[0][1]):
                deeds.pop(0)
            if (ended, events) != seen:
                seen, patience = (ended, events), time.monotonic() + patient(STUCK_SECONDS)
            if time.monotonic() > patience or any(client.poll() is not None for client in clients):
                return
            done = (
                not (jobs or questions or deeds)
                and not any(worker.until for worker in self._workers)
                and self._all_created()
            )
            quiet = quiet + 1 if done else 0

    def _deeds(self) -> list[tuple[int, str]]:
        """The faults, each after a number of ended tasks."""
        settings = self._settings
        deeds = (
            ["kill"] * settings.kills
            + ["stop"] * settings.stops
            + ["restart"] * settings.restarts
            + ["cut"] * settings.cuts
        )
        self._random.shuffle(deeds)
        when = sorted(self._random.randrange(settings.tasks * 7 // 10) for _ in deeds)
        return list(zip(when, deeds, strict=True))

    def _do(self, deed: str) -> bool:
        match deed:
            case "kill":
                return self._kill()
            case "stop":
                return self._stop()
            case "restart":
                return self._restart()
            case _:
                return self._cut()

    def _at_work(self) -> list[Worker]:
        """The workers that have a live run, by their process."""
        rows = self._place.ask("SELECT DISTINCT worker FROM run WHERE outcome IS NULL") or []
        busy = {int(name.split("-")[-2]) for (name,) in rows}
        return [
            worker
            for worker in self._workers
            if worker.alive and worker.until is None and worker.process.pid in busy
        ]

    def _kill(self) -> bool:
        if not (victims := self._at_work()):
            return False
        victim = self._random.choice(victims)
        if victim.end() == -signal.SIGKILL:
            self._killed.append(victim.process.pid)
        self._workers.remove(victim)
        self._hire()
        return True

    def _stop(self) -> bool:
        if not (victims := self._at_work()):
            return False
        victim = self._random.choice(victims)
        victim.process.send_signal(signal.SIGSTOP)
        seconds = self._settings.lease_seconds * self._random.uniform(1.2, 2.0)
        victim.until = time.monotonic() + seconds
        self._stopped.append(victim.process.pid)
        # One that is stopped while it writes holds the lock of a SQLite file, and makes all others
        # late.
        now = datetime.now(UTC)
        self._spans.append((now, datetime.fromtimestamp(now.timestamp() + seconds + 1, UTC)))
        return True

    def _restart(self) -> bool:
        assert self._place.server is not None
        began = datetime.now(UTC)
        self._place.server.crash()
        self._place.server.start()
        self._spans.append((began, datetime.now(UTC)))
        self.restarts += 1
        return True

    def _cut(self) -> bool:
        now = datetime.now(UTC)
        pids = self._place.ask(CONNECTIONS) or []
        chosen = self._random.sample(pids, min(4, len(pids)))
        for (pid,) in chosen:
            self._place.ask(f"SELECT pg_terminate_backend({int(pid)})")
        self._spans.append((now, datetime.now(UTC)))
        self.cuts += len(chosen)
        return bool(chosen)

    def _replace_the_dead(self) -> None:
        """Replace at once a worker that its own task killed."""
        for worker in [worker for worker in self._workers if not worker.alive]:
            self._workers.remove(worker)
            self.suicides += worker.process.returncode == -signal.SIGKILL
            self._hire()

    def _continue_the_stopped(self) -> None:
        for worker in self._workers:
            if worker.until is not None and time.monotonic() > worker.until:
                worker.process.send_signal(signal.SIGCONT)
                worker.until = None

    # Its state.

    def _all_created(self) -> bool:
        return all(path.exists() and b'{"done":' in path.read_bytes() for path in self._logs())

    def _logs(self) -> list[Path]:
        return [self._folder / f"c{number}.log" for number in range(self._settings.clients)]

    def _log(self) -> list[dict[str, Any]]:
        return [
            json.loads(line) for path in self._logs() for line in path.read_bytes().splitlines()
        ]

    def _effects(self) -> list[str]:
        return [
            line
            for path in self._folder.glob("effects-*")
            for line in path.read_text().splitlines()
        ]

    def _faults(self) -> Faults:
        return Faults(
            tuple(self._killed), tuple(self._stopped), tuple(self._spans), self._settings.kills
        )

    def _limits(self) -> Limits:
        return Limits(
            {"explore": self._settings.explore}, self._settings.fleet, self._settings.lease_seconds
        )


PROGRESS = f"""SELECT (SELECT COUNT(*) FROM task WHERE archived_at IS NOT NULL),
    (SELECT COUNT(*) FROM event),
    (SELECT COUNT(*) FROM job WHERE key NOT LIKE 'tick%'),
    (SELECT COUNT(*) FROM interaction WHERE status = 'open'
        AND question NOT LIKE '{checker.SILENCE}%')"""
CONNECTIONS = (
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'remit' AND datname ="
    " current_database() ORDER BY pid"
)


def environment() -> dict[str, str]:
    """The environment in which a child finds remit and the tests.

    It may keep what it compiled, since many like it follow.
    """
    source = Path(remit.__file__).parents[1]
    known = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return known | {"PYTHONPATH": os.pathsep.join([str(source), str(ROOT)])}


async def made(url: str) -> None:
    """A new database."""
    async with open_store(url):
        pass


def on_sqlite(settings: Settings, folder: Path) -> Report:
    """The ordeal on a file."""
    return Ordeal(
        settings._replace(restarts=0, cuts=0), Place(f"sqlite:///{folder / 'remit.db'}"), folder
    ).run()


def on_postgres(settings: Settings, folder: Path, server: PostgresForTests) -> Report:
    """The ordeal on a server, which must be one of our own since it is crashed too."""
    return Ordeal(settings, Place(server.new_database(), server), folder).run()
