"""The catalogue as a running agent sees it: what it may ask of remit itself, under the fence of its run."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from remit.catalog import OPERATIONS, Caller, Core, Operation, call
from remit.domain.command import CreateTask
from remit.domain.delegation import DelegateParallel, DelegateTask, LaunchSubtask, LaunchTask, TaskOutput, Work
from remit.domain.envelope import in_part
from remit.domain.schema import field_schema, record_schema
from remit.domain.shape import parse
from remit.domain.tool import ToolOutcome, ToolSpec
from remit.domain.value import plain_id
from remit.domain.wire import dumps
from remit.errors import Forbidden, RemitError, StaleRun, Unacknowledged, Unavailable, invalid

OWN = ("update_steps", "update_step", "complete_task", "ask_user", "notify_user")
"""What an agent does to its own task; which one that is, is not its to say."""
ALWAYS = ("get_task", "get_guide", *OWN)
FOR_CHILDREN = ("task_output", "send_message", "update_task", "cancel_task", "create_subtask")
NOT_FOR_AGENTS = ("task", "task_parallel", "Task", "cancel_all", "pre_request", "respond", "waive_criterion", "mark_task_complete")
TERMS = frozenset({"acceptance", "outputs", "limits"})
"""What the work of a task is held to."""
HIDDEN = frozenset({"call_id"})


class CatalogTools:
    """Operations as tools."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @property
    def folder(self) -> str:
        """The workspace that relative paths belong to."""
        return self._core.folder

    def offered(self, agent: Any, granted: frozenset[str]) -> list[ToolSpec]:
        """What an agent is offered: its own task always, others' with the `tasks` capability, delegation where `Task` is granted."""
        names = dict.fromkeys(ALWAYS)
        if "tasks" in agent.capabilities:
            names |= dict.fromkeys(name for name in OPERATIONS if name not in NOT_FOR_AGENTS)
        specs = [spec_of(OPERATIONS[name]) for name in names]
        if "Task" not in granted:
            return specs
        specs += [spec_of(OPERATIONS[name]) for name in FOR_CHILDREN if name not in names]
        others = [other for other in self._core.agents.all() if not other.hidden and (agent.spawnable is None or other.id in agent.spawnable)]
        named = {other.id: other.description for other in others}
        default = next(iter(named)) if len(named) == 1 else "general"
        return specs + (delegation_specs(named, default if default in named else None, cache=True) if named else [])

    async def call(self, name: str, arguments: Mapping[str, Any], activation: Any, beside: Sequence[Any] = ()) -> ToolOutcome:
        """Carry one out as a run; what is refused is told to the model, but for what ends the run."""
        caller = Caller(actor=activation.actor, run_id=activation.run_id, held=activation.held, beside=tuple(beside))
        own = {"task_id": activation.task.id} if name in OWN else {}
        try:
            await self._must_be_theirs(name, arguments, activation)
            if name == "task_output":
                return ToolOutcome(await self._output(arguments, caller))
            given = await self._within(arguments, activation) if name == "create_task" else arguments
            told = dumps(await call(self._core, name, {**given, **own}, caller))
            return ToolOutcome(cut(told, self._instead(name, arguments, activation)))
        except (StaleRun, Unavailable, Unacknowledged):
            raise
        except RemitError as refused:
            return ToolOutcome(f"{refused.message} {refused.hint or ''}".strip(), is_error=True)

    def _instead(self, name: str, arguments: Mapping[str, Any], activation: Any) -> str:
        """What to ask for where an answer is too long: the result of a task by itself, if the agent is offered that."""
        task = activation.task
        agent = self._core.agents.get(task.owner or "")
        offered = self._core.agents.grant(task.owner or "", task.tools) if task.tools.offer is None else task.tools.offer
        if name == "get_task" and ("Task" in offered or (agent is not None and "tasks" in agent.capabilities)):
            return f'task_output with task_id "{arguments.get("task_id")}" has its result, in parts'
        return "ask for less"

    async def _output(self, arguments: Mapping[str, Any], caller: Caller) -> str:
        """What came of a task, as much at once as fits into a conversation."""
        offset = parse(TaskOutput, arguments).offset
        return dumps(in_part(await call(self._core, "task_output", {**arguments, "offset": 0}, caller), offset))

    async def _must_be_theirs(self, name: str, arguments: Mapping[str, Any], activation: Any) -> None:
        """Refuse what reaches beyond the agent's own work: its task, what is below it and, with the capability, what it owns or made."""
        agent = self._core.agents.get(activation.task.owner or "")
        if name == "create_subtask" and agent is not None and agent.spawnable is not None:
            found = self._core.agents.find(str(arguments.get("owner")))
            if found is None or found.id not in agent.spawnable:
                raise invalid("owner", f"is {arguments.get('owner')!r}, who cannot be given work here", f"one of {', '.join(agent.spawnable)}")
        if name in OWN or OPERATIONS[name].effect == "read" or "task_id" not in arguments:
            return
        found_task = await self._core.task(plain_id(arguments["task_id"]))
        if name == "update_task" and arguments.keys() & TERMS:
            await self._must_not_be_held_to(found_task, activation)
        if "tasks" in (agent.capabilities if agent else ()) and activation.actor in (f"agent:{found_task['owner']}", found_task["created_by"]):
            return
        above = found_task
        while above["id"] != activation.task.id:
            if above["parent_id"] is None:
                raise Forbidden(f"Task {found_task['id']} is neither yours nor below your task {activation.task.id}.")
            above = await self._core.task(above["parent_id"])

    async def _must_not_be_held_to(self, changed: Mapping[str, Any], activation: Any) -> None:
        """Refuse to change the terms of the very work that is done, and of all that it is a part of."""
        above: Mapping[str, Any] | None = await self._core.task(activation.task.id)
        while above is not None:
            if above["id"] == changed["id"]:
                raise Forbidden(f"Its {', '.join(sorted(TERMS))} are what task {changed['id']} is held to.", hint="Ask a person with ask_user.")
            above = await self._core.task(above["parent_id"]) if above["parent_id"] else None

    async def _within(self, arguments: Mapping[str, Any], activation: Any) -> dict[str, Any]:
        """A task that an agent makes beside its own: whoever gets it, it has no tool and no money that its maker has not."""
        root = (await self._core.task(activation.task.root_id))["limits"]
        if "max_tokens" in root or "max_cost" in root:
            raise Forbidden("A task beside yours would be outside the budget that yours has.", hint="Use create_subtask.")
        asked = parse(CreateTask, dict(arguments))
        owner = self._core.agents.find(asked.owner or activation.task.owner)
        mine = self._core.agents.grant(activation.task.owner, activation.task.tools)
        theirs = self._core.agents.grant(owner.id, asked.tools) if owner else ()
        return {**arguments, "tools": {"allow": [tool for tool in theirs if tool in mine]}}


