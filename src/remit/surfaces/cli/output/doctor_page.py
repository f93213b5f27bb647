"""The page of `remit doctor`: settings, store and workers, and their faults."""

from typing import Any

from remit.domain.text.counting import counted
from remit.surfaces.cli.cli_host import Result
from remit.surfaces.cli.output.next_steps import start_worker
from remit.surfaces.cli.output.page_parts import format_value, join_ids, put_facts, put_heading
from remit.surfaces.cli.output.terminal import Column, Ink, Part, Screen
from remit.surfaces.cli.output.times import moment
from remit.surfaces.text.display import surround
from remit.surfaces.text.printed_commands import command_line

_LEFT = {
    "runnable_without_job": "could run but are not in the queue",
    "stale_runs": "have a run but no worker",
    "parents_not_told": "were not informed of a subtask's end",
    "dependents_not_told": "ended, but dependents were not informed",
    "undelivered_updates": "wait although there is an update for them",
    "waiting_without_alarm": "wait for a timer that has no job",
    "claims_without_check": "are verifying but have no check job",
    "unreadable_rows": "have a row that cannot be read",
    "budgets_below_use": "have used more than their tree's ledger shows",
}
_WORKER_COLUMNS = (
    Column("WORKER"),
    Column("HOST", gives=True),
    Column("AGENTS", gives=True),
    Column("WORKS ON", gives=True),
    Column("SINCE"),
    Column("RUNNING"),
    Column("LAST SEEN"),
)


def show_doctor(answer: Result, screen: Screen) -> None:
    """Show the settings in force and whether the store is consistent."""
    workspace = answer["workspace"] or f"none. Make one with: {command_line('init')}"
    screen.put(f"remit {answer['version']}, workspace {workspace}")
    screen.put()
    _put_settings(answer, screen)
    for fault in answer["faults"]:
        screen.put(Ink("fault ", "red"), text=fault)
    for item in answer["unknown_agents"]:
        _put_unknown_agent(item, screen)
    _note_server(answer["settings"], screen)
    rollback: dict[str, Any] | None = answer.get("rollback")
    if rollback is not None:
        _put_rollback(rollback, screen)
    put_facts("Store", _store_facts(answer["store"]), screen)
    _put_workers(answer["workers"], screen)
    if not rollback:  # workers send no heartbeats to a store that went back in time
        _note_missing_workers(answer["workers"], screen)
    _put_left_behind(answer, screen)
    if answer.get("verified"):
        is_behind = rollback is not None and not rollback["accepted"]
        _put_verification(answer["verified"], screen, is_behind=is_behind)


def _put_settings(answer: Result, screen: Screen) -> None:
    """Write the settings in force with their origins, and those without effect."""
    rows: list[list[Part]] = [
        [item["name"], format_value(item["value"]), Ink(item["origin"], "dim")]
        for item in answer["settings"]
    ]
    screen.table((Column("SETTING"), Column("VALUE", gives=True), Column("FROM", gives=True)), rows)
    for unknown in map(str, answer["unknown"]):
        is_known = ": expected " in unknown or ", which " in unknown
        kind = "ignored" if is_known else "unknown"
        screen.put(Ink(f"{kind} setting ", "yellow"), text=unknown)


def _put_unknown_agent(item: dict[str, Any], screen: Screen) -> None:
    """Write the tasks of an unknown agent."""
    more = ""
    if item["tasks"] > 1:
        more = f" and {counted(item['tasks'] - 1, 'other unfinished task')}"
    told = (
        f"{item['agent_id']} owns #{item['task_id']}{more}, but this agent is unknown here, and no"
        " live worker runs it."
    )
    how = (
        "Restore its file, or set another owner with:"
        f" {command_line('task update', item['task_id'], '--owner AGENT')}"
    )
    screen.put(Ink("unknown agent ", "yellow"), text=f"{told} {how}")


def _note_server(settings: list[dict[str, Any]], screen: Screen) -> None:
    """Note that a server is set but was not checked."""
    values = {item["name"]: item["value"] for item in settings}
    if url := values.get("url"):
        screen.note(
            f"This page describes the database above. The server at {url} was not checked; see its"
            " /readyz."
        )


def _put_rollback(found: dict[str, Any], screen: Screen) -> None:
    """Write that the store went back in time, and what to do unless that was accepted."""
    if found["accepted"]:
        screen.put(Ink("accepted ", "yellow"), text=found["message"])
        screen.note("A new epoch began: ids and positions of events continue above the old ones.")
    else:
        screen.put(Ink("fault ", "red"), text=found["message"])
        screen.note(found["hint"])


