"""What commands do that is more than one operation of the catalogue."""

import re
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from remit.errors import Conflict, RemitError, invalid
from remit.surfaces.cli.command import Session, Told, WrongUse
from remit.surfaces.cli.host import Result
from remit.surfaces.cli.outlook import ENDED, named, outlook, stopped
from remit.surfaces.cli.read import usable
from remit.surfaces.cli.screen import wrapped_for
from remit.surfaces.display import display_line

if TYPE_CHECKING:  # threads are imported only by commands that wait
    from remit.surfaces.cli.progress import Progress

_ENDS = {"TaskCompleted": "done", "TaskFailed": "failed", "TaskCanceled": "canceled"}
_CONTEXT = 10
_COMPLETED = 200


EDITS = "Allow sub-agents build and general to change files and run sandboxed commands in this folder? [y/N] "


def init(session: Session, fields: dict[str, Any]) -> Result:
    """Make the workspace; at a terminal, ask once whether agents may change files in it."""
    if fields.get("allow_edits") and fields.get("no_allow_edits"):
        raise WrongUse("--allow-edits and --no-allow-edits exclude each other.", hint="Give one of them.")
    allowed = True if fields.get("allow_edits") else False if fields.get("no_allow_edits") else None
    made = session.host.init(allowed)
    if made["allow_edits"] is None and sys.stdin.isatty() and sys.stderr.isatty():
        sys.stderr.write(EDITS)
        sys.stderr.flush()
        made |= session.host.init(sys.stdin.readline().strip().lower() in ("y", "yes")) | {"created": made["created"]}
    return made


def serve(session: Session, fields: dict[str, Any]) -> Result:
    """Serve until stopped."""
    insecure, worker = bool(fields.get("insecure")), not fields.get("no_worker")
    session.host.serve(insecure=insecure, worker=worker, detail=_detail(fields))
    return {}


def worker(session: Session, fields: dict[str, Any]) -> Result:
    """Work until stopped."""
    session.host.worker(fields.get("agents"), detail=_detail(fields))
    return {}


def _detail(fields: dict[str, Any]) -> str:
    """How much a worker or a server logs."""
    if fields.get("verbose") and fields.get("quiet"):
        raise WrongUse("-v and -q exclude each other.", hint="Give one of them.")
    return "verbose" if fields.get("verbose") else "quiet" if fields.get("quiet") else "normal"


def schedule(session: Session, _fields: dict[str, Any]) -> Result:
    """The calendar in force."""
    return session.host.schedule()


def tick(session: Session, _fields: dict[str, Any]) -> Result:
    """A tick now."""
    return session.host.tick()


def migrate(session: Session, _fields: dict[str, Any]) -> Result:
    """Bring the store up to date."""
    return session.host.migrate()


def run(session: Session, fields: dict[str, Any]) -> Result:
    """Hand one piece of work to a sub-agent and wait for it."""
    return _delegated(session, "task", fields)


def run_task(session: Session, fields: dict[str, Any]) -> Result:
    """Run a task now and wait until it rests; works on it here if no worker does."""
    everything = bool(fields.pop("all", False))
    task = session.call("get_task", **fields)
    task_id: str = task["id"]
    try:
        with _waiting(session, known=task_id) as progress, closing(session.host.attend(task_id, progress.stop, everything=everything)) as items:
            for item in items:
                progress.take(item)
                if item.get("task_id") == task_id:
                    task_id = item.get("superseded_by") or task_id
    except Conflict as refused:
        refused.hint = _how_to_run(task) or refused.hint
        raise
    return {"success": True, "task": session.call("get_task", task_id=task_id)}


def _how_to_run(task: Result) -> str:
    """The command that lets a task run which cannot run as it is; empty if there is none."""
    if task["state"] == "draft":
        return f"Start it with: remit task update {task['id']} --status active"
    if task["state"] == "paused":
        return f"Resume it with: remit task resume {task['id']}"
    if task["owner"] is None and task["state"] == "pending":
        return f"Give it one with: remit task update {task['id']} --owner AGENT"
    return ""


