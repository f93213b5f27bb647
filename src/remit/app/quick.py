"""Reading at once: what commands that only read are answered from, without asyncio and without the catalogue.

Only what goes well is answered here. Whatever is refused is asked again through the catalogue, so that every surface gives the same
error.
"""

from collections.abc import Callable, Mapping
from typing import Any

from remit.app import query
from remit.app.agents import AgentRegistry
from remit.app.query import Asking, ask_now
from remit.app.view import of_unknown_agents
from remit.domain.agent import agent_id, is_agent_id

Rows = list[tuple[Any, ...]]
Result = dict[str, Any]
Agents = Callable[[], AgentRegistry]


def answer(operation: str, fields: Mapping[str, Any], now: str, select: Callable[[str, Mapping[str, Any]], Rows], agents: Agents) -> Result | None:
    """The result of a reading operation, or nothing if it is not one that can be answered at once."""
    if operation not in _QUESTIONS and operation != "list_tasks":
        return None
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        if operation == "list_tasks":
            return _tasks(given, now, agents(), select)
        found = ask_now(_QUESTIONS[operation](given, now), select)
    except TypeError:
        return None
    views = [found] if operation == "get_task" else found["tasks"] if operation in _OF_TASKS else []
    return found if _agents_known(views, agents) else None


def _tasks(given: dict[str, Any], now: str, agents: AgentRegistry, select: Callable[[str, Mapping[str, Any]], Rows]) -> Result | None:
    if "owner" in given and not is_agent_id(agent_id(given["owner"])):
        return None
    owner = agents.meant(given.pop("owner")) if "owner" in given else None
    page = ask_now(query.list_tasks(owner=owner, now=now, **given), select)
    if not _agents_known(page["tasks"], lambda: agents):
        return None
    return page | {"agents": sorted(agents.ids()), "in_flight": ask_now(query.in_flight(), select)}


def _agents_known(views: list[Result], agents: Agents) -> bool:
    """Whether all tasks that could start have an agent that is known here; if not, live workers must be asked."""
    return not of_unknown_agents(views, ()) or not of_unknown_agents(views, agents().ids())


_OF_TASKS = ("list_session_tasks", "list_ready")


_QUESTIONS: dict[str, Callable[[dict[str, Any], str], Asking[Result]]] = {
    "get_task": lambda given, now: query.get_task(given.pop("task_id"), now=now, **given),
    "list_session_tasks": lambda given, now: query.list_session_tasks(given.pop("session_id"), now=now, **given),
    "list_history": lambda given, _: query.list_history(**given),
    "list_ready": lambda given, now: query.list_ready(now=now, **given),
    "get_events": lambda given, _: query.get_events(given.pop("task_id"), **given),
    "list_updates": lambda given, _: query.list_updates(given.pop("task_id"), **given),
    "list_interactions": lambda given, _: query.list_interactions(**given),
    "list_notifications": lambda given, _: query.list_notifications(**given),
    "get_guide": lambda given, _: query.get_guide(given.pop("guide_id")),
    "list_guides": lambda given, _: query.list_guides(**given),
}
