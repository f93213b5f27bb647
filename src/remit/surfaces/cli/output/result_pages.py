"""Pages about results: delegations, cancellations, conversations, scheduled runs."""

from contextlib import suppress
from typing import Any

from remit.domain.text.counting import counted, dollars
from remit.errors import RemitError
from remit.surfaces.cli.cli_host import Result
from remit.surfaces.cli.output import tables
from remit.surfaces.cli.output.next_steps import has_lost_worker, how_to_activate, start_worker
from remit.surfaces.cli.output.page_parts import (
    by_number,
    format_value,
    format_work_time,
    join_ids,
)
from remit.surfaces.cli.output.terminal import Ink, Screen
from remit.surfaces.cli.output.times import moment
from remit.surfaces.text.display import outcome_word, surround
from remit.surfaces.text.printed_commands import command_line


def show_result(answer: Result, screen: Screen) -> None:
    """Show the result of a task, or its state."""
    data = answer["data"]
    if data["status"] == "running":
        _note_unfinished(data["task_id"], screen)
        return
    screen.put(text=data["result"] or answer.get("error", {}).get("message", ""))
    _put_answer_on_record(data, screen)
    _put_outputs(data.get("outputs") or {}, screen)
    screen.note(_summarize(data, answer["stats"], _cost(data, screen)))
    for note in filter(None, map(data.get, ("notice", "not_cached"))):
        screen.note(note)


def _put_outputs(outputs: dict[str, Any], screen: Screen) -> None:
    """Write each output of a result with its value."""
    for name, value in outputs.items():
        screen.put(Ink(f"{name} ", "dim"), text=format_value(value))


def _note_unfinished(task_id: str, screen: Screen) -> None:
    """Note the state of a task that has not ended."""
    task = screen.ask("get_task", task_id=task_id)
    state = "a draft" if task["state"] == "draft" else task["state"]
    if has_lost_worker(task, screen.unattended):
        how = screen.outlook(task)
        screen.note(f"#{task['id']} has not ended: it is {state}, but no worker runs it. {how}")
        return
    screen.note(f"#{task_id} has not ended: it is {state}. {_how_to_go_on(task_id, task)}")


def _how_to_go_on(task_id: str, task: Result) -> str:
    """The command that continues or follows a task that has not ended."""
    if task["state"] == "draft":
        from datetime import UTC, datetime

        return how_to_activate(task, datetime.now(UTC))
    if task["state"] == "paused":
        return f"Resume it with: {command_line('task resume', task_id)}"
    return f"Follow it with: {command_line('task watch', task_id)}"


def _cost(data: Result, screen: Screen) -> float:
    """Return what a task has cost; 0 if the store has gone away since its answer."""
    with suppress(RemitError):
        cost: float = screen.ask("get_task", task_id=data["task_id"])["usage"]["cost"]
        return cost
    return 0.0


def _summarize(data: Result, stats: Result, cost: float) -> str:
    """Return one line: task, agent, model, outcome and usage."""
    agent = data["subagent_type"] or "(no owner)"
    status = outcome_word(data["status"])
    if data.get("cached"):
        status += ", done before"
    figures = [counted(stats["tool_calls"], "tool call")]
    if stats["tokens"]:
        figures.append(counted(stats["tokens"], "token"))
    if cost:
        figures.append(dollars(cost))
    figures.append(f"worked for {format_work_time(stats['time_ms'] / 1000)}")
    model = surround(data["model_used"], ", ")
    return f"#{data['task_id']} {agent}{model}: {status}, {', '.join(figures)}"


def show_results(answer: Result, screen: Screen) -> None:
    """Show the results in the order of the requests."""
    for number, result in enumerate(answer["results"], 1):
        data = result.get("data", result)
        screen.put(Ink(f"[{number}] ", "bold"), _headline(data))
        screen.put(text=data["result"] or _error_text(result), indent=2)
        _put_answer_on_record(data, screen, indent=2)


