"""How answers are shown to a person: lists, receipts and lines of events."""

from collections.abc import Callable, Iterable
from typing import Any

from remit.surfaces.cli.host import Result
from remit.surfaces.cli.screen import Column, Ink, Part, Screen
from remit.surfaces.cli.when import ago, moment, since

Show = Callable[[Result, Screen], None]

_STATES = {
    "draft": ("◌", "dim"),
    "pending": ("○", ""),
    "running": ("●", "blue"),
    "waiting": ("◐", "yellow"),
    "paused": ("‖", "dim"),
    "verifying": ("◉", "cyan"),
    "done": ("✓", "green"),
    "failed": ("✗", "red"),
    "canceled": ("⊘", "dim"),
}
_PRIORITIES = ("urgent", "high", "", "low", "lowest")
_TELLING = ("title", "question", "answer", "message", "error", "instructions", "summary", "final_message", "gaps", "reason")
_NAMING = (
    "interaction_id",
    "update_id",
    "update_ids",
    "criterion_id",
    "status",
    "child_id",
    "state",
    "owner",
    "session_id",
    "by",
    "index",
    "run_id",
    "verification",
)


# Words for parts of a task.


def state(name: str, screen: Screen) -> Ink:
    """A state with its sign and colour; the word alone where the output is not a terminal."""
    glyph, style = _STATES.get(name, ("", ""))
    return Ink(f"{glyph} {name}" if screen.terminal and glyph else name, style)


def waiting(wait: dict[str, Any] | None, screen: Screen) -> str:
    """Whom or what a task waits for, and since when."""
    if not wait:
        return ""
    return f"{', '.join(_awaited(item['kind'], item['ref']) for item in wait['on'])}, {since(wait['since'], screen.now)}"


def _awaited(kind: str, ref: str) -> str:
    return {"user": f"you: {ref}", "subtask": f"#{ref}", "tick": "the next tick"}.get(kind, f"{kind} {ref}")


def priority(number: int) -> str:
    """A priority by name; nothing for a normal one."""
    return _PRIORITIES[number]


# Lists.


def tasks(empty: str) -> Show:
    """A table of tasks, or what to do where there are none."""

    def show(answer: Result, screen: Screen) -> None:
        columns = (
            Column("ID"),
            Column("STATE"),
            Column("OWNER", rank=2),
            Column("TITLE", gives=True),
            Column("WAITS FOR", gives=True, rank=1),
            Column("PARENT", rank=4),
            Column("PRIORITY", rank=5),
            Column("CHANGED", rank=3),
        )
        _table(screen, answer, columns, [_task_row(task, screen) for task in answer["tasks"]], empty)

    return show


def _task_row(task: dict[str, Any], screen: Screen) -> list[Part]:
    parent = f"#{task['parent_id']}" if task["parent_id"] else ""
    changed = ago(task.get("archived_at") or task["updated_at"], screen.now)
    return [
        Ink(task["id"], "bold"),
        state(task["state"], screen),
        task["owner"] or Ink("nobody", "dim"),
        task["title"],
        waiting(task["wait"], screen),
        parent,
        priority(task["priority"]),
        Ink(changed, "dim"),
    ]


def guides(answer: Result, screen: Screen) -> None:
    """A table of guides."""
    rows = [
        [Ink(item["id"], "bold"), item["title"], item["created_by"], Ink(ago(item["created_at"], screen.now), "dim")] for item in answer["guides"]
    ]
    columns = (Column("ID"), Column("TITLE", gives=True), Column("BY", gives=True, rank=1), Column("WRITTEN", rank=2))
    _table(screen, answer, columns, rows, "There are no guides. Write one with: remit guide add TITLE TEXT")


def agents(answer: Result, screen: Screen) -> None:
    """A table of agents."""
    rows: list[list[Part]] = [
        [Ink(item["id"], "bold"), item["mode"], item["model"], " ".join(item["tools"]), item["source"], item["description"]]
        for item in answer["agents"]
    ]
    columns = (
        Column("ID"),
        Column("MODE", rank=4),
        Column("MODEL", rank=2),
        Column("TOOLS", gives=True, rank=1),
        Column("SOURCE", gives=True, rank=3),
        Column("WHAT IT IS FOR", gives=True, rank=5),
    )
    _table(screen, answer, columns, rows, "")


def written(answer: Result, screen: Screen) -> None:
    """Where a new agent's file is, and what it stands in front of."""
    screen.put("Wrote ", Ink(answer["path"], "bold"))
    if answer["replaces"]:
        screen.note(f"It takes the place of the agent {answer['agent_id']} that was there ({answer['replaces']}).")
    screen.note("Fill it in, then look at it with: remit agents check")


def notifications(answer: Result, screen: Screen) -> None:
    """What agents told people, each as a line."""
    for item in answer["notifications"]:
        screen.put(Ink(f"{moment(item['at'])}  ", "dim"), Ink(f"#{item['task_id']} ", "bold"), f"{item['actor']}: ", text=item["message"])
    _after(screen, answer, bool(answer["notifications"]), "No agent has told you anything.")