def result(session: Session, fields: dict[str, Any]) -> Result:
    """What came of a task, or how it stands; while its end is waited for, what goes on."""
    if not fields.get("wait_seconds"):
        return session.call("task_output", **fields)
    return _delegated(session, "task_output", fields)


def subtask(session: Session, fields: dict[str, Any]) -> Result:
    """Create a subtask; while its end is waited for, what goes on."""
    if fields.get("wait") != "block":
        return session.call("create_subtask", **fields)
    return _delegated(session, "create_subtask", fields)


@contextmanager
def _waiting(session: Session, expected: int = 1, known: str | None = None) -> Generator["Progress"]:
    """What goes on while this command waits for some tasks; if it is interrupted, what is true of them then.

    `known` is the task of a command that names one.
    """
    from remit.surfaces.cli.progress import INTERRUPTED, Progress
    from remit.surfaces.stopping import StopDeadline

    def unattended() -> bool:
        return any(session.unattended(task_id) for task_id in progress.awaited[:1])

    def awaited() -> list[str]:
        return progress.awaited or ([known] if known is not None else [])

    deadline = StopDeadline(lambda: _quit_line(awaited()), INTERRUPTED)
    progress = Progress(unattended, session.worker_command, deadline.begin)
    with deadline, _told_when_it_ends(session, progress, expected, awaited), progress:
        yield progress


def _quit_line(task_ids: Sequence[str]) -> str:
    """The last line of a command that did not stop in time."""
    from remit.surfaces.stopping import STOP_SECONDS

    how = "See your tasks later with: remit task list"
    if len(task_ids) == 1:
        how = f"See #{task_ids[0]} later with: remit task show {task_ids[0]}"
    return f"Quit after {STOP_SECONDS:.0f} seconds: the store or the server did not answer. {how}"


