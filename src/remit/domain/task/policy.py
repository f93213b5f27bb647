"""Rules that several decisions share: default limits, tool grants and actors."""

from collections.abc import Iterable, Sequence

from remit.domain.agents.agent import WRITING, Agent
from remit.domain.records.pick import among, beyond
from remit.domain.records.record import replace
from remit.domain.task.task import Effort, Limits, Output, State, Task, Tools
from remit.errors import Conflict, Forbidden, invalid, unknown

MAX_ATTEMPTS = 3
MAX_TURNS = 50
MAX_ROUNDS = 2
MAX_OUTPUT_ASKS = 2
MAX_IDLE_RUNS = 3
MAX_DEPTH = 3
MAX_CHILDREN = 64
ENGINE_ACTOR = "system:engine"
"""The actor of questions that remit itself asks, not the agent of the task."""


def is_person(actor: str) -> bool:
    """Return whether the actor is a person (`user:<name>`)."""
    return actor.startswith("user:")


def agent_of(actor: str) -> str | None:
    """Return the agent id of an actor `agent:<id>`; None for any other actor."""
    if not actor.startswith("agent:"):
        return None
    return actor.removeprefix("agent:")


def must_be_person(actor: str, what: str) -> None:
    """Refuse an actor that is not a person."""
    if not is_person(actor):
        raise Forbidden(
            f"Only a person can {what}; {actor} is not a person.",
            hint="Ask a person with ask_user.",
        )


def must_own(actor: str, task: Task, what: str) -> None:
    """Refuse an agent that does not own the task."""
    if agent_of(actor) in (None, task.owner):
        return
    raise Forbidden(
        f"{actor} does not own task {task.id} and cannot {what}.",
        hint=f"Its owner is {task.owner}." if task.owner else "It has no owner.",
    )


def must_own_or_create(actor: str, task: Task, what: str) -> None:
    """Refuse an agent that neither owns nor created the task."""
    if actor != task.created_by:
        must_own(actor, task, what)


def must_not_be_ended(task: Task) -> None:
    """Refuse to change an ended task."""
    if task.state.terminal:
        raise Conflict(
            f"Task {task.id} is {task.state.value}; an ended task cannot change.",
            hint="Do it again as a new task with: rerun_task",
            details={"task_id": task.id, "state": task.state.value},
        )


def narrow_tools(asked: Tools, parent: Tools) -> Tools:
    """Return the grant of a child, limited to the tools of its parent."""
    return Tools(
        allow=_narrow_allow(asked.allow, parent.allow),
        deny=tuple(dict.fromkeys((*parent.deny, *asked.deny))),
        offer=asked.offer,
        named=asked.named,
    )


