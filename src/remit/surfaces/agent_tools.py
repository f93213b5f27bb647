"""The operations of the catalog as tools of a running agent."""

from collections.abc import Mapping, Sequence
from typing import Any

from remit.app.subagents.answers import ASKED
from remit.catalog import (
    OPERATIONS,
    AppContext,
    Caller,
    Operation,
    call,
    lean_answer,
    lean_fields,
    lean_input,
    lean_read,
)
from remit.domain.agents.tools import TodoWrite, ToolOutcome, ToolSpec
from remit.domain.delegation.requests import (
    DelegateParallel,
    DelegateTask,
    LaunchSubtask,
    LaunchTask,
    TaskOutput,
)
from remit.domain.delegation.result_envelope import lean_envelope, result_part
from remit.domain.prompts.offered_tools import (
    LONGEST_TOOL,
    MOST_AGENTS,
    describe_agents,
    reads_reports,
    subtask_tool,
)
from remit.domain.prompts.todo_plan import plan_of, without_unknown_fields
from remit.domain.records.json_schema import Schema, model_schema
from remit.domain.records.record import replace, summary
from remit.domain.records.serialize import dumps, plain
from remit.domain.records.validate import error_for_model, parse
from remit.domain.task.commands import CreateTask
from remit.domain.task.policy import must_name_known_tool, with_tool_list
from remit.domain.task.task import Task
from remit.domain.text.truncation import beginning, written_out
from remit.errors import (
    Forbidden,
    InvalidParam,
    RemitError,
    StaleRun,
    Unacknowledged,
    Unavailable,
    invalid,
)

OWN_BY_DEFAULT = ("update_steps", "update_step", "complete_task", "mark_task_complete")
"""Operations that act on the agent's own task unless another task is named."""
OWN_PARENT = "create_subtask"
"""The operation whose parent is the agent's own task unless another task is named."""
WAIT = (
    "wake (default): continue or end your turn; you are called again when it ends. block: wait for"
    " the result. none: neither."
)
"""How an agent can wait for a subtask."""
OWN_ALONE = ("ask_user", "notify_user")
"""Operations that act only on the agent's own task."""
ALWAYS = ("get_task", "task_output", "get_guide", *OWN_BY_DEFAULT, *OWN_ALONE)
FOR_CHILDREN = (
    "send_message",
    "update_task",
    "cancel_task",
    "create_subtask",
    "list_agents",
)
NOT_FOR_AGENTS = (
    "task",
    "task_parallel",
    "Task",
    "cancel_all",
    "pre_request",
    "respond",
    "waive_criterion",
)
FOR_TASKS = tuple(name for name in OPERATIONS if name not in NOT_FOR_AGENTS)
"""Operations of agents with the `tasks` capability."""
HIDDEN = frozenset(
    {"call_id", "channel", "format", "idempotency_key", "parent_session", "session_id"}
)
"""Fields that mean nothing to a running agent."""
RARE_FIELDS: Mapping[str, frozenset[str]] = {
    "create_task": frozenset({"completion", "metadata"}),
    "create_subtask": frozenset(
        {"completion", "labels", "metadata", "schedule", "status", "steps", "tsgs"}
    ),
    "update_task": frozenset({"expected_version", "metadata"}),
    "task": frozenset({"limits"}),
}
"""Fields that a running agent may send but does not see."""
IN_LISTS = ("objective", "context", "model")
"""The fields of `task` that task_parallel shows besides the agent; it accepts all."""