@contextmanager
def _told_when_it_ends(
    session: Session,
    progress: "Progress",
    expected: int,
    awaited: Callable[[], list[str]],
) -> Generator[None]:
    """Print what is true of the tasks if the wait ends by Ctrl-C or an error."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        _tell_stopped(session, awaited(), progress.say)
        if 0 < len(progress.awaited) < expected:  # it came before all of them were shown
            progress.say("More of them may have been created. See all with: remit task list")
        raise Told(*interrupt.args) from None
    except RemitError:
        if progress.awaited:
            _tell_stopped(session, progress.awaited, progress.say)
        raise


def _say(*lines: str) -> None:
    shown = (part for line in lines for part in wrapped_for(sys.stderr, display_line(line)))
    sys.stderr.write("".join(f"{line}\n" for line in shown))


def _tell_stopped(session: Session, task_ids: Sequence[str], say: Callable[..., None]) -> None:
    """Print the state of the tasks that this command stopped waiting for."""
    from datetime import UTC, datetime

    if not task_ids:
        say("Stopped. Tasks may have been created. See them with: remit task list")
        return
    try:
        tasks = [session.call("get_task", task_id=task_id) for task_id in task_ids]
        lines = stopped(tasks, session.unattended, datetime.now(UTC), session.host.server)
    except RemitError:  # the store or the server is gone, which is not what was asked for
        lines = [f"Stopped waiting for {named(task_ids)}. See how it stands with: remit task show {task_ids[0]}"]
    say(*lines)


def parallel(session: Session, fields: dict[str, Any]) -> Result:
    """Hand all pieces of work in a file to sub-agents."""
    return _delegated(session, "task_parallel", fields | {"tasks": _works(fields["tasks"])})


_LIST = r'\s*\[\s*(?:[\[{"\]]|(?:-?\d[\d.]*|null|true|false)\s*,\s*(?:[\[{"]|null|true|false))'
"""How a list of work begins; an objective may begin with a number in brackets."""


def _works(path: Any) -> list[Any]:
    """A JSON list, or a line for each piece of work: its objective, or a JSON object. What begins like JSON must be JSON."""
    with usable("FILE", str(path)):
        text = path.read_text() if str(path) != "-" else sys.stdin.read()
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    works = _json("FILE", text) if re.match(_LIST, text) else [_work(number, line) for number, line in lines]
    if not works:
        raise invalid("FILE", "is empty", "a JSON list, or a line for each piece of work")
    return cast("list[Any]", works)


def _work(number: int, line: str) -> Any:
    return _json(f"FILE, line {number}", line) if line.lstrip().startswith("{") else line


def _json(field: str, text: str) -> Any:
    from json import loads

    try:
        return loads(text)
    except (ValueError, RecursionError) as error:
        raise invalid(field, f"is not valid JSON ({error})", "a JSON list, or on each line an objective or a JSON object") from None


def _delegated(session: Session, operation: str, fields: dict[str, Any]) -> Result:
    everything = bool(fields.pop("all", False))
    expected = len(fields["tasks"]) if operation == "task_parallel" else 1
    known = fields["task_id"] if operation == "task_output" else None
    with (
        _waiting(session, expected, known) as progress,
        closing(session.host.delegate(operation, fields, progress.stop, everything=everything)) as items,
    ):
        for item in items:
            if item["type"] == "end":
                answer: Result = item["answer"]
                left = progress.done()
                break
            progress.take(item)
        else:
            raise Conflict("The work ended without a result.")
    if operation == "task_output":  # which says itself how its task stands
        return answer
    with suppress(RemitError):  # the answer is there, whatever becomes of the store
        tasks = [session.call("get_task", task_id=task_id) for task_id in left]
        _tell_left(session, [task for task in tasks if task["state"] not in ENDED], progress.say)
    return answer


def _tell_left(session: Session, tasks: Sequence[Result], say: Callable[..., None]) -> None:
    """Say which tasks below the answer have not ended, and whether a worker continues them."""
    if not tasks:
        return
    first, names = tasks[0]["id"], named([task["id"] for task in tasks])
    verb = "has" if len(tasks) == 1 else "have"
    them = "it" if len(tasks) == 1 else "them"
    if session.host.server is not None:
        how = "The server keeps " + them
    elif any(session.unattended(task["id"]) for task in tasks):
        how = f"No worker is running for {them}; start one with: remit worker"
    else:
        how = f"A worker is running for {them}"
    say(f"{names} {verb} not ended. {how}.", f"Cancel with: remit task cancel {first}")


_CODES = {"completed": 0, "running": 0, "failed": 1, "timeout": 124, "cancelled": 130}
_STATUSES = {"done": "completed", "failed": "failed", "canceled": "cancelled"}


def exit_code(answer: Result) -> int:
    """The exit code that tells how work ended, whatever was waited for: delegations, a task or its events; of several, the worst."""
    return max((_CODES[_status(result)] for result in answer.get("results", [answer])), default=0)


def _status(answer: Result) -> str:
    if isinstance(answer.get("task"), dict):
        return _status_of(answer["task"]["state"], answer["task"]["reason"])
    if "type" in answer:
        return _status_of(_ENDS.get(answer["type"], ""), answer["data"].get("reason"))
    return str(answer.get("data", answer)["status"])


def _status_of(state: str, reason: str | None) -> str:
    return "timeout" if (state, reason) == ("failed", "timeout") else _STATUSES.get(state, "running")


def mcp(session: Session, _fields: dict[str, Any]) -> Result:
    """Speak MCP until the other side ends."""
    session.host.mcp()
    return {}


def doctor(session: Session, fields: dict[str, Any]) -> Result:
    """Look at what is in force, and at the store."""
    asked = {name: bool(fields.get(name)) for name in ("verify", "fix", "accept_rollback")}
    return session.host.doctor(**asked)


def health(answer: Result) -> int:
    """1 if something was found wrong and was not put right."""
    found: dict[str, list[str]] = answer.get("left_behind", {}) | {"orphans": answer.get("orphans")}
    left = [name for name, ids in found.items() if ids and ("fixed" not in answer or name in answer["beyond_repair"])]
    rollback = answer.get("rollback")
    if rollback and not rollback["accepted"]:
        return 1
    return 1 if left or answer.get("faults") or ("verified" in answer and answer["verified"]["faults"]) else 0


def check_agents(session: Session, _fields: dict[str, Any]) -> Result:
    """Look at every file that defines an agent."""
    return session.host.check_agents()


def soundness(answer: Result) -> int:
    """1 if a file or a setting has a problem."""
    return 1 if answer["problems"] else 0


def new_agent(session: Session, fields: dict[str, Any]) -> Result:
    """Write a file for a new agent."""
    return session.host.new_agent(fields)


def export(session: Session, fields: dict[str, Any]) -> Result:
    """Write everything to files."""
    with usable("PATH", str(fields["path"]), "write"):
        return session.host.export(fields["what"], fields["path"])


def import_(session: Session, fields: dict[str, Any]) -> Result:
    """Read what export wrote."""
    with usable("PATH", str(fields["path"])):
        return session.host.import_(fields["path"])


def token(session: Session, _fields: dict[str, Any]) -> Result:
    """The operator's token."""
    return {"token": session.host.token()}


