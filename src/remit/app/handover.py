"""What a running agent hands to others and then waits for: questions to people, and work for sub-agents."""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, cast

from remit.app.activation import Activation, CallRecord
from remit.app.agents import Agent, AgentRegistry
from remit.app.cache import ResultCache
from remit.app.conversation import last_models
from remit.app.order import DELEGATING, SECONDS, blocks, brief_of, count, flag, piece_of, resource_of, tools_of, wait_of
from remit.codec import opened
from remit.domain import command as cmd
from remit.domain import event as ev
from remit.domain.delegation import LaunchSubtask, LaunchTask, TaskOutput
from remit.domain.envelope import envelope, in_json, in_part, lean, passage, result_of, status_of
from remit.domain.grow import CALL
from remit.domain.message import ToolCall
from remit.domain.offer import SUBTASK
from remit.domain.record import replace
from remit.domain.shape import parse
from remit.domain.tool import ToolOutcome
from remit.domain.value import ChildWait, State, Task, plain_id
from remit.domain.wire import dumps, plain
from remit.errors import Forbidden, NotFound, RemitError, StaleRun, Unacknowledged, Unavailable, invalid
from remit.ports import Equipment, EventStore, OperationTools

RECEIPT = "Get its result with task_output; wait_seconds waits for it. Its end also wakes you."
UNDER_WAY = "It has not ended yet."
Begun = tuple[str, ToolCall, ToolOutcome]


class Note(NamedTuple):
    """What is to be remembered of an item of a call beside its subtask, or in its place."""

    kind: Literal["refused", "found", "shared", "uncached"]
    text: str
    """Why it was refused; the earlier task whose result it takes; the key of the item that does its work too; why no result was looked for."""
    code: str = ""
    """The code of the error with which it was refused."""


Notes = dict[int, Note]


class Wanted(NamedTuple):
    """A call that asks for subtasks: those it has, those to be made, and what is noted of the others, each by its place."""

    key: str
    call: ToolCall
    children: Mapping[int, Task]
    subtasks: dict[int, cmd.CreateSubtask]
    notes: Notes

    @property
    def made(self) -> list[int]:
        """The places of the subtasks that were to be made and were not refused."""
        return [place for place in self.subtasks if place not in self.notes or self.notes[place].kind != "refused"]