def _narrow_allow(
    asked: tuple[str, ...] | None, parent: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    """Return the allowed tools that the parent has as well; None allows every tool."""
    if parent is None:
        return asked
    if asked is None:
        return parent
    return tuple(among(asked, parent))


def with_tool_list(asked: Tools, tools: tuple[str, ...]) -> Tools:
    """Return a grant with its effective list of tools.

    If the call names no tools, writing tools in the list are recorded as defaults of the agent.
    """
    is_default = asked.allow is None and asked.named is None
    hides_defaults = is_default and not frozenset(tools).isdisjoint(WRITING)
    return replace(asked, allow=tools, named=() if hides_defaults else asked.named)


def must_name_known_tool(asked: Tools, known: frozenset[str], available: Sequence[str]) -> None:
    """Refuse a list of tools that names no known tool; an empty list is allowed.

    `available` are the tools of the task that passes them on. Without this rule, its subtask would
    start with no tools. A worker checks the list of any other task (`must_have_usable_tool`).
    """
    listed = asked.allow or ()
    if listed and known.union(available).isdisjoint(listed):
        raise unknown("tools", "tool", listed[0], available or known)


def must_have_usable_tool(
    task: Task, offered: frozenset[str], known: Sequence[str], usable: Sequence[str]
) -> None:
    """Refuse a list of tools of which the agent can use none on this worker.

    `usable` are the tools that the agent could be given. An empty list is allowed. Tools that are
    only passed on to subtasks are not checked.
    """
    named = _own_tools(task.tools)
    if not named or not offered.isdisjoint(known):
        return
    possible = ", ".join(beyond(usable, task.tools.deny))
    expected = "no list: this agent cannot use tools here"
    if possible:
        expected = f"at least one of {possible}"
    reasons = _reasons_against(named, known, task.owner)
    raise invalid("tools.allow", f"contains no usable tool: {reasons}", expected)


def _own_tools(tools: Tools) -> list[str]:
    """Return the listed tools that the agent itself sees, without those that it only passes on."""
    listed = tools.allow or ()
    if tools.offer is None:
        return list(listed)
    return among(listed, tools.offer)


def _reasons_against(named: Sequence[str], known: Sequence[str], owner: str | None) -> str:
    """Return why an agent can use none of these tools, as one phrase."""
    reasons = {
        "this worker does not know": beyond(named, known),
        f"{owner} may not use": among(named, known),
    }
    return ", and ".join(f"{why} {', '.join(tools)}" for why, tools in reasons.items() if tools)


def write_requirements(task: Task, granted: frozenset[str]) -> str:
    """Return the writing tools that the call names and the required outputs, as one phrase.

    The result is empty for a read-only task. Writing tools that the agent has by default do not
    count.
    """
    named = task.tools.named
    if named is None:
        named = task.tools.allow or ()
    used = granted.intersection(named)
    tools = among(WRITING, used)
    outputs = [_output_phrase(output) for output in task.outputs if output.required]
    return ", ".join([*tools, *outputs])


def _output_phrase(output: Output) -> str:
    kind = "file" if output.kind == "file" else "output"
    if output.name == kind:
        return f"the required {kind}"
    return f"the {kind} {output.name}"


def max_depth(limits: Limits) -> int:
    """Return the maximum depth of the tree, counted from the root."""
    return _limit(limits.max_depth, MAX_DEPTH)


def max_children(limits: Limits) -> int:
    """Return the maximum number of subtasks."""
    return _limit(limits.max_children, MAX_CHILDREN)


def max_attempts(limits: Limits) -> int:
    """Return the maximum number of failed runs in a row."""
    return _limit(limits.max_attempts, MAX_ATTEMPTS)


def _limit(given: int | None, default: int) -> int:
    return default if given is None else given


def waits_for_person(task: Task) -> bool:
    """Return whether a task cannot continue without a person.

    It has asked a person, a person paused it or left it as a draft, or it waits for such tasks
    only. Drafts and pauses by an agent do not count, because no person knows of them.
    """
    if task.run is not None:
        return False
    if task.state is State.WAITING:
        return task.held or task.waits_for("user")
    if task.state is State.PAUSED:
        return not task.paused_by_agent
    return task.state is State.DRAFT and agent_of(task.created_by) is None


def outline(outputs: Iterable[Output]) -> str:
    """Return the required outputs as one line for the agent."""
    return ", ".join(map(_name_and_kind, outputs))


def _name_and_kind(output: Output) -> str:
    """Return the name of an output, with its kind unless it is text."""
    if output.kind == "text":
        return output.name
    return f"{output.name} ({output.kind})"


_EFFORTS: dict[str, Effort] = {"none": "none", "low": "low", "medium": "medium"}
"""Model efforts by the effort in an agent file; every other effort is high."""


def effort_of(task: Task, agent: Agent, of_tier: Effort | None) -> Effort | None:
    """Return the effort of the task, else of its agent, else of the model tier.

    Without any of these, it is `low` for a sub-agent and None for a primary agent.
    """
    if task.effort is not None:
        return task.effort
    if agent.effort is not None:
        return _EFFORTS.get(agent.effort, "high")
    if of_tier is not None:
        return of_tier
    return "low" if _is_subagent(task, agent) else None


def _is_subagent(task: Task, agent: Agent) -> bool:
    """Return whether an agent works as a sub-agent: by its mode, or on a subtask."""
    if agent.mode == "all":
        return task.parent_id is not None
    return agent.mode == "subagent"
