"""Answers that read like a page: a task, a guide, an agent, the inbox, the doctor's findings."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from remit.domain.counting import counted, dollars, plain_number
from remit.errors import RemitError
from remit.surfaces.cli import show
from remit.surfaces.cli.host import Result
from remit.surfaces.cli.outlook import outlook, recurs, typed_answer
from remit.surfaces.cli.screen import Column, Ink, Part, Screen
from remit.surfaces.cli.when import ago, moment, span
from remit.surfaces.display import display

_MARKS = {"pass": ("[x]", "green"), "attested": ("[~]", "yellow"), "unverified": ("[?]", "yellow"), "fail": ("[!]", "red"), "waived": ("[-]", "dim")}
_ENDED = ("done", "failed", "canceled")
_MOST = 1000


def task(answer: Result, screen: Screen) -> None:
    """The whole task."""
    screen.put(Ink(f"#{answer['id']} ", "bold"), Ink(answer["title"], "bold"))
    _standing(answer, screen)
    if answer["description"] not in ("", answer["instructions"], answer["title"]):
        _prose("Why", answer["description"], screen)
    _prose("Instructions", answer["instructions"], screen)
    _acceptance(answer, screen)
    _outputs(answer, screen)
    below = _subtasks(answer, screen)
    _plan(answer, below, screen)
    _resources(answer, screen)
    _dependencies(answer, screen)
    _questions(answer, screen)
    _undelivered(answer, screen)
    _result(answer, screen)
    _details(answer, screen)
    _times(answer, screen)
    if any(item["kind"] in ("agent", "owner") or item.get("state") in _ENDED for item in answer["held_by"]):
        screen.note(outlook(answer, screen.unattended, screen.now))


def _standing(answer: Result, screen: Screen) -> None:
    parts: list[Part] = [show.state(answer["state"], screen)]
    if said := show.standing(answer, screen):
        parts.append(Ink(said.removeprefix("waits") if answer["state"] == "waiting" else f" · {said}", "yellow"))
    facts = [f"owner {answer['owner'] or '(none)'}"]
    facts += ["ready"] if answer["ready"] else []
    facts += [f"priority {name}"] if (name := show.priority(answer["priority"])) else []
    facts += [str(answer["verification"])] if answer["state"] == "done" and answer["verification"] != "none" else []
    screen.put(*parts, text=f" · {' · '.join(facts)}")


def _prose(title: str, text: str, screen: Screen) -> None:
    if text:
        screen.section(title)
        screen.put(text=text, indent=2)


def _acceptance(answer: Result, screen: Screen) -> None:
    _heading("Acceptance", answer["acceptance"], screen)
    for item in answer["acceptance"]:
        mark, style = _MARKS.get(item["status"], ("[ ]", ""))
        screen.put(Ink(mark, style), Ink(f" {item['id']} ", "dim"), text=item["text"], indent=2)
        told = [str(part) for part in (item["status"] if item["status"] != "unchecked" else "", item["by"], item["evidence"]) if part]
        if told:
            screen.put(text=" · ".join(told), indent=6)


def _outputs(answer: Result, screen: Screen) -> None:
    given: dict[str, Any] = answer["completion_outputs"] or {}
    wanted = {item["name"]: item["kind"] + ("" if item["required"] else ", optional") for item in answer["outputs"]}
    kinds: dict[str, str] = wanted | {name: "not asked for" for name in given if name not in wanted}
    _heading("Outputs", kinds, screen)
    for name, kind in kinds.items():
        screen.put("[x] " if name in given else "[ ] ", f"{name} ({kind})", text=f": {_value(given[name])}" if name in given else "", indent=2)


def _subtasks(answer: Result, screen: Screen) -> dict[str, Any]:
    """The subtasks by id: what lists leave out unless told otherwise is asked for by name."""
    if not answer["child_ids"]:
        return {}
    wanted: Iterable[dict[str, str]] = ({}, *({"status": state} for state in _ENDED))
    pages = [screen.ask("list_tasks", parent=answer["id"], limit=_MOST, **status)["tasks"] for status in wanted]
    return {item["id"]: item for page in pages for item in page}


def _plan(answer: Result, below: dict[str, Any], screen: Screen) -> None:
    _heading("Plan", answer["steps"], screen)
    for index, step in enumerate(answer["steps"]):
        linked = step["task_id"]
        link: list[Part] = [" → ", *_link(linked, below, screen)] if linked else []
        screen.put(Ink(f"{index} ", "dim"), Ink("[x] ", "green") if step["done"] else "[ ] ", step["title"], *link, indent=2)
        if step["details"]:
            screen.put(text=step["details"], indent=8)
    loose = [child for child in answer["child_ids"] if child not in {step["task_id"] for step in answer["steps"]}]
    _heading("Subtasks", loose, screen)
    for child in loose:
        screen.put(*_link(child, below, screen), text=f" {below[child]['title']}" if child in below else "", indent=2)


def _link(child: str, below: dict[str, Any], screen: Screen) -> list[Part]:
    return [Ink(f"#{child} ", "bold"), *([show.state(below[child]["state"], screen)] if child in below else [])]


def _resources(answer: Result, screen: Screen) -> None:
    _heading("Resources", answer["resources"], screen)
    for index, item in enumerate(answer["resources"]):
        label = f" ({item['label']})" if item["label"] else ""
        screen.put(Ink(f"{index} ", "dim"), f"{item['type']} ", text=f"{item['value']}{label}", indent=2)
    _heading("Guides", answer["guides"], screen)
    for guide in answer["guides"]:
        screen.put(text=f"{guide}  (remit guide show {guide})", indent=2)


def _dependencies(answer: Result, screen: Screen) -> None:
    _heading("Depends on", answer["depends_on"], screen)
    ended = {item["ref"]: item["state"] for item in answer["held_by"] if item.get("state") in _ENDED}
    for item in answer["depends_on"]:
        open_still, state = item["task_id"] in answer["blocked_by"], ended.get(item["task_id"])
        mark = Ink("[!] ", "red") if state else "[ ] " if open_still else "[x] "
        told = f" is {state} and had to be {item['on']}" if state else f" to be {item['on']}" if open_still else f" {item['on']}"
        screen.put(mark, f"#{item['task_id']}", told, indent=2)


def _questions(answer: Result, screen: Screen) -> None:
    if answer["state"] in _ENDED:
        return
    found = screen.ask("list_interactions", task_id=answer["id"], limit=_MOST)["interactions"]
    _heading("Open questions", found, screen)
    for item in found:
        question(item, screen, indent=2)


def _undelivered(answer: Result, screen: Screen) -> None:
    found = [item for item in screen.ask("list_updates", task_id=answer["id"])["updates"] if item["status"] != "delivered"]
    _heading("Not delivered yet" if answer["state"] not in _ENDED else "Never delivered", found, screen)
    for item in found:
        show.update(item, screen, indent=2)


def _result(answer: Result, screen: Screen) -> None:
    told = [text for text in (answer["summary"], answer["final_message"] if answer["final_message"] != answer["summary"] else None) if text]
    why = ": ".join(text for text in (answer["reason"], answer["failure_reason"]) if text)
    _heading("Result", [*told, why] if told or why else [], screen)
    for text in told:
        screen.put(text=text, indent=2)
    if why:
        screen.put(Ink(f"{answer['state']} ", "red" if answer["state"] == "failed" else "dim"), text=why, indent=2)


def _details(answer: Result, screen: Screen) -> None:
    schedule: dict[str, str] = answer["schedule"] or {}
    metadata: dict[str, Any] = answer["metadata"] or {}
    facts = {
        "labels": ", ".join(answer["labels"]),
        "parent": _parent(answer),
        **_links(answer, screen),
        "session": answer["session_id"],
        "created by session": answer["parent_session_id"],
        "model": answer["model"],
        "tools": _tools(answer["tools"]),
        "limits": ", ".join(f"{name} {_limit(name, value)}" for name, value in answer["limits"].items()),
        "schedule": ", ".join(f"{name} {value}" for name, value in schedule.items()),
        "completion": answer["completion"] if answer["completion"] != "auto" else "",
        "metadata": ", ".join(f"{name}={_value(value)}" for name, value in metadata.items()),
        "used": _used(answer["usage"]),
        "tools used": ", ".join(f"{item['tool']} {item['count']}x" for item in answer["tool_summary"]),
    }
    _facts("Details", facts, screen)


def _links(answer: Result, screen: Screen) -> dict[str, str]:
    """The tasks before and after this one: it was done again, handed over, or belongs to a series."""
    before, after, first = answer["rerun_of"], answer["superseded_by"], answer["series_id"]
    earlier = {"series": f"of #{first}, after #{before}"} if first else {"rerun of": _ids([before] if before else [])}
    if not recurs(answer) or answer["reason"] == "superseded":
        return earlier | {"superseded by": _ids([after] if after else [])}
    if answer["state"] not in _ENDED:
        return earlier | {"then again": _again(answer)}
    return earlier | {"next in series": _next(after, screen) if after else ""}


def _again(answer: Result) -> str:
    return f"at the first slot of {answer['schedule']['cron']} after it has ended, until it is canceled"


def _next(task_id: str, screen: Screen) -> str:
    """A later task of a series, with the slot that it waits for."""
    task = screen.ask("get_task", task_id=task_id)
    slots = [moment(item["ref"]) for item in task["held_by"] if item["kind"] == "slot"]
    return f"#{task_id} at {slots[0]}" if slots else f"#{task_id}, {task['state']}"


def _limit(name: str, value: float) -> str:
    return dollars(value) if name == "max_cost" else plain_number(value)


def _used(usage: Result) -> str:
    """What a task has used: requests, tokens, tool calls and money."""
    counts = {name.removesuffix("s").replace("_", " "): value for name, value in usage.items() if name != "cost"}
    parts = [counted(value, noun) for noun, value in counts.items() if value]
    return ", ".join([*parts, *([dollars(usage["cost"])] if usage["cost"] else [])])


def _parent(answer: Result) -> str:
    step = f", step {answer['step_index']}" if answer["step_index"] is not None else ""
    return f"#{answer['parent_id']}{step}" if answer["parent_id"] else ""


def _times(answer: Result, screen: Screen) -> None:
    names = {"created": "created_at", "started": "started_at", "completed": "completed_at", "changed": "updated_at"}
    facts = {name: f"{moment(answer[field])} ({ago(answer[field], screen.now)})" for name, field in names.items() if answer[field]}
    facts["created"] += f" by {answer['created_by']}"
    facts["worked for"] = span(answer["duration"]) if answer["duration"] else ""
    _facts("Times", facts, screen)
    _rows({"uid": answer["uid"], "version": str(answer["version"])}, screen)


# Questions to people.


def inbox(answer: Result, screen: Screen) -> None:
    """Every open question: who asks, where, since when, and how to answer."""
    titles: dict[str, str] = {}
    for number, item in enumerate(answer["interactions"]):
        if number:
            screen.put()
        for task_id in item["path"]:
            titles[task_id] = titles.get(task_id) or screen.ask("get_task", task_id=task_id)["title"]
        screen.put(text=" / ".join(f"#{task_id} {titles[task_id]}" for task_id in item["path"]))
        question(item, screen, indent=2)
    if answer["next_cursor"]:
        screen.note(f"There are more: add --cursor {answer['next_cursor']}")
    elif not answer["interactions"]:
        screen.note("Nothing needs you.")


def question(item: dict[str, Any], screen: Screen, indent: int = 0) -> None:
    """One question with its options or its answer."""
    screen.put(Ink(f"{item['id']} ", "bold"), Ink(f"{item['asked_by']} asked {ago(item['asked_at'], screen.now)}", "yellow"), indent=indent)
    screen.put(text=item["question"], indent=indent + 2)
    options: list[str] = item["options"] or []
    for number, option in enumerate(options, 1):
        screen.put(Ink(f"{number} ", "dim"), text=option, indent=indent + 4)
    if _hides(item["question"]) or any(map(_hides, options)):
        screen.put(Ink("careful: ", "red"), text="this text contains hidden characters, which are not shown", indent=indent + 2)
    if item["status"] == "open":
        screen.put(Ink(f"answer with: remit interact respond {item['id']} {typed_answer(item)}", "cyan"), indent=indent + 2)
    elif item["answer"] is not None:
        answered = f"{item['answered_by']} answered {ago(item['answered_at'], screen.now)}: "
        screen.put(Ink(answered, "green"), text=item["answer"], indent=indent + 2)


def _hides(text: str) -> bool:
    """True if there is more in a text than a person is shown."""
    from unicodedata import normalize

    return display(text) != normalize("NFC", text.replace("\r\n", "\n"))


# Guides, agents, the doctor.


def guide(answer: Result, screen: Screen) -> None:
    """A guide with its text."""
    screen.put(Ink(answer["title"], "bold"))
    screen.put(Ink(f"{answer['id']}, by {answer['created_by']} {ago(answer['created_at'], screen.now)}", "dim"))
    screen.put()
    screen.put(text=answer["body"])


def agent(answer: Result, screen: Screen) -> None:
    """What is known of an agent."""
    screen.put(Ink(answer["id"], "bold"))
    screen.put(text=answer["description"])
    facts = {name.replace("_", " "): _fact(value) for name, value in answer.items() if name not in ("id", "description", "prompt", "spawnable")}
    if answer["spawnable"] is not None:
        facts["delegates to"] = _fact(answer["spawnable"]) or "nobody"
    _facts("Details", facts, screen)
    _prose("Role", answer["prompt"], screen)


def _fact(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_value(item) for item in value)  # pyright: ignore[reportUnknownVariableType] # any JSON
    return "yes" if value is True else "" if not value else _value(value)


_VERDICTS = {"honoured": "green", "mapped": "cyan", "ignored": "dim", "problem": "red"}
_FATES = {"used": "green", "shadowed": "yellow", "disabled": "yellow", "refused": "red"}


def checked(answer: Result, screen: Screen) -> None:
    """What became of every file that defines an agent, and of the settings."""
    for file in answer["files"]:
        by = f" by {file['by']}" if file["by"] else ""
        screen.put(Ink(file["path"], "bold"), f": {file['agent_id'] or 'no agent'}, ", Ink(file["status"], _FATES[file["status"]]), by)
        for note in file["fields"]:
            _noted(note["field"] or "the file", note, screen)
    for note in answer["settings"]:
        _noted(f"[agents.{note['agent_id']}] {note['field']}".rstrip(), note, screen)
    if not answer["files"]:
        screen.note("There are no agent files here. Make one with: remit agents new ID")
    found = answer["problems"]
    screen.note(f"{counted(len(answer['agents']), 'agent')}, {counted(found, 'problem') if found else 'no problems'}.")


def _noted(name: str, note: dict[str, Any], screen: Screen) -> None:
    screen.put(Ink(f"{note['verdict']:<9}", _VERDICTS[note["verdict"]]), name, text=f" {note['text']}" if note["text"] else "", indent=2)


def doctor(answer: Result, screen: Screen) -> None:
    """What is in force and whether the store holds together."""
    screen.put(f"remit {answer['version']}, workspace {answer['workspace'] or 'none (make one with: remit init)'}")
    screen.put()
    rows: list[list[Part]] = [[item["name"], _value(item["value"]), Ink(item["origin"], "dim")] for item in answer["settings"]]
    screen.table((Column("SETTING"), Column("VALUE", gives=True), Column("FROM", gives=True)), rows)
    for unknown in answer["unknown"]:
        kind = "ignored" if ": expected " in str(unknown) else "unknown"
        screen.put(Ink(f"{kind} setting ", "yellow"), text=str(unknown))
    for fault in answer["faults"]:
        screen.put(Ink("fault ", "red"), text=fault)
    for item in answer["unknown_agents"]:
        _unknown_agent(item, screen)
    if url := next((item["value"] for item in answer["settings"] if item["name"] == "url"), None):
        screen.note(f"What follows is about the database above. The server at {url} was not asked; it has /readyz.")
    store = answer["store"]
    counts = ", ".join(f"{count} {state}" for state, count in store["tasks"].items() if count)
    _rollback(answer.get("rollback"), screen)
    _facts("Store", {name: _value(value) for name, value in store.items()} | {"tasks": counts or "none"}, screen)
    _workers(answer["workers"], screen, may_hold_back=bool(answer.get("rollback")))
    _left_behind(answer, screen)
    if answer.get("verified"):
        _verified(answer["verified"], screen, is_back=_is_back(answer))


def _unknown_agent(item: dict[str, Any], screen: Screen) -> None:
    more = f" and {counted(item['tasks'] - 1, 'other unfinished task')}" if item["tasks"] > 1 else ""
    told = f"{item['agent_id']} owns #{item['task_id']}{more}, but it is not known here, and no live worker works for it."
    how = f"Restore its file, or set another owner with: remit task update {item['task_id']} --owner AGENT"
    screen.put(Ink("unknown agent ", "yellow"), text=f"{told} {how}")


def _is_back(answer: Result) -> bool:
    """True if the store went back in time and that was not accepted."""
    rollback = answer.get("rollback")
    return bool(rollback and not rollback["accepted"])


def _rollback(found: dict[str, Any] | None, screen: Screen) -> None:
    if found is None:
        return
    screen.put(Ink("accepted " if found["accepted"] else "fault ", "yellow" if found["accepted"] else "red"), text=found["message"])
    told = "A new epoch began: ids and positions of events go on above what was seen." if found["accepted"] else found["hint"]
    screen.note(told)


def _workers(rows: list[dict[str, Any]], screen: Screen, *, may_hold_back: bool) -> None:
    shown: list[list[Part]] = [
        [
            row["worker"],
            row["host"],
            ", ".join(row["agents"]),
            _served(row),
            moment(row["since"]),
            f"{row['running']} of {row['concurrency']}",
            _pulse(row),
        ]
        for row in rows
    ]
    if shown:
        screen.put()
        columns = (
            Column("WORKER"),
            Column("HOST", gives=True),
            Column("AGENTS", gives=True),
            Column("WORKS ON", gives=True),
            Column("SINCE"),
            Column("RUNNING"),
            Column("HEARD OF"),
        )
        screen.table(columns, shown)
    for row in rows:
        for model in row["models"]:
            screen.put(Ink("model trouble ", "yellow"), text=f"{row['worker']} {_model_trouble(model)}")
    if may_hold_back:  # running workers are silent while their store is behind what they have seen
        return
    alive = [row for row in rows if row["alive"]]
    if not alive:
        screen.note("No worker is running. Start one with: remit serve, or remit worker")
    elif all(row["scope"] is not None for row in alive):
        screen.note("No worker for all tasks is running. Start one with: remit serve, or remit worker")


def _served(row: dict[str, Any]) -> str:
    """The tasks that a worker works on, with all below them."""
    if row["scope"] is None:
        return "all tasks"
    return ", ".join(f"#{root}" for root in row["scope"]) or "none yet"


def _model_trouble(model: dict[str, Any]) -> str:
    whom = f" for {model['agent']}" if model["agent"] else ""
    if model["circuit"] == "cooling":
        return f"waits {model['seconds']:g} s for {model['endpoint']}, which asked for a pause"
    last = f": {model['last']}" if model.get("last") else ""  # an older worker does not say
    return f"leaves {model['endpoint']} alone{whom} after {model['failures']} failures in a row ({model['circuit'].replace('_', ' ')}){last}"


def _pulse(row: dict[str, Any]) -> Part:
    return f"{row['heartbeat_seconds_ago']:.0f} s ago" if row["alive"] else Ink(f"{row['heartbeat_seconds_ago']:.0f} s ago: lost", "red")


_LEFT = {
    "runnable_without_job": "could run but are not in the queue",
    "stale_runs": "have a run that no worker has",
    "parents_not_told": "were not told of a subtask's end",
    "dependents_not_told": "ended without telling who depends on them",
    "undelivered_updates": "wait although there is an update for them",
    "waiting_without_alarm": "wait for a time that nobody will tell them",
    "claims_without_check": "claim to be done and nobody will check it",
    "unreadable_rows": "have a row that cannot be read",
    "budgets_below_use": "have used more than their tree's ledger says",
}


def _left_behind(answer: Result, screen: Screen) -> None:
    left = {name: ids for name, ids in answer["left_behind"].items() if ids}
    _heading("Left behind", left, screen)
    for name, ids in left.items():
        fixed = "fixed" in answer and name not in answer["beyond_repair"]
        screen.put(Ink("fixed ", "green") if fixed else Ink("fault ", "red"), f"{_ids(ids)} {_LEFT[name]}", indent=2)
    if answer.get("orphans"):
        verb = "Ended" if "fixed" in answer else "There are"
        screen.put(f"{verb} processes of commands whose worker is gone: {', '.join(map(str, answer['orphans']))}")
    if "fixed" in answer:
        return
    if left.keys() - {*answer["beyond_repair"], "unreadable_rows"}:
        screen.note("A worker puts this right within a minute; or say: remit doctor --fix")
    if "unreadable_rows" in left:
        screen.note("Rows are made anew from their events by: remit doctor --fix")


def delegated(answer: Result, screen: Screen) -> None:
    """What came of a piece of work, or how it stands."""
    data = answer["data"]
    if data["status"] == "running":
        state = screen.ask("get_task", task_id=data["task_id"])["state"]
        screen.note(f"#{data['task_id']} has not ended: it is {state}. Follow it with: remit task watch {data['task_id']}")
        return
    screen.put(text=data["result"] or answer.get("error", {}).get("message", ""))
    _answer_on_record(data, screen)
    outputs: dict[str, Any] = data.get("outputs") or {}
    for name, value in outputs.items():
        screen.put(Ink(f"{name} ", "dim"), text=_value(value))
    stats = answer["stats"]
    before = ", done before" if data.get("cached") else ""
    calls = counted(stats["tool_calls"], "tool call")
    tokens = f", {counted(stats['tokens'], 'token')}" if stats["tokens"] else ""
    figures = f"{calls}{tokens}, {stats['time_ms'] / 1000:.1f} s"
    model = f", {data['model_used']}" if data["model_used"] else ""
    screen.note(f"#{data['task_id']} {data['subagent_type'] or '(no owner)'}{model}: {data['status']}{before}, {figures}")
    if "notice" in data:
        screen.note(data["notice"])
    if "not_cached" in data:
        screen.note(data["not_cached"])


def delegated_all(answer: Result, screen: Screen) -> None:
    """What came of each piece of work, in the order they were given."""
    for number, result in enumerate(answer["results"], 1):
        data, error = result.get("data", result), result.get("error") or ""
        who = data.get("subagent_type") or data.get("agent_type")
        screen.put(Ink(f"[{number}] ", "bold"), f"#{data['task_id']} {who}: {data['status']}" if data["task_id"] else "refused")
        screen.put(text=data["result"] or (error if isinstance(error, str) else error.get("message", "")), indent=2)
        _answer_on_record(data, screen, indent=2)


def _answer_on_record(data: Result, screen: Screen, indent: int = 0) -> None:
    """The answer that a task gave before it failed, if it is stored."""
    if data["status"] not in ("failed", "timeout") or not data["task_id"]:
        return
    with suppress(RemitError):  # the result is printed, even if the store goes away
        task = screen.ask("get_task", task_id=data["task_id"])
        show.answer_on_record(task, screen, indent)


def canceled_all(answer: Result, screen: Screen) -> None:
    """What was called off."""
    screen.put(f"Canceled {_ids(answer['canceled'])}." if answer["canceled"] else "There was nothing to cancel.")


def transcript(answer: Result, screen: Screen) -> None:
    """A conversation, message by message."""
    for message in answer["messages"]:
        screen.put(Ink(f"{message['role']} ", "bold"), Ink(f"turn {message['turn']}, {moment(message['at'])}", "dim"))
        for part in message["parts"]:
            screen.put(text=_spoken(part), indent=2)
    if not answer["messages"]:
        screen.note("Nothing was said yet.")


def _spoken(part: dict[str, Any]) -> str:
    if part["type"] == "tool_call":
        return f"{part['name']} {_value(part['arguments'])}"
    if part["type"] == "thinking":
        return f"(thought) {part['text']}"
    if part["type"] == "task_result" and "call_id" in part:
        return f"task {part['task_id']} {part['status']}: {part['text']}"
    return str(part.get("text", ""))


def schedule(answer: Result, screen: Screen) -> None:
    """The calendar, what comes next, and who waits for it."""
    screen.put(f"{answer['cron']} in ", text=answer["timezone"])
    screen.put(Ink("next ", "dim"), text=", ".join(moment(at, answer["timezone"]) for at in answer["next"]), indent=2)
    for task in answer["waiting"]:
        own = f" at {task['cron']}" if task["cron"] else ""
        slot = f", next {moment(task['at'], answer['timezone'])}" if task["at"] else ""
        screen.put(Ink(f"#{task['id']} ", "bold"), text=f"{task['title']} waits for its turn{own}{slot}", indent=2)
    for task in answer["active"]:
        slot = moment(task["at"], answer["timezone"])
        told = f"{task['title']} is {task['state']}; its series ({task['cron']}) continues at {slot} if it has ended by then"
        screen.put(Ink(f"#{task['id']} ", "bold"), text=told, indent=2)
    if not answer["waiting"] and not answer["active"]:
        screen.note("No task waits for its turn.")
    if not answer["workers"]:
        screen.note("No worker for all tasks is running. Start one with: remit serve, or remit worker")


def ticked(answer: Result, screen: Screen) -> None:
    """That a tick was asked for, and whether anybody is there to carry it out."""
    screen.put(f"Requested a tick; {counted(answer['waiting'], 'task')} {'is' if answer['waiting'] == 1 else 'are'} waiting for it.")
    if not answer["workers"]:
        screen.note("No worker for all tasks is running; it happens when one starts.")


def _verified(report: dict[str, Any], screen: Screen, *, is_back: bool) -> None:
    screen.section("Verified")
    counts = [counted(report[name], noun) for name, noun in (("streams", "stream"), ("events", "event"), ("rows", "row"))]
    screen.put(", ".join(counts), indent=2)
    for fault in report["faults"]:
        screen.put(Ink("fault ", "red"), f"{fault['place']} ", text=fault["problem"], indent=2)
    if not report["faults"] and is_back:
        screen.put(Ink("The store is consistent in itself, but it went back in time.", "yellow"), indent=2)
    elif not report["faults"]:
        screen.put(Ink("Everything holds together.", "green"), indent=2)


def _heading(title: str, items: Any, screen: Screen) -> None:
    if items:
        screen.section(title)


def _facts(title: str, facts: dict[str, Any], screen: Screen) -> None:
    shown = {name: str(value) for name, value in facts.items() if value}
    _heading(title, shown, screen)
    _rows(shown, screen)


def _rows(facts: dict[str, str], screen: Screen) -> None:
    for name, value in facts.items():
        screen.put(Ink(f"{name} ", "dim"), text=value, indent=2)


def _ids(ids: list[str]) -> str:
    return ", ".join(f"#{task_id}" for task_id in ids)


def _tools(grant: Result) -> str:
    """A grant in words; without a list, the agent's own tools are not repeated."""
    parts = {"only": grant.get("allow"), "shown only": grant.get("offer"), "not": grant.get("deny")}
    return "; ".join(f"{word} {', '.join(names) or 'none'}" for word, names in parts.items() if names is not None)


def _value(value: Any) -> str:
    from json import dumps

    return value if isinstance(value, str) else "" if value is None else dumps(value, ensure_ascii=False)
