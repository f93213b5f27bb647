"""Looking after a workspace: what is in force, whether the store holds together, moving it elsewhere."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any, Literal

from remit import __version__
from remit.adapters.clock import SystemClock
from remit.adapters.mark import Marks, OnRollback
from remit.adapters.tools.supervisor import left_over, sweep_left_over
from remit.adapters.tools.toolchains import toolchains_of
from remit.app.attendance import is_alive, serves, unknown_agents
from remit.app.core import Core
from remit.app.exchange import Imported, export_tasks, import_tasks
from remit.app.query import ask, counts
from remit.app.recovery import Recovery
from remit.app.transfer import END, dump, load
from remit.app.verify import verify as verify_store
from remit.app.view import worker_view
from remit.bootstrap.agents import check_agents
from remit.bootstrap.store import open_store, sqlite_path
from remit.bootstrap.workspace import calendar_problems, check_calendar, open_workspace, without_calendar
from remit.config import SECRET, Settings
from remit.domain.choice import TIERS, Choices
from remit.domain.due import CRON, RUN, TICK, Job
from remit.domain.series import cron_of, recurs
from remit.domain.value import Task
from remit.domain.wire import instant
from remit.errors import Conflict, InvalidParam, NotFound, Problem, RolledBack
from remit.ports import Store

Result = dict[str, Any]
SLOTS = 5
NOTHING_TO_ACCEPT = "If a running process says that another store was put in the place of its own, restart it."
BOARD, HISTORY = "tasks.json", "history.jsonl"


def examine(settings: Settings, *, verify: bool, fix: bool, accept_rollback: bool = False) -> Result:
    """What is in force and where it comes from, and what was left behind; with verify, proof that the store holds together."""
    on_rollback: OnRollback = "accept" if accept_rollback else "refuse" if fix else "report"
    return asyncio.run(_examined(settings, verify, fix, on_rollback))


async def _examined(settings: Settings, verify: bool, fix: bool, on_rollback: OnRollback) -> Result:
    models, wrong = settings.models, calendar_problems(settings)
    if fix:
        check_calendar(settings)  # turns would be set by another calendar
    async with open_workspace(without_calendar(settings) if wrong else settings, on_rollback=on_rollback) as core:
        store = core.store
        rollback = _rollback(store, on_rollback)
        recovery = Recovery(store, core.service)
        spoiled = await recovery.unreadable()
        lost = tuple([task_id for task_id in spoiled if not (fix and await recovery.rebuild(task_id))])
        left = (await recovery.examine())._replace(unreadable_rows=spoiled)
        found: Result = {
            "version": __version__,
            "workspace": str(settings.workspace) if settings.workspace else None,
            "settings": [
                *({"name": name, "value": _shown(settings, name), "origin": item.origin} for name, item in settings.values.items()),
                *(_tier(models, tier) for tier in TIERS),
            ],
            "unknown": [*settings.unknown, *models.ignored, *_nobodys(settings)],
            "faults": [*(str(problem) for problem in (*wrong, *_refused_folders(settings))), *models.missing_keys],
            "store": _kind(settings.database_url) | _mark(store) | {"tasks": await ask(counts(), store.select)},
            "rollback": rollback,
            "unknown_agents": await _strangers(core),
            "workers": await _workers(core),
            "queues": [dict(zip(("queue", "queued", "claimed"), row, strict=True)) for row in await store.select("job_count", {})],
            **left.view(lost if fix else ()),
            "orphans": left_over(),
        }
        if fix:
            sweep_left_over()
            await recovery.repair(left)
            found["fixed"] = left.repairable - len(lost)
        if verify:
            report = await verify_store(store)
            faults = [{"place": fault.place, "problem": fault.problem} for fault in report.faults]
            found["verified"] = {"streams": report.streams, "events": report.events, "rows": report.rows, "faults": faults}
    return found


async def _strangers(core: Core) -> list[Result]:
    """The owners of unfinished tasks that neither this process nor a live worker knows, each with its first task and their number."""
    rows = await core.store.select("owners", {})
    unknown = await unknown_agents(core, [owner for owner, _, _ in rows])
    return [{"agent_id": owner, "task_id": str(first), "tasks": count} for owner, first, count in rows if owner in unknown]


async def _workers(core: Core) -> list[Result]:
    """Every worker that was heard of; how many runs a live one has is what the store knows, which is newer than its heartbeat."""
    running: dict[str, int] = dict(await core.store.select("running", {}))
    rows = [(row, is_alive(row, core.lease_seconds, core.is_dead)) for row in await core.store.workers()]
    return [worker_view(row._replace(running=running.get(row.worker, 0)) if alive else row, alive=alive) for row, alive in rows]


def _rollback(store: Store, on_rollback: OnRollback) -> Result | None:
    """What is known of a store that went back in time; Conflict if one should be accepted that there is not."""
    found: RolledBack | None = getattr(store, "rollback", None)  # a store in memory has no past
    if found is None:
        if on_rollback == "accept":
            raise Conflict("The store did not go back in time: there is nothing to accept.", hint=NOTHING_TO_ACCEPT)
        return None
    return {"message": found.message, "accepted": on_rollback == "accept", "hint": found.hint}


def _mark(store: Store) -> Result:
    """Where the mark of a store is kept, or why there is none."""
    marks: Marks | None = getattr(store, "marks", None)
    return {} if marks is None else {"mark": f"none: {marks.problem}" if marks.problem else str(marks.folder)}


def _refused_folders(settings: Settings) -> list[Problem]:
    """What is wrong with the folders that are set for the sandbox: a run refuses them."""
    name = "sandbox.read_only"
    try:
        toolchains_of(settings.workspace or Path.cwd(), os.environ, settings.get(name))
    except InvalidParam as error:
        place = f"{name} in {settings.values[name].origin}"
        return [Problem(place, field["problem"], field["expected"]) for field in error.details["fields"]]
    return []


def _nobodys(settings: Settings) -> list[str]:
    """The tables of agents that there are not."""
    notes = check_agents(settings)["settings"]
    return [f"agents.{note['agent_id']}: {note['text']}" for note in notes if note["verdict"] == "problem" and not note["field"]]


def _tier(models: Choices, tier: str) -> Result:
    choice = models.tiers.get(tier)
    shown, origin = ("offline: no language model is set", "default") if choice is None else (choice.shown, choice.origin)
    return {"name": f"models.{tier}", "value": shown, "origin": origin}


def schedule(settings: Settings) -> Result:
    """The calendar in force, its next slots, and who waits for them."""
    return asyncio.run(_schedule(settings))


def tick(settings: Settings) -> Result:
    """Let the next tick be now; it is a worker's to carry out."""
    return asyncio.run(_tick(settings))


