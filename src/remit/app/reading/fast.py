"""Fast reads: answers read-only commands without asyncio and without the catalog.

Only successful reads are answered here. A refused read is repeated through the catalog, so that
every surface returns the same error.
"""

from collections.abc import Callable, Mapping
from typing import Any

from remit.app.agents.registry import AgentRegistry
from remit.app.reading import query_handlers
from remit.app.reading.query_handlers import Asking, Select, ask_now
from remit.app.reading.views import with_unknown_agent
from remit.domain.agents.agent import agent_id, is_agent_id

Result = dict[str, Any]
Agents = Callable[[], AgentRegistry]

_PLAIN_CHARACTERS, _PLAIN_NUMBER = 64, 2**53


def answer(
    operation: str,
    fields: Mapping[str, Any],
    now: str,
    select: Select,
    agents: Agents,
) -> Result | None:
    """Return the result of a read operation; None if it cannot be answered here."""
    given = {name: value for name, value in fields.items() if value is not None}
    if not _is_answerable(operation, given):
        return None
    if operation == "list_tasks":
        return _tasks(given, now, agents(), select)
    found = ask_now(_QUERIES[operation](given, now), select)
    if not _agents_known(_task_views(operation, found), agents):
        return None
    return found


def _is_answerable(operation: str, given: Mapping[str, Any]) -> bool:
    """True for a read with known fields, whose values are plain; a cursor is checked later."""
    accepted = FIELDS.get(operation)
    if accepted is None or not given.keys() <= accepted:
        return False
    return all(name == "cursor" or _is_plain(value) for name, value in given.items())


def _task_views(operation: str, found: Result) -> list[Result]:
    """Return the tasks in the result of an operation whose agents must be known."""
    if operation == "get_task":
        return [found]
    if operation in ("list_session_tasks", "list_ready"):
        return list(found["tasks"])
    return []


def _is_plain(value: Any) -> bool:
    """True for a value within the limits of every text or number that a read takes.

    The validator is slow to import, so only the catalog uses it; it judges all other values.
    """
    if isinstance(value, str):
        return _is_plain_text(value)
    return isinstance(value, int) and 0 <= value <= _PLAIN_NUMBER


def _is_plain_text(value: str) -> bool:
    """True for a short text of printable ASCII characters that is not blank."""
    is_short = len(value) <= _PLAIN_CHARACTERS
    return is_short and value.isascii() and value.isprintable() and bool(value.strip())


def _tasks(
    given: dict[str, Any],
    now: str,
    agents: AgentRegistry,
    select: Select,
) -> Result | None:
    """Return a page of tasks; None if the owner or an agent is not known here."""
    if "owner" in given:
        if not is_agent_id(agent_id(given["owner"])):
            return None
        given["owner"] = agents.id_for_filter(given["owner"])
    page = ask_now(query_handlers.list_tasks(now=now, **given), select)
    if not _agents_known(page["tasks"], lambda: agents):
        return None
    return page | {
        "agents": sorted(agents.ids()),
        "in_flight": ask_now(query_handlers.in_flight(), select),
    }


def _agents_known(views: list[Result], agents: Agents) -> bool:
    """True if this process knows the agents of all tasks that could start.

    If not, live workers must be asked. The agents are loaded only if a task could start.
    """
    could_start = with_unknown_agent(views, ())
    return not could_start or not with_unknown_agent(could_start, agents().ids())


_PAGE = frozenset({"limit", "cursor"})
FIELDS = {
    "get_task": frozenset({"task_id"}),
    "list_tasks": _PAGE | {"status", "state", "owner", "parent_session", "parent", "label"},
    "list_session_tasks": _PAGE | {"session_id", "role", "status"},
    "list_history": _PAGE,
    "list_ready": _PAGE,
    "get_events": frozenset({"task_id", "after", "limit"}),
    "list_updates": frozenset({"task_id", "after"}),
    "list_interactions": _PAGE | {"status", "task_id"},
    "list_notifications": _PAGE,
    "get_guide": frozenset({"guide_id"}),
    "list_guides": _PAGE,
}
"""The operations that are answered here, and the fields that each accepts."""


_QUERIES: dict[str, Callable[[dict[str, Any], str], Asking[Result]]] = {
    "get_task": lambda given, now: query_handlers.get_task(given.pop("task_id"), now=now, **given),
    "list_session_tasks": lambda given, now: query_handlers.list_session_tasks(
        given.pop("session_id"), now=now, **given
    ),
    "list_history": lambda given, _: query_handlers.list_history(**given),
    "list_ready": lambda given, now: query_handlers.list_ready(now=now, **given),
    "get_events": lambda given, _: query_handlers.get_events(given.pop("task_id"), **given),
    "list_updates": lambda given, _: query_handlers.list_updates(given.pop("task_id"), **given),
    "list_interactions": lambda given, _: query_handlers.list_interactions(**given),
    "list_notifications": lambda given, _: query_handlers.list_notifications(**given),
    "get_guide": lambda given, _: query_handlers.get_guide(given.pop("guide_id")),
    "list_guides": lambda given, _: query_handlers.list_guides(**given),
}
