"""Which tools MCP clients see; all others can still be called by name."""

from remit.catalog.operations import FOR_EVERYONE
from remit.errors import invalid, unknown

CORE = (
    "task",
    "task_output",
    "send_message",
    "create_task",
    "get_task",
    "list_tasks",
    "update_task",
    "update_step",
    "complete_task",
    "cancel_task",
    "list_agents",
    "list_interactions",
)
_STANDARD = frozenset(
    {
        *CORE,
        "task_parallel",
        "Task",
        "create_subtask",
        "update_steps",
        "mark_task_complete",
        "assign_task",
        "attach_tsg",
        "add_resource",
        "remove_resource",
        "list_history",
        "respond",
    }
)
PROFILES: dict[str, tuple[str, ...]] = {
    "core": CORE,
    "standard": tuple(name for name in FOR_EVERYONE if name in _STANDARD),
    "all": tuple(FOR_EVERYONE),
}


def tools_of(text: str, field: str = "tools") -> tuple[str, ...]:
    """Return the tools of a profile, or of names and profiles separated by commas."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        expected = f"{', '.join(PROFILES)}, or tool names separated by commas"
        raise invalid(field, "is empty", expected)
    known = (*PROFILES, *FOR_EVERYONE)
    tools: list[str] = []
    for name in names:
        if name not in known:
            raise unknown(field, "tool or profile", name, known)
        tools += PROFILES.get(name, (name,))
    return tuple(dict.fromkeys(tools))
