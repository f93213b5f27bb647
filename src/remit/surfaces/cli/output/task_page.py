"""The page of one task: `remit task show`."""

from functools import partial
from itertools import chain
from typing import Any

from remit.domain.text.counting import counted, dollars, plain_number
from remit.surfaces.cli.cli_host import Result
from remit.surfaces.cli.output import tables
from remit.surfaces.cli.output.next_steps import ENDED, has_lost_worker, recurs
from remit.surfaces.cli.output.page_parts import (
    format_value,
    format_work_time,
    put_facts,
    put_heading,
    put_prose,
    put_rows,
)
from remit.surfaces.cli.output.question_pages import put_question
from remit.surfaces.cli.output.terminal import Ink, Part, Screen
from remit.surfaces.cli.output.times import ago, moment
from remit.surfaces.text.display import surround
from remit.surfaces.text.printed_commands import command_line

_MARKS = {
    "pass": ("[x]", "green"),
    "attested": ("[~]", "yellow"),
    "unverified": ("[?]", "yellow"),
    "fail": ("[!]", "red"),
    "waived": ("[-]", "dim"),
}
_STEP_MARKS: dict[bool, Part] = {True: Ink("[x] ", "green"), False: "[ ] "}
_IF_REQUIRED = {True: "", False: ", optional"}
_INSTANTS = {
    "created": "created_at",
    "started": "started_at",
    "completed": "completed_at",
    "changed": "updated_at",
}
_MOST = 1000
_GRANTS = {"allow": "only", "offer": "shown only", "deny": "not"}


def show_task(answer: Result, screen: Screen) -> None:
    """Show a whole task."""
    screen.put(Ink(f"#{answer['id']} ", "bold"), Ink(answer["title"], "bold"))
    is_lost = has_lost_worker(answer, screen.unattended)
    _put_state(answer, screen, is_lost=is_lost)
    if answer["description"] not in ("", answer["instructions"], answer["title"]):
        put_prose("Why", answer["description"], screen)
    put_prose("Instructions", answer["instructions"], screen)
    _put_acceptance(answer, screen)
    _put_outputs(answer, screen)
    subtasks = _read_subtasks(answer, screen)
    _put_plan(answer, subtasks, screen)
    _put_subtasks_outside_plan(answer, subtasks, screen)
    _put_resources(answer, screen)
    _put_dependencies(answer, screen)
    _put_questions(answer, screen)
    _put_undelivered(answer, screen)
    _put_result(answer, screen)
    put_facts("Details", _details(answer, screen), screen)
    _put_times(answer, screen)
    if is_lost or _is_stuck(answer):
        screen.note(screen.outlook(answer))


def _is_stuck(answer: Result) -> bool:
    """Return True if a task cannot start unless a person changes something."""
    return any(map(_needs_person, answer["held_by"]))


def _needs_person(hold: dict[str, Any]) -> bool:
    """Return True if only a person can remove what keeps a task from starting."""
    return hold["kind"] in ("agent", "owner") or hold.get("state") in ENDED


def _put_state(answer: Result, screen: Screen, *, is_lost: bool) -> None:
    parts: list[Part] = [tables.state(answer["state"], screen)]
    if said := tables.standing(answer, screen):
        parts.append(Ink(_join_to_state(answer["state"], said), "yellow"))
    if is_lost:
        parts.append(Ink(" · its worker is gone", "yellow"))
    screen.put(*parts, text=f" · {' · '.join(_state_facts(answer))}")


def _join_to_state(state: str, said: str) -> str:
    """Return what a task waits for, to follow its state: `waiting for #3`, `paused ·
    waits for …`.
    """
    if state == "waiting":
        return said.removeprefix("waits")
    return f" · {said}"


def _state_facts(answer: Result) -> list[str]:
    """Return the owner of a task and its unusual properties."""
    facts = [f"owner {answer['owner'] or '(none)'}"]
    if answer["ready"]:
        facts.append("ready")
    facts.append(surround(tables.priority(answer["priority"]), "priority "))
    if answer["state"] == "done" and answer["verification"] != "none":
        facts.append(str(answer["verification"]))
    return list(filter(None, facts))


def _put_acceptance(answer: Result, screen: Screen) -> None:
    put_heading("Acceptance", answer["acceptance"], screen)
    for item in answer["acceptance"]:
        mark, style = _MARKS.get(item["status"], ("[ ]", ""))
        screen.put(Ink(mark, style), Ink(f" {item['id']} ", "dim"), text=item["text"], indent=2)
        if verdict := _join_verdict(item):
            screen.put(text=verdict, indent=6)


def _join_verdict(item: dict[str, Any]) -> str:
    """Return what was found out about a criterion, and by whom; empty if it was not checked."""
    parts: list[str | None] = [item["status"], item["by"], item["evidence"]]
    if item["status"] == "unchecked":
        del parts[0]
    return " · ".join(map(str, filter(None, parts)))


