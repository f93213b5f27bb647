"""Handing work to sub-agents from outside, and waiting for what comes of it.

What waits is a generator of items: what goes on meanwhile, if somebody wants to know (`app/progress.py`), `result` for each piece of
work as it comes, and last `end` with the answer of the operation. Whoever stops listening ends the wait and nothing else.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any

from remit.app.core import Caller, Core
from remit.app.handover import brief_of
from remit.app.progress import Item, watched
from remit.app.session import of_session
from remit.domain import command as cmd
from remit.domain import delegation as ask
from remit.domain.envelope import envelope, flat
from remit.domain.record import fields, record
from remit.domain.shape import parse
from remit.domain.value import TERMINAL, Task
from remit.domain.wire import plain
from remit.errors import Conflict, RemitError, Unavailable, invalid

Result = dict[str, Any]
Items = AsyncGenerator[Item, None]
ENDED = frozenset(state.value for state in TERMINAL)
ALIVE_SECONDS = 60.0
STOP_SECONDS = 30.0


@record
class Piece:
    """A piece of work that was handed out: its place, and how its result is shown."""

    index: int
    form: str
    params: Mapping[str, Any]


async def one(core: Core, request: ask.DelegateTask, caller: Caller, progress: bool) -> Items:
    """Hand out one piece of work; its result, or a receipt."""
    task_id = await _create(core, request, caller)
    if request.wait:
        await must_have_worker(core, task_id)
        async with aclosing(_settled(core, {task_id: Piece(index=0, form=request.format, params=_given(request))}, progress)) as items:
            async for item in items:
                yield item
    yield _end(await shown(core, task_id, request.format, _given(request)))


def launched(core: Core, request: ask.LaunchTask, caller: Caller, progress: bool) -> Items:
    """The same, asked for in the way of other tools."""
    work = ask.DelegateTask(
        prompt=request.prompt, description=request.description, subagent_type=request.subagent_type, model=request.model, timeout_seconds=3600.0
    )
    return one(core, work, caller, progress)


async def several(core: Core, request: ask.DelegateParallel, caller: Caller, progress: bool) -> Items:
    """Hand out several; every result in the order they were asked for."""
    pieces: dict[str, Piece] = {}
    results: dict[int, Result] = {}
    for index, item in enumerate(request.tasks):
        try:
            work = _item(item, index, request)
            pieces[await _create(core, work, caller)] = Piece(index=index, form=request.format, params=_given(work))
        except Unavailable:
            raise
        except RemitError as refused:
            results[index] = refusal(refused, dict(item))
    if pieces:
        await must_have_worker(core, next(iter(pieces)))
    for index, result in results.items():
        yield _result(index, None, result)
    async with aclosing(_settled(core, pieces, progress)) as items:
        async for item in items:
            if item["type"] == "result":
                results[item["index"]] = item["result"]
            yield item
    yield _end({"results": [results[index] for index in sorted(results)]})


async def output(core: Core, request: ask.TaskOutput, _: Caller, progress: bool) -> Items:
    """How a delegated task stands, or its result."""
    task = await core.service.load((await core.task(request.task_id))["id"])
    if not task.state.terminal and request.wait_seconds:
        until = asyncio.get_running_loop().time() + request.wait_seconds
        async with aclosing(_waited(core, task.id, progress, until)) as items:
            async for item in items:
                yield item
    yield _end(await shown(core, task.id, request.format, _given(request)))


async def subtask(core: Core, command: cmd.CreateSubtask, caller: Caller, progress: bool) -> Items:
    """Make a subtask; who is outside of a run and wants to wait for it, waits here, and the parent goes on as it would."""
    task_id = (await core.do(command, caller)).task_id
    if command.wait == "block" and caller.run_id is None:
        await must_have_worker(core, task_id)
        async with aclosing(_waited(core, task_id, progress)) as items:
            async for item in items:
                yield item
    yield _end({"task_id": task_id, "task": await core.task(task_id)})


async def _settled(core: Core, pieces: Mapping[str, Piece], progress: bool) -> Items:
    """The result of each piece as it comes, and what goes on meanwhile if somebody wants to know."""
    if not progress:
        async with aclosing(ended(core, pieces)) as found:
            async for task_id in found:
                yield await _result_of(core, task_id, pieces[task_id])
        return
    async with aclosing(watched(core, {task_id: piece.index for task_id, piece in pieces.items()})) as items:
        left = dict(pieces)
        async for item in items:
            yield item
            if item["state"] in ENDED and (piece := left.pop(item["task_id"], None)) is not None:
                yield await _result_of(core, item["task_id"], piece)


async def _waited(core: Core, task_id: str, progress: bool, until: float | None = None) -> Items:
    if progress:
        async with aclosing(watched(core, {task_id: 0}, until=until)) as items:
            async for item in items:
                yield item
    else:
        async with aclosing(ended(core, [task_id], until)) as found:
            async for _ in found:
                pass


async def _result_of(core: Core, task_id: str, piece: Piece) -> Item:
    return _result(piece.index, task_id, await shown(core, task_id, piece.form, piece.params))


def _result(index: int, task_id: str | None, result: Result) -> Item:
    return {"type": "result", "index": index, "task_id": task_id, "result": result}


def _end(answer: Result) -> Item:
    return {"type": "end", "answer": answer}


async def cancel_all(core: Core, request: ask.CancelAll, caller: Caller) -> Result:
    """Cancel what a session has handed out; return once nothing of it runs any more."""
    canceled: list[str] = []
    for task_id in await of_session(core, request.session_id, "created"):
        try:
            canceled += (await core.do(cmd.CancelTask(task_id=task_id), caller)).canceled
        except Conflict:
            continue
    await _until_stopped(core, canceled)
    return {"success": True, "canceled": canceled}


async def ended(core: Core, task_ids: Iterable[str], until: float | None = None) -> AsyncGenerator[str, None]:
    """Each of these tasks as it ends, read, then followed, so that no end is missed; not longer than until a point of the loop's time."""
    open_ids = [int(task_id) for task_id in task_ids]
    async with core.store.watch() as bell:
        while open_ids:
            rows = await core.store.select("ended", {"ids": open_ids})
            for (number,) in rows:
                yield str(number)
            done = {number for (number,) in rows}
            open_ids = [number for number in open_ids if number not in done]
            if until is not None and asyncio.get_running_loop().time() >= until:
                return
            if open_ids:
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(until):
                        await bell.wait()


