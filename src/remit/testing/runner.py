"""A runner that follows the script in a task's metadata instead of asking a model."""

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from remit.app.activation import Activation, CallRecord
from remit.domain import command as cmd


class Scripted:
    """A runner that carries out the steps in a task's metadata.

    | step | what it does |
    |---|---|
    | `["say", text]` | a message to people |
    | `["write", path, text]` | appends a line to a file: an effect that must happen once |
    | `["sleep", seconds]` | works for a while, in small pieces, and can be stopped between them |
    | `["ask", question]` | asks a person and waits |
    | `["children", [fields, …]]` | makes subtasks, which wake the task when they end |
    | `["block", fields]` | makes a subtask and waits for it |
    | `["timer", seconds]` | waits for a point in time |
    | `["wait"]` | ends the run without completing; the next wake or tick goes on |
    | `["raise", text]` | a run that fails |
    | `["kill"]` | kills this process, as a crash does |
    | `["finish", text]` | the final message; without one the script ends with "done" |
    """

    async def run(self, activation: Activation) -> None:
        """Do what is left of the script."""
        steps = _script(activation)
        while not activation.over:
            if not await activation.may_go_on():
                return await activation.release()
            await self._deliver(activation)
            number = await _next(activation, len(steps))
            step = steps[number] if number < len(steps) else ["finish", "done"]
            await self._do(activation, number, step)
        return None

    async def _deliver(self, activation: Activation) -> None:
        if activation.task.queued:
            await activation.do(cmd.DeliverUpdates(task_id=activation.task.id))

    async def _do(self, activation: Activation, number: int, step: list[Any]) -> None:
        task_id, call_id = activation.task.id, f"step-{number}"
        match step:
            case ["say", str(text)]:
                await activation.do(cmd.NotifyUser(task_id=task_id, message=text), _done(activation, call_id, "say"))
            case ["write", str(path), str(text)]:
                line = f"{text} {activation.run_id}\n"
                await activation.call(call_id, "write", [path, text], lambda: asyncio.to_thread(_append, path, line), repeatable=False)
            case ["sleep", float() | int() as seconds]:
                await activation.call(call_id, "sleep", seconds, lambda: _work(activation, float(seconds)), repeatable=True)
            case ["ask", str(question)]:
                await self._wait(activation, call_id, cmd.AskUser(task_id=task_id, question=question, call_id=call_id))
            case ["timer", float() | int() as seconds]:
                due = activation.now() + timedelta(seconds=float(seconds))
                await self._wait(activation, call_id, cmd.SetTimer(task_id=task_id, due_at=due, call_id=call_id))
            case ["children", list()]:
                for index, fields in enumerate(cast("list[dict[str, Any]]", step[1])):
                    await self._child(activation, f"{call_id}-{index}", fields)
                await activation.call(call_id, "children", None, _nothing, repeatable=True)
            case ["block", dict()]:
                child = await self._child(activation, f"{call_id}-0", cast("dict[str, Any]", step[1]))
                await self._wait(activation, call_id, cmd.AwaitSubtask(task_id=task_id, child_id=child, call_id=call_id))
            case ["wait"]:
                await self._rest(activation, _done(activation, call_id, "wait"))
            case ["raise", str(text)]:
                raise RuntimeError(text)
            case ["kill"]:
                os.kill(os.getpid(), signal.SIGKILL)
            case ["finish", str(text)] if activation.task.completion == "explicit":
                await activation.do(cmd.CompleteTask(task_id=task_id, summary=text))
            case ["finish", str(text)]:
                await activation.do(cmd.FinishRun(task_id=task_id, final_message=text))
            case _:
                await activation.do(cmd.FailRun(task_id=task_id, error=f"Unknown step {step!r}.", permanent=True))

    async def _rest(self, activation: Activation, done: CallRecord) -> None:
        """End the run without completing; a reminder of open steps is answered by ending it again."""
        finish = cmd.FinishRun(task_id=activation.task.id, final_message="more to come")
        await activation.do(finish, done)
        if not activation.over and activation.task.reminded:
            await self._deliver(activation)
            await activation.do(finish, done)

    async def _wait(self, activation: Activation, call_id: str, command: cmd.Command) -> None:
        """Begin to wait and yield; woken again, the step is behind us."""
        outcome = await activation.do(command, _done(activation, call_id, type(command).__name__))
        if outcome.entries:
            await activation.do(cmd.YieldRun(task_id=activation.task.id))

    async def _child(self, activation: Activation, key: str, fields: Mapping[str, Any]) -> str:
        from remit.domain.shape import parse

        whole = {"owner": activation.task.owner, "idempotency_key": f"{activation.task.id}/{key}", **fields, "task_id": activation.task.id}
        return (await activation.do(parse(cmd.CreateSubtask, whole))).task_id


def _script(activation: Activation) -> list[list[Any]]:
    metadata = activation.task.metadata or {}
    return [list(step) for step in metadata.get("script", [])]


async def _next(activation: Activation, length: int) -> int:
    """The first step that has not ended; a write whose end nobody saw is not made again."""
    for number in range(length):
        known = await activation.known_call(f"step-{number}")
        if known is None or known.status == "started":
            return number
    return length


def _done(activation: Activation, call_id: str, tool: str) -> CallRecord:
    return activation.ended(activation.begun(call_id, tool, None, repeatable=True), "done", None)


def _append(path: str, line: str) -> str:
    with Path(path).open("a") as file:
        file.write(line)
    return "written"


async def _work(activation: Activation, seconds: float) -> str:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await activation.stopping.wait()
    return "slept"


async def _nothing() -> str:
    return ""