class Earlier(NamedTuple):
    """Tasks whose results answer for items of a call, and the models that worked on its tasks."""

    tasks: Mapping[str, Task]
    models: Mapping[str, str]


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
        equipment: Callable[[], AbstractAsyncContextManager[Equipment]],
    ) -> None:
        self._store, self._agents, self._activation, self._agent, self._operations = store, agents, activation, agent, operations
        self._calls, self._now, self._equipment = calls, now, equipment

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
        cache = ResultCache(self._store, self._agents, self._now, self._equipment)
        asked = await self._asked() if any(call.name == "ask_user" for _, call in calls) else {}
        children = await self._children() if any(call.name != "ask_user" for _, call in calls) else {}
        for key, call in calls:
            if call.error:
                answered.append((key, call, _error(f"The arguments are no JSON object: {call.error}")))
            elif call.name == "ask_user":
                answered += await self._ask(key, call, asked)
            elif call.name == "task_output":
                answered += await self._watch(key, call)
            elif _rests(call, mine := children.get(key, {})):
                wanted = await self._wanted(Wanted(key, call, mine, {}, self._noted(key)), cache)
                if wanted.subtasks:
                    fresh.append(wanted)
                else:
                    answered.append(await self._told(wanted))
        not_made = await self._delegate(fresh, cache)
        return answered + not_made + await self._receipts(fresh, {key for key, _, _ in not_made})

    async def so_far(self, calls: Sequence[tuple[str, ToolCall]]) -> list[Begun]:
        """What has come until now of calls that will not be waited for any longer."""
        children = await self._children() if calls else {}
        return [await self._told(Wanted(key, call, children[key], {}, self._noted(key)), UNDER_WAY) for key, call in calls if key in children]

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
        named = call.arguments.get("task_id")
        task_id = self._activation.task.id if named is None else named
        try:
            question = parse(cmd.AskUser, {**call.arguments, "task_id": task_id, "call_id": key})
        except RemitError as refused:
            return [(key, call, _error(self._operations.refusal(call.name, refused, self._activation)))]
        if key not in asked:
            try:
                await self._activation.do(question)
            except (Forbidden, NotFound) as refused:  # another task than its own was named
                return [(key, call, _error(refused.for_agent or str(refused)))]
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
            return [(key, call, _error(self._operations.refusal(call.name, refused, self._activation)))]
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

    async def _receipts(self, fresh: Sequence[Wanted], answered: set[str]) -> list[Begun]:
        """The answers to calls that wait for nothing but have made their subtasks."""
        waiting = [wanted for wanted in fresh if wanted.key not in answered and not any(blocks(wanted.call, place) for place in wanted.made)]
        children = await self._children() if waiting else {}
        return [await self._told(wanted._replace(children=children[wanted.key])) for wanted in waiting]

    async def _children(self) -> dict[str, dict[int, Task]]:
        """The subtasks that this conversation made, by the call they answer and their place in it."""
        return await children_by_call(self._activation.task, self._activation.tasks)

    def _noted(self, key: str) -> Notes:
        """What was noted of a call's items when others were begun."""
        kept = self._calls.get(key)
        return {int(place): Note(*note) for place, note in json.loads(kept.result).items()} if kept and kept.result else {}

    async def _told(self, wanted: Wanted, unended: str = RECEIPT) -> Begun:
        """What came of a call, all of whose items have ended or need not be waited for."""
        key, call, children, _, notes = wanted
        if all(place in notes and notes[place].kind == "refused" for place in range(count(call))):
            refused = _error("\n\n".join(note.text for _, note in sorted(notes.items())))
            return key, call, refused._replace(denied=True)
        if call.name.startswith(SUBTASK):
            return key, call, ToolOutcome(_subtask_result(children[0], self._notice(children[0], call)))
        if call.name == "create_subtask":
            return key, call, ToolOutcome(_created(children[0], self._notice(children[0], call), is_awaited=blocks(call, 0)))
        known = [note.text for note in notes.values() if note.kind == "found"]
        found = {task.id: task for task in await self._activation.tasks(known)}
        models = await last_models(self._store, [*found, *(task.id for task in children.values())])
        earlier = Earlier(found, models)
        places = range(count(call))
        told = [self._item_told(wanted, place, earlier) for place in places]
        for item in told:
            if item["status"] == "running" and call.name != "Task":
                item["note"] = unended
        if call.name == "task_parallel":
            return key, call, ToolOutcome(dumps({"results": told}))
        is_error = 0 in children and children[0].state in (State.FAILED, State.CANCELED)
        return key, call, ToolOutcome(dumps(told[0]), is_error=is_error)

    def _notice(self, child: Task, call: ToolCall, place: int = 0) -> str:
        """The tools that a subtask was to have and does not, and why."""
        return self._agents.not_granted(child, tools_of(call, place), "your own task")

    def _item_told(self, wanted: Wanted, place: int, earlier: "Earlier") -> dict[str, Any]:
        """What came of one item, in the form that its call answers with."""
        call, child, note = wanted.call, wanted.children.get(place), wanted.notes.get(place)
        if child is not None:
            notice = self._notice(child, call, place)
            more = {"notice": notice} if notice else {}
            more |= {"not_cached": note.text} if note is not None and note.kind == "uncached" else {}
            return self._result(child, earlier, call, more)
        if note is not None and note.kind == "found":
            return self._result(earlier.tasks[note.text], earlier, call, {"cached": True})
        if note is not None and note.kind == "refused":
            return {
                "status": "failed",
                "error": {"code": note.code or "INVALID_PARAM", "message": note.text},
            }
        return {"status": "running"}

    def _result(self, task: Task, earlier: "Earlier", call: ToolCall, more: Mapping[str, Any]) -> dict[str, Any]:
        agent = self._agents.get(task.owner or "")
        tier = task.model or (agent.model if agent else "main")
        folder, model = self._operations.folder, earlier.models.get(task.id)
        is_whole = call.name == "Task"
        found = envelope(task, model=model, tier=tier, cwd=folder, params=call.arguments if is_whole else {})
        found["data"] |= more
        return in_part(found, 0) if is_whole else lean(in_part(found, 0))

    async def _wanted(self, wanted: Wanted, cache: ResultCache) -> Wanted:
        """A call with the subtasks that must be made for it now; of several, one that is wrong does not fail the others."""
        for place in range(count(wanted.call)):
            note = wanted.notes.get(place)
            if place in wanted.children or (note is not None and note.kind in ("refused", "found")):
                continue
            try:
                await self._sort(wanted, place, cache)
            except (StaleRun, Unavailable, Unacknowledged):
                raise
            except RemitError as error:
                wanted.notes[place] = Note("refused", error.for_agent or str(error), error.code)
        return wanted

    async def _sort(self, wanted: Wanted, place: int, cache: ResultCache) -> None:
        """Find the result of an item, or whoever does the same for this call already, or say what subtask to make."""
        key, call, _, subtasks, notes = wanted
        before = notes.pop(place, None)
        if before is not None and before.kind == "shared" and (task_id := await cache.find(before.text)) is not None:
            notes[place] = Note("found", task_id)
            return
        subtask, cached = self._asked_for(call, place)
        mine = replace(subtask, idempotency_key=f"{CALL}{key}#{place}")
        if not cached:
            subtasks[place] = mine
            return
        lookup = await cache.look(subtask, self._activation.actor, self._activation.task)
        if lookup.task_id is not None:
            notes[place] = Note("found", lookup.task_id)
        elif lookup.key is None:
            subtasks[place], notes[place] = mine, Note("uncached", lookup.unused)
        elif any(
            isinstance(other, cmd.CreateCachedSubtask) and other.cache_key == lookup.key and mine.wait == other.wait == "block"
            for other in subtasks.values()
        ):
            notes[place] = Note("shared", lookup.key)
        else:
            subtasks[place] = cmd.CreateCachedSubtask(**mine.__dict__, cache_key=lookup.key)

    def _asked_for(self, call: ToolCall, place: int) -> tuple[cmd.CreateSubtask, bool]:
        """The subtask that an item asks for, and whether an earlier result may stand for it."""
        if call.name == "create_subtask":
            return self._part(call), False
        if call.name != "task_parallel":
            made, cached = self._subtask(self._fields(call), SECONDS.get(call.name), wait=wait_of(call))
            return self._titled(made, call), cached
        items, seconds = call.arguments.get("tasks"), call.arguments.get("timeout_seconds") or SECONDS[call.name]
        if not isinstance(items, list) or not items:
            raise invalid("tasks", "is no list of tasks", "a list of objects with an objective each")
        item: Any = cast("Any", items)[place]
        fields = {name: value for name, value in piece_of(call, place).items() if name != "wait"}
        work = fields if isinstance(item, Mapping) else item
        return self._subtask({"objective": item} if isinstance(item, str) else work, seconds, f"tasks[{place}].", wait=wait_of(call, place))

    def _titled(self, made: cmd.CreateSubtask, call: ToolCall) -> cmd.CreateSubtask:
        """A subtask whose title stands for its instructions, where a call of create_subtask_<agent> gives only a title."""
        if not call.name.startswith(SUBTASK) or call.arguments.get("intent"):
            return made
        return replace(made, title=call.arguments["title"], instructions=None, description=None)

    def _fields(self, call: ToolCall) -> dict[str, Any]:
        if call.name == "Task":
            return dict(plain(parse(LaunchTask, call.arguments)))
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

    def _part(self, call: ToolCall) -> cmd.CreateSubtask:
        """A subtask as it is asked for field by field."""
        named = call.arguments.get("task_id")
        if named is not None and not self._is_mine(call):
            raise invalid("wait", f"is 'block', but task {named} is not yours", "wake or none")
        if call.arguments.get("idempotency_key") is not None:
            raise invalid("idempotency_key", "is given with wait: block, where the call itself is never carried out twice", "no key")
        owner = {"owner": self._whom(call.arguments["owner"], "owner")} if call.arguments.get("owner") else {}
        return parse(cmd.CreateSubtask, {**call.arguments, **owner})

    def _subtask(self, item: Any, seconds: float | None, at: str = "", *, wait: ChildWait = "block") -> tuple[cmd.CreateSubtask, bool]:
        if not isinstance(item, Mapping):
            raise invalid(f"{at.rstrip('.')}", "is no object", "an object with an objective")
        work: Mapping[str, Any] = cast("Any", item)
        fields = brief_of({**work, "subagent_type": self._whom(work.get("subagent_type"), f"{at}subagent_type")}, at, seconds)
        return parse(cmd.CreateSubtask, {**fields, "task_id": self._activation.task.id, "wait": wait}), flag(work, "cache", at, default=False)

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

    async def _delegate(self, fresh: Sequence[Wanted], cache: ResultCache) -> list[Begun]:
        """Make all subtasks in one commit; if that is refused, one after the other, so that one does not fail the others."""
        if not fresh:
            return []
        try:
            await self._make([subtask for wanted in fresh for subtask in wanted.subtasks.values()], self._kept(*fresh))
        except (StaleRun, Unavailable, Unacknowledged):
            raise
        except RemitError:
            return [answer for wanted in fresh for answer in await self._one_by_one(wanted, cache)]
        return []

    async def _one_by_one(self, wanted: Wanted, cache: ResultCache) -> list[Begun]:
        """The answer to a call for which no subtask could be made; nothing if there is one to wait for."""
        made = 0
        while wanted.subtasks and not made:
            beside = self._kept(wanted)
            for place, subtask in wanted.subtasks.items():
                try:
                    await self._make([subtask], beside)
                    made += 1
                except (StaleRun, Unavailable, Unacknowledged):
                    raise
                except RemitError as error:
                    wanted.notes[place] = Note("refused", error.for_agent or str(error), error.code)
            if not made:  # an item that was to share the work of one that was refused has to ask for itself
                wanted = await self._wanted(wanted._replace(subtasks={}), cache)
        if not made:
            return [await self._told(wanted)]
        if wanted.notes:
            await self._activation.keep([record.row() for record in self._kept(wanted)])
        return []

    async def _make(self, subtasks: list[cmd.CreateSubtask], beside: Iterable[CallRecord]) -> None:
        await self._activation.do(cmd.Delegate(task_id=self._activation.task.id, subtasks=tuple(subtasks)), *beside)

    def _kept(self, *calls: Wanted) -> list[CallRecord]:
        """Open calls with what is noted of them, where anything is."""
        begun = [
            (wanted, self._activation.begun(wanted.key, wanted.call.name, wanted.call.arguments, repeatable=True)) for wanted in calls if wanted.notes
        ]
        return [replace(record, result=dumps(wanted.notes)) for wanted, record in begun]


