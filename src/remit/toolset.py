"""Delegation for pydantic-ai agents: `Agent("…", toolsets=[DelegationToolset(remit)])`."""

import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, cast

try:
    from pydantic_ai import ModelRetry, RunContext, ToolDefinition, ToolFailed, ToolReturn
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.tools import AgentDepsT
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
    from pydantic_core import SchemaValidator, core_schema
except ImportError as missing:
    raise ImportError(
        "remit.toolset needs pydantic-ai: pip install 'remit[providers]'"
    ) from missing

from remit.api.methods import Operations
from remit.catalog import OPERATIONS
from remit.domain.agents.tools import ToolSpec
from remit.domain.delegation.requests import TaskOutput, Work
from remit.domain.delegation.result_envelope import passage
from remit.domain.records.pick import beyond, omit_none
from remit.domain.records.record import fields
from remit.domain.records.serialize import dumps
from remit.domain.records.validate import parse
from remit.errors import Forbidden, InvalidParam, RemitError, invalid
from remit.surfaces.agent_tools import delegation_specs, spec_of

Result = dict[str, Any]

DELEGATING = ("task", "task_parallel")
CHANGING = ("send_message", "update_task", "cancel_task")
TOOLS = (*DELEGATING, "task_output", *CHANGING)
"""The default tools: delegate work, read its results and change it."""
READING = tuple(
    name
    for name, operation in OPERATIONS.items()
    if operation.effect == "read" and name not in TOOLS
)
"""Tools that can be offered in addition."""
RETRIES = 3
_OBJECT = SchemaValidator(
    core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema())
)


class DelegationToolset(AbstractToolset[AgentDepsT]):
    """Lets a pydantic-ai agent delegate work to remit's agents, wait for it, change it and cancel
    it.

    `remit` is an open `Remit`, or a function of the run context that returns one (for agents that
    are created before it is open). `tools` are names from `TOOLS` and `READING`. Work belongs to
    `session_id`, or else to the conversation: a model can change only work that was delegated
    there. `agent` does work that names no agent.

    If the process dies and another continues the conversation, a repeated call finds the work that
    it started. Canceling a run ends its waits, not the work.
    """

    def __init__(
        self,
        remit: Operations | Callable[[RunContext[AgentDepsT]], Operations],
        *,
        tools: Sequence[str] = TOOLS,
        session_id: str | None = None,
        agent: str = "general",
        id: str = "remit",  # noqa: A002 - the name in all toolsets
    ) -> None:
        if unknown := beyond(tools, (*TOOLS, *READING)):
            raise invalid(
                "tools",
                f"{unknown[0]!r} cannot be offered to a model",
                f"some of {', '.join((*TOOLS, *READING))}",
            )
        self._remit, self._tools = remit, tuple(tools)
        self._session_id, self._agent, self._id = session_id, agent, id

    @property
    def id(self) -> str:
        """The id that distinguishes this toolset from the agent's others."""
        return self._id

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """Return the tools with remit's names, descriptions and schemas, and the available
        agents.
        """
        listed = (await self._open(ctx).call("list_agents"))["agents"]
        agents = {item["id"]: item["description"] for item in listed if not item["hidden"]}
        if self._agent not in agents:
            raise invalid("agent", f"is {self._agent!r}", f"one of {', '.join(sorted(agents))}")
        specs = {spec.name: spec for spec in delegation_specs(agents, self._agent)}
        tools: dict[str, ToolsetTool[AgentDepsT]] = {}
        for name in self._tools:
            spec = specs.get(name) or spec_of(OPERATIONS[name])
            tools[name] = self._tool(spec)
        return tools

    async def call_tool(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[AgentDepsT],
        tool: ToolsetTool[AgentDepsT],
    ) -> ToolReturn[Any]:
        """Make a call. A refusal is reported to the model; the end of a sub-agent is a result,
        however it ended.
        """
        remit = self._open(ctx)
        sent = omit_none(tool_args)
        try:
            _check_fields(name, sent, tool.tool_def)
            if name in CHANGING and "task_id" in sent:
                await _check_session(remit, sent["task_id"], self._session(ctx))
            offset = _offset_of(name, sent)
            result = await remit.call(name, **self._fields(name, sent, offset, ctx))
        except InvalidParam as wrong:
            # After the last retry the model gets the error as a result: it must not end the whole
            # agent run.
            problem = ToolFailed if ctx.last_attempt else ModelRetry
            raise problem(str(wrong)) from wrong
        except RemitError as refused:
            raise ToolFailed(self._refusal(refused)) from refused
        return ToolReturn(self._render(name, result, offset), metadata=result)

    def _fields(self, name: str, sent: Result, offset: int, ctx: RunContext[AgentDepsT]) -> Result:
        """Return the fields of a call to remit; `_render` applies the offset to its result."""
        if name in DELEGATING:
            return self._work(name, sent, ctx)
        if offset:
            return {**sent, "offset": 0}
        return sent

    def _refusal(self, refused: RemitError) -> str:
        """Return why a call was refused, naming only tools that the model is offered."""
        first, *others = re.split(r"(?<=[.!?]) ", str(refused))
        unoffered = {name for name in OPERATIONS if "_" in name and name not in self._tools}
        kept = [text for text in others if not unoffered & set(re.findall(r"\w+", text))]
        return " ".join([f"{refused.code}: {first}", *kept])

    def _open(self, ctx: RunContext[AgentDepsT]) -> Operations:
        """Return the open `Remit` of a run."""
        if callable(self._remit):
            return self._remit(ctx)
        return self._remit

    def _session(self, ctx: RunContext[AgentDepsT]) -> str:
        """Return the session that the work of a run belongs to."""
        found = self._session_id or ctx.conversation_id
        assert found, "a run of an agent has a conversation"
        return found

    def _tool(self, spec: ToolSpec) -> ToolsetTool[AgentDepsT]:
        """Return an operation as a tool of pydantic-ai."""
        definition = ToolDefinition(
            name=spec.name, description=spec.description, parameters_json_schema=spec.parameters
        )
        return ToolsetTool(
            toolset=self, tool_def=definition, max_retries=RETRIES, args_validator=_OBJECT
        )

    def _work(self, name: str, sent: Result, ctx: RunContext[AgentDepsT]) -> Result:
        """Add what the model does not choose: the session, and the idempotency key of the call."""
        key = _key(sent, ctx, self._session_id)
        if name == "task":
            return self._with_session(sent, key, ctx)
        if not isinstance(sent.get("tasks"), list):
            return sent
        items: enumerate[Any] = enumerate(sent["tasks"])
        return sent | {"tasks": [self._item(item, f"{key}#{place}", ctx) for place, item in items]}

    def _item(self, item: Any, key: str, ctx: RunContext[AgentDepsT]) -> Any:
        """Return one of several tasks; an item that is neither text nor an object is
        refused later.
        """
        if isinstance(item, str):
            return self._with_session({"objective": item}, key, ctx)
        if isinstance(item, dict):
            return self._with_session(cast("Result", item), key, ctx)
        return item

    def _render(self, name: str, result: Result, offset: int) -> Any:
        """Return what the model reads: text for delegations, data for everything else."""
        if name == "task_parallel":
            results = enumerate(result["results"])
            return "\n\n".join(f"[{place}] {self._text(one)}" for place, one in results)
        if name in ("task", "task_output") and "data" in result:
            return self._text(result, offset)
        return result

    def _text(self, one: Result, offset: int = 0) -> str:
        """Return the result of one delegation as the model reads it."""
        data = one["data"]
        if data["task_id"] is None:
            return f"This task was not accepted. {one['text']}"
        head = one["text"].partition("\n\n")[0]
        part = passage(
            data["result"],
            data.get("outputs"),
            data["task_id"],
            offset,
            read_on="task_output" in self._tools,
        )
        return f"Task {data['task_id']}. {head}\n\n{part}".strip()

    def _with_session(self, work: Result, key: str, ctx: RunContext[AgentDepsT]) -> Result:
        """Return work with what the model does not choose."""
        ours = {"session_id": self._session(ctx), "idempotency_key": key, "format": "envelope"}
        return {"subagent_type": self._agent, **omit_none(work), **ours}


