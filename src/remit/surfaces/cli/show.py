"""How answers are shown to a person: lists, receipts and lines of events."""

from collections.abc import Callable, Iterable
from typing import Any

from remit.domain.counting import counted
from remit.surfaces.cli.host import Result
from remit.surfaces.cli.outlook import outlook
from remit.surfaces.cli.screen import Column, Ink, Part, Screen
from remit.surfaces.cli.when import ago, moment, since
from remit.surfaces.display import cut_at_word, display

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
_LISTS = ("update_ids", "gaps")


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


def waits_for(task: dict[str, Any], screen: Screen) -> str:
    """What must happen before a task goes on, in few words: `#3`, `an owner`, `slot 2030-01-31 08:00:00`."""
    return ", ".join([*_needed(task, screen), *_times(task)])


def standing(task: dict[str, Any], screen: Screen) -> str:
    """The same as a part of a sentence: `waits for #3 · not before 2030-01-31 08:00:00`."""
    needed = ", ".join(_needed(task, screen))
    return " · ".join([*([f"waits for {needed}"] if needed else []), *_times(task)])


def _needed(task: dict[str, Any], screen: Screen) -> list[str]:
    first = {"draft": "activation", "paused": "resume"}.get(task["state"])
    holds = [_hold(item) for item in task.get("held_by", ()) if item["kind"] not in _TIMES]
    wait = waiting(task["wait"], screen)
    return [*([first] if first else []), *holds, *([wait] if wait else [])]


_TIMES = {"not_before": "not before", "slot": "next slot", "retry": "next try"}


def _times(task: dict[str, Any]) -> list[str]:
    return [f"{_TIMES[item['kind']]} {moment(item['ref'])}" for item in task.get("held_by", ()) if item["kind"] in _TIMES]


def _hold(item: dict[str, str]) -> str:
    match item["kind"]:
        case "owner":
            return "an owner"
        case "agent":
            return f"agent {item['ref']} (not known here)"
        case "dependency":
            return f"#{item['ref']}" + (f" ({item['state']})" if item["state"] in ("failed", "canceled") else "")
        case kind:
            return f"{kind} {item['ref']}"


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
        waits_for(task, screen),
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
    screen.put(*lead, Ink(f" by {item['actor']}{': ' if details else ''}", "dim"), text=details)


def _details(data: dict[str, Any]) -> str:
    plain = data | {name: " ".join(data[name]) for name in _LISTS if name in data}
    named = [f"{name} {_short(plain[name])}" for name in _NAMING if name in plain]
    told = [_short(plain[name]) for name in _TELLING if name in plain][:1]
    return ", ".join(named + told)


def _short(value: Any) -> str:
    return cut_at_word(" ".join(display(str(value)).split()), 100)


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
    task = answer["task"]
    changed("Ready to run:" if task["state"] == "pending" else "Ran")(answer, screen)
    if told := task["failure_reason"] if task["state"] in ("failed", "canceled") else task["summary"] or task["final_message"]:
        screen.put(text=told)
    if task["state"] == "failed":
        answer_on_record(task, screen)


def answer_on_record(task: dict[str, Any], screen: Screen, indent: int = 0) -> None:
    """The answer that a failed task gave before it failed, if it gave one."""
    if answer := task["summary"] or task["final_message"]:
        screen.put("The answer on record:", indent=indent)
        screen.put(text=answer, indent=indent)


def _what_follows(answer: Result, task: dict[str, Any], screen: Screen) -> None:
    if answer.get("notice"):
        screen.note(answer["notice"])
    if answer.get("update_ids"):
        screen.note(f"Its agent will be told with its next request: {', '.join(answer['update_ids'])}")
    if task["rerun_of"] and not task["series_id"] and not task["started_at"]:
        screen.note(f"It replaces #{task['rerun_of']}.")
    if said := outlook(task, screen.unattended, screen.now):
        screen.note(said)


def imported(answer: Result, screen: Screen) -> None:
    """What was imported, and in what it differs from the files."""
    screen.put(f"Imported {counted(answer['count'], answer['what'].removesuffix('s'))} from ", text=answer["source"])
    _changes(answer, screen)


def exported(answer: Result, screen: Screen) -> None:
    """What was exported, and what is not in the files."""
    what = counted(answer["count"], answer["what"].removesuffix("s"))
    screen.put(f"Exported {what} to ", text=answer["target"])
    _changes(answer, screen)
    if answer.get("changes"):
        screen.note("A file of all events keeps everything: remit export events FILE")


def _changes(answer: Result, screen: Screen) -> None:
    """What each task lost on its way."""
    for item in answer.get("changes", ()):
        screen.put(Ink(f"#{item['task_id']} ", "bold"), f"{item['change']} ", text=f"{item['field']}: {item['text']}", indent=2)


def workspace(answer: Result, screen: Screen) -> None:
    """Where the workspace is, and what agents may do to it."""
    screen.put("Workspace ", text=answer["workspace"])
    if not answer["allow_edits"]:
        screen.note("Agents only read here. Let build and general change files with: remit init --allow-edits")
        return
    commands = "change files here and run sandboxed commands" if "Bash" in answer["granted"] else "change files here"
    screen.note(f"build and general may {commands} ({', '.join(answer['granted'])}). Take that back with: remit init --no-allow-edits")
    if "Bash" not in answer["granted"]:
        screen.note("They run no commands, since no sandbox works here. Install it with: apt-get install bubblewrap")


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