def help_(_session: Session, fields: dict[str, Any]) -> Result:
    """The help of a command, a group, or everything."""
    from remit.surfaces.cli.parser import parse

    parse([*fields.get("words", []), "--help"])  # which prints it and leaves
    return {}


def completion(session: Session, fields: dict[str, Any]) -> Result:
    """A script for a shell, or the names of this workspace that the script asks for."""
    from remit.surfaces.cli.completion import script

    if kind := fields.get("names"):
        return {"script": "\n".join(_names(session, kind))}
    if "shell" not in fields:
        raise WrongUse("A shell is needed: bash, zsh or fish.")
    return {"script": script(fields["shell"])}


def _names(session: Session, kind: str) -> list[str]:
    """The ids that can be completed; none where there is no workspace or it cannot be read."""
    try:
        if kind == "agents":
            return [item["id"] for item in session.call("list_agents")["agents"]]
        if kind == "questions":
            return [item["id"] for item in session.call("list_interactions")["interactions"]]
        pages = [session.call("list_tasks", limit=_COMPLETED)]
        if kind == "tasks":
            pages.append(session.call("list_history", limit=_COMPLETED))
        return [item["id"] for page in pages for item in page["tasks"]]
    except RemitError:
        return []


def watch(session: Session, fields: dict[str, Any]) -> Iterator[Result]:
    """Events as they happen; of one task, from its latest ones to its end, or to that of the task that takes its place."""
    if "task_id" not in fields:
        yield from _watch_all(session, fields.get("after"))
        return
    task_id, after = fields["task_id"], fields.get("after")
    while task_id is not None:
        successor = yield from _watch_one(session, task_id, after)
        if successor is not None:
            _say(f"#{task_id} was handed over and continues as #{successor}.")
        task_id, after = successor, None


def _watch_all(session: Session, after: str | None) -> Iterator[Result]:
    from remit.surfaces.cli.reminder import Reminder

    with Reminder("Still watching all tasks") as reminder:
        for page in session.host.follow(None, after):
            for event in page:
                reminder.hear()
                yield event


def _watch_one(session: Session, task_id: str, after: str | None) -> Generator[Result, None, str | None]:
    """The events of a task up to its end; returns the id of the task that takes its place, if one does."""
    from remit.surfaces.cli.reminder import Reminder

    task = session.call("get_task", task_id=task_id)
    successor: str | None = None
    with Reminder(_short(task), lambda: _standing(session, task_id)) as reminder:
        for event in _events_of(session, task, after):
            reminder.hear()
            yield event
            if event["type"] == "TaskSuperseded":
                successor = event["data"]["by"]
            if event["type"] in _ENDS:
                break
    return successor


def _standing(session: Session, task_id: str) -> str:
    """What a task is doing or waiting for, in a line."""
    from datetime import UTC, datetime

    task = session.call("get_task", task_id=task_id)
    said = outlook(task, session.unattended, datetime.now(UTC))
    return f"{_short(task)} · {said}" if said else _short(task)


