"""Answers for people: lists, receipts and lines of events."""

from collections.abc import Callable, Iterable
from typing import Any

from remit.domain.text.counting import counted
from remit.surfaces.cli.cli_host import Result
from remit.surfaces.cli.output.terminal import Column, Ink, Part, Screen
from remit.surfaces.cli.output.times import ago, moment, since
from remit.surfaces.text.display import cut_at_word, display, surround
from remit.surfaces.text.printed_commands import command_line, with_commands

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
_TELLING = (
    "title",
    "question",
    "answer",
    "message",
    "error",
    "instructions",
    "summary",
    "final_message",
    "gaps",
    "reason",
)
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
    """Return a state with its sign and color; without the sign if the output is not a terminal."""
    glyph, style = _STATES.get(name, ("", ""))
    if not screen.terminal:
        return Ink(name, style)
    return Ink(f"{glyph} {name}".lstrip(), style)


def waiting(wait: dict[str, Any] | None, screen: Screen) -> str:
    """Return what a task waits for, and for how long it has waited."""
    if not wait:
        return ""
    awaited = ", ".join(_awaited(item["kind"], item["ref"]) for item in wait["on"])
    return f"{awaited} (for {since(wait['since'], screen.now)})"


def waits_for(task: dict[str, Any], screen: Screen) -> str:
    """Return what a task waits for, in short: `#3`, `an owner`, `slot 2030-01-31 08:00:00`."""
    return ", ".join([*_needed(task, screen), *_times(task)])


def standing(task: dict[str, Any], screen: Screen) -> str:
    """Return what a task waits for: `waits for #3 · not before 2030-01-31 08:00:00`."""
    needed = surround(", ".join(_needed(task, screen)), "waits for ")
    return " · ".join(filter(None, [needed, *_times(task)]))


def _needed(task: dict[str, Any], screen: Screen) -> list[str]:
    """Return the persons, agents and tasks that a task waits for."""
    first = {"draft": "activation", "paused": "resume"}.get(task["state"])
    holds = [_hold(item) for item in task.get("held_by", ()) if item["kind"] not in _TIMES]
    return list(filter(None, [first, *holds, waiting(task["wait"], screen)]))


_TIMES = {"not_before": "not before", "slot": "next slot", "retry": "next try"}


def _times(task: dict[str, Any]) -> list[str]:
    """Return the times that a task waits for."""
    return [
        f"{_TIMES[item['kind']]} {moment(item['ref'])}"
        for item in task.get("held_by", ())
        if item["kind"] in _TIMES
    ]


def _hold(item: dict[str, str]) -> str:
    """Return what keeps a task from starting, in short."""
    ended = {"failed": " (failed)", "canceled": " (canceled)"}.get(item.get("state", ""), "")
    return {
        "owner": "an owner",
        "agent": f"agent {item['ref']} (not known here)",
        "dependency": f"#{item['ref']}{ended}",
    }.get(item["kind"], f"{item['kind']} {item['ref']}")


def _awaited(kind: str, ref: str) -> str:
    """Return what a task waits for, in short."""
    return {"user": f"you: {ref}", "subtask": f"#{ref}", "tick": "the next tick"}.get(
        kind, f"{kind} {ref}"
    )


def priority(number: int) -> str:
    """Return the name of a priority; empty for normal."""
    return _PRIORITIES[number]


# Lists.


def show_tasks(empty: str) -> Show:
    """Return a function that shows a table of tasks, or a note if there are none."""

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
        _table(
            screen, answer, columns, [_task_row(task, screen) for task in answer["tasks"]], empty
        )

    return show


def _task_row(task: dict[str, Any], screen: Screen) -> list[Part]:
    parent = surround(task["parent_id"], "#")
    changed = ago(task.get("archived_at") or task["updated_at"], screen.now)
    return [
        Ink(task["id"], "bold"),
        state(task["state"], screen),
        task["owner"] or Ink("(none)", "dim"),
        task["title"],
        waits_for(task, screen),
        parent,
        priority(task["priority"]),
        Ink(changed, "dim"),
    ]


def show_guides(answer: Result, screen: Screen) -> None:
    """Show a table of guides."""
    rows = [
        [
            Ink(item["id"], "bold"),
            item["title"],
            item["created_by"],
            Ink(ago(item["created_at"], screen.now), "dim"),
        ]
        for item in answer["guides"]
    ]
    columns = (
        Column("ID"),
        Column("TITLE", gives=True),
        Column("BY", gives=True, rank=1),
        Column("WRITTEN", rank=2),
    )
    _table(
        screen,
        answer,
        columns,
        rows,
        "There are no guides. Write one with: `remit guide add TITLE TEXT`",
    )


