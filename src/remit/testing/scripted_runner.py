"""A runner that follows the script in a task's metadata instead of calling a model."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

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
            await _deliver(handle)
            number = await _next_step(handle, len(steps))
            step: list[Any] = ["finish", "done"]
            if number < len(steps):
                step = steps[number]
            await self._do(handle, number, step)
        return None

    async def _do(self, handle: RunHandle, number: int, step: list[Any]) -> None:
        """Carry out one step of the script."""
        name, *given = step or [""]
        known = _STEPS.get(str(name))
        if known is None or not known.accepts(given):
            error = f"Unknown step {step!r}."
            await handle.do(cmd.FailRun(task_id=handle.task.id, error=error, permanent=True))
            return
        await known.act(handle, f"step-{number}", *given)


async def _deliver(handle: RunHandle) -> None:
    """Deliver queued updates, as a real agent gets them."""
    if handle.task.queued:
        await handle.do(cmd.DeliverUpdates(task_id=handle.task.id))


async def _say(handle: RunHandle, call_id: str, text: str) -> None:
    """Send a message to people."""
    said = cmd.NotifyUser(task_id=handle.task.id, message=text)
    await handle.do(said, _end_call(handle, call_id, "say"))


async def _write(handle: RunHandle, call_id: str, path: str, text: str) -> None:
    """Append a line to a file."""
    line = f"{text} {handle.run_id}\n"
    await handle.call(
        call_id,
        "write",
        [path, text],
        lambda: asyncio.to_thread(_append, path, line),
        repeatable=False,
    )


async def _sleep(handle: RunHandle, call_id: str, seconds: float) -> None:
    """Work for a while."""
    await handle.call(
        call_id,
        "sleep",
        seconds,
        lambda: _work(handle, float(seconds)),
        repeatable=True,
    )


async def _ask(handle: RunHandle, call_id: str, question: str) -> None:
    """Ask a person and wait."""
    asked = cmd.AskUser(task_id=handle.task.id, question=question, call_id=call_id)
    await _wait(handle, call_id, asked)


async def _timer(handle: RunHandle, call_id: str, seconds: float) -> None:
    """Wait for a number of seconds."""
    due = handle.now() + timedelta(seconds=float(seconds))
    timer = cmd.SetTimer(task_id=handle.task.id, due_at=due, call_id=call_id)
    await _wait(handle, call_id, timer)


async def _children(handle: RunHandle, call_id: str, briefs: list[Any]) -> None:
    """Create subtasks."""
    for index, fields in enumerate(briefs):
        await _child(handle, f"{call_id}-{index}", fields)
    await handle.call(call_id, "children", None, _nothing, repeatable=True)


async def _block(handle: RunHandle, call_id: str, fields: dict[str, Any]) -> None:
    """Create a subtask and wait for it."""
    child = await _child(handle, f"{call_id}-0", fields)
    awaited = cmd.AwaitSubtask(task_id=handle.task.id, child_id=child, call_id=call_id)
    await _wait(handle, call_id, awaited)


async def _raise_error(_: RunHandle, __: str, text: str) -> None:
    """Fail the run."""
    raise RuntimeError(text)


async def _kill(_: RunHandle, __: str) -> None:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)


async def _finish(handle: RunHandle, _: str, text: str) -> None:
    """End with a final message."""
    if handle.task.completion == "explicit":
        await handle.do(cmd.CompleteTask(task_id=handle.task.id, summary=text))
    else:
        await handle.do(cmd.FinishRun(task_id=handle.task.id, final_message=text))


async def _end_run(handle: RunHandle, call_id: str) -> None:
    """End the run without completing, also after a reminder of open steps."""
    done = _end_call(handle, call_id, "wait")
    finish = cmd.FinishRun(task_id=handle.task.id, final_message="more to come")
    await handle.do(finish, done)
    if not handle.over and handle.task.reminded:
        await _deliver(handle)
        await handle.do(finish, done)


async def _wait(handle: RunHandle, call_id: str, command: cmd.Command) -> None:
    """Start to wait and yield; after waking, continue with the next step."""
    outcome = await handle.do(command, _end_call(handle, call_id, type(command).__name__))
    if outcome.entries:
        await handle.do(cmd.YieldRun(task_id=handle.task.id))


async def _child(handle: RunHandle, key: str, fields: Mapping[str, Any]) -> str:
    """Create a subtask once, and return its id."""
    from remit.domain.records.validate import parse

    whole = {
        "owner": handle.task.owner,
        "idempotency_key": f"{handle.task.id}/{key}",
        **fields,
        "task_id": handle.task.id,
    }
    return (await handle.do(parse(cmd.CreateSubtask, whole))).task_id


class _Step(NamedTuple):
    """A kind of step: how it is carried out, and the types of its values."""

    act: Callable[..., Awaitable[None]]
    kinds: tuple[Any, ...] = ()

    def accepts(self, given: Sequence[Any]) -> bool:
        """Return True if a step has values of these types."""
        return len(given) == len(self.kinds) and all(map(isinstance, given, self.kinds))


_STEPS = {
    "say": _Step(_say, (str,)),
    "write": _Step(_write, (str, str)),
    "sleep": _Step(_sleep, (float | int,)),
    "ask": _Step(_ask, (str,)),
    "timer": _Step(_timer, (float | int,)),
    "children": _Step(_children, (list,)),
    "block": _Step(_block, (dict,)),
    "wait": _Step(_end_run),
    "raise": _Step(_raise_error, (str,)),
    "kill": _Step(_kill),
    "finish": _Step(_finish, (str,)),
}
"""The kinds of steps, by name."""


def _script(handle: RunHandle) -> list[list[Any]]:
    """Return the steps in the metadata of a task."""
    metadata = handle.task.given_metadata
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