def _short(task: Result) -> str:
    from remit.surfaces.cli.progress import MARKS

    parts = (f"#{task['id']} {task['title']}", task["owner"], task["state"])
    return f"{MARKS.get(task['state'], '·')} {' · '.join(part for part in parts if part)}"


def left_watching(session: Session, fields: dict[str, Any]) -> None:
    """Say that `task watch` has stopped, and of one task how it stands."""
    stands: list[str] = []
    if "task_id" in fields:
        _tell_stopped(session, [fields["task_id"]], lambda *lines: stands.extend(lines))
    _say("Stopped watching.", *(line.removeprefix("Stopped waiting. ").removeprefix("Stopped. ") for line in stands))


def _events_of(session: Session, task: dict[str, Any], after: str | None) -> Iterator[Result]:
    """No gap between what was and what comes: it is followed from the position of the last event that was read."""
    if after is None:
        latest = session.call("get_events", task_id=task["id"], after=max(task["version"] - _CONTEXT, 0))["events"]
        yield from latest
        after = latest[-1]["position"]
    for page in session.host.follow(task["id"], after):
        yield from page


def respond(session: Session, fields: dict[str, Any]) -> Result:
    """Answer a question, named by itself or by its task."""
    ref, number, answer = fields["ref"], fields.get("option"), fields.get("answer")
    if (number is None) == (answer is None):
        raise WrongUse("An answer is needed: either a text, or --option with the number of one that was offered.")
    interaction = ref if re.search(r"-q\d+$", ref) else _only_question(session, ref)["id"]
    chosen = _offered(session, interaction, number) if number is not None else _meant(session, interaction, answer)
    answered = session.call("respond", interaction_id=interaction, answer=chosen)
    _tell_outlook(session, interaction.rpartition("-q")[0])
    return answered


def message(session: Session, fields: dict[str, Any]) -> Result:
    """Say something to the agent of a task, and to the caller what happens next to the task."""
    sent = session.call("send_message", **fields)
    _tell_outlook(session, sent["update_id"].rpartition("-u")[0])
    return sent


def _tell_outlook(session: Session, task_id: str) -> None:
    """Say what happens next to a task that a person has just changed; nothing if the store cannot be read."""
    from datetime import UTC, datetime

    with suppress(RemitError):
        if said := outlook(session.call("get_task", task_id=task_id), session.unattended, datetime.now(UTC)):
            _say(said)


def _only_question(session: Session, task_id: str) -> Result:
    found = _open_questions(session, task_id)
    if not found:
        raise Conflict(f"Task {task_id} has no open question.", hint="See all that are open with: remit inbox")
    if len(found) > 1:
        listed = "; ".join(f"{item['id']}: {item['question']}" for item in found)
        raise Conflict(f"Task {task_id} has {len(found)} open questions.", hint=f"Name the one that you answer. {listed}")
    return found[0]


def _meant(session: Session, interaction: str, answer: Any) -> Any:
    """The option that an answer means by its number, or the answer itself."""
    text = str(answer).strip()
    if not text.isdecimal():
        return answer
    found = [item for item in _open_questions(session, interaction.rpartition("-q")[0]) if item["id"] == interaction]
    options: list[str] = (found[0]["options"] or []) if found else []
    names_option = answer not in options and 1 <= int(text) <= len(options)
    return options[int(text) - 1] if names_option else answer


def _offered(session: Session, interaction: str, number: int) -> str:
    found = [item for item in _open_questions(session, interaction.rpartition("-q")[0]) if item["id"] == interaction]
    if not found:
        raise Conflict(f"Question {interaction} is not open.", hint="See all that are open with: remit inbox")
    options: list[str] = found[0]["options"] or []
    if not 1 <= number <= len(options):
        offered = f"a number from 1 to {len(options)}" if options else f"an answer as text: {interaction} offers no options"
        raise invalid("--option", f"is {number}", offered)
    return options[number - 1]


def _open_questions(session: Session, task_id: str) -> list[Result]:
    found: list[Result] = session.call("list_interactions", task_id=task_id, limit=1000)["interactions"]
    return found
