"""Which tools a running agent is shown; all others that it may use can be called by name."""

import re
from collections.abc import Collection, Mapping, Sequence

SUBTASK = "create_subtask_"
MOST = 30
"""Tools that an agent is shown before tools for single agents are left out."""
MOST_AGENTS = 8
"""Agents that have a tool of their own, and agents that are described to a model."""
MOST_EVER = 128
"""No endpoint takes more tools."""
LONGEST = 100
"""Characters of an agent's description that other agents read."""
LONGEST_NAMES = 600
"""Characters for the names of agents that are not described."""

PLAN = ("update_steps", "update_step")
OWN = ("complete_task", "ask_user", "notify_user")
CHILDREN = ("task", "task_parallel", "task_output", "send_message", "create_subtask")
CHANGES_OF_CHILDREN = ("update_task", "cancel_task")
TASKS = (
    "create_task",
    "get_task",
    "list_tasks",
    "update_task",
    "cancel_task",
    "add_resource",
    "remove_resource",
    "list_history",
)


def offered(
    files: Sequence[str],
    usable: Collection[str],
    *,
    has_tasks: bool,
    has_guides: bool,
) -> tuple[str, ...]:
    """The tools that an agent is shown, of its file tools and of the operations that it may use.

    An agent that manages tasks plans with operations, and another with TodoWrite if it has that.
    """
    writes_todos = "TodoWrite" in usable and not has_tasks
    shown = list(files)
    subtasks = [name for name in usable if name.startswith(SUBTASK)]
    wanted = [*(("TodoWrite",) if writes_todos else PLAN), *OWN]
    if "task" in usable:
        wanted += (*CHILDREN, *CHANGES_OF_CHILDREN)
        wanted += ("list_agents",) if len(subtasks) > MOST_AGENTS else ()
    wanted += (*TASKS, "create_subtask") if has_tasks else ("get_task",)
    wanted += ("get_guide",) if has_guides or not has_tasks else ()
    operations = [name for name in dict.fromkeys(wanted) if name in usable]
    room = min(MOST_AGENTS, max(0, MOST - len(shown) - len(operations)))
    return (*shown[: MOST_EVER - len(operations)], *operations, *subtasks[:room])


def subtask_tool(agent_id: str) -> str:
    """The tool that hands a part to an agent; nothing where an endpoint would refuse its name."""
    name = f"{SUBTASK}{agent_id}"
    return name if re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) else ""


def roster(agents: Mapping[str, str]) -> str:
    """The agents that can be given work, the first ones with what each is good for."""
    ids = list(agents)
    lines = [f"- {name}: {_shortened(agents[name])}" for name in ids[:MOST_AGENTS]]
    names = ids[MOST_AGENTS:]
    shown: list[str] = []
    while len(shown) < len(names) and len(", ".join(shown)) < LONGEST_NAMES:
        shown.append(names[len(shown)])
    rest = len(names) - len(shown)
    more = f", and {rest} more that list_agents names" if rest else ""
    return "\n".join([*lines, f"Others: {', '.join(shown)}{more}"] if shown else lines)


def _shortened(description: str) -> str:
    """The beginning of a description, in one line."""
    line = " ".join(description.split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST].rpartition(' ')[0]} …"