def _headline(data: Result) -> str:
    """Return the task, its agent and its status, in one line."""
    if not data["task_id"]:
        return "refused"
    agent = data.get("subagent_type") or data.get("agent_type")
    return f"#{data['task_id']} {agent}: {outcome_word(data['status'])}"


def _error_text(result: Result) -> str:
    """Return why a task has no result; an error is a text or an object."""
    error = result.get("error") or ""
    if isinstance(error, str):
        return error
    return str(error.get("message", ""))


def _put_answer_on_record(data: Result, screen: Screen, indent: int = 0) -> None:
    """Write the answer that a task gave before it failed, if it is stored."""
    if data["status"] not in ("failed", "timeout") or not data["task_id"]:
        return
    with suppress(RemitError):  # the result is printed, even if the store goes away
        task = screen.ask("get_task", task_id=data["task_id"])
        tables.put_answer_on_record(task, screen, indent)


def show_cancellation(answer: Result, screen: Screen) -> None:
    """Show the canceled tasks."""
    if answer["canceled"]:
        screen.put(f"Canceled {join_ids(answer['canceled'])}.")
    else:
        screen.put("There was nothing to cancel.")


def show_transcript(answer: Result, screen: Screen) -> None:
    """Show a conversation, message by message."""
    for message in answer["messages"]:
        screen.put(
            Ink(f"{message['role']} ", "bold"),
            Ink(f"turn {message['turn']}, {moment(message['at'])}", "dim"),
        )
        for part in message["parts"]:
            screen.put(text=format_part(part), indent=2)
    if not answer["messages"]:
        screen.note("No messages yet.")


def format_part(part: dict[str, Any]) -> str:
    """One part of a message: text, a thought, a tool call or a result."""
    match part:
        case {"type": "tool_call"}:
            return f"{part['name']} {format_value(part['arguments'])}"
        case {"type": "thinking"}:
            return f"(thought) {part['text']}"
        case {"type": "task_result", "call_id": _}:
            return f"task {part['task_id']} {part['status']}: {part['text']}"
        case {"status": "unknown"} if not part.get("text"):
            return "(interrupted; its outcome is unknown)"
        case _:
            return str(part.get("text", ""))


def show_schedule(answer: Result, screen: Screen) -> None:
    """Show the schedule, its next slots and the tasks that wait for it."""
    zone = answer["timezone"]
    slots = ", ".join(moment(at, zone) for at in answer["next"])
    screen.put(f"{answer['cron']} in ", text=zone)
    screen.put(Ink("next ", "dim"), text=slots, indent=2)
    for task in answer["waiting"]:
        screen.put(Ink(f"#{task['id']} ", "bold"), text=_describe_wait(task, zone), indent=2)
    for task in answer["active"]:
        told = (
            f"{task['title']} is {task['state']}; its series ({task['cron']}) continues at"
            f" {moment(task['at'], zone)} if it has ended by then"
        )
        screen.put(Ink(f"#{task['id']} ", "bold"), text=told, indent=2)
    if not answer["waiting"] and not answer["active"]:
        screen.note("No task waits for the schedule.")
    if not answer["workers"]:
        screen.note(f"No worker for all tasks is running. {start_worker()}")


def _describe_wait(task: Result, zone: str) -> str:
    """Return that a task waits for its schedule, with its own times and its next slot."""
    own = surround(task["cron"], " at ")
    told = f"{task['title']} waits for its schedule{own}"
    if not task["at"]:
        return told
    return f"{told}, next {moment(task['at'], zone)}"


def show_tick(answer: Result, screen: Screen) -> None:
    """Show that a tick was requested, and whether a worker will run it."""
    verb = by_number(answer["waiting"], "is", "are")
    screen.put(f"Requested a tick; {counted(answer['waiting'], 'task')} {verb} waiting for it.")
    if not answer["workers"]:
        screen.note("No worker for all tasks is running; the tick runs when one starts.")
