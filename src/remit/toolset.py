"""Delegation for agents that are built with pydantic-ai: `Agent("…", toolsets=[DelegationToolset(remit)])`."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Protocol, cast

try:
    from pydantic_ai import ModelRetry, RunContext, ToolDefinition, ToolFailed, ToolReturn
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.tools import AgentDepsT
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
    from pydantic_core import SchemaValidator, core_schema
except ImportError as missing:
    raise ImportError("remit.toolset needs pydantic-ai: pip install 'remit[providers]'") from missing

from remit.catalog import OPERATIONS
from remit.domain.delegation import TaskOutput, Work
from remit.domain.envelope import passage
from remit.domain.record import fields
from remit.domain.shape import parse
from remit.domain.tool import ToolSpec
from remit.domain.wire import dumps
from remit.errors import Forbidden, InvalidParam, RemitError, invalid
from remit.surfaces.agent_tools import delegation_specs, spec_of

Result = dict[str, Any]

DELEGATING = ("task", "task_parallel")
CHANGING = ("send_message", "update_task", "cancel_task")
TOOLS = (*DELEGATING, "task_output", *CHANGING)
"""What a model is offered unless told otherwise: to hand out work, and to look after what it handed out."""
READING = tuple(name for name, operation in OPERATIONS.items() if operation.effect == "read" and name not in TOOLS)
"""What can be offered beside."""
RETRIES = 3
_OBJECT = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))


class Operations(Protocol):
    """Where operations are methods: an open `Remit`, or a `RemitClient`."""

    def __getattr__(self, name: str, /) -> Callable[..., Awaitable[Result]]: ...


class DelegationToolset(AbstractToolset[AgentDepsT]):
    """Lets a pydantic-ai agent hand work to remit's agents, wait for it, change it and call it off.

    `remit` is an open `Remit`, or a function of the run's context that gives one (for agents that are made before it is open).
    `tools` are names of `TOOLS` and `READING`. Work belongs to `session_id`, or else to the conversation: a model changes only what
    was handed out there. `agent` does what nobody else is named for.

    A call that is made again, because the process that made it died and another goes on with the conversation, finds the work it had
    begun. Canceling a run ends its waits, not the work.
    """

    def __init__(
        self,
        remit: Operations | Callable[[RunContext[AgentDepsT]], Operations],
        *,
        tools: Sequence[str] = TOOLS,
        session_id: str | None = None,
        agent: str = "general",
        id: str = "remit",  # noqa: A002 - as all toolsets call it
    ) -> None:
        if unknown := [name for name in tools if name not in (*TOOLS, *READING)]:
            raise invalid("tools", f"has {unknown[0]!r}, which a model cannot be given here", f"some of {', '.join((*TOOLS, *READING))}")
        self._remit, self._tools, self._session_id, self._agent, self._id = remit, tuple(tools), session_id, agent, id

    @property
    def id(self) -> str:
        """What tells this toolset from others of the same agent."""
        return self._id

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """The tools as a model is shown them: remit's own names, words and schemas, and whom there is to do the work."""
        agents = {agent["id"]: agent["description"] for agent in (await self._open(ctx).list_agents())["agents"] if not agent["hidden"]}
        if self._agent not in agents:
            raise invalid("agent", f"is {self._agent!r}", f"one of {', '.join(sorted(agents))}")
        handing = {spec.name: spec for spec in delegation_specs(agents, self._agent)}
        return {name: self._tool(handing[name] if name in handing else spec_of(OPERATIONS[name])) for name in self._tools}

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]) -> ToolReturn[Any]:
        """Carry out a call; what is refused is told to the model, and how a sub-agent ended is a result, whatever it was."""
        remit = self._open(ctx)
        sent = _given(tool_args)
        try:
            _must_be_known(name, sent, tool.tool_def)
            if name in CHANGING and "task_id" in sent:
                await _must_be_theirs(remit, sent["task_id"], self._session(ctx))
            # What is read on from an offset may lie behind the result, in what was handed over: it is counted here.
            offset = parse(TaskOutput, sent).offset if name == "task_output" else 0
            asked = {**sent, "offset": 0} if offset else sent
            result = await getattr(remit, name)(**(self._work(name, sent, ctx) if name in DELEGATING else asked))
        except InvalidParam as wrong:
            # A model that does not get it right is told so for the last time: it must not end the whole run of its agent.
            raise (ToolFailed if ctx.last_attempt else ModelRetry)(str(wrong)) from wrong
        except RemitError as refused:
            raise ToolFailed(dumps(refused.wire())) from refused
        return ToolReturn(self._told(name, result, offset), metadata=result)

    def _open(self, ctx: RunContext[AgentDepsT]) -> Operations:
        return self._remit(ctx) if callable(self._remit) else self._remit

    def _session(self, ctx: RunContext[AgentDepsT]) -> str:
        found = self._session_id or ctx.conversation_id
        assert found, "a run of an agent has a conversation"
        return found

    def _tool(self, spec: ToolSpec) -> ToolsetTool[AgentDepsT]:
        definition = ToolDefinition(name=spec.name, description=spec.description, parameters_json_schema=spec.parameters)
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=RETRIES, args_validator=_OBJECT)

    def _work(self, name: str, sent: Result, ctx: RunContext[AgentDepsT]) -> Result:
        """A delegation with what is not the model's to say: whose work it is, and the key by which it is found again."""
        key = _key(sent, ctx)
        if name == "task":
            return self._ours(sent, key, ctx)
        items: list[Any] = sent["tasks"] if isinstance(sent.get("tasks"), list) else []
        works = [{"objective": item} if isinstance(item, str) else item for item in items]
        ours = [self._ours(cast("Any", work), f"{key}#{place}", ctx) if isinstance(work, dict) else work for place, work in enumerate(works)]
        return sent | ({"tasks": ours} if ours else {})

    def _told(self, name: str, result: Result, offset: int) -> Any:
        """What the model reads: of delegations their words, of all else the data."""
        if name == "task_parallel":
            return "\n\n".join(f"[{place}] {self._words(one)}" for place, one in enumerate(result["results"]))
        return self._words(result, offset) if name in ("task", "task_output") and "data" in result else result

    def _words(self, one: Result, offset: int = 0) -> str:
        data = one["data"]
        if data["task_id"] is None:
            return f"This one was not taken on. {one['text']}"
        head = one["text"].partition("\n\n")[0]
        part = passage(data["result"], data.get("outputs"), data["task_id"], offset, read_on="task_output" in self._tools)
        return f"Task {data['task_id']}. {head}\n\n{part}".strip()

    def _ours(self, work: Result, key: str, ctx: RunContext[AgentDepsT]) -> Result:
        ours = {"session_id": self._session(ctx), "idempotency_key": key, "format": "envelope"}
        return {"subagent_type": self._agent, **_given(work), **ours}


