"""The catalogue as a running agent sees it: what it may ask of remit itself, under the fence of its run."""

from collections.abc import Mapping, Sequence
from typing import Any

from remit.app.agents import BUILT_IN
from remit.catalog import (
    OPERATIONS,
    Caller,
    Core,
    Operation,
    call,
    lean_answer,
    lean_input,
    lean_read,
)
from remit.domain.command import CreateTask
from remit.domain.delegation import (
    DelegateParallel,
    DelegateTask,
    LaunchSubtask,
    LaunchTask,
    TaskOutput,
)
from remit.domain.envelope import in_part, lean
from remit.domain.offer import MOST_AGENTS, roster, subtask_tool
from remit.domain.policy import listed
from remit.domain.record import replace
from remit.domain.schema import Schema, model_schema
from remit.domain.shape import parse, told_fields
from remit.domain.todos import plan_of
from remit.domain.tool import TodoWrite, ToolOutcome, ToolSpec
from remit.domain.value import Task
from remit.domain.wire import dumps, plain
from remit.errors import Forbidden, InvalidParam, RemitError, StaleRun, Unacknowledged, Unavailable, invalid

OWN_BY_DEFAULT = ("update_steps", "update_step", "complete_task", "mark_task_complete")
"""Operations that act on the agent's own task unless another task is named."""
OWN_ALONE = ("ask_user", "notify_user")
"""Operations that act on the agent's own task alone."""
ALWAYS = ("get_task", "get_guide", *OWN_BY_DEFAULT, *OWN_ALONE)
FOR_CHILDREN = (
    "task_output",
    "send_message",
    "update_task",
    "cancel_task",
    "create_subtask",
    "list_agents",
)
NOT_FOR_AGENTS = ("task", "task_parallel", "Task", "cancel_all", "pre_request", "respond", "waive_criterion")
HIDDEN = frozenset({"call_id", "channel", "format", "idempotency_key", "parent_session", "session_id"})
"""Fields that mean nothing to a running agent."""
SELDOM: Mapping[str, frozenset[str]] = {
    "create_task": frozenset({"completion", "metadata"}),
    "create_subtask": frozenset({"completion", "labels", "metadata", "schedule", "status", "steps", "tsgs"}),
    "update_task": frozenset({"expected_version", "metadata"}),
    "task": frozenset({"limits"}),
}
"""Fields that a running agent may send and is not told of."""
IN_LISTS = ("objective", "context", "model")
"""What is shown of the fields of `task` in those of task_parallel, which takes all of them; with the agent."""