def cut(text: str, instead: str, limit: int = 200_000) -> str:
    """As much of an answer as fits into a conversation, and what to do instead."""
    return text if len(text) <= limit else f"{text[:limit]}\n[Cut at {limit // 1000} KB of {len(text) // 1000}: {instead}.]"


def spec_of(operation: Operation) -> ToolSpec:
    """An operation as a tool of a model: without what is not the model's to say."""
    hidden = HIDDEN | (frozenset({"task_id"}) if operation.name in OWN else frozenset[str]())
    schema = record_schema(cast("Any", operation.input))
    kept = {name: value for name, value in schema["properties"].items() if name not in hidden}
    parameters = schema | {"properties": kept, "required": [name for name in schema.get("required", []) if name not in hidden]}
    return ToolSpec(operation.name, operation.description, parameters, operation.effect != "read", operation.idempotent)


def delegation_specs(agents: Mapping[str, str], default: str | None, *, cache: bool = False) -> list[ToolSpec]:
    """The tools that hand out work, to agents that are given with what each is good for; one of them may be meant if none is named.

    Results from before are offered where a call has no idempotency key of its own.
    """
    listed = "\n".join(f"- {name}: {description}" for name, description in agents.items())
    single = record_schema(Work)
    choice: dict[str, Any] = {"type": "string", "enum": list(agents)}
    meant = choice | {"default": default} if default else choice
    more = {"cache": field_schema(DelegateTask, "cache")} if cache else {}
    fields: dict[str, Any] = single["properties"] | {"subagent_type": meant} | more
    one = single | {
        "properties": fields,
        "required": ["objective"] if default else ["objective", "subagent_type"],
    }
    one |= {"properties": fields | {"wait": field_schema(DelegateTask, "wait")}}
    several = record_schema(DelegateParallel)
    many = several | {"properties": {"tasks": {"type": "array", "items": one, "description": "The pieces of work."}}}
    launched = record_schema(LaunchTask)
    launch = launched | {"properties": launched["properties"] | {"subagent_type": choice}}
    specs = [
        ToolSpec("task", f"{DelegateTask.__doc__} Who can do it:\n{listed}", one, effects=True, repeatable=False),
        ToolSpec("task_parallel", str(DelegateParallel.__doc__), many, effects=True, repeatable=False),
        ToolSpec("Task", str(LaunchTask.__doc__), launch, effects=True, repeatable=False),
    ]
    part = record_schema(LaunchSubtask)
    return specs + [ToolSpec(f"create_subtask_{name}", f"{LaunchSubtask.__doc__} {agents[name]}", part, True, False) for name in agents]