def _put_outputs(answer: Result, screen: Screen) -> None:
    """Write each output: given, missing, or given without being required."""
    given: dict[str, Any] = answer["completion_outputs"] or {}
    kinds = _output_kinds(answer["outputs"])
    for name in given:
        kinds.setdefault(name, "not asked for")
    put_heading("Outputs", kinds, screen)
    for name, kind in kinds.items():
        title = f"{name} ({kind})"
        if name in given:
            screen.put("[x] ", title, text=f": {format_value(given[name])}", indent=2)
        else:
            screen.put("[ ] ", title, indent=2)


def _output_kinds(outputs: list[dict[str, Any]]) -> dict[str, str]:
    """Return each required or optional output with its kind in words."""
    return {item["name"]: f"{item['kind']}{_IF_REQUIRED[item['required']]}" for item in outputs}


def _read_subtasks(answer: Result, screen: Screen) -> dict[str, Any]:
    """Return the subtasks by id. Lists leave out ended tasks unless their state is given."""
    if not answer["child_ids"]:
        return {}
    ask = partial(screen.ask, "list_tasks", parent=answer["id"], limit=_MOST)
    pages = [ask(), *(ask(status=state) for state in ENDED)]
    tasks = chain.from_iterable(page["tasks"] for page in pages)
    return {task["id"]: task for task in tasks}


def _put_plan(answer: Result, subtasks: dict[str, Any], screen: Screen) -> None:
    """Write each step, with the subtask that implements it."""
    put_heading("Plan", answer["steps"], screen)
    for index, step in enumerate(answer["steps"]):
        link: list[Part] = []
        if step["task_id"]:
            link = [" → ", *_link_subtask(step["task_id"], subtasks, screen)]
        number, mark = Ink(f"{index} ", "dim"), _STEP_MARKS[step["done"]]
        screen.put(number, mark, step["title"], *link, indent=2)
        if step["details"]:
            screen.put(text=step["details"], indent=8)


def _put_subtasks_outside_plan(answer: Result, subtasks: dict[str, Any], screen: Screen) -> None:
    planned = {step["task_id"] for step in answer["steps"]}
    others = [child for child in answer["child_ids"] if child not in planned]
    put_heading("Subtasks", others, screen)
    for child in others:
        title = surround(subtasks.get(child, {}).get("title"), " ")
        screen.put(*_link_subtask(child, subtasks, screen), text=title, indent=2)


def _link_subtask(child: str, subtasks: dict[str, Any], screen: Screen) -> list[Part]:
    """Return the id of a subtask, and its state if it was found."""
    link: list[Part] = [Ink(f"#{child} ", "bold")]
    if child in subtasks:
        link.append(tables.state(subtasks[child]["state"], screen))
    return link


def _put_resources(answer: Result, screen: Screen) -> None:
    put_heading("Resources", answer["resources"], screen)
    for index, item in enumerate(answer["resources"]):
        label = surround(item["label"], " (", ")")
        text = f"{item['value']}{label}"
        screen.put(Ink(f"{index} ", "dim"), f"{item['type']} ", text=text, indent=2)
    put_heading("Guides", answer["guides"], screen)
    for guide in answer["guides"]:
        screen.put(text=f"{guide}  read it with: {command_line('guide show', guide)}", indent=2)


def _put_dependencies(answer: Result, screen: Screen) -> None:
    """Write each dependency: done, open, or ended without being done."""
    put_heading("Depends on", answer["depends_on"], screen)
    ended = {item["ref"]: item["state"] for item in answer["held_by"] if item.get("state") in ENDED}
    for item in answer["depends_on"]:
        mark: Part = "[x] "
        told = f" {item['on']}"
        if item["task_id"] in answer["blocked_by"]:
            mark, told = "[ ] ", f" to be {item['on']}"
        if state := ended.get(item["task_id"]):
            mark, told = Ink("[!] ", "red"), f" {state} (required: {item['on']})"
        screen.put(mark, f"#{item['task_id']}", told, indent=2)


def _put_questions(answer: Result, screen: Screen) -> None:
    if answer["state"] in ENDED:
        return
    found = screen.ask("list_interactions", task_id=answer["id"], limit=_MOST)["interactions"]
    put_heading("Open questions", found, screen)
    for item in found:
        put_question(item, screen, indent=2)


def _put_undelivered(answer: Result, screen: Screen) -> None:
    """Write the updates that the agent of a task has not received."""
    updates = screen.ask("list_updates", task_id=answer["id"])["updates"]
    undelivered = [item for item in updates if item["status"] != "delivered"]
    title = "Never delivered" if answer["state"] in ENDED else "Not delivered yet"
    put_heading(title, undelivered, screen)
    for item in undelivered:
        tables.put_update(item, screen, indent=2)