class CatalogTools:
    """Operations as tools."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @property
    def folder(self) -> str:
        """The workspace that relative paths belong to."""
        return self._core.folder

    def usable(self, agent: Any, granted: frozenset[str]) -> list[ToolSpec]:
        """What an agent can call: its own task always, others' with the `tasks` capability, delegation where `Task` is granted."""
        names = dict.fromkeys(ALWAYS)
        if "tasks" in agent.capabilities:
            names |= dict.fromkeys(name for name in OPERATIONS if name not in NOT_FOR_AGENTS)
        has_others = "tasks" in agent.capabilities or "Task" in granted
        specs = [spec_of(OPERATIONS[name], has_others=has_others) for name in names]
        specs += [TODO_WRITE] if "TodoWrite" in granted else []
        if "Task" not in granted:
            return specs
        specs += [spec_of(OPERATIONS[name]) for name in FOR_CHILDREN if name not in names]
        named = self._spawnable(agent)
        default = next(iter(named)) if len(named) == 1 else "general"
        return specs + (delegation_specs(named, default if default in named else None, cache=True) if named else [])

    def _spawnable(self, agent: Any) -> dict[str, str]:
        """The agents that an agent can give work to, with what each is good for: those first that it names, or else the
        built-in ones."""
        found = {other.id: other.description for other in self._core.agents.all() if not other.hidden}
        if agent.spawnable is not None:
            return {name: found[name] for name in agent.spawnable if name in found}
        built_in = [other.id for other in BUILT_IN if other.id in found]
        return {name: found[name] for name in (*built_in, *(name for name in found if name not in built_in))}

    async def call(self, name: str, arguments: Mapping[str, Any], activation: Any, beside: Sequence[Any] = ()) -> ToolOutcome:
        """Carry one out as a run; what is refused is told to the model, but for what ends the run."""
        caller = Caller(actor=activation.actor, run_id=activation.run_id, held=activation.held, beside=tuple(beside))
        tool = name
        try:
            if name == "TodoWrite":
                name, arguments = "update_steps", plan_arguments(arguments, activation.task)
            arguments = with_own_task(name, arguments, activation.task.id)
            self._must_be_spawnable(name, arguments, activation)
            if name == "task_output":
                return ToolOutcome(await self._output(arguments, caller))
            given = self._within(arguments, activation) if name == "create_task" else arguments
            answer = short_answer(OPERATIONS[name], given, await call(self._core, name, given, caller))
            if name == "create_task":
                answer = {**answer, **await self._not_granted(answer, arguments)}
            told = dumps(answer)
            return ToolOutcome(cut(told, self._instead(name, arguments, activation)))
        except (StaleRun, Unavailable, Unacknowledged):
            raise
        except RemitError as refused:
            told = self.refusal(tool, refused, activation)
            return ToolOutcome(told, is_error=True, denied=isinstance(refused, Forbidden))

    def refusal(self, name: str, refused: RemitError, activation: Any) -> str:
        """Why a call was refused, in words for the model, which names only fields that the model was shown."""
        if refused.for_agent or not isinstance(refused, InvalidParam):
            return refused.for_agent or str(refused)
        task = activation.task
        agent = self._core.agents.get(task.owner or "")
        granted = frozenset(self._core.agents.grant(task.owner or "", task.tools))
        specs = [] if agent is None else [spec for spec in self.usable(agent, granted) if spec.name == name]
        return told_fields(refused, specs[0].parameters["properties"]) if specs else str(refused)

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
        found = in_part(await call(self._core, "task_output", {**arguments, "offset": 0}, caller), offset)
        return dumps(found if arguments.get("format") else lean(found))

    def _must_be_spawnable(self, name: str, arguments: Mapping[str, Any], activation: Any) -> None:
        """Refuse work for an agent that this agent cannot give work to, whether it is new or handed over."""
        agent = self._core.agents.get(activation.task.owner or "")
        is_given = name == "create_subtask" or (name in ("create_task", "update_task") and bool(arguments.get("owner")))
        if is_given and agent is not None and agent.spawnable is not None:
            found = self._core.agents.find(str(arguments.get("owner")))
            is_itself = name == "create_task" and found is not None and found.id == agent.id
            if not is_itself and (found is None or found.id not in agent.spawnable):
                raise invalid("owner", f"is {arguments.get('owner')!r}, who cannot be given work here", f"one of {', '.join(agent.spawnable)}")

    async def _not_granted(self, answer: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, str]:
        """What a new task was to have and does not, because its maker does not have it or its agent never can."""
        made = await self._core.service.load(answer["task_id"])
        told = self._core.agents.not_granted(made, parse(CreateTask, dict(arguments)).tools, "your own task")
        return {"notice": told} if told else {}

    def _within(self, arguments: Mapping[str, Any], activation: Any) -> dict[str, Any]:
        """Limit the tools of a task that an agent creates beside its own to the tools of that agent."""
        asked = parse(CreateTask, dict(arguments))
        owner = self._core.agents.find(asked.owner or activation.task.owner)
        mine = self._core.agents.grant(activation.task.owner, activation.task.tools)
        theirs = self._core.agents.grant(owner.id, asked.tools) if owner else ()
        grant = listed(asked.tools, tuple(tool for tool in theirs if tool in mine))
        return {**arguments, "tools": plain(replace(grant, deny=(), offer=None))}


TODO_WRITE = ToolSpec(
    "TodoWrite",
    str(TodoWrite.__doc__),
    model_schema(TodoWrite),
    effects=True,
    repeatable=True,
)
"""The plan of the agent's own task, as users of other programs know it."""


