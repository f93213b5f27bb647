"""Outside sessions: which tasks are theirs, and what they are told before each request."""

from typing import Any

from remit.app.core import Caller, Core
from remit.app.query import list_session_tasks
from remit.domain import command as cmd
from remit.domain import event as ev
from remit.domain import session_text
from remit.domain.delegation import PreRequest
from remit.domain.value import Task
from remit.errors import Conflict

Result = dict[str, Any]


async def pre_request(core: Core, request: PreRequest, caller: Caller) -> Result:
    """What a session is told now, and the receipt of it; whatever is told here is told to nobody again."""
    parts: list[str] = []
    task_ids: list[str] = []
    update_ids: list[str] = []
    for task_id in reversed(await of_session(core, request.session_id, "assigned")):
        told = await _deliver(core, task_id, request.session_id, caller)
        if told is not None:
            parts.append(await _text(core, *told))
            task_ids.append(task_id)
            update_ids += told[1]
    return {"context": "\n\n".join(parts), "task_ids": task_ids, "update_ids": update_ids}


async def of_session(core: Core, session_id: str, role: str) -> list[str]:
    """The ids of all live tasks of a session, newest first."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await core.ask(list_session_tasks(session_id, role=role, limit=1000, cursor=cursor))
        found += [task["id"] for task in page["tasks"]]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


async def _deliver(core: Core, task_id: str, session_id: str, caller: Caller) -> tuple[Task, tuple[str, ...]] | None:
    """The task as the decision to tell found it, and which updates that covers; nothing if there is nothing to tell."""
    try:
        outcome = await core.do(cmd.DeliverUpdates(task_id=task_id, session_id=session_id), caller)
    except Conflict:  # it has ended, or is another session's, since it was looked up
        return None
    receipt = next((entry.event for entry in outcome.entries if isinstance(entry.event, ev.UpdateDelivered)), None)
    if receipt is None:
        return None
    assert outcome.before is not None
    return outcome.before, receipt.update_ids


async def _text(core: Core, task: Task, update_ids: tuple[str, ...]) -> str:
    if task.briefed:
        return session_text.session_news(task, [update for update in task.queued if update.update_id in update_ids])
    rows = await core.store.select("guide", {"names": list(task.guides)}) if task.guides else []
    titles = {row[0]: row[1] for row in rows}
    needed = await core.service.tasks(dependency.task_id for dependency in task.depends_on)
    return session_text.assignment(task, [titles[guide] for guide in task.guides if guide in titles], needed)