def _put_result(answer: Result, screen: Screen) -> None:
    """Write the result of a task, and why it ended."""
    # A final message that repeats the summary is shown once.
    given: tuple[str | None, ...] = (answer["summary"], answer["final_message"])
    texts: dict[str, None] = dict.fromkeys(filter(None, given))
    why = ": ".join(filter(None, (answer["reason"], answer["failure_reason"])))
    put_heading("Result", texts or why, screen)
    for text in texts:
        screen.put(text=text, indent=2)
    if why:
        style = "red" if answer["state"] == "failed" else "dim"
        screen.put(Ink(f"{answer['state']} ", style), text=why, indent=2)


def _details(answer: Result, screen: Screen) -> dict[str, Any]:
    """Return facts about a task in display order, without those that have no value."""
    return {
        "labels": ", ".join(answer["labels"]),
        "parent": _name_parent(answer),
        **_related_tasks(answer, screen),
        "session": answer["session_id"],
        "created by session": answer["parent_session_id"],
        "model": answer["model"],
        "tools": _describe_grant(answer["tools"]),
        "limits": _describe_limits(answer["limits"]),
        "schedule": _join_pairs(answer["schedule"] or {}),
        "completion": "" if answer["completion"] == "auto" else answer["completion"],
        "metadata": _describe_metadata(answer["metadata"] or {}),
        "used": _describe_usage(answer["usage"]),
        "tools used": _describe_tool_uses(answer["tool_summary"]),
    }


def _name_parent(answer: Result) -> str:
    """Return the parent of a task and the step of its plan."""
    parent = surround(answer["parent_id"], "#")
    if answer["step_index"] is None:
        return parent
    return f"{parent}, step {answer['step_index']}"


def _related_tasks(answer: Result, screen: Screen) -> dict[str, str]:
    """Return the tasks before and after this one: reruns, successors, and the series."""
    after = answer["superseded_by"]
    earlier = _earlier_task(answer)
    if not recurs(answer) or answer["reason"] == "superseded":
        return earlier | {"superseded by": surround(after, "#")}
    if answer["state"] not in ENDED:
        return earlier | {"then again": _describe_recurrence(answer)}
    if not after:
        return earlier
    return earlier | {"next in series": _describe_next(after, screen)}


def _earlier_task(answer: Result) -> dict[str, str]:
    """Return the task that this one repeats or continues."""
    before, first = answer["rerun_of"], answer["series_id"]
    if first:
        return {"series": f"of #{first}, after #{before}"}
    return {"rerun of": surround(before, "#")}


def _describe_recurrence(answer: Result) -> str:
    """Return when a task of a series runs again."""
    return (
        f"at the first slot of {answer['schedule']['cron']} after it has ended, until it is"
        " canceled"
    )


def _describe_next(task_id: str, screen: Screen) -> str:
    """Return a later task of a series, with its slot."""
    task = screen.ask("get_task", task_id=task_id)
    refs = {item["kind"]: item["ref"] for item in task["held_by"]}
    if "slot" in refs:
        return f"#{task_id} at {moment(refs['slot'])}"
    return f"#{task_id}, {task['state']}"


def _describe_grant(grant: Result) -> str:
    """Return a grant in words; the agent's own tools are not repeated."""
    parts = [
        f"{word} {', '.join(grant[field]) or 'none'}"
        for field, word in _GRANTS.items()
        if grant.get(field) is not None
    ]
    return "; ".join(parts)


def _describe_limits(limits: dict[str, float]) -> str:
    values = {name: plain_number(value) for name, value in limits.items()}
    if "max_cost" in limits:
        values["max_cost"] = dollars(limits["max_cost"])
    return _join_pairs(values)


def _join_pairs(values: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _describe_metadata(metadata: dict[str, Any]) -> str:
    return ", ".join(f"{name}={format_value(value)}" for name, value in metadata.items())


def _describe_usage(usage: Result) -> str:
    """Return the requests, tokens, tool calls and cost of a task."""
    used = {name: value for name, value in usage.items() if value}
    cost = used.pop("cost", None)
    parts = [counted(value, _noun(name)) for name, value in used.items()]
    if cost:
        parts.append(dollars(cost))
    return ", ".join(parts)


def _noun(name: str) -> str:
    """Return the noun of a count: `tool call` for `tool_calls`."""
    return name.removesuffix("s").replace("_", " ")


def _describe_tool_uses(uses: list[dict[str, Any]]) -> str:
    return ", ".join(map("{0[tool]} {0[count]}x".format, uses))


def _put_times(answer: Result, screen: Screen) -> None:
    facts = {
        name: f"{moment(answer[field])} ({ago(answer[field], screen.now)})"
        for name, field in _INSTANTS.items()
        if answer[field]
    }
    facts["created"] += f" by {answer['created_by']}"
    if answer["duration"]:
        worked = format_work_time(answer["duration"])
        facts["worked for"] = f"{worked} before this run" if answer["run_id"] else worked
    put_facts("Times", facts, screen)
    put_rows({"uid": answer["uid"], "version": str(answer["version"])}, screen)