def updates(answer: Result, screen: Screen) -> None:
    """What the agent was or will be told, each with its receipt."""
    for item in answer["updates"]:
        update(item, screen)
    _after(
        screen, answer, bool(answer["updates"]), "Nothing was changed or said since it was created. Say something with: remit task message TASK TEXT"
    )


def update(item: dict[str, Any], screen: Screen, indent: int = 0) -> None:
    """One update and its receipt."""
    turn = f" in turn {item['turn']}" if item["turn"] is not None else ""
    receipt = f" ({item['status']}{turn}, {ago(item['at'], screen.now)}): "
    screen.put(Ink(f"{item['update_id']} ", "bold"), item["type"], Ink(receipt, "dim"), text=item["content"], indent=indent)


def events(answer: Result, screen: Screen) -> None:
    """What happened to a task, a line for each event."""
    for item in answer["events"]:
        event(item, screen)
    if answer["next"] is not None:
        screen.note(f"There are more: add --after {answer['next']}")


def event(item: dict[str, Any], screen: Screen) -> None:
    """One event on a line."""
    lead: list[Part] = [Ink(f"{moment(item['at'])}  ", "dim"), Ink(f"#{item['task_id']} ", "bold"), f"{item['version']} {item['type']}"]
    details = _details(item["data"])
    screen.put(*lead, Ink(f" by {item['actor']}", "dim"), f": {details}" if details else "")


def _details(data: dict[str, Any]) -> str:
    named = [f"{name} {_short(data[name])}" for name in _NAMING if name in data]
    told = [_short(data[name]) for name in _TELLING if name in data][:1]
    return ", ".join(named + told)


def _short(value: Any) -> str:
    words = " ".join(str(value).split())
    return words if len(words) <= 100 else f"{words[:99]}…"


def _table(screen: Screen, answer: Result, columns: Iterable[Column], rows: list[list[Part]], empty: str) -> None:
    if rows:
        screen.table(tuple(columns), rows)
    _after(screen, answer, bool(rows), empty)


def _after(screen: Screen, answer: Result, found: bool, empty: str) -> None:
    if answer.get("next_cursor"):
        screen.note(f"There are more: add --cursor {answer['next_cursor']}")
    elif not found and empty:
        screen.note(empty)


# Receipts: what a command has changed.


def changed(verb: str) -> Show:
    """One line: what was done to which task, and how it stands now."""

    def show(answer: Result, screen: Screen) -> None:
        task = answer["task"]
        screen.put(f"{verb} ", Ink(f"#{task['id']} ", "bold"), f"{task['title']} (", state(task["state"], screen), ")")
        _what_follows(answer, task, screen)

    return show


def completed(answer: Result, screen: Screen) -> None:
    """That a task is done, or that its claim to be has still to be checked."""
    changed("Being verified:" if answer["task"]["state"] == "verifying" else "Completed")(answer, screen)


def woken(answer: Result, screen: Screen) -> None:
    """What was woken, and what became of it where this command did the work."""
    changed("Ready to run:" if answer["task"]["state"] == "pending" else "Run:")(answer, screen)
    if answer["task"]["final_message"]:
        screen.put(text=answer["task"]["final_message"])


def _what_follows(answer: Result, task: dict[str, Any], screen: Screen) -> None:
    if answer.get("update_ids"):
        screen.note(f"Its agent will be told with its next request: {', '.join(answer['update_ids'])}")
    if task["rerun_of"] and not task["started_at"]:
        screen.note(f"It takes the place of #{task['rerun_of']}.")
    if task["state"] == "pending" and not task["owner"] and not task["session_id"]:
        screen.note(f"Nobody will work on it yet. Give it to an agent with: remit task update {task['id']} --owner AGENT")
    elif task["state"] == "verifying":
        screen.note(
            f"A worker checks its criteria: at once if one is running, else when one starts (remit worker, or remit serve). \
Follow it with: remit task watch {task['id']}"
        )
    elif task["state"] == "draft":
        screen.note(f"It is a draft. Start it with: remit task update {task['id']} --status active")
    elif task["blocked_by"]:
        screen.note(f"It starts when {', '.join(f'#{other}' for other in task['blocked_by'])} allows it.")
    elif task["state"] == "pending" and not task["session_id"] and screen.unattended():
        screen.note("No worker is running; it starts when one does (remit worker, or remit serve).")


def canceled(answer: Result, screen: Screen) -> None:
    """What was called off, and what went with it."""
    first, *others = (f"#{task_id}" for task_id in answer["canceled"])
    screen.put("Canceled ", Ink(first, "bold"), f", and with it {', '.join(others)}" if others else "")


def said(*parts: str) -> Show:
    """A fixed phrase with fields of the answer in it."""

    def show(answer: Result, screen: Screen) -> None:
        screen.put(" ".join(str(answer[part[1:]]) if part.startswith("=") else part for part in parts))

    return show


def nothing(_answer: Result, _screen: Screen) -> None:
    """Nothing: the command has spoken for itself."""


def lines(field: str) -> Show:
    """A field of the answer, line by line."""

    def show(answer: Result, screen: Screen) -> None:
        for line in answer[field].splitlines():
            screen.put(line)

    return show
