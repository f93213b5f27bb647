"""Selects the tools that a running agent is shown; others that it may use can be called by name."""

import re
from collections.abc import Collection, Mapping, Sequence

from remit.domain.records.pick import among
from remit.domain.task.task import Task

SUBTASK = "create_subtask_"
MOST = 30
"""The number of tools from which on tools for single agents are left out."""
MOST_AGENTS = 8
"""The number of agents that have their own tool, and the number that are described to a model."""
MOST_EVER = 128
"""The maximum number of tools that endpoints accept."""
LONGEST = 100
"""The maximum length of an agent's description for other agents."""
LONGEST_TOOL = 1024
"""The maximum length of a tool's description: OpenAI and Azure refuse longer ones."""

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
    agents: int,
    has_tasks: bool,
    has_guides: bool,
    has_reports: bool,
) -> tuple[str, ...]:
    """Return the tools that an agent is shown, of its file tools and usable operations.

    `agents` is the number of agents that it can delegate to. An agent that manages tasks plans
    with operations, others with TodoWrite if they have it. With `has_reports`, it reads reports of
    other tasks, which name task_output for the rest.
    """
    subtasks = [name for name in usable if name.startswith(SUBTASK)]
    wanted = [*_planning(usable, has_tasks=has_tasks), *OWN]
    if "task" in usable:
        wanted += (*CHILDREN, *CHANGES_OF_CHILDREN)
        wanted += ("list_agents",) if agents > MOST_AGENTS else ()
    wanted += (*TASKS, "create_subtask") if has_tasks else ("get_task",)
    if has_guides or not has_tasks:
        wanted.append("get_guide")
    if has_reports:
        wanted.append("task_output")
    operations = among(dict.fromkeys(wanted), usable)
    room = min(MOST_AGENTS, max(0, MOST - len(files) - len(operations)))
    return (*files[: MOST_EVER - len(operations)], *operations, *subtasks[:room])


def reads_reports(task: Task) -> bool:
    """Return whether reports on other tasks are part of a task: prerequisites or subtasks."""
    return bool(task.depends_on or task.children)


def _planning(usable: Collection[str], *, has_tasks: bool) -> tuple[str, ...]:
    """Return the tools with which an agent plans."""
    if has_tasks or "TodoWrite" not in usable:
        return PLAN
    return ("TodoWrite",)


def subtask_tool(agent_id: str) -> str:
    """Return the tool that gives a subtask to an agent; empty if the name is not valid."""
    name = f"{SUBTASK}{agent_id}"
    return name if re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) else ""


def describe_agents(agents: Mapping[str, str], most: int) -> str:
    """List the agents that can be given work, the first ones with their descriptions.

    The list has at most `most` characters: descriptions become shorter, and names are left out.
    """
    ids = list(agents)
    names = ids[MOST_AGENTS:]
    described = ""
    for longest in range(LONGEST, 0, -20):
        lines = [f"- {name}: {one_line(agents[name], longest)}" for name in ids[:MOST_AGENTS]]
        described = "\n".join(lines)
        if len(described) + len(_others([], len(names))) <= most:
            break
    shown: list[str] = []
    for name in names:
        if len(described) + len(_others([*shown, name], len(names))) > most:
            break
        shown.append(name)
    return described + _others(shown, len(names))


def _others(shown: Sequence[str], count: int) -> str:
    """Name some of the agents that are not described, and say where the rest is."""
    if not count:
        return ""
    rest = count - len(shown)
    if not shown:
        return f"\nOthers: {rest} more that list_agents names"
    more = f", and {rest} more that list_agents names" if rest else ""
    return f"\nOthers: {', '.join(shown)}{more}"


def one_line(description: str, longest: int = LONGEST) -> str:
    """Return the beginning of a description, in one line."""
    line = " ".join(description.split())
    return line if len(line) <= longest else f"{line[:longest].rpartition(' ')[0]} …"