def _store_facts(store: Result) -> dict[str, str]:
    """Return the kind of the store, its version and its tasks."""
    counts = ", ".join(f"{count} {state}" for state, count in store["tasks"].items() if count)
    shown = {name: store[name] for name in store if name not in ("sqlite", "safe")}
    facts = dict(zip(shown, map(format_value, shown.values()), strict=True))
    if "sqlite" in store:
        safety = "safe" if store["safe"] else "can corrupt the file"
        facts["sqlite version"] = f"{store['sqlite']} ({safety} when several processes write)"
    return facts | {"tasks": counts or "none"}


def _put_workers(rows: list[dict[str, Any]], screen: Screen) -> None:
    """Write a table of the workers, and a line for each model that a worker has paused."""
    if rows:
        screen.put()
        screen.table(_WORKER_COLUMNS, list(map(_worker_cells, rows)))
    for row in rows:
        _put_model_trouble(row, screen)


def _put_model_trouble(row: dict[str, Any], screen: Screen) -> None:
    """Write a line for each model that a worker has paused."""
    for model in row["models"]:
        trouble = f"{row['worker']} {_describe_trouble(model)}"
        screen.put(Ink("model trouble ", "yellow"), text=trouble)


def _note_missing_workers(rows: list[dict[str, Any]], screen: Screen) -> None:
    """Note that no worker is running, or none for all tasks."""
    scopes = [row["scope"] for row in rows if row["alive"]]
    if not scopes:
        screen.note(f"No worker is running. {start_worker()}")
    elif None not in scopes:
        screen.note(f"No worker for all tasks is running. {start_worker()}")


def _worker_cells(row: dict[str, Any]) -> list[Part]:
    """Return the row of one worker."""
    heartbeat: Part = f"{row['heartbeat_seconds_ago']:.0f} s ago"
    if not row["alive"]:
        heartbeat = Ink(f"{heartbeat}: lost", "red")
    return [
        row["worker"],
        row["host"],
        ", ".join(row["agents"]),
        _describe_scope(row["scope"]),
        moment(row["since"]),
        f"{row['running']} of {row['concurrency']}",
        heartbeat,
    ]


def _describe_scope(scope: list[str] | None) -> str:
    """Return the trees of tasks that a worker works on."""
    if scope is None:
        return "all tasks"
    return join_ids(scope) or "none yet"


def _describe_trouble(model: dict[str, Any]) -> str:
    """Return why a worker does not use a model now."""
    if model["circuit"] == "cooling":
        return (
            f"does not call {model['endpoint']} for {model['seconds']:g} s, as it asked for a pause"
        )
    agent = surround(model["agent"], " for ")
    last = surround(model.get("last"), ": ")  # an older worker does not report it
    return (
        f"has paused {model['endpoint']}{agent} after {model['failures']} failures in a row"
        f" ({model['circuit'].replace('_', ' ')}){last}"
    )


def _put_left_behind(answer: Result, screen: Screen) -> None:
    """Write the mismatches in the store, and how they are repaired."""
    left = {name: ids for name, ids in answer["left_behind"].items() if ids}
    is_fixed = "fixed" in answer
    put_heading("Left behind", left, screen)
    for name, ids in left.items():
        mark = Ink("fault ", "red")
        if is_fixed and name not in answer["beyond_repair"]:
            mark = Ink("fixed ", "green")
        screen.put(mark, f"{join_ids(ids)} {_LEFT[name]}", indent=2)
    if answer.get("orphans"):
        verb = "Ended" if is_fixed else "There are"
        numbers = ", ".join(map(str, answer["orphans"]))
        screen.put(f"{verb} processes of commands whose worker is gone: {numbers}")
    if not is_fixed:
        _note_repairs({*left}, {*answer["beyond_repair"]}, screen)


def _note_repairs(left: set[str], beyond_repair: set[str], screen: Screen) -> None:
    """Note how mismatches are repaired."""
    fix = command_line("doctor --fix")
    if left - beyond_repair - {"unreadable_rows"}:
        screen.note(f"A worker repairs this within a minute. Repair it now with: {fix}")
    if "unreadable_rows" in left:
        screen.note(f"Rebuild the rows from events with: {fix}")


def _put_verification(report: dict[str, Any], screen: Screen, *, is_behind: bool) -> None:
    """Write what was verified, and every fault."""
    screen.section("Verified")
    counts = (
        counted(report["streams"], "stream"),
        counted(report["events"], "event"),
        counted(report["rows"], "row"),
    )
    screen.put(", ".join(counts), indent=2)
    for fault in report["faults"]:
        screen.put(Ink("fault ", "red"), f"{fault['place']} ", text=fault["problem"], indent=2)
    if report["faults"]:
        return
    verdict = Ink("Everything is consistent.", "green")
    if is_behind:
        verdict = Ink("The store is internally consistent, but it went back in time.", "yellow")
    screen.put(verdict, indent=2)
