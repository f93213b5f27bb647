"""Which tools an MCP client is shown; all others can be called by name."""

from remit.catalog.table import FOR_EVERYONE
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
    """The tools of a profile, or of names and profiles with commas between them."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        expected = f"{', '.join(PROFILES)}, or names of tools with commas between them"
        raise invalid(field, "is empty", expected)
    for name in names:
        if name not in PROFILES and name not in FOR_EVERYONE:
            raise unknown(field, "tool or profile", name, (*PROFILES, *FOR_EVERYONE))
    return tuple(dict.fromkeys(tool for name in names for tool in PROFILES.get(name, (name,))))
