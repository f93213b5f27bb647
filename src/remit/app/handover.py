"""What a running agent hands to others and then waits for: questions to people, and work for sub-agents."""

from collections.abc import Mapping, Sequence
from typing import Any

from remit.app.activation import Activation
from remit.app.agents import Agent, AgentRegistry
from remit.codec import opened, task_of
from remit.domain import brief
from remit.domain import command as cmd
from remit.domain import event as ev
from remit.domain.envelope import result_of, status_of
from remit.domain.message import ToolCall
from remit.domain.shape import parse
from remit.domain.tool import ToolOutcome
from remit.domain.value import Task
from remit.errors import RemitError, StaleRun, Unacknowledged, Unavailable, invalid
from remit.ports import EventStore

SUBTASK = "create_subtask_"
DELEGATING = ("task", "task_parallel", "Task")
Begun = tuple[str, ToolCall, ToolOutcome]


class Handover:
    """Begins what must be waited for, and finds out what came of it when the run goes on."""

    def __init__(self, store: EventStore, agents: AgentRegistry, activation: Activation, agent: Agent) -> None:
        self._store, self._agents, self._activation, self._agent = store, agents, activation, agent

    def waits(self, name: str) -> bool:
        """True for tools whose answer comes from somebody else."""
        return name == "ask_user" or name in DELEGATING or name.startswith(SUBTASK)

    async def begin(self, calls: Sequence[tuple[str, ToolCall]]) -> list[Begun]:
        """The calls that are answered already; the others are begun, if they were not, and waited for."""
        answered: list[Begun] = []
        fresh: list[tuple[str, ToolCall, list[cmd.CreateSubtask]]] = []
        asked = await self._asked() if any(call.name == "ask_user" for _, call in calls) else {}
        children = await self._children() if any(call.name != "ask_user" for _, call in calls) else {}
        for key, call in calls:
            if call.error:
                answered.append((key, call, _error(f"The arguments are no JSON object: {call.error}")))
            elif call.name == "ask_user":
                answered += await self._ask(key, call, asked)
            elif (found := self._found(key, call, children)) is not None:
                answered += [(key, call, found)] if isinstance(found, ToolOutcome) else []
            else:
                try:
                    fresh.append((key, call, self._subtasks(key, call)))
                except RemitError as refused:
                    answered.append((key, call, _error(str(refused))))
        return answered + await self._delegate(fresh)

    # Questions.

    async def _asked(self) -> dict[str, str | None]:
        """The questions of this task by the call that asked them, each with its answer if there is one."""
        rows = await self._store.select("events", {"stream": self._activation.task.id, "after": 0, "limit": 1_000_000})
        calls: dict[str, str] = {}
        answers: dict[str, str | None] = {}
        for row in rows:
            if row[3] not in ("UserInteractionRequested", "UserInteractionResponded"):
                continue
            event = opened(ev.Stored(*row[:8])).event
            if isinstance(event, ev.UserInteractionRequested) and event.call_id:
                calls[event.interaction_id] = event.call_id
                answers[event.call_id] = None
            elif isinstance(event, ev.UserInteractionResponded) and event.interaction_id in calls:
                answers[calls[event.interaction_id]] = event.answer
        return answers

    async def _ask(self, key: str, call: ToolCall, asked: Mapping[str, str | None]) -> list[Begun]:
        if key in asked:
            answer = asked[key]
            return [] if answer is None else [(key, call, ToolOutcome(f"The person answered: {answer}"))]
        try:
            blocking = bool(call.arguments.get("blocking", True))
            question = parse(cmd.AskUser, {**call.arguments, "task_id": self._activation.task.id, "call_id": key if blocking else None})
        except RemitError as refused:
            return [(key, call, _error(str(refused)))]
        outcome = await self._activation.do(question)
        if blocking and outcome.entries:
            return []
        return [(key, call, ToolOutcome("Asked. The answer comes as a message."))]

    # Work for others.

    async def _children(self) -> dict[str, Task]:
        """The subtasks that this conversation made, by the key they were made under."""
        ids = [int(child.id) for child in self._activation.task.children]
        rows = await self._store.select("tasks", {"ids": ids}) if ids else []
        tasks = [task_of(document) for _, _, document in rows]
        return {task.idempotency_key: task for task in tasks if task.idempotency_key}

    def _found(self, key: str, call: ToolCall, children: Mapping[str, Task]) -> ToolOutcome | str | None:
        """What came of a call that was begun before: its result, a word that it is still waited for, or nothing."""
        mine = [task for name, task in children.items() if name == key or name.startswith(f"{key}#")]
        if not mine:
            return None
        if not all(task.state.terminal for task in mine):
            return "waiting"
        return self._told(call, mine)

    def _told(self, call: ToolCall, children: Sequence[Task]) -> ToolOutcome:
        texts = [self._result(task) for task in children]
        if call.name.startswith(SUBTASK):
            return ToolOutcome(_subtask_result(children[0]))
        failed = len(children) == 1 and children[0].state.value != "done"
        return ToolOutcome("\n\n".join(texts), is_error=failed)

    def _result(self, task: Task) -> str:
        agent = self._agents.get(task.owner or "")
        tier = task.model or (agent.model if agent else "main")
        return f"Subagent ({task.owner}, {tier}) {status_of(task)}. Task {task.id}.\n\n{brief.cut(result_of(task), task.id)}"

    def _subtasks(self, key: str, call: ToolCall) -> list[cmd.CreateSubtask]:
        """What a delegation asks for, as subtasks of this task."""
        if call.name == "task_parallel":
            items = call.arguments.get("tasks")
            if not isinstance(items, list) or not items:
                raise invalid("tasks", "is no list of tasks", "a list of objects with an objective each")
            return [self._subtask(f"{key}#{index}", item, f"tasks[{index}].") for index, item in enumerate(items)]
        fields = dict(call.arguments)
        if call.name.startswith(SUBTASK):
            fields = {
                "objective": fields.get("intent") or fields.get("title"),
                "description": fields.get("title"),
                "subagent_type": call.name.removeprefix(SUBTASK),
                "priority": fields.get("priority", 2),
                "resources": fields.get("artifactRefs") or [],
            }
        return [self._subtask(key, fields, "")]

    def _subtask(self, key: str, item: Any, at: str) -> cmd.CreateSubtask:
        if not isinstance(item, Mapping):
            raise invalid(f"{at.rstrip('.')}", "is no object", "an object with an objective")
        return subtask({**item, "subagent_type": self._whom(item.get("subagent_type"), at)}, self._activation.task.id, key, at)

    def _whom(self, name: Any, at: str) -> str:
        """Who is meant, if this agent may give work to them."""
        may = self._agent.spawnable
        if name is None:
            return may[0] if may is not None and len(may) == 1 else "general"
        found = self._agents.find(str(name))
        known = sorted(self._agents.ids() if may is None else set(may) & self._agents.ids())
        if found is None or found.id not in known:
            raise invalid(f"{at}subagent_type", f"is {name!r}, who cannot be given work here", f"one of {', '.join(known)}")
        return found.id

    async def _delegate(self, fresh: Sequence[tuple[str, ToolCall, list[cmd.CreateSubtask]]]) -> list[Begun]:
        """Make all subtasks in one commit; if that is refused, one call after the other, so that one does not fail the others."""
        if not fresh:
            return []
        try:
            await self._make([subtask for _, _, subtasks in fresh for subtask in subtasks])
        except (StaleRun, Unavailable, Unacknowledged):
            raise
        except RemitError as refused:
            if len(fresh) == 1:
                return [(fresh[0][0], fresh[0][1], _error(str(refused)))]
            return [answer for one in fresh for answer in await self._delegate([one])]
        return []

    async def _make(self, subtasks: list[cmd.CreateSubtask]) -> None:
        await self._activation.do(cmd.Delegate(task_id=self._activation.task.id, subtasks=tuple(subtasks)))