def _given(sent: Mapping[str, Any]) -> Result:
    """What was said: models often send null for what they leave out."""
    return {name: value for name, value in sent.items() if value is not None}


def _must_be_known(name: str, sent: Result, offered: ToolDefinition) -> None:
    """Refuse fields that are not the model's to set; of a piece of work it may send all, also those it is not told of."""
    known = dict.fromkeys((*(fields(Work) if name == "task" else ()), *offered.parameters_json_schema["properties"]))
    if unknown := [name for name in sent if name not in known]:
        raise invalid(unknown[0], "is not a field here", f"one of {', '.join(known)}")


async def _must_be_theirs(remit: Operations, task_id: Any, session: str) -> None:
    task = await remit.get_task(task_id=task_id)
    root = task if task["root_id"] == task["id"] else await remit.get_task(task_id=task["root_id"])
    if root["parent_session_id"] != session:
        raise Forbidden(f"Task {task['id']} was not handed out in this conversation.", hint="You can change what you handed out yourself.")


def _key(sent: Result, ctx: RunContext[Any]) -> str:
    """The same for the same call of the same answer in the same conversation; some providers number the calls of each answer anew."""
    answers = sum(isinstance(message, ModelResponse) for message in ctx.messages)
    return f"tool/{sha256(dumps([ctx.conversation_id, answers, ctx.tool_call_id, sent]).encode()).hexdigest()}"
