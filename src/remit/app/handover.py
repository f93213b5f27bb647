"""What a running agent hands to others and then waits for: questions to people, and work for sub-agents."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import PurePath
from typing import Any, NamedTuple, cast

from remit.app.activation import Activation, CallRecord
from remit.app.agents import Agent, AgentRegistry
from remit.codec import opened
from remit.domain import brief
from remit.domain import command as cmd
from remit.domain import event as ev
from remit.domain.delegation import LaunchSubtask, TaskOutput
from remit.domain.envelope import result_of, status_of
from remit.domain.grow import CALL
from remit.domain.message import ToolCall
from remit.domain.record import replace
from remit.domain.shape import parse
from remit.domain.tool import ToolOutcome
from remit.domain.value import ChildWait, State, Task, plain_id
from remit.domain.wire import dumps, plain
from remit.errors import NotFound, RemitError, StaleRun, Unacknowledged, Unavailable, invalid
from remit.ports import EventStore, OperationTools

SUBTASK = "create_subtask_"
DELEGATING = ("task", "task_parallel", "Task")
SECONDS = {"task": 120.0, "task_parallel": 120.0, "Task": 3600.0}
"""How long delegated work may take if nobody says so."""
NOT_TAKEN = "This one was not taken on."
RECEIPT = "Its result comes with task_output; with wait_seconds that waits for it. Its end wakes you if you wait for nothing else."
UNDER_WAY = "It has not ended yet."
Begun = tuple[str, ToolCall, ToolOutcome]
Refusals = dict[int, str]


class Wanted(NamedTuple):
    """A call that asks for subtasks: each with its place, and why others cannot be."""

    key: str
    call: ToolCall
    subtasks: Mapping[int, cmd.CreateSubtask]
    refused: Refusals


class Handover:
    """Begins what must be waited for, and finds out what came of it when the run goes on."""

    def __init__(
        self,
        store: EventStore,
        agents: AgentRegistry,
        activation: Activation,
        agent: Agent,
        calls: Mapping[str, CallRecord],
        operations: OperationTools,
        now: Callable[[], datetime],
    ) -> None:
        self._store, self._agents, self._activation, self._agent, self._operations = store, agents, activation, agent, operations
        self._calls, self._now = calls, now

    def takes(self, call: ToolCall) -> bool:
        """True for calls whose answer comes from somebody else, and for all that make subtasks of this task."""
        match call.name:
            case "create_subtask":
                return call.arguments.get("wait") == "block" or (self._is_mine(call) and call.arguments.get("idempotency_key") is None)
            case "task_output":
                return bool(call.arguments.get("wait_seconds"))
            case name:
                return name == "ask_user" or name in DELEGATING or name.startswith(SUBTASK)

    def _is_mine(self, call: ToolCall) -> bool:
        task = self._activation.task
        return plain_id(call.arguments.get("task_id")) in (task.id, task.uid)

    async def begin(self, calls: Sequence[tuple[str, ToolCall]]) -> list[Begun]:
        """The calls that are answered already; the others are begun, if they were not, and waited for."""
        answered: list[Begun] = []
        fresh: list[Wanted] = []
        asked = await self._asked() if any(call.name == "ask_user" for _, call in calls) else {}
        children = await self._children() if any(call.name != "ask_user" for _, call in calls) else {}
        for key, call in calls:
            if call.error:
                answered.append((key, call, _error(f"The arguments are no JSON object: {call.error}")))
            elif call.name == "ask_user":
                answered += await self._ask(key, call, asked)
            elif call.name == "task_output":
                answered += await self._watch(key, call)
            elif mine := children.get(key):
                answered += await self._settled(key, call, mine)
            else:
                try:
                    fresh.append(self._wanted(key, call))
                except RemitError as refused:
                    answered.append((key, call, _error(str(refused))))
        not_taken = await self._delegate(fresh)
        return answered + not_taken + await self._receipts(fresh, {key for key, _, _ in not_taken})

    async def so_far(self, calls: Sequence[tuple[str, ToolCall]]) -> list[Begun]:
        """What has come until now of calls that will not be waited for any longer."""
        children = await self._children() if calls else {}
        return [(key, call, await self._told(call, children[key], self._refused(key), UNDER_WAY)) for key, call in calls if key in children]

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
        blocking = call.arguments.get("blocking", True) is not False
        if key in asked and blocking:
            answer = asked[key]
            return [] if answer is None else [(key, call, ToolOutcome(f"The person answered: {answer}"))]
        try:
            question = parse(cmd.AskUser, {**call.arguments, "task_id": self._activation.task.id, "call_id": key})
        except RemitError as refused:
            return [(key, call, _error(str(refused)))]
        if key not in asked:
            await self._activation.do(question)
        if blocking:
            return []
        return [(key, call, ToolOutcome("Asked. The answer comes as a message."))]

    # Waiting for a while.

    async def _watch(self, key: str, call: ToolCall) -> list[Begun]:
        """How a subtask stands once it has ended or the time is up; begun once, whatever happens to the run meanwhile."""
        task = self._activation.task
        if task.wait is not None and any(item.call_id == key for item in task.wait.on):
            return []
        try:
            request = parse(TaskOutput, call.arguments)
            if key not in self._calls and await self._awaited(key, call, request):
                return []
        except (StaleRun, Unavailable, Unacknowledged):
            raise
        except RemitError as refused:
            return [(key, call, _error(str(refused)))]
        return [(key, call, await self._operations.call(call.name, {**call.arguments, "wait_seconds": 0}, self._activation))]

    async def _awaited(self, key: str, call: ToolCall, request: TaskOutput) -> bool:
        """True if there is something to wait for: it has not ended."""
        task_id, until = self._activation.task.id, self._now() + timedelta(seconds=request.wait_seconds)
        wait = cmd.AwaitSubtask(task_id=task_id, child_id=request.task_id, call_id=key, until=until)
        try:
            return bool((await self._activation.do(wait, self._activation.begun(key, call.name, call.arguments, repeatable=True))).entries)
        except NotFound as unknown:
            raise invalid("wait_seconds", f"is {request.wait_seconds:g}, but task {request.task_id} is no subtask of yours", "0") from unknown

    # Work for others.

    async def _settled(self, key: str, call: ToolCall, children: Mapping[int, Task]) -> list[Begun]:
        """What came of a call that has made its subtasks; nothing while it has to wait for them."""
        if _blocks(call) and not all(task.state.terminal for task in children.values()):
            return []
        return [(key, call, await self._told(call, children, self._refused(key)))]

    async def _receipts(self, fresh: Sequence[Wanted], refused: set[str]) -> list[Begun]:
        """The answers to calls that wait for nothing but have made their subtasks."""
        waiting = [wanted for wanted in fresh if wanted.key not in refused and not _blocks(wanted.call)]
        children = await self._children() if waiting else {}
        return [answer for wanted in waiting for answer in await self._settled(wanted.key, wanted.call, children[wanted.key])]

    async def _children(self) -> dict[str, dict[int, Task]]:
        """The subtasks that this conversation made, by the call they answer and their place in it; a successor is in the place of the first."""
        tasks = await self._activation.tasks(child.id for child in self._activation.task.children)
        found: dict[str, dict[int, Task]] = {}
        for task in tasks:
            first = task
            while first.rerun_of is not None and first.idempotency_key is None:
                (first,) = await self._activation.tasks([first.rerun_of])
            if (name := first.idempotency_key or "").startswith(CALL):
                key, _, place = name.removeprefix(CALL).rpartition("#")
                found.setdefault(key, {})[int(place)] = task
        return found

    def _refused(self, key: str) -> Refusals:
        """Why some of a call's items were not taken on, as it was kept when the others were."""
        kept = self._calls.get(key)
        return {int(place): text for place, text in json.loads(kept.result).items()} if kept and kept.result else {}

    async def _told(self, call: ToolCall, children: Mapping[int, Task], refused: Refusals, unended: str = RECEIPT) -> ToolOutcome:
        if call.name.startswith(SUBTASK):
            return ToolOutcome(_subtask_result(children[0]))
        if call.name == "create_subtask":
            shown = await self._operations.call("get_task", {"task_id": children[0].id}, self._activation)
            return ToolOutcome(f'{{"task_id": "{children[0].id}", "task": {shown.text}}}')
        if call.name != "task_parallel":
            return ToolOutcome(self._result(children[0], unended), is_error=children[0].state in (State.FAILED, State.CANCELED))
        count = len(call.arguments["tasks"])
        texts = [self._result(children[place], unended) if place in children else refused.get(place, NOT_TAKEN) for place in range(count)]
        return ToolOutcome("\n\n".join(f"[{place}] {text}" for place, text in enumerate(texts)))

    def _result(self, task: Task, unended: str) -> str:
        agent = self._agents.get(task.owner or "")
        tier = task.model or (agent.model if agent else "main")
        said = brief.cut(result_of(task), task.id) if task.state.terminal else unended
        return f"Subagent ({task.owner}, {tier}) {status_of(task)}. Task {task.id}.\n\n{said}"

    def _wanted(self, key: str, call: ToolCall) -> Wanted:
        """What a delegation asks for, as subtasks of this task; of several, one that is wrong does not fail the others."""
        if call.name == "create_subtask":
            return Wanted(key, call, {0: self._part(key, call)}, {})
        if call.name != "task_parallel":
            return Wanted(key, call, {0: self._subtask(key, 0, self._fields(call), SECONDS.get(call.name), wait=_wait(call))}, {})
        asked, seconds = call.arguments.get("tasks"), call.arguments.get("timeout_seconds") or SECONDS[call.name]
        items: list[Any] = cast("Any", asked) if isinstance(asked, list) else []
        if not items:
            raise invalid("tasks", "is no list of tasks", "a list of objects with an objective each")
        subtasks: dict[int, cmd.CreateSubtask] = {}
        refused: Refusals = {}
        for place, item in enumerate(items):
            try:
                subtasks[place] = self._subtask(key, place, {"objective": item} if isinstance(item, str) else item, seconds, f"tasks[{place}].")
            except RemitError as error:
                refused[place] = str(error)
        if not subtasks:
            raise invalid("tasks", f"has nothing that can be done: {' '.join(refused.values())}", "objects with an objective each")
        return Wanted(key, call, subtasks, refused)

    def _fields(self, call: ToolCall) -> dict[str, Any]:
        if not call.name.startswith(SUBTASK):
            return {name: value for name, value in call.arguments.items() if (call.name, name) != ("task", "wait")}
        resources = [resource_of(item, self._operations.folder) for item in call.arguments.get("artifactRefs") or ()]
        part = parse(LaunchSubtask, {**call.arguments, "artifactRefs": resources})
        return {
            "objective": part.intent or part.title,
            "description": part.title,
            "subagent_type": call.name.removeprefix(SUBTASK),
            "priority": part.priority,
            "resources": plain(part.artifactRefs),
        }

    def _part(self, key: str, call: ToolCall) -> cmd.CreateSubtask:
        """A subtask as it is asked for field by field."""
        if not self._is_mine(call):
            raise invalid("wait", f"is 'block', but task {call.arguments.get('task_id')} is not yours", "wake or none")
        if call.arguments.get("idempotency_key") is not None:
            raise invalid("idempotency_key", "is given with wait: block, where the call itself is never carried out twice", "no key")
        owner = {"owner": self._whom(call.arguments["owner"], "owner")} if call.arguments.get("owner") else {}
        return parse(cmd.CreateSubtask, {**call.arguments, **owner, "idempotency_key": f"{CALL}{key}#0"})

    def _subtask(self, key: str, place: int, item: Any, seconds: float | None, at: str = "", *, wait: ChildWait = "block") -> cmd.CreateSubtask:
        if not isinstance(item, Mapping):
            raise invalid(f"{at.rstrip('.')}", "is no object", "an object with an objective")
        work: Mapping[str, Any] = cast("Any", item)
        fields = brief_of({**work, "subagent_type": self._whom(work.get("subagent_type"), f"{at}subagent_type")}, at, seconds)
        return parse(cmd.CreateSubtask, {**fields, "task_id": self._activation.task.id, "wait": wait, "idempotency_key": f"{CALL}{key}#{place}"})

    def _whom(self, name: Any, field: str) -> str:
        """Who is meant, if this agent may give work to them."""
        may = self._agent.spawnable
        known = sorted(self._agents.ids() if may is None else set(may) & self._agents.ids())
        if name is None:
            name = known[0] if len(known) == 1 else "general"
        found = self._agents.find(str(name))
        if found is None or found.id not in known:
            raise invalid(field, f"is {name!r}, who cannot be given work here", f"one of {', '.join(known)}")
        return found.id

    async def _delegate(self, fresh: Sequence[Wanted]) -> list[Begun]:
        """Make all subtasks in one commit; if that is refused, one after the other, so that one does not fail the others."""
        if not fresh:
            return []
        try:
            await self._make([subtask for wanted in fresh for subtask in wanted.subtasks.values()], [wanted for wanted in fresh if wanted.refused])
        except (StaleRun, Unavailable, Unacknowledged):
            raise
        except RemitError:
            return [answer for wanted in fresh for answer in await self._one_by_one(wanted)]
        return []

    async def _one_by_one(self, wanted: Wanted) -> list[Begun]:
        refused = dict(wanted.refused)
        for place, subtask in wanted.subtasks.items():
            try:
                await self._make([subtask], [])
            except (StaleRun, Unavailable, Unacknowledged):
                raise
            except RemitError as error:
                refused[place] = str(error)
        if not wanted.subtasks.keys() - refused.keys():
            return [(wanted.key, wanted.call, _error("\n\n".join(refused[place] for place in sorted(refused))))]
        if refused:
            await self._activation.keep([self._kept(wanted._replace(refused=refused)).row()])
        return []

    async def _make(self, subtasks: list[cmd.CreateSubtask], partly: Sequence[Wanted]) -> None:
        await self._activation.do(cmd.Delegate(task_id=self._activation.task.id, subtasks=tuple(subtasks)), *map(self._kept, partly))

    def _kept(self, wanted: Wanted) -> CallRecord:
        """An open call with what was refused of it."""
        begun = self._activation.begun(wanted.key, wanted.call.name, wanted.call.arguments, repeatable=True)
        return replace(begun, result=dumps(wanted.refused))


