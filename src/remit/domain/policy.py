"""Rules that several decisions share: defaults, grants, who is who."""

from collections.abc import Iterable, Sequence

from remit.domain.agent import WRITING, Agent
from remit.domain.record import replace
from remit.domain.value import Effort, Limits, Output, State, Task, Tools
from remit.errors import Conflict, Forbidden, invalid

MAX_ATTEMPTS = 3
MAX_TURNS = 50
MAX_ROUNDS = 2
MAX_OUTPUT_ASKS = 2
MAX_IDLE_RUNS = 3
MAX_DEPTH = 3
MAX_CHILDREN = 64


def is_person(actor: str) -> bool:
    """True for user:<name>."""
    return actor.startswith("user:")


def agent_of(actor: str) -> str | None:
    """The agent's id, if an agent acts."""
    return actor.removeprefix("agent:") if actor.startswith("agent:") else None


def must_be_person(actor: str, what: str) -> None:
    """Refuse what only people may do."""
    if not is_person(actor):
        raise Forbidden(f"Only a person can {what}; {actor} is not one.", hint="Ask a person with ask_user.")


def must_own(actor: str, task: Task, what: str) -> None:
    """Refuse an agent that neither owns the task nor is in charge of it."""
    if (agent := agent_of(actor)) is not None and agent != task.owner:
        raise Forbidden(f"{actor} does not own task {task.id} and cannot {what}.", hint=f"Its owner is {task.owner or 'nobody'}.")


def must_answer_for(actor: str, task: Task, what: str) -> None:
    """Refuse an agent that neither owns nor created the task."""
    if actor != task.created_by:
        must_own(actor, task, what)


def must_live(task: Task) -> None:
    """Refuse to change what has ended."""
    if task.state.terminal:
        raise Conflict(
            f"Task {task.id} is {task.state.value}; an ended task never changes.",
            hint="Use rerun_task to do it again as a new task.",
            details={"task_id": task.id, "state": task.state.value},
        )


def narrowed(asked: Tools, parent: Tools) -> Tools:
    """What a child may use: never more than its parent."""
    allow = asked.allow
    if parent.allow is not None:
        allow = tuple(tool for tool in (parent.allow if allow is None else allow) if tool in parent.allow)
    return Tools(allow=allow, deny=tuple(dict.fromkeys((*parent.deny, *asked.deny))), offer=asked.offer, named=asked.named)


def listed(asked: Tools, tools: tuple[str, ...]) -> Tools:
    """A grant with the list of tools that it comes to.

    If the call has no list of its own, writing tools in this one are recorded as defaults.
    """
    is_default = asked.allow is None and asked.named is None
    hides_defaults = is_default and not frozenset(tools).isdisjoint(WRITING)
    return replace(asked, allow=tools, named=() if hides_defaults else asked.named)


def must_come_to_something(task: Task, offered: frozenset[str], known: Sequence[str], usable: Sequence[str]) -> None:
    """Refuse a list of tools that leaves its agent none that the worker knows; `usable` are those that the agent could be given.

    An empty list asks for none; what is named only to be passed on is for the workers of others to know.
    """
    tools = task.tools
    named = [tool for tool in tools.allow or () if tools.offer is None or tool in tools.offer]
    if not named or not offered.isdisjoint(known):
        return
    unknown, beyond = (", ".join(tool for tool in named if (tool in known) is there) for there in (False, True))
    why = [f"{unknown}, which this worker does not know"] if unknown else []
    why += [f"{beyond}, which {task.owner} may not use"] if beyond else []
    possible = ", ".join(tool for tool in usable if tool not in tools.deny)
    raise invalid(
        "tools.allow",
        f"comes to nothing: it names {', and '.join(why)}",
        f"at least one of {possible}" if possible else "none: this agent can use no tool here",
    )


def needs_writing(task: Task, granted: frozenset[str]) -> str:
    """What a task was given in order to write: tools that its call names, and required outputs. Empty if it only reads.

    Writing tools that its agent has by default do not count.
    """
    grant = task.tools
    named = grant.named if grant.named is not None else grant.allow or ()
    tools = [tool for tool in WRITING if tool in named and tool in granted]
    required = [output for output in task.outputs if output.required]
    outputs = [f"the {'file' if output.kind == 'file' else 'output'} {output.name}" for output in required]
    return ", ".join([*tools, *outputs])


def max_depth(limits: Limits) -> int:
    """How deep the tree below may reach, counted from the root."""
    return MAX_DEPTH if limits.max_depth is None else limits.max_depth


def max_children(limits: Limits) -> int:
    """How many subtasks a task may have."""
    return MAX_CHILDREN if limits.max_children is None else limits.max_children


def max_attempts(limits: Limits) -> int:
    """How many runs in a row may end badly."""
    return MAX_ATTEMPTS if limits.max_attempts is None else limits.max_attempts


def waits_for_person(task: Task) -> bool:
    """True while only a person can get a task on: it has asked one, was held or never begun by one, or waits for such tasks alone.

    A draft that an agent made, and a task that an agent paused, are none of these: no person knows of them.
    """
    if task.run is not None or task.state not in (State.DRAFT, State.PAUSED, State.WAITING):
        return False
    if task.state is State.DRAFT and agent_of(task.created_by) is not None:
        return False
    if task.state is State.PAUSED and task.paused_by_agent:
        return False
    asks = task.wait is not None and any(item.kind == "user" for item in task.wait.on)
    return task.state is not State.WAITING or task.held or asks


def outline(outputs: Iterable[Output]) -> str:
    """Required outputs as the agent reads them."""
    return ", ".join(f"{output.name} ({output.kind})" if output.kind != "text" else output.name for output in outputs)


_EFFORTS: dict[str, Effort] = {"none": "none", "low": "low", "medium": "medium"}
"""What the efforts of agent files mean to models; more than medium is high."""


def effort_of(task: Task, agent: Agent, of_tier: Effort | None) -> Effort | None:
    """How much a model thinks: as the task says, or else its agent, or else the tier.

    Without any of these a sub-agent thinks little, and for a primary agent nothing is said.
    """
    if task.effort is not None:
        return task.effort
    if agent.effort is not None:
        return _EFFORTS.get(agent.effort, "high")
    if of_tier is not None:
        return of_tier
    is_subagent = agent.mode == "subagent" or (agent.mode == "all" and task.parent_id is not None)
    return "low" if is_subagent else None
