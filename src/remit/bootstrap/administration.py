"""Administration of a workspace: doctor, schedule, migration, export and import."""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from remit import __version__
from remit.adapters.clock import SystemClock
from remit.adapters.gitignore import exposed
from remit.adapters.stores.high_water_mark import Marks, OnRollback
from remit.adapters.tools.shell.supervisor import find_left_over, sweep_left_over
from remit.adapters.tools.shell.toolchains import find_toolchains
from remit.app.context import AppContext
from remit.app.engine.recovery import Recovery
from remit.app.maintenance.event_dump import END, dump, load
from remit.app.maintenance.task_exchange import Exported, Imported, export_tasks, import_tasks
from remit.app.maintenance.verify import verify as verify_store
from remit.app.reading.query_handlers import ask, counts
from remit.app.reading.views import worker_view
from remit.app.runs.live_workers import is_alive, serves, unknown_agents
from remit.bootstrap.agent_loading import check_agents
from remit.bootstrap.store_opening import open_store, sqlite_path
from remit.bootstrap.workspace import (
    calendar_problems,
    check_calendar,
    open_workspace,
    without_calendar,
)
from remit.config import SECRET, Settings
from remit.domain.llm.selection import TIERS, Choices
from remit.domain.planning.recurrence import cron_of, recurs
from remit.domain.projection.follow_up_jobs import CRON, RUN, TICK, Job
from remit.domain.records.serialize import instant
from remit.domain.task.task import Task
from remit.errors import Conflict, InvalidParam, NotFound, Problem, RolledBack
from remit.ports import Store
from remit.store_queries.query import Query, TaskNumber
from remit.store_queries.queue_queries import JOB_COUNT, QUEUED, RECURRING, SCHEDULED, TICKING
from remit.store_queries.run_queries import RUNNING
from remit.store_queries.tree_queries import OWNERS
from remit.surfaces.text.printed_commands import with_commands, without_password

Result = dict[str, Any]
SLOTS = 5
NOTHING_TO_ACCEPT = "If a running process reports that its store was replaced, restart it."
BOARD, HISTORY = "tasks.json", "history.jsonl"


def examine(
    settings: Settings, *, verify: bool, fix: bool, accept_rollback: bool = False
) -> Result:
    """Return the settings and their origins, and mismatches in the store.

    With verify, also verify the store.
    """
    on_rollback: OnRollback = "report"
    if accept_rollback:
        on_rollback = "accept"
    elif fix:
        on_rollback = "refuse"
    return asyncio.run(_examine(settings, verify, fix, on_rollback))


async def _examine(settings: Settings, verify: bool, fix: bool, on_rollback: OnRollback) -> Result:
    """Examine everything; with fix, repair it, and with verify, verify the store."""
    models, problems, opened = settings.models, calendar_problems(settings), settings
    if fix:
        check_calendar(settings)  # repairs would use the default schedule
    if problems:
        opened = without_calendar(settings)
    async with open_workspace(opened, on_rollback=on_rollback) as core:
        store = core.store
        rollback = _rollback(store, on_rollback)
        recovery = Recovery(store, core.service)
        unreadable = await recovery.unreadable()
        lost: tuple[str, ...] = ()
        if fix:
            lost = await _rebuild(recovery, unreadable)
        left = (await recovery.examine())._replace(unreadable_rows=unreadable)
        found: Result = {
            **_describe_settings(settings, models, problems),
            "store": await _describe_store(settings, store),
            "rollback": rollback,
            "unknown_agents": await _find_unknown_agents(core),
            "workers": await _workers(core),
            "queues": [row._asdict() for row in await store.select(JOB_COUNT, {})],
            **left.view(lost),
            "orphans": find_left_over(),
        }
        if fix:
            sweep_left_over()
            await recovery.repair(left)
            found["fixed"] = left.repairable - len(lost)
        if verify:
            found["verified"] = await _verify(store)
    return found


async def _rebuild(recovery: Recovery, unreadable: tuple[str, ...]) -> tuple[str, ...]:
    """Rebuild unreadable rows from their events; return those that cannot be rebuilt."""
    lost = [task_id for task_id in unreadable if not await recovery.rebuild(task_id)]
    return tuple(lost)