def migrate(settings: Settings) -> Result:
    """Bring the store to this version's schema, as every command that opens it does."""
    return asyncio.run(_migrate(settings))


async def _schedule(settings: Settings) -> Result:
    check_calendar(settings)
    cron, slots = settings.get("scheduler.cron"), list[str]()
    clock = SystemClock(settings.get("scheduler.timezone"))
    when = clock.now()
    for _ in range(SLOTS):
        when = clock.next_slot(cron, when)
        slots.append(instant(when))
    async with open_workspace(settings) as core:
        scheduled = [task for task in await _listed(core, "scheduled") if cron_of(task)]
        tasks = [*scheduled, *await _listed(core, "ticking")]
        jobs = await core.store.select("queued", {"names": [f"{kind}{task.id}" for task in tasks for kind in (RUN, CRON)]})
        due = {key.partition("/")[2]: at for key, at, _ in jobs}
        coming = await core.store.select("queued", {"names": [TICK]})
        ticking = {task.id for task in tasks}
        recurring = [task for task in await _listed(core, "recurring") if recurs(task)]
        return {
            "cron": cron,
            "timezone": clock.timezone,
            "next": slots,
            "due": coming[0][1] if coming else None,
            "waiting": [{"id": task.id, "title": task.title, "cron": cron_of(task), "at": due.get(task.id)} for task in tasks],
            "active": [_active(task, clock) for task in recurring if task.id not in ticking],
            "workers": await _tickers(core),
        }


def _active(task: Task, clock: SystemClock) -> Result:
    """A task of a series that is worked on, with the slot at which the series continues if it has ended by then."""
    assert task.schedule is not None
    assert task.schedule.cron is not None
    slot = instant(clock.next_slot(task.schedule.cron, clock.now()))
    return {"id": task.id, "title": task.title, "cron": task.schedule.cron, "at": slot, "state": task.state.value}


async def _listed(core: Core, query: str) -> list[Task]:
    """The tasks that a query names; what users wrote may look like a calendar to it."""
    rows = await core.store.select(query, {"after": 0, "limit": 1000})
    return [await core.service.load(str(row[0])) for row in rows]