def _offset_of(name: str, sent: Result) -> int:
    """Return where the model continues to read a result.

    The offset may point past the result into the outputs, so it is not left to the operation.
    """
    if name != "task_output":
        return 0
    return parse(TaskOutput, sent).offset


def _check_fields(name: str, sent: Result, offered: ToolDefinition) -> None:
    """Refuse fields that the model may not set.

    For a task it may send every field, including those not in its schema.
    """
    known = dict.fromkeys(offered.parameters_json_schema["properties"])
    if name == "task":
        known = dict.fromkeys((*fields(Work), *known))
    for field in sent:
        if field not in known:
            raise invalid(field, "is not a field here", f"one of {', '.join(known)}")


async def _check_session(remit: Operations, task_id: Any, session: str) -> None:
    """Refuse a change of a task that was not delegated in this conversation."""
    task = await remit.call("get_task", task_id=task_id)
    root = task
    if task["root_id"] != task["id"]:
        root = await remit.call("get_task", task_id=task["root_id"])
    if root["parent_session_id"] != session:
        raise Forbidden(
            f"Task {task['id']} was not delegated in this conversation.",
            hint="You can only change tasks that you delegated yourself.",
        )


def _key(sent: Result, ctx: RunContext[Any], session_id: str | None) -> str:
    """Return the same key for the same tool call of the same response.

    Some providers number the calls of each response from the start, so the conversation and the
    position of the response count too. A session may have several conversations, so there the time
    of the response counts.
    """
    answers = [message for message in ctx.messages if isinstance(message, ModelResponse)]
    time = str(answers[-1].timestamp) if answers else ""
    place = ctx.conversation_id if session_id is None else [session_id, time]
    known = [place, len(answers), ctx.tool_call_id, sent]
    return f"tool/{sha256(dumps(known).encode()).hexdigest()}"
