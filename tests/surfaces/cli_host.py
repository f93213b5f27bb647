"""A host for the command line over a real store in memory, and a way to type commands in tests."""

import asyncio
import io
import json
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import pytest

from remit import __version__, config
from remit.adapters.clock import SystemClock
from remit.app.agents.registry import AgentRegistry
from remit.app.engine.recovery import Recovery
from remit.app.maintenance.event_dump import dump, load
from remit.app.maintenance.verify import verify
from remit.app.reading.query_handlers import counts
from remit.app.reading.views import worker_view
from remit.bootstrap import open_store
from remit.bootstrap.agent_loading import check_agents, new_agent
from remit.catalog import AppContext, Caller, call, follow_events
from remit.ports import Store, WorkerRow
from remit.surfaces.cli.main import main
from tests.people import ANN, Desk

T = TypeVar("T")
Result = dict[str, Any]


class StoreHost:
    """Everything a command can ask for, on one store and one event loop."""

    def __init__(self, store: Store, runner: asyncio.Runner) -> None:
        self.desk, self.wait = Desk(store), runner.run
        self.core = AppContext(store, SystemClock(), AgentRegistry())
        self.options: Result = {}
        self.served: list[tuple[str, Any]] = []
        self.details: list[str] = []
        self.soon: list[Coroutine[Any, Any, Any]] = []
        self.patience: int | None = None
        self.attended = True
        self.url: str | None = None

    def call(self, operation: str, fields: Mapping[str, Any]) -> Result:
        return self.wait(call(self.core, operation, fields, Caller(actor=ANN)))

    def follow(
        self,
        task_id: str | None,
        after: str | None,
        stopping: Callable[[int], None],
        *,
        quit_line: Callable[[], str] = str,
    ) -> Generator[list[Result]]:
        """Events from here on; what is to happen soon happens while somebody listens, who
        interrupts after so many pages.
        """
        events = follow_events(
            self.core, self.wait(self.core.store.tail()) if after is None else after, task_id
        )
        pages = 0
        while pages != self.patience:
            yield self.wait(self._next(events))
            pages += 1
        raise KeyboardInterrupt

    async def _next(self, events: Any) -> list[Result]:
        async with asyncio.TaskGroup() as group:
            page = group.create_task(anext(events))
            while self.soon:
                await self.soon.pop(0)
        found: list[Result] = page.result()
        return found

    @property
    def server(self) -> str | None:
        return self.url

    def hurry(self) -> None:
        pass

    def delegate(
        self,
        operation: str,
        fields: Mapping[str, Any],
        stopping: Callable[[int], None],
        *,
        everything: bool = False,
        quit_line: Callable[[], str] = str,
    ) -> Generator[Result]:
        """Work that goes well, with words as bad as those that were given."""
        works = fields["tasks"] if operation == "task_parallel" else [fields]
        texts = [
            str(work.get("objective")) if isinstance(work, dict) else str(work) for work in works
        ]
        for number, text in enumerate(texts, 1):
            item = {
                "index": number - 1,
                "task_id": str(number),
                "parent_id": None,
                "title": text,
                "owner": "general",
                "state": "pending",
            }
            item |= {
                "tool": None,
                "tool_calls": 0,
                "tokens": 0,
                "cost": 0.0,
                "questions": [],
                "waits_for": None,
                "seconds": 0.0,
            }
            question = {
                "id": f"{number}-q1",
                "question": text,
                "options": [text],
                "allow_other": False,
            }
            used = {"tokens": 10, "cost": 0.5, "tool": text, "tool_calls": 2}
            for kind, changed in (
                ("task_started", {}),
                ("task_updated", {"state": "running"}),
                ("task_updated", {"state": "waiting", "questions": [question]}),
                ("task_progress", {"state": "running", **used}),
                ("task_updated", {"state": "done", **used}),
            ):
                yield {"type": kind, **item, **changed}
        results = [self._result(str(number), text) for number, text in enumerate(texts, 1)]
        for index, result in enumerate(results):
            yield {"type": "result", "index": index, "task_id": str(index + 1), "result": result}
        yield {
            "type": "end",
            "answer": {"results": results} if operation == "task_parallel" else results[0],
        }

    def unattended(self, task_id: str) -> bool:
        return not self.attended

    def attend(
        self,
        task_id: str,
        stopping: Callable[[int], None],
        *,
        everything: bool = False,
        quit_line: Callable[[], str] = str,
    ) -> Generator[Result]:
        """Tell the task to run; somebody else does the work."""
        self.call("run_task", {"task_id": task_id})
        yield from ()

    def _result(self, task_id: str, text: str) -> Result:
        status = {"Fail": "failed", "Late": "timeout"}.get(text, "completed")
        data = {
            "status": status,
            "task_id": task_id,
            "result": text,
            "tool_summary": [],
            "model_used": text,
            "subagent_type": "general",
        }
        return {
            "status": "success",
            "data": data | {"outputs": {"name": text}},
            "stats": {"tool_calls": 1, "tokens": 1234, "time_ms": 5678},
        }

    def init(self, allow_edits: bool | None = None) -> Result:
        granted = ["Write", "Edit", "Bash"] if allow_edits else []
        return {
            "workspace": self.options["workspace"] or "/somewhere",
            "created": True,
            "allow_edits": allow_edits,
            "granted": granted,
        }

    def make_workspace(self) -> None:
        """There is one."""

    def serve(self, *, insecure: bool, worker: bool, detail: str) -> None:
        self.served.append(("serve", (insecure, worker)))
        self.details.append(detail)

    def worker(self, agents: Sequence[str] | None, *, detail: str) -> None:
        self.details.append(detail)
        self.served.append(("worker", agents))

    def schedule(self) -> Result:
        waiting = [
            {"id": "1", "title": "Wait\x1b[2J", "cron": None, "at": None},
            {"id": "2", "title": "Own", "cron": "0 7 * * *", "at": "2026-01-01T06:00:00Z"},
        ]
        active = [
            {
                "id": "3",
                "title": "Go\x1b[2J",
                "cron": "0 7 * * *",
                "at": "2026-01-01T06:00:00Z",
                "state": "running",
            }
        ]
        found: Result = {
            "cron": "0 6-21 * * *",
            "timezone": "Europe/Berlin",
            "next": ["2026-01-01T06:00:00Z"],
            "due": None,
            "workers": 0,
        }
        return found | {"waiting": waiting, "active": active}

    def tick(self) -> Result:
        return {"waiting": 1, "workers": 0}

    def migrate(self) -> Result:
        return {"store": "memory", "schema": 2}

    def mcp(self) -> None:
        self.served.append(("mcp", None))

    def doctor(self, *, verify: bool, fix: bool, accept_rollback: bool = False) -> Result:
        return self.wait(self._examined(verify, fix))

    async def _examined(self, thoroughly: bool, fix: bool) -> Result:
        settings = [
            {"name": "database_url", "value": self.options["database_url"], "origin": "option"}
        ]
        store = {"kind": "memory", "tasks": await self.core.ask(counts())}
        found: Result = {
            "version": __version__,
            "workspace": None,
            "settings": settings,
            "unknown": ["colour in config.toml"],
            "faults": [],
            "unknown_agents": [],
            "store": store,
        }
        row = WorkerRow("host-1-abc", "host", 1, "0", "general", 8, "2026-01-01T06:00:00Z", 1, 99.0)
        trouble = [
            {
                "endpoint": "http://model/v1",
                "agent": "plan",
                "circuit": "half_open",
                "failures": 10,
                "last": "out of order",
            },
            {"endpoint": "http://model/v1", "agent": None, "circuit": "cooling", "seconds": 3.5},
        ]
        found["workers"] = [
            worker_view(row, alive=False),
            worker_view(row._replace(age_seconds=1.0, models=json.dumps(trouble)), alive=True),
        ]
        found["queues"] = []
        recovery = Recovery(self.core.store, self.core.service)
        left = await (recovery.repair() if fix else recovery.examine())
        found |= left.view()
        if fix:
            found["fixed"] = left.repairable
        if thoroughly:
            report = await verify(self.core.store)
            found["verified"] = report._asdict() | {
                "faults": [fault._asdict() for fault in report.faults]
            }
        return found

    def export(self, what: Literal["events", "tasks"], target: Path) -> Result:
        lines = self.wait(self._dumped())
        target.write_text("\n".join(lines) + "\n")
        return {"what": what, "target": str(target), "count": len(lines) - 1}

    async def _dumped(self) -> list[str]:
        return [line async for line in dump(self.core.store)]

    def import_(self, source: Path) -> Result:
        return {
            "what": "events",
            "source": str(source),
            "count": self.wait(load(self.core.store, source.read_text().splitlines())),
        }

    def check_agents(self) -> Result:
        return check_agents(self.settings)

    def new_agent(self, fields: Mapping[str, Any]) -> Result:
        return new_agent(self.settings, dict(fields))

    @property
    def settings(self) -> config.Settings:
        """Those of the workspace that was named, and of nobody's home."""
        return config.load(self.options["workspace"] or "/somewhere", env={"HOME": "/nowhere"})

    def token(self) -> str:
        return "s3cret"