def subtask(item: Mapping[str, Any], parent: str, key: str, at: str = "") -> cmd.CreateSubtask:
    """A delegation as a subtask of another task."""
    return parse(cmd.CreateSubtask, {**brief_of(item, at), "task_id": parent, "wait": "block", "idempotency_key": key})


FIELDS = ("model", "tools", "acceptance", "outputs", "priority", "depends_on", "resources")


def brief_of(item: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    """The fields of a task that a delegation asks for."""
    known = {"objective", "prompt", "description", "subagent_type", "context", "limits", "timeout_seconds", *FIELDS}
    if unknown := sorted(item.keys() - known):
        raise invalid(f"{at}{unknown[0]}", "is not a field here", f"one of {', '.join(sorted(known))}")
    objective = item.get("objective") or item.get("prompt")
    if not isinstance(objective, str) or not objective.strip():
        raise invalid(f"{at}objective", "is missing", "what the sub-agent has to do, as text")
    description = item.get("description")
    limits = dict(item.get("limits") or {})
    if item.get("timeout_seconds") is not None:
        limits["timeout_seconds"] = item["timeout_seconds"]
    fields: dict[str, Any] = {
        "title": _title(description or objective),
        "instructions": objective,
        "description": description or objective,
        "owner": item.get("subagent_type") or "general",
        "limits": limits,
        **{name: item[name] for name in FIELDS if item.get(name) is not None},
    }
    if item.get("context") is not None:
        fields["metadata"] = {"context": item["context"]}
    return fields


def _title(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else f"{line[:79]}…"


def _error(text: str) -> ToolOutcome:
    return ToolOutcome(text, is_error=True)


def _subtask_result(task: Task) -> str:
    from remit.domain.wire import dumps

    status = {"done": "Success", "failed": "Error"}.get(task.state.value, "Cancel")
    found = {
        "taskId": task.id,
        "agentId": task.owner,
        "subTaskStatus": status,
        "summary": task.summary,
        "failureReason": task.failure_reason,
        "finalAssistantMessage": brief.cut(task.final_message, task.id) if task.final_message else None,
    }
    return dumps({name: value for name, value in found.items() if value is not None})