async def children_by_call(
    parent: Task,
    load: Callable[[Iterable[str]], Awaitable[list[Task]]],
) -> dict[str, dict[int, Task]]:
    """The subtasks that the conversation of a task made, by the call they answer and their place in it.

    A successor is in the place of the first.
    """
    found: dict[str, dict[int, Task]] = {}
    for task in await load(child.id for child in parent.children):
        first = task
        while first.rerun_of is not None and first.idempotency_key is None:
            (first,) = await load([first.rerun_of])
        if (name := first.idempotency_key or "").startswith(CALL):
            key, _, place = name.removeprefix(CALL).rpartition("#")
            found.setdefault(key, {})[int(place)] = task
    return found


def _rests(call: ToolCall, children: Mapping[int, Task]) -> bool:
    """True if none of a call's subtasks has to be waited for."""
    return all(task.state.terminal or not blocks(call, place) for place, task in children.items())


def _error(text: str) -> ToolOutcome:
    return ToolOutcome(text, is_error=True)


def _created(task: Task, notice: str, *, is_awaited: bool) -> str:
    """What the call that made a subtask is told; with its result if the call has waited for that."""
    told: dict[str, Any] = {
        "task_id": task.id,
        "task": {"id": task.id, "state": task.state.value, "version": task.version},
    }
    told |= {"notice": notice} if notice else {}
    if is_awaited:
        uses = [plain(item) for item in task.tool_summary]
        told |= {"status": status_of(task), "duration": task.duration, "tool_summary": uses}
        part = passage(result_of(task), task.completion_outputs, task.id, size=in_json)
        told |= {"outputs": part.outputs} if part.outputs else {}
        told |= {"note": part.note} if part.note else {}
        told["result"] = part.text
    return dumps(told)


def _subtask_result(task: Task, notice: str) -> str:
    status = {"done": "Success", "failed": "Error"}.get(task.state.value, "Cancel") if task.state.terminal else None
    result = result_of(task)
    part = passage(result, task.completion_outputs, task.id, size=in_json)
    texts = {"summary": task.summary, "failureReason": task.failure_reason, "finalAssistantMessage": task.final_message}
    first_names = {text: name for name, text in reversed(texts.items())}
    found = {
        "taskId": task.id,
        "agentId": task.owner,
        "subTaskStatus": status,
        "duration": task.duration,
        "toolSummary": [plain(item) for item in task.tool_summary] or None,
        "outputs": part.outputs,
        "note": part.note or None,
        "notice": notice or None,
        **{name: part.text if text == result else text for text, name in first_names.items()},
    }
    return dumps({name: value for name, value in found.items() if value is not None})