class Said(NamedTuple):
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Terminal(io.StringIO):
    """An output that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


class Shop:
    """A store with a command line in front of it."""

    def __init__(self, host: StoreHost) -> None:
        self.host = host

    def __call__(self, *argv: str, columns: int | None = None, stdin: str = "", **env: str) -> Said:
        """Type a command, at a terminal of so many columns or into a pipe."""
        out, err = (Terminal(), Terminal()) if columns else (io.StringIO(), io.StringIO())
        settings = {"COLUMNS": str(columns or 80), "NO_COLOR": "", "TERM": "xterm", **env}
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setattr("sys.stdin", io.StringIO(stdin))
            for name, value in settings.items():
                patch.setenv(name, value)
            code = main(argv, self._open)
        return Said(code, out.getvalue(), err.getvalue())

    def _open(self, options: Result) -> StoreHost:
        self.host.options = options
        return self.host

    def create(self, title: str = "Write the report", *argv: str) -> str:
        """The id of a new task."""
        task_id: str = self("task", "create", title, *argv, "--json").json["task_id"]
        return task_id

    def do(self, command: str, actor: str = ANN, run_id: str | None = None, **fields: Any) -> Any:
        """Carry out any command, those of agents and the engine too."""
        return self.host.wait(self.host.desk.do(command, actor, run_id, **fields))

    def start(self, task_id: str) -> str:
        """The id of a new run of a task."""
        return self.host.wait(self.host.desk.start(task_id))

    def ask(self, task_id: str, question: str, options: Sequence[str] = ()) -> str:
        """Let the task's agent ask a person; the id of the run."""
        run = self.start(task_id)
        self.do(
            "AskUser",
            "agent:general",
            run,
            task_id=task_id,
            question=question,
            options=list(options),
        )
        return run


@contextmanager
def shop(url: str = "memory:") -> Generator[Shop]:
    """A shop on an empty store."""
    with asyncio.Runner() as runner:
        opened = open_store(url)
        yield Shop(StoreHost(runner.run(opened.__aenter__()), runner))
        runner.run(opened.__aexit__(None, None, None))