def _wait(call: ToolCall) -> ChildWait:
    """Whether a delegation waits for its subtask, or is woken by its end."""
    wait = call.arguments.get("wait", True)
    if call.name == "task" and not isinstance(wait, bool):
        raise invalid("wait", f"is {wait!r}", "true or false")
    return "wake" if call.name == "task" and not wait else "block"


def _blocks(call: ToolCall) -> bool:
    """True for calls whose answer is what came of their subtasks."""
    return call.arguments.get("wait") == "block" if call.name == "create_subtask" else _wait(call) == "block"


def resource_of(item: Any, folder: str) -> Any:
    """A resource as it is given in a word: a URL, or a path, made absolute."""
    if not isinstance(item, str):
        return item
    return {"type": "url", "value": item} if "://" in item else {"type": "file", "value": str(PurePath(folder or "/") / item)}


FIELDS = ("model", "tools", "acceptance", "outputs", "priority", "depends_on", "resources")


def brief_of(item: Mapping[str, Any], at: str = "", seconds: float | None = None) -> dict[str, Any]:
    """The fields of a task that a delegation asks for; the time it may take is what it says, or else so many seconds."""
    known = {"objective", "prompt", "description", "subagent_type", "context", "limits", "timeout_seconds", *FIELDS}
    if unknown := sorted(item.keys() - known):
        raise invalid(f"{at}{unknown[0]}", "is not a field here", f"one of {', '.join(sorted(known))}")
    objective = item.get("objective") or item.get("prompt")
    if not isinstance(objective, str) or not objective.strip():
        raise invalid(f"{at}objective", "is missing", "what the sub-agent has to do, as text")
    description = item.get("description")
    limits = dict(item.get("limits") or {})
    timeout = item.get("timeout_seconds") or limits.get("timeout_seconds") or seconds
    if timeout is not None:
        limits["timeout_seconds"] = timeout
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
    status = {"done": "Success", "failed": "Error"}.get(task.state.value, "Cancel") if task.state.terminal else None
    found = {
        "taskId": task.id,
        "agentId": task.owner,
        "subTaskStatus": status,
        "summary": task.summary,
        "failureReason": task.failure_reason,
        "finalAssistantMessage": brief.cut(task.final_message, task.id) if task.final_message else None,
    }
    return dumps({name: value for name, value in found.items() if value is not None})
