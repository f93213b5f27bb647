"""Outside sessions: their tasks, and the context they get before each request."""

from typing import Any

from remit.app.context import AppContext, Caller
from remit.app.reading.query_handlers import list_session_tasks
from remit.domain.delegation.requests import PreRequest
from remit.domain.prompts import session_prompts
from remit.domain.task import commands as cmd
from remit.domain.task import events as ev
from remit.domain.task.task import Task, prerequisites
from remit.errors import Conflict
from remit.store_queries.record_queries import GUIDE

Result = dict[str, Any]


async def pre_request(core: AppContext, request: PreRequest, caller: Caller) -> Result:
    """Return the pending assignments and updates of a session and mark them as delivered."""
    parts: list[str] = []
    task_ids: list[str] = []
    update_ids: list[str] = []
    for task_id in reversed(await session_task_ids(core, request.session_id, "assigned")):
        delivered = await _deliver(core, task_id, request.session_id, caller)
        if delivered is not None:
            parts.append(await _text(core, *delivered))
            task_ids.append(task_id)
            update_ids += delivered[1]
    return {"context": "\n\n".join(parts), "task_ids": task_ids, "update_ids": update_ids}


async def session_task_ids(core: AppContext, session_id: str, role: str) -> list[str]:
    """Return the ids of all live tasks of a session, newest first."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await core.ask(list_session_tasks(session_id, role=role, limit=1000, cursor=cursor))
        found += [task["id"] for task in page["tasks"]]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


async def _deliver(
    core: AppContext, task_id: str, session_id: str, caller: Caller
) -> tuple[Task, tuple[str, ...]] | None:
    """Mark the pending updates of a task as delivered.

    Return the task as it was before, and the ids of the updates; None if nothing was pending.
    """
    try:
        outcome = await core.do(cmd.DeliverUpdates(task_id=task_id, session_id=session_id), caller)
    except Conflict:  # the task has ended or moved to another session since it was listed
        return None
    for entry in outcome.entries:
        if isinstance(entry.event, ev.UpdateDelivered):
            assert outcome.before is not None
            return outcome.before, entry.event.update_ids
    return None


async def _text(core: AppContext, task: Task, update_ids: tuple[str, ...]) -> str:
    """Return what a session is told: the delivered updates, or first its assignment."""
    if task.briefed:
        news = [update for update in task.queued if update.update_id in update_ids]
        return session_prompts.session_news(task, news)
    titles = await _guide_titles(core, task)
    needed = await core.service.tasks(prerequisites(task.depends_on))
    return session_prompts.assignment(task, titles, needed)


async def _guide_titles(core: AppContext, task: Task) -> list[str]:
    """Return the titles of the guides of a task, in its order; missing guides are left out."""
    rows = await GUIDE.among(core.store.select, names=task.guides)
    titles = {row.id: row.title for row in rows}
    return [titles[guide] for guide in task.guides if guide in titles]