def show_agents(answer: Result, screen: Screen) -> None:
    """Show a table of agents."""
    rows: list[list[Part]] = [
        [
            Ink(item["id"], "bold"),
            item["mode"],
            item["model"],
            " ".join(item["tools"]),
            item["source"],
            item["description"],
        ]
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


def show_agent_file(answer: Result, screen: Screen) -> None:
    """Show the path of a new agent's file, and the agent that it replaces."""
    screen.put("Wrote ", Ink(answer["path"], "bold"))
    if answer["replaces"]:
        screen.note(f"It replaces {_replaced_agent(answer)}.")
    screen.note(f"Edit it, then check it with: {command_line('agents check')}")


def _replaced_agent(answer: Result) -> str:
    """Return the agent that a new file replaces, and its source."""
    if answer["replaces"] == "built in":
        return f"the built-in agent {answer['agent_id']}"
    return f"the agent {answer['agent_id']} in {answer['replaces']}"


def show_notifications(answer: Result, screen: Screen) -> None:
    """Show notifications from agents, one per line."""
    for item in answer["notifications"]:
        screen.put(
            Ink(f"{moment(item['at'])}  ", "dim"),
            Ink(f"#{item['task_id']} ", "bold"),
            f"{item['actor']}: ",
            text=item["message"],
        )
    _after(screen, answer, bool(answer["notifications"]), "No notifications.")


def show_updates(answer: Result, screen: Screen) -> None:
    """Show the updates of a task, each with its receipt."""
    for item in answer["updates"]:
        put_update(item, screen)
    _after(
        screen,
        answer,
        bool(answer["updates"]),
        "No updates since it was created. Send a message with: `remit task message TASK TEXT`",
    )


def put_update(item: dict[str, Any], screen: Screen, indent: int = 0) -> None:
    """Write an update and its receipt."""
    turn = f" in turn {item['turn']}" if item["turn"] is not None else ""
    receipt = f" ({item['status']}{turn}, {ago(item['at'], screen.now)}): "
    screen.put(
        Ink(f"{item['update_id']} ", "bold"),
        item["type"],
        Ink(receipt, "dim"),
        text=item["content"],
        indent=indent,
    )


def show_events(answer: Result, screen: Screen) -> None:
    """Show the events of a task, one per line."""
    for item in answer["events"]:
        show_event(item, screen)
    if answer["next"] is not None:
        screen.note(f"There are more: add --after {answer['next']}")


def show_event(item: dict[str, Any], screen: Screen) -> None:
    """Show an event on one line."""
    lead: list[Part] = [
        Ink(f"{moment(item['at'])}  ", "dim"),
        Ink(f"#{item['task_id']} ", "bold"),
        f"{item['version']} {item['type']}",
    ]
    details = _details(item["data"])
    actor = f" by {item['actor']}: " if details else f" by {item['actor']}"
    screen.put(*lead, Ink(actor, "dim"), text=details)


def _details(data: dict[str, Any]) -> str:
    """Return the most telling fields of an event, in one line."""
    plain = data | {name: " ".join(data[name]) for name in _LISTS if name in data}
    named = [f"{name} {_short(plain[name])}" for name in _NAMING if name in plain]
    told = [_short(plain[name]) for name in _TELLING if name in plain][:1]
    return ", ".join(named + told)


def _short(value: Any) -> str:
    return cut_at_word(" ".join(display(str(value)).split()), 100)


def _table(
    screen: Screen, answer: Result, columns: Iterable[Column], rows: list[list[Part]], empty: str
) -> None:
    if rows:
        screen.table(tuple(columns), rows)
    _after(screen, answer, bool(rows), empty)


def _after(screen: Screen, answer: Result, found: bool, empty: str) -> None:
    """Note how to get the next page, or that there is nothing."""
    if answer.get("next_cursor"):
        screen.note(f"There are more: add --cursor {answer['next_cursor']}")
    elif not found and empty:
        screen.note(with_commands(empty))


# Receipts of changes.


def show_change(verb: str) -> Show:
    """Return a function that shows a changed task and its state in one line."""

    def show(answer: Result, screen: Screen) -> None:
        task = answer["task"]
        screen.put(
            f"{verb} " if screen.has_changes else "Nothing was changed: ",
            Ink(f"#{task['id']} ", "bold"),
            f"{task['title']} (",
            state(task["state"], screen),
            ")",
        )
        _what_follows(answer, task, screen)

    return show


def show_completion(answer: Result, screen: Screen) -> None:
    """Show that a task is done or is being verified."""
    verb = "Being verified:" if answer["task"]["state"] == "verifying" else "Completed"
    show_change(verb)(answer, screen)


def show_run(answer: Result, screen: Screen) -> None:
    """Show that a task was started, and its result if it ran in this process."""
    task = answer["task"]
    verb = "Ready to run:" if task["state"] == "pending" else "Ran"
    show_change(verb)(answer, screen)
    told = _final_answer(task)
    if task["state"] in ("failed", "canceled"):
        told = task["failure_reason"]
    if told:
        screen.put(text=told)
    if task["state"] == "failed":
        put_answer_on_record(task, screen)


def put_answer_on_record(task: dict[str, Any], screen: Screen, indent: int = 0) -> None:
    """Write the answer that a failed task gave before it failed, if there is one."""
    if answer := _final_answer(task):
        screen.put("The answer on record:", indent=indent)
        screen.put(text=answer, indent=indent)


def _final_answer(task: dict[str, Any]) -> str | None:
    """Return the answer of a task: its summary, or else its final message."""
    answer: str | None = task["summary"] or task["final_message"]
    return answer


def _what_follows(answer: Result, task: dict[str, Any], screen: Screen) -> None:
    """Note the consequences of a change: updates, successors and the next step."""
    if answer.get("notice"):
        screen.note(answer["notice"])
    if answer.get("update_ids"):
        screen.note(
            f"Its agent receives it with its next request: {', '.join(answer['update_ids'])}"
        )
    if task["rerun_of"] and not task["series_id"] and not task["started_at"]:
        screen.note(f"It replaces #{task['rerun_of']}.")
    if said := screen.outlook(task):
        screen.note(said)


def show_import(answer: Result, screen: Screen) -> None:
    """Show what was imported, and how it differs from the files."""
    screen.put(
        f"Imported {counted(answer['count'], answer['what'].removesuffix('s'))} from ",
        text=answer["source"],
    )
    _changes(answer, screen)


def show_export(answer: Result, screen: Screen) -> None:
    """Show what was exported, and what the files leave out."""
    what = counted(answer["count"], answer["what"].removesuffix("s"))
    screen.put(f"Exported {what} to ", text=answer["target"])
    _changes(answer, screen)
    if answer.get("changes"):
        screen.note(f"A file of all events keeps everything: {command_line('export events FILE')}")


def _changes(answer: Result, screen: Screen) -> None:
    """Write what each task, or the file itself, lost in an import or export."""
    for item in answer.get("changes", ()):
        named = f"#{item['task_id']}" if item["task_id"] else "tasks.json"
        screen.put(
            Ink(f"{named} ", "bold"),
            f"{item['change']} ",
            text=f"{item['field']}: {item['text']}",
            indent=2,
        )


def show_workspace(answer: Result, screen: Screen) -> None:
    """Show where the workspace is, and what agents may do in it."""
    screen.put("Workspace ", text=answer["workspace"])
    if not answer["allow_edits"]:
        screen.note(
            "Agents can only read here. Allow build and general to change files with:"
            f" {command_line('init --allow-edits')}"
        )
        return
    has_commands = "Bash" in answer["granted"]
    allowed = "change files here"
    if has_commands:
        allowed = "change files here and run sandboxed commands"
    screen.note(
        f"build and general may {allowed} ({', '.join(answer['granted'])}). Undo that with:"
        f" {command_line('init --no-allow-edits')}"
    )
    if not has_commands:
        screen.note(
            "They cannot run commands, because no sandbox works here. Install one with:"
            " apt-get install bubblewrap"
        )


def show_canceled_tasks(answer: Result, screen: Screen) -> None:
    """Show the canceled task, and the tasks canceled with it."""
    first, *others = map("#{}".format, answer["canceled"])
    more = surround(", ".join(others), ", and with it ")
    screen.put("Canceled ", Ink(first, "bold"), more)


def show_phrase(phrase: str) -> Show:
    """Return a function that shows a phrase; `{name}` stands for a field of the answer."""

    def show(answer: Result, screen: Screen) -> None:
        screen.put(phrase.format(**answer))

    return show


def show_nothing(_answer: Result, _screen: Screen) -> None:
    """Show nothing: the command has already printed its output."""


def show_lines(field: str) -> Show:
    """Return a function that shows a field of the answer, line by line."""

    def show(answer: Result, screen: Screen) -> None:
        for line in answer[field].splitlines():
            screen.put(line)

    return show
