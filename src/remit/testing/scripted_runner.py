"""A runner that follows the script in a task's metadata instead of calling a model."""

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from remit.app.runs.run_handle import CallRecord, RunHandle
from remit.domain.task import commands as cmd


class Scripted:
    """A runner that carries out the steps in a task's metadata.

    | step | what it does |
    |---|---|
    | `["say", text]` | a message to people |
    | `["write", path, text]` | appends a line to a file: an effect that must happen once |
    | `["sleep", seconds]` | works for a while in small pieces; it can be stopped between them |
    | `["ask", question]` | asks a person and waits |
    | `["children", [fields, …]]` | creates subtasks, which wake the task when they end |
    | `["block", fields]` | creates a subtask and waits for it |
    | `["timer", seconds]` | waits for a number of seconds |
    | `["wait"]` | ends the run without completing; the next wake or tick continues |
    | `["raise", text]` | fails the run |
    | `["kill"]` | kills this process, like a crash |
    | `["finish", text]` | the final message; without one the script ends with "done" |
    """

    async def run(self, handle: RunHandle) -> None:
        """Run the remaining steps of the script."""
        steps = _script(handle)
        while not handle.over:
            if not await handle.may_go_on():
                return await handle.release()
            await self._deliver(handle)
            number = await _next_step(handle, len(steps))
            step: list[Any] = ["finish", "done"]
            if number < len(steps):
                step = steps[number]
            await self._do(handle, number, step)
        return None

    async def _deliver(self, handle: RunHandle) -> None:
        """Deliver queued updates, as a real agent gets them."""
        if handle.task.queued:
            await handle.do(cmd.DeliverUpdates(task_id=handle.task.id))

    async def _do(self, handle: RunHandle, number: int, step: list[Any]) -> None:
        """Carry out one step of the script."""
        task_id, call_id = handle.task.id, f"step-{number}"
        match step:
            case ["say", str(text)]:
                await handle.do(
                    cmd.NotifyUser(task_id=task_id, message=text),
                    _end_call(handle, call_id, "say"),
                )
            case ["write", str(path), str(text)]:
                line = f"{text} {handle.run_id}\n"
                await handle.call(
                    call_id,
                    "write",
                    [path, text],
                    lambda: asyncio.to_thread(_append, path, line),
                    repeatable=False,
                )
            case ["sleep", float() | int() as seconds]:
                await handle.call(
                    call_id,
                    "sleep",
                    seconds,
                    lambda: _work(handle, float(seconds)),
                    repeatable=True,
                )
            case ["ask", str(question)]:
                await self._wait(
                    handle,
                    call_id,
                    cmd.AskUser(task_id=task_id, question=question, call_id=call_id),
                )
            case ["timer", float() | int() as seconds]:
                due = handle.now() + timedelta(seconds=float(seconds))
                await self._wait(
                    handle, call_id, cmd.SetTimer(task_id=task_id, due_at=due, call_id=call_id)
                )
            case ["children", list()]:
                for index, fields in enumerate(cast("list[dict[str, Any]]", step[1])):
                    await self._child(handle, f"{call_id}-{index}", fields)
                await handle.call(call_id, "children", None, _nothing, repeatable=True)
            case ["block", dict()]:
                child = await self._child(handle, f"{call_id}-0", cast("dict[str, Any]", step[1]))
                await self._wait(
                    handle,
                    call_id,
                    cmd.AwaitSubtask(task_id=task_id, child_id=child, call_id=call_id),
                )
            case ["wait"]:
                await self._end_run(handle, _end_call(handle, call_id, "wait"))
            case ["raise", str(text)]:
                raise RuntimeError(text)
            case ["kill"]:
                os.kill(os.getpid(), signal.SIGKILL)
            case ["finish", str(text)] if handle.task.completion == "explicit":
                await handle.do(cmd.CompleteTask(task_id=task_id, summary=text))
            case ["finish", str(text)]:
                await handle.do(cmd.FinishRun(task_id=task_id, final_message=text))
            case _:
                await handle.do(
                    cmd.FailRun(task_id=task_id, error=f"Unknown step {step!r}.", permanent=True)
                )

    async def _end_run(self, handle: RunHandle, done: CallRecord) -> None:
        """End the run without completing, also after a reminder of open steps."""
        finish = cmd.FinishRun(task_id=handle.task.id, final_message="more to come")
        await handle.do(finish, done)
        if not handle.over and handle.task.reminded:
            await self._deliver(handle)
            await handle.do(finish, done)

    async def _wait(self, handle: RunHandle, call_id: str, command: cmd.Command) -> None:
        """Start to wait and yield; after waking, continue with the next step."""
        outcome = await handle.do(command, _end_call(handle, call_id, type(command).__name__))
        if outcome.entries:
            await handle.do(cmd.YieldRun(task_id=handle.task.id))

    async def _child(self, handle: RunHandle, key: str, fields: Mapping[str, Any]) -> str:
        """Create a subtask once, and return its id."""
        from remit.domain.records.validate import parse

        whole = {
            "owner": handle.task.owner,
            "idempotency_key": f"{handle.task.id}/{key}",
            **fields,
            "task_id": handle.task.id,
        }
        return (await handle.do(parse(cmd.CreateSubtask, whole))).task_id


def _script(handle: RunHandle) -> list[list[Any]]:
    """Return the steps in the metadata of a task."""
    metadata = handle.task.metadata or {}
    return [list(step) for step in metadata.get("script", [])]


async def _next_step(handle: RunHandle, length: int) -> int:
    """Return the first step that has not ended; a write with an unknown outcome is not repeated."""
    for number in range(length):
        known = await handle.known_call(f"step-{number}")
        if known is None or known.status == "started":
            return number
    return length


def _end_call(handle: RunHandle, call_id: str, tool: str) -> CallRecord:
    """Return the record of a step that has ended."""
    return handle.ended(handle.begun(call_id, tool, None, repeatable=True), "done", None)


def _append(path: str, line: str) -> str:
    """Append a line to a file."""
    with Path(path).open("a") as file:
        file.write(line)
    return "written"


async def _work(handle: RunHandle, seconds: float) -> str:
    """Sleep until the time is over or the run is told to stop."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await handle.stopping.wait()
    return "slept"


async def _nothing() -> str:
    return ""