def _describe_settings(settings: Settings, models: Choices, problems: Sequence[Problem]) -> Result:
    """Return the version, the workspace, every setting with its origin, and the faults."""
    workspace = str(settings.workspace) if settings.workspace else None
    values = [
        {"name": name, "value": _shown(settings, name), "origin": item.origin}
        for name, item in settings.values.items()
    ]
    tiers = [row for tier in TIERS for row in _tier(models, tier)]
    ignored = [*map(with_commands, settings.unknown), *models.ignored]
    refused = [*map(str, problems), *map(str, _refused_folders(settings))]
    return {
        "version": __version__,
        "workspace": workspace,
        "settings": values + tiers,
        "unknown": [*ignored, *_tables_without_agent(settings)],
        "faults": [*refused, *models.missing_keys, *_find_exposed(settings)],
    }


async def _describe_store(settings: Settings, store: Store) -> Result:
    """Return the kind of the store, its mark, and the number of tasks in each state."""
    tasks = await ask(counts(), store.select)
    return _kind(settings.database_url) | _mark(store) | {"tasks": tasks}


async def _verify(store: Store) -> Result:
    """Return the counts and faults of a verification of the store."""
    report = await verify_store(store)
    faults = [{"place": fault.place, "problem": fault.problem} for fault in report.faults]
    return {
        "streams": report.streams,
        "events": report.events,
        "rows": report.rows,
        "faults": faults,
    }


async def _find_unknown_agents(core: AppContext) -> list[Result]:
    """Return owners of unfinished tasks that neither this process nor a live worker knows, each
    with its first task and the number of tasks.
    """
    rows = await core.store.select(OWNERS, {})
    unknown = await unknown_agents(core, [row.owner for row in rows])
    return [
        {"agent_id": row.owner, "task_id": str(row.id), "tasks": row.tasks}
        for row in rows
        if row.owner in unknown
    ]


async def _workers(core: AppContext) -> list[Result]:
    """Return all known workers.

    The runs of a live worker come from the store, which is newer than its heartbeat.
    """
    running = {row.worker: row.runs for row in await core.store.select(RUNNING, {})}
    views: list[Result] = []
    for row in await core.store.workers():
        alive = is_alive(row, core.lease_seconds, core.is_dead)
        shown = row
        if alive:
            shown = row._replace(running=running.get(row.worker, 0))
        views.append(worker_view(shown, alive=alive))
    return views


def _rollback(store: Store, on_rollback: OnRollback) -> Result | None:
    """Return how the store went back in time, or None.

    Raise Conflict if a rollback is to be accepted and there is none.
    """
    found: RolledBack | None = getattr(store, "rollback", None)  # an in-memory store has no history
    if found is None:
        if on_rollback == "accept":
            raise Conflict(
                "The store did not go back in time: there is nothing to accept.",
                hint=NOTHING_TO_ACCEPT,
            )
        return None
    hint = with_commands(found.hint)
    return {"message": found.message, "accepted": on_rollback == "accept", "hint": hint}


def _mark(store: Store) -> Result:
    """Return where the mark of a store is kept, or why there is none."""
    marks: Marks | None = getattr(store, "marks", None)
    if marks is None:
        return {}
    mark = f"none: {marks.problem}" if marks.problem else str(marks.folder)
    before = marks.store_before()
    if before is None or not before.position:
        return {"mark": mark}
    was = f"another store with tasks up to {before.task_id} was used until {before.at}"
    return {"mark": mark, "before": was}


def _refused_folders(settings: Settings) -> list[Problem]:
    """Return the problems of the folders that are set for the sandbox; a run refuses them."""
    name = "sandbox.read_only"
    try:
        find_toolchains(settings.root, os.environ, settings.get(name))
    except InvalidParam as error:
        place = f"{name} in {settings.values[name].origin}"
        return [
            Problem(place, field["problem"], field["expected"]) for field in error.details["fields"]
        ]
    return []


def _find_exposed(settings: Settings) -> list[str]:
    """Return what the user's own lines in `.gitignore` expose to git."""
    if not settings.has_workspace:
        return []
    folder = settings.folder
    told = "{}/.gitignore shows {} to git. Remove the line {}."
    return [told.format(folder, ", ".join(names), line) for line, names in exposed(folder).items()]


def _tables_without_agent(settings: Settings) -> list[str]:
    """Return the settings tables of agents that do not exist."""
    notes = check_agents(settings)["settings"]
    return [
        f"agents.{note['agent_id']}: {note['text']}"
        for note in notes
        if note["verdict"] == "problem" and not note["field"]
    ]