async def must_have_worker(core: Core, task_id: str) -> None:
    """Refuse to wait for what nobody will do."""
    if not any(row.age_seconds < ALIVE_SECONDS and row.agents for row in await core.store.workers()):
        hint = "Start one with: remit serve, or remit worker. The task is kept and runs then."
        raise Unavailable(f"No worker is running, so task {task_id} would wait for ever.", hint=hint, details={"task_id": task_id})


async def shown(core: Core, task_id: str, form: str, params: Mapping[str, Any]) -> Result:
    """A task in the form of a delegation's result."""
    task = await core.service.load(task_id)
    if form == "flat":
        return flat(task)
    return envelope(task, model=await _model_of(core, task_id), tier=_tier(core, task), cwd=core.folder, params=params)


def refusal(error: RemitError, params: Mapping[str, Any]) -> Result:
    """The envelope of work that was not taken on."""
    told = error.wire()["error"]
    data: Result = {
        "status": "failed",
        "task_id": None,
        "result": "",
        "tool_summary": [],
        "model_used": None,
        "subagent_type": params.get("subagent_type"),
    }
    stats = {"time_ms": 0, "tool_calls": 0, "model": None, "tokens": 0}
    return {"status": "error", "data": data, "text": error.message, "stats": stats, "context": {"params_input": dict(params)}, "error": told}


async def _create(core: Core, work: ask.DelegateTask, caller: Caller) -> str:
    own = {"session_id", "cache", "wait", "format", "idempotency_key"}
    item = {name: value for name, value in _given(work).items() if name not in own}
    brief = brief_of(item, seconds=work.timeout_seconds)
    asked = {**brief, "parent_session": work.session_id, "idempotency_key": work.idempotency_key}
    outcome = await core.do(parse(cmd.CreateTask, {name: value for name, value in asked.items() if value is not None}), caller)
    return outcome.task_id


def _item(item: Mapping[str, Any], number: int, request: ask.DelegateParallel) -> ask.DelegateTask:
    asked = {"timeout_seconds": request.timeout_seconds, **item} if request.timeout_seconds else dict(item)
    try:
        return parse(ask.DelegateTask, {"session_id": request.session_id, **asked} if request.session_id else asked)
    except RemitError as refused:
        raise invalid(f"tasks[{number}]", f"is not understood: {refused.message}", "an object as `task` takes it") from refused


def _given(request: Any) -> dict[str, Any]:
    """What a caller sent, without what is at its default."""
    mine: dict[str, Any] = request.__dict__
    return {name: plain(mine[name]) for name, default in fields(request).items() if mine[name] != default}


def _tier(core: Core, task: Task) -> str:
    agent = core.agents.get(task.owner or "")
    return task.model or (agent.model if agent else "main")


async def _model_of(core: Core, task_id: str) -> str | None:
    """The model that really answered last."""
    import json

    rows = await core.store.select("messages", {"id": int(task_id), "after": 0, "limit": 1_000_000})
    models = [json.loads(row[-1]).get("model") for row in rows]
    return next((model for model in reversed(models) if model), None)


async def _until_stopped(core: Core, task_ids: Sequence[str]) -> None:
    """Wait for the live runs of ended tasks to be given up by their workers."""
    keys = [f"run/{task_id}" for task_id in task_ids]
    with suppress(TimeoutError):
        async with asyncio.timeout(STOP_SECONDS), core.store.watch("jobs") as bell:
            while await core.store.select("queued", {"names": keys}):
                await bell.wait()
