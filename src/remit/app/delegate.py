"""Handing work to sub-agents from outside, and waiting for what comes of it.

What waits is a generator of items: what goes on meanwhile, if somebody wants to know (`app/progress.py`), `result` for each piece of
work as it comes, and last `end` with the answer of the operation. Whoever stops listening ends the wait and nothing else.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, NamedTuple

from remit.app.cache import Lookup, ResultCache
from remit.app.conversation import last_models
from remit.app.core import Caller, Core
from remit.app.order import brief_of
from remit.app.progress import Item, watched
from remit.app.service import Outcome
from remit.app.session import of_session
from remit.domain import command as cmd
from remit.domain import delegation as ask
from remit.domain.envelope import TaskResult, about, envelope
from remit.domain.shape import parse
from remit.domain.value import TERMINAL, State, Task, Tools
from remit.domain.wire import plain
from remit.errors import Conflict, InvalidParam, Problem, RemitError, TimedOut, Unavailable, unknown

Result = dict[str, Any]
Items = AsyncGenerator[Item, None]
ENDED = frozenset(state.value for state in TERMINAL)
SILENT_SECONDS = 60.0
"""How long a worker may be silent before a caller is refused to wait for it: longer than a lease, since machines are busy."""
STOP_SECONDS = 30.0
RUN = "run/"


class Piece(NamedTuple):
    """A piece of work: its place, the task that does it or has done it, and what is known of its result."""

    place: int
    work: ask.DelegateTask
    task_id: str = ""
    lookup: Lookup = Lookup()

    @property
    def cached(self) -> bool:
        """Whether its result was there before."""
        return self.lookup.task_id is not None


async def one(core: Core, request: ask.DelegateTask, caller: Caller, progress: bool) -> Items:
    """Hand out one piece of work; its result, or a receipt."""
    piece = await _begin(core, Piece(0, request), caller, _cache(core), {})
    if request.wait and not piece.cached:
        await must_have_workers(core, [piece.task_id])
        async with aclosing(_settled(core, [piece], progress)) as items:
            async for item in items:
                yield item
    yield _end(await _answer(core, piece))


def launched(core: Core, request: ask.LaunchTask, caller: Caller, progress: bool) -> Items:
    """The same, asked for in the way of other tools."""
    work = ask.DelegateTask(
        prompt=request.prompt, description=request.description, subagent_type=request.subagent_type, model=request.model, timeout_seconds=3600.0
    )
    return one(core, work, caller, progress)


async def several(core: Core, request: ask.DelegateParallel, caller: Caller, progress: bool) -> Items:
    """Hand out several; every result in the order they were asked for."""
    group = _Group(core, request, caller)
    early = [item for index, asked in enumerate(request.tasks) if (item := await group.begin(index, asked)) is not None]
    if group.waiting:
        await must_have_workers(core, group.waiting)
    for item in early:
        yield item
    results: dict[int, Result] = {item["index"]: item["result"] for item in early}
    async with aclosing(group.results(progress)) as items:
        async for item in items:
            if item["type"] == "result":
                results[item["index"]] = item["result"]
            yield item
    yield _end({"results": [results[index] for index in sorted(results)]})


async def output(core: Core, request: ask.TaskOutput, caller: Caller, progress: bool) -> Items:
    """How a delegated task stands, or its result; a caller outside a run counts as waiting, also without wait_seconds."""
    task = await last_successor(core, (await core.task(request.task_id))["id"])
    if not task.state.terminal and caller.run_id is None:
        await core.adopt([task.id])
        await begin_wait(core, task, caller)
    if not task.state.terminal and request.wait_seconds:
        until = asyncio.get_running_loop().time() + request.wait_seconds
        async with aclosing(_waited(core, task.id, progress, until)) as items:
            async for item in items:
                yield item
    yield _end(await shown(core, task.id, request.format, plain(request), request.offset))


async def subtask(core: Core, command: cmd.CreateSubtask, caller: Caller, progress: bool) -> Items:
    """Make a subtask; who is outside of a run and wants to wait for it, waits here, and the parent goes on as it would."""
    outcome = await core.do(command, caller)
    task_id, notice = outcome.task_id, noticed(core, command, outcome, "its parent task")
    if command.wait == "block" and caller.run_id is None:
        await must_have_workers(core, [task_id])
        async with aclosing(_waited(core, task_id, progress)) as items:
            async for item in items:
                yield item
        task_id = (await last_successor(core, task_id)).id
    yield _end({"task_id": task_id, "task": await core.task(task_id), **notice})


def noticed(core: Core, command: cmd.CreateTask | cmd.CreateSubtask, outcome: Outcome, lacking: str) -> Result:
    """The field of an answer that says which tools a new task was to have and does not; nothing where it has all."""
    told = core.agents.not_granted(outcome.task, command.tools, lacking) if outcome.task is not None else ""
    return {"notice": told} if told else {}


class _Group:
    """Pieces of work that one caller waits for together: of those that are identical and may share a result, one does the work."""

    def __init__(self, core: Core, request: ask.DelegateParallel, caller: Caller) -> None:
        self._core, self._request, self._caller = core, request, caller
        self._cache = _cache(core)
        self.waiting: dict[str, list[Piece]] = {}
        """What is not settled, by the task that does it."""

    async def begin(self, index: int, item: Mapping[str, Any] | ask.DelegateTask) -> Item | None:
        """Hand out one; its result, if that is there already or it was not taken on, or its receipt, if it is not waited for."""
        try:
            work = item if isinstance(item, ask.DelegateTask) else _item(item, index, self._request)
            piece = await _begin(self._core, Piece(index, work), self._caller, self._cache, self.waiting)
        except Unavailable:
            raise
        except RemitError as refused:
            sent, form = (plain(item), item.format) if isinstance(item, ask.DelegateTask) else (item, item.get("format") or self._request.format)
            return _result(index, None, refusal(_at(index, refused), sent).shown(form))
        if piece.cached or not work.wait:
            return await _result_of(self._core, piece)
        self.waiting.setdefault(piece.task_id, []).append(piece)
        return None

    async def results(self, progress: bool) -> Items:
        """The result of each as it comes; what an identical one could not answer is handed out in its turn."""
        while self.waiting:
            async with aclosing(_settled(self._core, [pieces[0] for pieces in self.waiting.values()], progress)) as items:
                async for item in items:
                    yield item
                    if item["type"] == "result":
                        for piece in self.waiting.pop(item["task_id"])[1:]:
                            if (again := await self.begin(piece.place, piece.work)) is not None:
                                yield again


async def _settled(core: Core, pieces: Iterable[Piece], progress: bool) -> Items:
    """The result of each piece as it comes, and what goes on meanwhile if somebody wants to know."""
    left = {piece.task_id: piece for piece in pieces}
    if not progress:
        async with aclosing(ended(core, list(left))) as found:
            async for task_id in found:
                yield await _result_of(core, left[task_id])
        return
    async with aclosing(watched(core, {task_id: piece.place for task_id, piece in left.items()})) as items:
        async for item in items:
            yield item
            if item["state"] not in ENDED or (piece := left.pop(item["task_id"], None)) is None:
                continue
            if successor := item.get("superseded_by"):
                left[successor] = piece
            else:
                yield await _result_of(core, piece)


async def _waited(core: Core, task_id: str, progress: bool, until: float | None = None) -> Items:
    if progress:
        async with aclosing(watched(core, {task_id: 0}, until=until)) as items:
            async for item in items:
                yield item
    else:
        async with aclosing(ended(core, [task_id], until)) as found:
            async for _ in found:
                pass


async def _result_of(core: Core, piece: Piece) -> Item:
    return _result(piece.place, piece.task_id, await _answer(core, piece))


def _result(index: int, task_id: str | None, result: TaskResult) -> Item:
    return {"type": "result", "index": index, "task_id": task_id, "result": result, "about": result.about}


def _end(answer: Result) -> Item:
    return {"type": "end", "answer": answer} | ({"about": answer.about} if isinstance(answer, TaskResult) else {})


async def cancel_all(core: Core, request: ask.CancelAll, caller: Caller) -> Result:
    """Cancel what a session has handed out; return once nothing of it runs any more, also of what was canceled before."""
    canceled: list[str] = []
    for task_id in await of_session(core, request.session_id, "created"):
        try:
            canceled += (await core.do(cmd.CancelTask(task_id=task_id), caller)).canceled
        except Conflict:
            continue
    if running := await _until_stopped(core, [*canceled, *await _still_stopping(core, request.session_id)]):
        message = f"Everything is canceled, but runs of {', '.join(running)} have not stopped within {STOP_SECONDS:g} seconds."
        hint = "Whatever they still do is not kept. Call again to wait on."
        raise TimedOut(message, hint=hint, details={"canceled": canceled, "running": running})
    return {"success": True, "canceled": canceled}


async def ended(core: Core, task_ids: Iterable[str], until: float | None = None) -> AsyncGenerator[str, None]:
    """Each of these tasks as it ends, read, then followed, so that no end is missed; not longer than until a point of the loop's time.

    A task that was handed to another agent ends when its last successor does.
    """
    asked_for = {int(task_id): task_id for task_id in task_ids}
    await core.adopt(asked_for.values())
    async with core.store.watch() as bell:
        while asked_for:
            rows = await core.store.select("ended", {"ids": list(asked_for)})
            moved = False
            for number, state in rows:
                task_id = asked_for.pop(number)
                successor = await _live_successor(core, str(number)) if state == "canceled" else None
                if successor is None:
                    yield task_id
                else:
                    asked_for[int(successor)] = task_id
                    moved = True
            if until is not None and asyncio.get_running_loop().time() >= until:
                return
            if asked_for and not moved:
                await core.waits.ring(bell, until, asked_for)


async def _live_successor(core: Core, task_id: str) -> str | None:
    """The live task that a task was handed to, adopted; None if it has none, or that has ended too."""
    successor = await last_successor(core, task_id)
    if successor.state.terminal:
        return None
    await core.adopt([successor.id])
    return successor.id


async def last_successor(core: Core, task_id: str) -> Task:
    """The task that goes on with a task: itself, unless it was handed to another agent while it was live."""
    task = await core.service.load(task_id)
    while task.superseded_by is not None:
        task = await core.service.load(task.superseded_by)
    return task


async def begin_wait(core: Core, task: Task | None, caller: Caller) -> None:
    """Record that somebody waits for a task, unless that is known: from then on it never waits for a tick."""
    if task is not None and not task.awaited and not task.state.terminal:
        await core.do(cmd.AwaitTask(task_id=task.id), caller)


async def must_have_workers(core: Core, task_ids: Iterable[str]) -> None:
    """Refuse to wait for tasks that no worker will work on."""
    wanted = list(task_ids)
    await core.adopt(wanted)
    if core.start_worker is not None:
        await core.start_worker()
    for task_id in await core.unattended(wanted, SILENT_SECONDS):
        hint = "Start one with: remit serve, or remit worker. The task is kept and runs then."
        raise Unavailable(f"No running worker works on task {task_id}, so it would wait forever.", hint=hint, details={"task_id": task_id})


async def shown(core: Core, task_id: str, form: str, params: Mapping[str, Any], offset: int = 0) -> TaskResult:
    """A task in the form of a delegation's result; of one that was handed to another agent, its successor's."""
    task = await last_successor(core, task_id)
    model = (await last_models(core.store, [task.id])).get(task.id) if form == "envelope" else None
    found = envelope(task, model=model, tier=_tier(core, task), cwd=core.folder, params=params, offset=offset)
    return TaskResult(found, about(task)).shown(form)


def refusal(error: RemitError, params: Mapping[str, Any]) -> TaskResult:
    """The envelope of work that was not taken on, or that is not waited for any longer."""
    told = error.wire()["error"]
    kept = error.details if isinstance(error, Unavailable) and error.details else {}
    task_id = kept.get("task_id")
    data: Result = {
        "status": "running" if task_id or kept.get("task_ids") else "failed",  # a wait that ends early leaves its tasks as they are
        "task_id": task_id,
        "result": "",
        "tool_summary": [],
        "model_used": None,
        "subagent_type": agent if isinstance(agent := params.get("subagent_type"), str) else None,
    }
    stats = {"time_ms": 0, "tool_calls": 0, "model": None, "tokens": 0}
    context = {"params_input": dict(params)}
    found = {"status": "error", "data": data, "text": f"{error.message} {error.hint}".rstrip(), "stats": stats, "context": context, "error": told}
    objective = params.get("objective") or params.get("prompt")
    return TaskResult(found, {"objective": objective if isinstance(objective, str) else None})


async def _begin(core: Core, piece: Piece, caller: Caller, cache: ResultCache, waiting: Mapping[str, Sequence[Piece]]) -> Piece:
    """Find the result of a piece of work, or whoever does the same for this caller already, or make a task of it."""
    command = _command(piece.work)
    if core.agents.find(command.owner or "") is None:
        raise unknown("subagent_type", "agent", str(command.owner), core.agents.ids())
    if not piece.work.cache:
        return piece._replace(task_id=await _create(core, command, caller, wait=piece.work.wait))
    lookup = await cache.look(command, caller.actor)
    if lookup.task_id is not None:
        return piece._replace(task_id=lookup.task_id, lookup=lookup)
    if lookup.key is None:
        return piece._replace(task_id=await _create(core, command, caller, wait=piece.work.wait), lookup=lookup)
    for task_id, (first, *_) in waiting.items():
        if first.lookup.key == lookup.key:
            return piece._replace(task_id=task_id, lookup=lookup)
    known = cmd.CreateCached(**command.__dict__, cache_key=lookup.key)
    return piece._replace(task_id=await _create(core, known, caller, wait=piece.work.wait), lookup=lookup)


async def _create(core: Core, command: cmd.CreateTask, caller: Caller, *, wait: bool) -> str:
    """The task of a piece of work; one that an idempotency key found may have been made without anybody waiting for it."""
    outcome = await core.do(command, caller)
    if wait:
        await begin_wait(core, outcome.task, caller)
    return outcome.task_id


def _cache(core: Core) -> ResultCache:
    return ResultCache(core.store, core.agents, core.clock.now, core.equipment)


async def _answer(core: Core, piece: Piece) -> TaskResult:
    """What came of a piece of work; if a result from before was asked for, whether this is one."""
    result = await shown(core, piece.task_id, piece.work.format, plain(piece.work))
    if told := core.agents.not_granted(await core.service.load(piece.task_id), piece.work.tools or Tools(), "the caller"):
        result.get("data", result)["notice"] = told
    if piece.work.cache:
        told = result.get("data", result)
        told["cached"] = piece.cached
        if piece.lookup.unused:
            told["not_cached"] = piece.lookup.unused
    return result


def _command(work: ask.DelegateTask) -> cmd.CreateDelegated:
    own = {"session_id", "wait", "format", "idempotency_key"}
    item = {name: value for name, value in plain(work).items() if name not in own}
    brief = brief_of(item, seconds=work.timeout_seconds)
    asked = {**brief, "parent_session": work.session_id, "idempotency_key": work.idempotency_key}
    return parse(cmd.CreateDelegated, {name: value for name, value in asked.items() if value is not None})


def _at(place: int, error: RemitError) -> RemitError:
    """The same error, in which fields are named by the item they are in."""
    if not isinstance(error, InvalidParam):
        return error
    problems = [Problem(**field) for field in error.details["fields"]]
    return InvalidParam([it if it.field.startswith("tasks[") else it._replace(field=f"tasks[{place}].{it.field}") for it in problems])


def _item(item: Mapping[str, Any], number: int, request: ask.DelegateParallel) -> ask.DelegateTask:
    """An item with what is said for all of them and not by itself."""
    common = {"timeout_seconds": request.timeout_seconds, "session_id": request.session_id, "format": request.format}
    own = {name: value for name, value in item.items() if value is not None}
    try:
        return parse(ask.DelegateTask, common | own)
    except RemitError as refused:
        raise _at(number, refused) from refused


def _tier(core: Core, task: Task) -> str:
    agent = core.agents.get(task.owner or "")
    return task.model or (agent.model if agent else "main")


async def _still_stopping(core: Core, session_id: str) -> list[str]:
    """The canceled tasks of a session whose runs a worker has not given up yet."""
    rows = await core.store.select("jobs", {"limit": 1_000_000})
    found = [await core.service.load(row[1].removeprefix(RUN)) for row in rows if row[1].startswith(RUN) and row[5] is not None]
    stopping = [task for task in found if task.state is State.CANCELED]
    return [task.id for task in stopping if (await core.service.load(task.root_id)).parent_session_id == session_id]


async def _until_stopped(core: Core, task_ids: Sequence[str]) -> list[str]:
    """Wait for the live runs of ended tasks to be given up by their workers; those that were not in time."""
    keys = [f"{RUN}{task_id}" for task_id in dict.fromkeys(task_ids)]
    with suppress(TimeoutError):
        async with asyncio.timeout(STOP_SECONDS), core.store.watch("jobs") as bell:
            while await core.store.select("queued", {"names": keys}):
                await bell.wait()
    return [row[0].removeprefix(RUN) for row in await core.store.select("queued", {"names": keys})]
