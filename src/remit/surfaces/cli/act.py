"""What commands do that is more than one operation of the catalogue."""

import re
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any, cast

from remit.errors import Conflict, RemitError, invalid
from remit.surfaces.cli.command import Session, WrongUse
from remit.surfaces.cli.host import Result
from remit.surfaces.cli.read import usable

_ENDS = {"TaskCompleted": 0, "TaskFailed": 1, "TaskCanceled": 130}
_CONTEXT = 10


def init(session: Session, _fields: dict[str, Any]) -> Result:
    """Make the workspace."""
    return session.host.init()


def serve(session: Session, fields: dict[str, Any]) -> Result:
    """Serve until stopped."""
    session.host.serve(insecure=bool(fields.get("insecure")), worker=not fields.get("no_worker"))
    return {}


def worker(session: Session, fields: dict[str, Any]) -> Result:
    """Work until stopped."""
    session.host.worker(fields.get("agents"))
    return {}


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
    """Run a task now; where nobody works, this command does until the task rests."""
    from remit.surfaces.cli.progress import Progress

    answer = session.call("run_task", **fields)
    with Progress(session.unattended) as progress, closing(session.host.attend(answer["task"]["id"])) as items:
        for item in items:
            progress.take(item)
    return answer | {"task": session.call("get_task", task_id=answer["task"]["id"])}


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
        raise invalid("FILE", "holds no work", "a JSON list, or a line for each piece of work")
    return cast("list[Any]", works)


def _work(number: int, line: str) -> Any:
    return _json(f"FILE, line {number}", line) if line.lstrip().startswith("{") else line


def _json(field: str, text: str) -> Any:
    from json import loads

    try:
        return loads(text)
    except (ValueError, RecursionError) as error:
        raise invalid(field, f"begins like JSON and is none ({error})", "a JSON list, or on each line an objective or a JSON object") from None


def _delegated(session: Session, operation: str, fields: dict[str, Any]) -> Result:
    from remit.surfaces.cli.progress import ENDED, Progress

    with Progress(session.unattended) as progress, closing(session.host.delegate(operation, fields)) as items:
        for item in items:
            if item["type"] == "end":
                answer: Result = item["answer"]
                left = progress.done()
                break
            progress.take(item)
        else:
            raise Conflict("The work ended without a result.")
    with suppress(RemitError):  # the answer is there, whatever becomes of the store
        progress.tell_left([task_id for task_id in left if session.call("get_task", task_id=task_id)["state"] not in ENDED])
    return answer


_CODES = {"completed": 0, "running": 0, "failed": 1, "timeout": 124, "cancelled": 130}


def delegated(answer: Result) -> int:
    """The exit code that tells how delegated work ended; of several, the worst."""
    results: list[Result] = answer.get("results", [answer])
    return max(_CODES[result.get("data", result)["status"]] for result in results)


def mcp(session: Session, _fields: dict[str, Any]) -> Result:
    """Speak MCP until the other side ends."""
    session.host.mcp()
    return {}


def doctor(session: Session, fields: dict[str, Any]) -> Result:
    """Look at what is in force, and at the store."""
    return session.host.doctor(verify=bool(fields.get("verify")), fix=bool(fields.get("fix")))


def health(answer: Result) -> int:
    """1 if something was found wrong and was not put right."""
    found: dict[str, list[str]] = answer.get("left_behind", {}) | {"orphans": answer.get("orphans")}
    left = [name for name, ids in found.items() if ids and ("fixed" not in answer or name in answer["beyond_repair"])]
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
    with usable("PATH", str(fields["path"])):
        return session.host.export(fields["what"], fields["path"])


def import_(session: Session, fields: dict[str, Any]) -> Result:
    """Read what export wrote."""
    with usable("PATH", str(fields["path"])):
        return session.host.import_(fields["path"])


def token(session: Session, _fields: dict[str, Any]) -> Result:
    """The operator's token."""
    return {"token": session.host.token()}


def completion(_session: Session, fields: dict[str, Any]) -> Result:
    """A script for a shell."""
    from remit.surfaces.cli.completion import script

    return {"script": script(fields["shell"])}


def watch(session: Session, fields: dict[str, Any]) -> Iterator[Result]:
    """Events as they happen; of one task, from its latest ones to its end."""
    if "task_id" not in fields:
        for page in session.host.follow(None, fields.get("after")):
            yield from page
        return
    task = session.call("get_task", task_id=fields["task_id"])
    for event in _events_of(session, task, fields.get("after")):
        yield event
        if event["type"] in _ENDS:
            return


def _events_of(session: Session, task: dict[str, Any], after: str | None) -> Iterator[Result]:
    """No gap between what was and what comes: it is followed from the position of the last event that was read."""
    if after is None:
        latest = session.call("get_events", task_id=task["id"], after=max(task["version"] - _CONTEXT, 0))["events"]
        yield from latest
        after = latest[-1]["position"]
    for page in session.host.follow(task["id"], after):
        yield from page


def ending(event: Result) -> int:
    """The exit code that tells how a watched task ended."""
    return _ENDS.get(event["type"], 0)


def respond(session: Session, fields: dict[str, Any]) -> Result:
    """Answer a question, named by itself or by its task."""
    ref, number, answer = fields["ref"], fields.get("option"), fields.get("answer")
    if (number is None) == (answer is None):
        raise WrongUse("An answer is needed: either a text, or --option with the number of one that was offered.")
    interaction = ref if re.search(r"-q\d+$", ref) else _only_question(session, ref)["id"]
    chosen = answer if number is None else _offered(session, interaction, number)
    return session.call("respond", interaction_id=interaction, answer=chosen)


def _only_question(session: Session, task_id: str) -> Result:
    found = _open_questions(session, task_id)
    if not found:
        raise Conflict(f"Task {task_id} has no open question.", hint="See all that are open with: remit inbox")
    if len(found) > 1:
        listed = "; ".join(f"{item['id']}: {item['question']}" for item in found)
        raise Conflict(f"Task {task_id} has {len(found)} open questions.", hint=f"Name the one that you answer. {listed}")
    return found[0]


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