class CatalogTools:
    """Operations as tools."""

    def __init__(self, core: AppContext) -> None:
        self._core = core

    @property
    def folder(self) -> str:
        """The workspace that relative paths belong to."""
        return self._core.folder

    def usable(self, agent: Any, granted: frozenset[str]) -> list[ToolSpec]:
        """Return the tools of an agent: those for its own task, for other tasks with the `tasks`
        capability, and for delegation if `Task` is granted.
        """
        has_tasks, has_delegation = "tasks" in agent.capabilities, "Task" in granted
        names = dict.fromkeys(ALWAYS)
        if has_tasks:
            names |= dict.fromkeys(FOR_TASKS)
        has_others = has_tasks or has_delegation
        specs = [spec_of(OPERATIONS[name], has_others=has_others) for name in names]
        if "TodoWrite" in granted:
            specs.append(TODO_WRITE)
        if not has_delegation:
            return specs
        specs += [spec_of(OPERATIONS[name]) for name in FOR_CHILDREN if name not in names]
        agents = self._core.agents.spawnable(agent)
        if agents:
            specs += delegation_specs(agents, _default_agent(agents), cache=True)
        return specs

    async def call(
        self, name: str, arguments: Mapping[str, Any], handle: Any, beside: Sequence[Any] = ()
    ) -> ToolOutcome:
        """Run a tool in a run.

        Refusals are reported to the model, except those that end the run.
        """
        caller = Caller(
            actor=handle.actor,
            run_id=handle.run_id,
            held=handle.held,
            beside=tuple(beside),
        )
        try:
            return ToolOutcome(await self._call(name, arguments, handle, caller))
        except (StaleRun, Unavailable, Unacknowledged):
            raise
        except RemitError as refused:
            told = self.refusal(name, refused, handle)
            return ToolOutcome(told, is_error=True, denied=isinstance(refused, Forbidden))

    async def _call(
        self, name: str, arguments: Mapping[str, Any], handle: Any, caller: Caller
    ) -> str:
        """Run an operation; return its answer as text for the model."""
        if name == "TodoWrite":
            name, arguments = "update_steps", plan_arguments(arguments, handle.task)
        arguments = with_own_task(name, arguments, handle.task.id)
        self._must_be_spawnable(name, arguments, handle)
        if name == "task_output":
            return await self._output(arguments, caller)
        if name == "create_task":
            return await self._create_task(arguments, handle, caller)
        operation = OPERATIONS[name]
        answer = await call(self._core, name, lean_fields(operation, arguments), caller)
        told = dumps(short_answer(operation, arguments, answer))
        return cut(told, self._instead(name, arguments, handle.task))

    def _instead(self, name: str, arguments: Mapping[str, Any], task: Task) -> str:
        """Return what to call if an answer is too long: task_output if the agent is shown it."""
        if name != "get_task":
            return "Ask for less."
        delegates = "Task" in self._core.agents.grant(task.owner or "", task.tools)
        if not delegates and not reads_reports(task):
            return "get_task does not return more of it."
        call = written_out("task_output", task_id=arguments.get("task_id"))
        return f"{call} returns the result in parts."

    async def _create_task(self, arguments: Mapping[str, Any], handle: Any, caller: Caller) -> str:
        """Create a task that is not a subtask; report the tools that it did not get."""
        given = self._within(arguments, handle)
        answer = await call(self._core, "create_task", given, caller)
        short = short_answer(OPERATIONS["create_task"], given, answer)
        told = dumps({**short, **await self._not_granted(short, arguments, handle.task)})
        return cut(told, "Ask for less.")

    def refusal(self, name: str, refused: RemitError, handle: Any) -> str:
        """Return why a call was refused; names only fields that the model was shown."""
        if refused.for_agent:
            return refused.for_agent
        if not isinstance(refused, InvalidParam):
            return str(refused)
        task = handle.task
        agent = self._core.agents.get(task.owner)
        if agent is None:
            return str(refused)
        granted = frozenset(self._core.agents.grant(agent.id, task.tools))
        shown = {spec.name: spec.parameters["properties"] for spec in self.usable(agent, granted)}
        if name not in shown:
            return str(refused)
        return error_for_model(refused, name, shown[name])

    async def _output(self, arguments: Mapping[str, Any], caller: Caller) -> str:
        """Return the part of a result that fits into a conversation."""
        offset = parse(TaskOutput, arguments).offset
        answer = await call(self._core, "task_output", {**arguments, "offset": 0}, caller)
        found = result_part(answer, offset)
        if not arguments.get("format"):
            found = lean_envelope(found, asked=ASKED)
        return dumps(found)

    def _must_be_spawnable(self, name: str, arguments: Mapping[str, Any], handle: Any) -> None:
        """Refuse to give a new or existing task to an agent that this agent cannot delegate to."""
        agent = self._core.agents.get(handle.task.owner)
        if agent is None or agent.spawnable is None or not _names_worker(name, arguments):
            return
        found = self._core.agents.find(str(arguments.get("owner")))
        allowed = {*agent.spawnable}
        if name == "create_task":
            allowed.add(agent.id)
        if found is None or found.id not in allowed:
            raise invalid(
                "owner",
                f"is {arguments.get('owner')!r}, which this agent cannot delegate to",
                f"one of {', '.join(agent.spawnable)}",
            )

    async def _not_granted(
        self, answer: Mapping[str, Any], arguments: Mapping[str, Any], own: Task
    ) -> dict[str, str]:
        """Return a notice about requested tools that a new task did not get."""
        made = await self._core.service.load(answer["task_id"])
        asked = parse(CreateTask, dict(arguments)).tools
        told = self._core.agents.not_granted(made, asked, "your own task", own)
        return {"notice": told} if told else {}

    def _within(self, arguments: Mapping[str, Any], handle: Any) -> dict[str, Any]:
        """Limit the tools of a created task to the tools of the agent that creates it."""
        asked = parse(CreateTask, dict(arguments))
        owner = self._core.agents.find(asked.owner or handle.task.owner)
        mine = self._core.agents.grant(handle.task.owner, handle.task.tools)
        must_name_known_tool(asked.tools, self._core.agents.tool_names(), mine)
        theirs: tuple[str, ...] = ()
        if owner:
            theirs = tuple(self._core.agents.grant(owner.id, asked.tools))
        grant = with_tool_list(asked.tools, tuple(tool for tool in theirs if tool in mine))
        return {**arguments, "tools": plain(replace(grant, deny=(), offer=None))}