def plan_arguments(arguments: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """A call of TodoWrite as a call of update_steps."""
    steps = plan_of(parse(TodoWrite, dict(arguments)).todos, task.steps)
    return {"steps": [plain(step) for step in steps]}


def short_answer(operation: Operation, fields: Mapping[str, Any], answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """An answer as a model reads it: of a change only that it was made and what the model cannot know, never the whole task.

    The task block at the end of each request shows the agent's own task as it is.
    """
    if operation.effect == "read":
        return lean_read(operation, answer)
    told = lean_answer(operation, fields, answer)
    if operation.name in OWN_BY_DEFAULT:
        told.pop("task", None)
    return told or {"success": True}


def cut(text: str, instead: str, limit: int = 200_000) -> str:
    """As much of an answer as fits into a conversation, and what to do instead."""
    return text if len(text) <= limit else f"{text[:limit]}\n[Cut at {limit // 1000} KB of {len(text) // 1000}: {instead}.]"


def with_own_task(name: str, arguments: Mapping[str, Any], own_id: str) -> dict[str, Any]:
    """The arguments of a call; an operation on the agent's own task means that one where none is named."""
    given = dict(arguments)
    if name in (*OWN_BY_DEFAULT, *OWN_ALONE) and given.get("task_id") is None:
        given["task_id"] = own_id
    return given


def spec_of(operation: Operation, *, has_others: bool = False) -> ToolSpec:
    """An operation as a tool of a model, without the fields that are not the model's to set.

    An agent that can have other tasks (`has_others`) may name one of them where its own is the default.
    """
    schema = lean_input(operation)
    hidden, optional = HIDDEN | SELDOM.get(operation.name, frozenset()), frozenset[str]()
    properties: dict[str, Any] = dict(schema["properties"])
    if operation.name in OWN_BY_DEFAULT and has_others:
        optional = frozenset({"task_id"})
        properties["task_id"] |= {"description": "By default your own task."}
    elif operation.name in (*OWN_BY_DEFAULT, *OWN_ALONE):
        hidden |= {"task_id"}
    kept = {name: value for name, value in properties.items() if name not in hidden}
    required = [name for name in schema.get("required", []) if name not in hidden | optional]
    parameters: Schema = {"type": "object", "properties": kept} | ({"required": required} if required else {})
    return ToolSpec(operation.name, operation.description, parameters, operation.effect != "read", operation.idempotent)


def delegation_specs(agents: Mapping[str, str], default: str | None, *, cache: bool = False) -> list[ToolSpec]:
    """The tools that hand out work, to agents that are given with what each is good for; one of them may be meant if none is named.

    Results from before are offered where a call has no idempotency key of its own.
    """
    single = model_schema(DelegateTask)
    choice: Schema = {"type": "string"} | ({"enum": list(agents)} if len(agents) <= MOST_AGENTS else {})
    meant = choice | ({"default": default} if default else {})
    left_out = HIDDEN | SELDOM["task"] | (frozenset[str]() if cache else {"cache"})
    fields = {name: part for name, part in single["properties"].items() if name not in left_out}
    required = ["objective"] if default else ["objective", "subagent_type"]
    one: Schema = {
        "type": "object",
        "properties": fields | {"subagent_type": meant},
        "required": required,
    }
    brief = {name: _untold(fields[name]) for name in IN_LISTS} | {"subagent_type": choice}
    several = model_schema(DelegateParallel)["properties"]
    items: Schema = {"type": "object", "properties": brief, "required": required}
    many = {
        "tasks": several["tasks"] | {"items": items},
        "timeout_seconds": several["timeout_seconds"],
    }
    launched = model_schema(LaunchTask)
    launch = launched | {"properties": launched["properties"] | {"subagent_type": choice}}
    specs = [
        ToolSpec(
            "task",
            f"{DelegateTask.__doc__} Agents:\n{roster(agents)}",
            one,
            effects=True,
            repeatable=False,
        ),
        ToolSpec(
            "task_parallel",
            str(DelegateParallel.__doc__),
            {"type": "object", "properties": many, "required": ["tasks"]},
            effects=True,
            repeatable=False,
        ),
        ToolSpec("Task", str(LaunchTask.__doc__), launch, effects=True, repeatable=False),
    ]
    launched_part = model_schema(LaunchSubtask)
    references = launched_part["properties"]["artifactRefs"] | {"items": {"type": "string"}}
    part = launched_part | {"properties": launched_part["properties"] | {"artifactRefs": references}}
    named = {tool: name for name in agents if (tool := subtask_tool(name))}
    text = str(LaunchSubtask.__doc__)
    return specs + [ToolSpec(tool, text.replace("one agent", name), part, effects=True, repeatable=False) for tool, name in named.items()]


def _untold(schema: Schema) -> Schema:
    """A field without a description: it is described elsewhere in the same request."""
    return {name: part for name, part in schema.items() if name not in ("description", "default")}