def _tier(models: Choices, tier: str) -> list[Result]:
    """Return the model of a tier and its other fields that are set, as settings."""
    choice = models.tiers.get(tier)
    shown, origin = "offline: no language model is set", "default"
    if choice is not None:
        shown, origin = choice.shown, choice.origin
    name = f"models.{tier}"
    fields = [
        {"name": f"{name}.{found.field}", "value": found.value, "origin": found.origin}
        for found in models.in_force(tier)
    ]
    return [{"name": name, "value": shown, "origin": origin}, *fields]


def schedule(settings: Settings) -> Result:
    """Return the schedule in force, its next slots, and the tasks that wait for them."""
    return asyncio.run(_schedule(settings))


def tick(settings: Settings) -> Result:
    """Request a tick now; a worker runs it."""
    return asyncio.run(_tick(settings))


def migrate(settings: Settings) -> Result:
    """Upgrade the store to this version's schema, as every command that opens it does."""
    return asyncio.run(_migrate(settings))


async def _schedule(settings: Settings) -> Result:
    """Return the schedule, its next slots, and the tasks that wait for them or are running."""
    check_calendar(settings)
    cron = settings.get("scheduler.cron")
    clock = SystemClock(settings.get("scheduler.timezone"))
    slots = _next_slots(clock, cron)
    async with open_workspace(settings) as core:
        scheduled = list(filter(cron_of, await _load_tasks(core, SCHEDULED)))
        waiting = [*scheduled, *await _load_tasks(core, TICKING)]
        due = await _read_due(core, waiting)
        coming = await core.store.select(QUEUED, {"names": [TICK]})
        waiting_ids = {task.id for task in waiting}
        recurring = list(filter(recurs, await _load_tasks(core, RECURRING)))
        return {
            "cron": cron,
            "timezone": clock.timezone,
            "next": slots,
            "due": coming[0].at if coming else None,
            "waiting": [_waiting(task, due) for task in waiting],
            "active": [_active(task, clock) for task in recurring if task.id not in waiting_ids],
            "workers": await _tickers(core),
        }


def _next_slots(clock: SystemClock, cron: str) -> list[str]:
    """Return the next slots of a schedule."""
    slots: list[str] = []
    when = clock.now()
    for _ in range(SLOTS):
        when = clock.next_slot(cron, when)
        slots.append(instant(when))
    return slots


async def _read_due(core: AppContext, tasks: Sequence[Task]) -> dict[str, Any]:
    """Return when the next job of each task is due, by task id."""
    names = [f"{kind}{task.id}" for task in tasks for kind in (RUN, CRON)]
    jobs = await core.store.select(QUEUED, {"names": names})
    return {job.key.partition("/")[2]: job.at for job in jobs}


def _waiting(task: Task, due: Mapping[str, Any]) -> Result:
    """Return a task that waits for the schedule, with the time of its next job."""
    return {"id": task.id, "title": task.title, "cron": cron_of(task), "at": due.get(task.id)}


def _active(task: Task, clock: SystemClock) -> Result:
    """Return a running task of a series, with the next slot of the series."""
    assert task.schedule is not None
    assert task.schedule.cron is not None
    slot = instant(clock.next_slot(task.schedule.cron, clock.now()))
    return {
        "id": task.id,
        "title": task.title,
        "cron": task.schedule.cron,
        "at": slot,
        "state": task.state.value,
    }


async def _load_tasks(core: AppContext, query: Query[TaskNumber]) -> list[Task]:
    """Return the tasks of a query; user text can make it match too many."""
    rows = await core.store.select(query, {"after": 0, "limit": 1000})
    return [await core.service.load(str(row.id)) for row in rows]


async def _tick(settings: Settings) -> Result:
    """Queue a tick; return how many tasks wait for it, and how many workers run ticks."""
    async with open_workspace(settings) as core:
        waiting = await core.store.select(TICKING, {"after": 0, "limit": 100_000})
        await core.service.put(Job(key=TICK))
        return {"waiting": len(waiting), "workers": await _tickers(core)}


async def _tickers(core: AppContext) -> int:
    """Return the number of live workers that run ticks: those for all tasks."""
    return sum(
        serves(row, None) and is_alive(row, core.lease_seconds, core.is_dead)
        for row in await core.store.workers()
    )


async def _migrate(settings: Settings) -> Result:
    """Open the store, which upgrades its schema; return its kind and schema."""
    async with open_store(settings.database_url):
        return {
            "store": _kind(settings.database_url)["kind"],
            "schema": _schema(settings.database_url),
        }


