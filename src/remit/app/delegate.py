"""Handing work to sub-agents from outside, and waiting for what comes of it."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from remit.app.core import Caller, Core
from remit.app.handover import brief_of
from remit.app.session import of_session
from remit.domain import command as cmd
from remit.domain import delegation as ask
from remit.domain.envelope import envelope, flat
from remit.domain.record import fields
from remit.domain.shape import parse
from remit.domain.value import Task
from remit.domain.wire import plain
from remit.errors import Conflict, RemitError, Unavailable, invalid

Result = dict[str, Any]
ALIVE_SECONDS = 60.0
STOP_SECONDS = 30.0


async def delegate(core: Core, request: ask.DelegateTask, caller: Caller) -> Result:
    """Hand out one piece of work; its result, or a receipt."""
    task_id = await _create(core, request, caller)
    if not request.wait:
        return await shown(core, task_id, request.format, _given(request))
    await must_have_worker(core, task_id)
    await until_ended(core, [task_id])
    return await shown(core, task_id, request.format, _given(request))


async def launch(core: Core, request: ask.LaunchTask, caller: Caller) -> Result:
    """The same, asked for in the way of other tools."""
    work = ask.DelegateTask(
        prompt=request.prompt, description=request.description, subagent_type=request.subagent_type, model=request.model, timeout_seconds=3600.0
    )
    return await delegate(core, work, caller)


async def delegate_all(core: Core, request: ask.DelegateParallel, caller: Caller) -> Result:
    """Hand out several; every result in the order they were asked for."""
    found = {number: result async for number, result in stream_all(core, request, caller)}
    return {"results": [found[number] for number in sorted(found)]}


async def stream_all(core: Core, request: ask.DelegateParallel, caller: Caller) -> AsyncIterator[tuple[int, Result]]:
    """Hand out several; each result with its number, as it comes."""
    waiting: dict[str, tuple[int, ask.DelegateTask]] = {}
    for number, item in enumerate(request.tasks):
        try:
            work = _item(item, number, request)
            waiting[await _create(core, work, caller)] = number, work
        except Unavailable:
            raise
        except RemitError as refused:
            yield number, refusal(refused, dict(item))
    if waiting:
        await must_have_worker(core, next(iter(waiting)))
    async for task_id in ended(core, waiting):
        number, work = waiting[task_id]
        yield number, await shown(core, task_id, request.format, _given(work))


async def output(core: Core, request: ask.TaskOutput, _: Caller) -> Result:
    """How a delegated task stands, or its result."""
    task = await core.service.load((await core.task(request.task_id))["id"])
    if not task.state.terminal and request.wait_seconds:
        with suppress(TimeoutError):
            async with asyncio.timeout(request.wait_seconds):
                await until_ended(core, [task.id])
    return await shown(core, task.id, request.format, _given(request))


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


async def until_ended(core: Core, task_ids: Sequence[str]) -> None:
    """Return once all of these have ended."""
    async for _ in ended(core, task_ids):
        pass


async def ended(core: Core, task_ids: Sequence[str] | Mapping[str, Any]) -> AsyncIterator[str]:
    """Each of these tasks as it ends; read, then followed, so that no end is missed."""
    open_ids = [int(task_id) for task_id in task_ids]
    async with core.store.watch() as bell:
        while open_ids:
            rows = await core.store.select("ended", {"ids": open_ids})
            for (number,) in rows:
                yield str(number)
            done = {number for (number,) in rows}
            open_ids = [number for number in open_ids if number not in done]
            if open_ids:
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