async def _tick(settings: Settings) -> Result:
    async with open_workspace(settings) as core:
        waiting = await core.store.select("ticking", {"after": 0, "limit": 100_000})
        await core.service.put(Job(key=TICK))
        return {"waiting": len(waiting), "workers": await _tickers(core)}


async def _tickers(core: Core) -> int:
    """How many live workers there are that carry out ticks: those that serve everything."""
    return sum(serves(row, None) and is_alive(row, core.lease_seconds, core.is_dead) for row in await core.store.workers())


async def _migrate(settings: Settings) -> Result:
    async with open_store(settings.database_url):
        return {"store": _kind(settings.database_url)["kind"], "schema": _schema(settings.database_url)}


def export(settings: Settings, what: Literal["events", "tasks"], target: Path) -> Result:
    """Write all events to a file, or all tasks to the two files in a folder."""
    files, count, changes = asyncio.run(_exported(settings, what))
    if what == "tasks":
        target.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (target / name if name else target).write_text(text)
    written = {"what": what, "target": str(target), "count": count}
    return written | ({"changes": changes} if what == "tasks" else {})


def import_(settings: Settings, source: Path) -> Result:
    """Read a file of events, or a folder with the two files of tasks, into an empty store."""
    if not source.exists():
        raise NotFound(f"There is no file or folder {source}.")
    if source.is_dir() or source.name == BOARD:
        folder = source if source.is_dir() else source.parent
        if not any((folder / name).exists() for name in (BOARD, HISTORY)):
            raise NotFound(f"There is no {BOARD} and no {HISTORY} in {folder}.")
        found = asyncio.run(_import_tasks(settings, folder.absolute()))
        changes = [change._asdict() for change in found.changes]
        return {"what": "tasks", "source": str(source), "count": found.count, "changes": changes}
    return {"what": "events", "source": str(source), "count": asyncio.run(_load(settings, source.read_text().splitlines()))}


async def _exported(
    settings: Settings,
    what: Literal["events", "tasks"],
) -> tuple[dict[str, str], int, list[Result]]:
    """The files by name, how many tasks or events they hold, and what they leave out."""
    async with open_store(settings.database_url) as store:
        if what == "tasks":
            board, history, count, changes = await export_tasks(store)
            left_out = [change._asdict() for change in changes]
            return {BOARD: board, HISTORY: history}, count, left_out
        lines = [line async for line in dump(store)]
        return {"": "\n".join(lines) + "\n"}, json.loads(lines[-1])[END], []


async def _import_tasks(settings: Settings, folder: Path) -> Imported:
    board, history = _text(folder / BOARD) or '{"tasks": []}', _text(folder / HISTORY)
    async with open_workspace(settings) as core:
        clock = SystemClock(now=core.store.now)
        found = await import_tasks(core.store, clock, board, history, str(folder))
        await _set_going(core)
        return found


async def _load(settings: Settings, lines: list[str]) -> int:
    async with open_workspace(settings) as core:
        count = await load(core.store, lines)
        await _set_going(core)
        return count


async def _set_going(core: Core) -> None:
    """Put the jobs that follow from what was imported; what needs an event of its own is left to a worker, so that history stays as it came."""
    recovery = Recovery(core.store, core.service)
    await recovery.repair((await recovery.examine())._replace(stale_runs=(), undelivered_updates=()))


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _shown(settings: Settings, name: str) -> Any:
    value = settings.database_url if name == "database_url" else settings.get(name)
    if name in SECRET and value:
        return "(set)"
    return _without_password(value) if isinstance(value, str) else value


def _without_password(url: str) -> str:
    """A URL as it may be shown: what stands between the user's name and the host is nobody's business."""
    scheme, mark, rest = url.partition("://")
    user, at, place = rest.rpartition("@")
    return f"{scheme}{mark}{user.partition(':')[0]}:***@{place}" if at and ":" in user else url


def _schema(url: str) -> int:
    if sqlite_path(url) is None:
        from remit.adapters.postgres.schema import MIGRATIONS as FOR_POSTGRES

        return len(FOR_POSTGRES)
    from remit.adapters.sqlite.schema import MIGRATIONS

    return len(MIGRATIONS)


def _kind(url: str) -> Result:
    if sqlite_path(url) is None:
        return {"kind": url.partition(":")[0]}
    from remit.adapters.sqlite.driver import SAFE, sqlite3

    return {"kind": "sqlite", "sqlite": sqlite3.sqlite_version, "safe": sqlite3.sqlite_version_info >= SAFE}