def export(settings: Settings, what: Literal["events", "tasks"], target: Path) -> Result:
    """Export all events to a file, or all tasks to two files in a folder."""
    written: Result = {"what": what, "target": str(target)}
    if what == "events":
        text, count = asyncio.run(_dump_events(settings))
        target.write_text(text)
        return written | {"count": count}
    board, history, count, changes = asyncio.run(_export_tasks(settings))
    target.mkdir(parents=True, exist_ok=True)
    (target / BOARD).write_text(board)
    (target / HISTORY).write_text(history)
    return written | {"count": count, "changes": [change._asdict() for change in changes]}


async def _dump_events(settings: Settings) -> tuple[str, int]:
    """Return all events as lines of JSON, and their number."""
    async with open_store(settings.database_url) as store:
        lines = [line async for line in dump(store)]
    return "\n".join(lines) + "\n", json.loads(lines[-1])[END]


async def _export_tasks(settings: Settings) -> Exported:
    """Return the two files of tasks, the number of tasks, and what the files leave out."""
    async with open_store(settings.database_url) as store:
        return await export_tasks(store)


def import_(settings: Settings, source: Path) -> Result:
    """Import a file of events, or a folder with two files of tasks, into an empty store."""
    if not source.exists():
        raise NotFound(f"There is no file or folder {source}.")
    if source.is_dir():
        return _import_folder(settings, source, source)
    if source.name == BOARD:
        return _import_folder(settings, source, source.parent)
    count = asyncio.run(_load(settings, source.read_text().splitlines()))
    return {"what": "events", "source": str(source), "count": count}


def _import_folder(settings: Settings, source: Path, folder: Path) -> Result:
    """Import the two files of tasks in a folder."""
    if not (folder / BOARD).exists() and not (folder / HISTORY).exists():
        raise NotFound(f"There is no {BOARD} and no {HISTORY} in {folder}.")
    found = asyncio.run(_import_tasks(settings, folder.absolute()))
    changes = [change._asdict() for change in found.changes]
    return {"what": "tasks", "source": str(source), "count": found.count, "changes": changes}


async def _import_tasks(settings: Settings, folder: Path) -> Imported:
    """Import the task files of a folder."""
    board, history = _text(folder / BOARD) or '{"tasks": []}', _text(folder / HISTORY)
    async with open_workspace(settings) as core:
        clock = SystemClock(now=core.store.now)
        agents = core.agents.ids()
        found = await import_tasks(core.store, clock, board, history, str(folder), agents)
        await _queue_jobs(core)
        return found


async def _load(settings: Settings, lines: list[str]) -> int:
    """Import events into an empty store; return their number."""
    async with open_workspace(settings) as core:
        count = await load(core.store, lines)
        await _queue_jobs(core)
        return count


async def _queue_jobs(core: AppContext) -> None:
    """Queue the jobs of imported tasks.

    Repairs that need new events are left to a worker, so that the history stays as imported.
    """
    recovery = Recovery(core.store, core.service)
    await recovery.repair(
        (await recovery.examine())._replace(stale_runs=(), undelivered_updates=())
    )


def _text(path: Path) -> str:
    """Return the text of a file; empty if there is none."""
    return path.read_text() if path.exists() else ""


def _shown(settings: Settings, name: str) -> Any:
    """Return the value of a setting without secrets."""
    value = settings.database_url if name == "database_url" else settings.get(name)
    if name in SECRET and value:
        return "(set)"
    return without_password(value, "***") if isinstance(value, str) else value


def _schema(url: str) -> int:
    """Return the schema version of this version's stores."""
    if sqlite_path(url) is None:
        from remit.adapters.stores.postgres.schema import MIGRATIONS as FOR_POSTGRES

        return len(FOR_POSTGRES)
    from remit.adapters.stores.sqlite.schema import MIGRATIONS

    return len(MIGRATIONS)


def _kind(url: str) -> Result:
    """Return the kind of a store; for SQLite, also its version and whether it is safe."""
    if sqlite_path(url) is None:
        return {"kind": url.partition(":")[0]}
    from remit.adapters.stores.sqlite.driver import SAFE, sqlite3

    return {
        "kind": "sqlite",
        "sqlite": sqlite3.sqlite_version,
        "safe": sqlite3.sqlite_version_info >= SAFE,
    }