def _default_agent(agents: Mapping[str, str]) -> str | None:
    """Return the default agent of a call: the only one, or `general`."""
    if len(agents) == 1:
        return next(iter(agents))
    return "general" if "general" in agents else None


def _names_worker(name: str, arguments: Mapping[str, Any]) -> bool:
    """Return True if a call gives work to an agent."""
    if name in ("create_task", "update_task"):
        return bool(arguments.get("owner"))
    return name == "create_subtask"


TODO_WRITE = ToolSpec(
    "TodoWrite",
    summary(TodoWrite),
    model_schema(TodoWrite),
    effects=True,
    repeatable=True,
)
"""The plan of the agent's own task, as in other programs."""


def plan_arguments(arguments: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """Return the arguments of update_steps for a call of TodoWrite."""
    steps = plan_of(parse(TodoWrite, without_unknown_fields(arguments)).todos, task.steps)
    return {"steps": list(map(plain, steps))}


def short_answer(
    operation: Operation, fields: Mapping[str, Any], answer: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return an answer for a model: of a change, only what the model cannot know.

    The task block at the end of each request shows the agent's own task.
    """
    if operation.effect == "read":
        return lean_read(operation, answer)
    told = lean_answer(operation, fields, answer)
    if operation.name in OWN_BY_DEFAULT:
        told.pop("task", None)
    return told or {"success": True}


def cut(text: str, instead: str, limit: int = 200_000) -> str:
    """Return the part of an answer that fits into a conversation, and what to call instead."""
    kept = beginning(text, limit)
    if len(kept) == len(text):
        return text
    return f"{kept}\n[Cut after {len(kept):,} of {len(text):,} characters. {instead}]"


def with_own_task(name: str, arguments: Mapping[str, Any], own_id: str) -> dict[str, Any]:
    """Return the arguments of a call; the default task is the agent's own."""
    given = dict(arguments)
    if name in (*OWN_BY_DEFAULT, *OWN_ALONE, OWN_PARENT) and given.get("task_id") is None:
        given["task_id"] = own_id
    return given


def spec_of(operation: Operation, *, has_others: bool = False) -> ToolSpec:
    """Return an operation as a tool, without fields that a model may not set.

    An agent that can have other tasks (`has_others`) may name one instead of its own.
    """
    schema = lean_input(operation)
    hidden, optional = HIDDEN | RARE_FIELDS.get(operation.name, frozenset()), frozenset[str]()
    properties: dict[str, Any] = dict(schema["properties"])
    is_own_by_default = operation.name in OWN_BY_DEFAULT and has_others
    if is_own_by_default or operation.name == OWN_PARENT:
        optional = frozenset({"task_id"})
        properties["task_id"] |= {"description": "By default your own task."}
        if operation.name == OWN_PARENT:
            properties["wait"] |= {"description": WAIT}
    elif operation.name in (*OWN_BY_DEFAULT, *OWN_ALONE):
        hidden |= {"task_id"}
    kept = {name: value for name, value in properties.items() if name not in hidden}
    required = [name for name in schema.get("required", []) if name not in hidden | optional]
    parameters: Schema = {"type": "object", "properties": kept}
    if required:
        parameters["required"] = required
    return ToolSpec(
        operation.name,
        operation.description,
        parameters,
        operation.effect != "read",
        operation.idempotent,
    )


def delegation_specs(
    agents: Mapping[str, str], default: str | None, *, cache: bool = False
) -> list[ToolSpec]:
    """Return the delegation tools for these agents and their descriptions.

    `default` is the agent of a call that names none. With `cache`, earlier results can be reused,
    because these calls have no idempotency key.
    """
    choice: Schema = {"type": "string"}
    if len(agents) <= MOST_AGENTS:
        choice["enum"] = list(agents)
    required = ["objective"] if default else ["objective", "subagent_type"]
    fields = _delegation_fields(cache=cache)
    return [
        _one_task_spec(fields, choice, required, agents, default),
        _parallel_spec(fields, choice, required),
        _launch_spec(choice),
        *_subtask_specs(agents),
    ]


def _delegation_fields(*, cache: bool) -> dict[str, Any]:
    """Return the fields of `task` that a model sees."""
    hidden = HIDDEN | RARE_FIELDS["task"]
    if not cache:
        hidden |= {"cache"}
    properties = model_schema(DelegateTask)["properties"]
    return {name: part for name, part in properties.items() if name not in hidden}


def _one_task_spec(
    fields: Mapping[str, Any],
    choice: Schema,
    required: list[str],
    agents: Mapping[str, str],
    default: str | None,
) -> ToolSpec:
    """Return the tool that delegates one task."""
    meant = dict(choice)
    if default:
        meant["default"] = default
    parameters: Schema = {
        "type": "object",
        "properties": {**fields, "subagent_type": meant},
        "required": required,
    }
    when = f"{summary(DelegateTask)} Agents:\n"
    described = f"{when}{describe_agents(agents, LONGEST_TOOL - len(when))}"
    return ToolSpec("task", described, parameters, effects=True, repeatable=False)


def _parallel_spec(fields: Mapping[str, Any], choice: Schema, required: list[str]) -> ToolSpec:
    """Return the tool that delegates several tasks at once."""
    brief = {name: _without_description(fields[name]) for name in IN_LISTS} | {
        "subagent_type": choice
    }
    items: Schema = {"type": "object", "properties": brief, "required": required}
    several = model_schema(DelegateParallel)["properties"]
    properties = {
        "tasks": several["tasks"] | {"items": items},
        "timeout_seconds": several["timeout_seconds"],
    }
    return ToolSpec(
        "task_parallel",
        summary(DelegateParallel),
        {"type": "object", "properties": properties, "required": ["tasks"]},
        effects=True,
        repeatable=False,
    )


def _launch_spec(choice: Schema) -> ToolSpec:
    """Return the `Task` tool that other programs know."""
    schema = model_schema(LaunchTask)
    parameters = schema | {"properties": schema["properties"] | {"subagent_type": choice}}
    return ToolSpec("Task", summary(LaunchTask), parameters, effects=True, repeatable=False)


def _subtask_specs(agents: Mapping[str, str]) -> list[ToolSpec]:
    """Return a tool for each agent whose id is a valid tool name."""
    schema = model_schema(LaunchSubtask)
    references = schema["properties"]["artifactRefs"] | {"items": {"type": "string"}}
    parameters = schema | {"properties": schema["properties"] | {"artifactRefs": references}}
    named = {tool: name for name in agents if (tool := subtask_tool(name))}
    text = summary(LaunchSubtask)
    return [
        ToolSpec(tool, text.replace("one agent", name), parameters, effects=True, repeatable=False)
        for tool, name in named.items()
    ]


def _without_description(schema: Schema) -> Schema:
    """Return a field without its description, which is elsewhere in the same request."""
    return {name: part for name, part in schema.items() if name not in ("description", "default")}
