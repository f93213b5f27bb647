"""Delegating work from synchronous code: progress, and then the result."""

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing
from typing import Any, NamedTuple, Self, TypeVar

from remit import config
from remit.app.delegation.progress import watch_tasks
from remit.app.delegation.waiting import begin_wait
from remit.app.reading.views import awaited_kinds
from remit.app.runs.live_workers import left_alone
from remit.bootstrap.embedded_worker import embedded_worker
from remit.bootstrap.library import operator
from remit.bootstrap.workspace import open_workspace
from remit.catalog import AppContext, Caller, attend, call
from remit.client import RemitClient
from remit.config import Settings
from remit.domain.task.task import State, Task
from remit.errors import Conflict
from remit.surfaces.shutdown import ending_signals, quit_at
from remit.surfaces.text.last_line import stopped_line

T = TypeVar("T")
Result = dict[str, Any]


class Ending(NamedTuple):
    """Callbacks for signals that end a wait; both are called from the signal handler."""

    stopping: Callable[[int], None]
    """Called with the first signal."""
    quit_line: Callable[[], str] = stopped_line
    """The last lines of the process at the second signal."""


AT_REST = ("draft", "paused", "done", "failed", "canceled")
"""The states in which a task stays until a person acts on it, or forever."""
ONE_DAY = 86_400
OPENED: Result = {"type": "opened"}
"""The item before which no task was created."""


def delegate_now(
    settings: Settings,
    operation: str,
    fields: Mapping[str, Any],
    ending: Ending,
    *,
    everything: bool = False,
) -> Generator[Result]:
    """Delegate work: yield progress, each result, and finally `end` with the answer.

    The item `opened` comes first; before it, no task was created. An item `left_alone` has the ids
    of unfinished tasks that no worker works on, if there are any. The first Ctrl-C or SIGTERM calls
    `ending.stopping`, ends the wait and hands over the runs of this process; the second ends the
    process.
    """
    if settings.get("url"):
        return each(_remote(settings, operation, fields), ending)
    return each(_local(settings, operation, fields, everything=everything), ending)


def attend_now(
    settings: Settings, task_id: str, ending: Ending, *, everything: bool = False
) -> Generator[Result]:
    """Run a task now until it ends or waits for a person: yield the state of the task and its
    subtasks after each change.

    A worker of this process runs it if no other one does; items `left_alone` are as for
    `delegate_now`. A task that cannot run now is refused (Conflict).
    """
    if settings.get("url"):
        items = _remote_run(settings, task_id)
    else:
        items = _run_here(settings, task_id, everything=everything)
    return each(_until_rest(items, task_id), ending)


class _Interrupt:
    """Handles signals during a wait: the first cancels the wait, the second ends the process."""

    def __init__(self, ending: Ending) -> None:
        self._ending = ending
        self._handled = ending_signals()
        self._task: asyncio.Task[Any] | None = None
        self._number: int = signal.SIGINT
        self.begun = False

    def __enter__(self) -> Self:
        for number in self._handled:
            signal.signal(number, self._first)
        return self

    def __exit__(self, *_: object) -> None:
        if self.begun:  # last messages must not delay a process that stops
            return
        for number, handler in self._handled.items():
            signal.signal(number, handler)

    @property
    def error(self) -> KeyboardInterrupt:
        """The exception that ends the wait; it has the number of the signal."""
        return KeyboardInterrupt(self._number)

    async def canceled_by(self, work: AsyncGenerator[T]) -> T:
        """Return the next item, unless a signal comes first."""
        self._task = asyncio.current_task()
        if self.begun:  # the signal came before there was a task to cancel
            raise self.error
        try:
            return await anext(work)
        except asyncio.CancelledError:
            if self.begun:
                raise self.error from None
            raise
        finally:
            self._task = None

    def quit_from_now_on(self) -> None:
        """Make the next signal end the process."""
        quit_at(self._handled, self._ending.quit_line)

    def _first(self, number: int, _frame: object) -> None:
        """End the wait at the first signal."""
        self.quit_from_now_on()
        self._number, self.begun = number, True
        self._ending.stopping(number)
        if self._task is not None:
            self._task.get_loop().call_soon_threadsafe(self._task.cancel)


def each(items: AsyncGenerator[T], ending: Ending) -> Generator[T]:
    """Yield the items of an async generator until a signal ends the wait for the next one."""

    async def close() -> None:
        await items.aclose()

    with _Interrupt(ending) as interrupt, asyncio.Runner() as runner:
        try:
            while True:
                if interrupt.begun:  # the signal came between two items
                    raise interrupt.error
                try:
                    yield runner.run(interrupt.canceled_by(items))
                except StopAsyncIteration:
                    return
        finally:
            interrupt.quit_from_now_on()
            runner.run(close())


async def _until_rest(items: AsyncGenerator[Result], task_id: str) -> AsyncGenerator[Result]:
    """Yield the items of a task until it ends or waits for a person.

    A successor takes its place if it is handed to another agent.
    """
    async with aclosing(items):
        async for item in items:
            if "state" not in item and item["type"] != "left_alone":
                continue
            yield item
            if item.get("task_id") != task_id:
                continue
            if successor := item.get("superseded_by"):
                task_id = successor
            elif _rests(item):
                return


def _rests(item: Result) -> bool:
    """Return True if the task has ended or waits for a person.

    A task that waits for its subtasks continues by itself.
    """
    asks = item["state"] == "waiting" and bool(item["questions"])
    return asks or item["state"] in AT_REST


async def _run_here(
    settings: Settings, task_id: str, *, everything: bool
) -> AsyncGenerator[Result]:
    """Run a task with a worker of this process, if no other worker does."""
    async with open_workspace(settings, create=False, to_write=True) as core:
        await _wake(core, task_id, Caller(actor=operator()))
        worker = embedded_worker(core, settings, everything=everything)
        async with (
            worker,
            aclosing(_with_left_alone(core, watch_tasks(core, {task_id: 0}))) as items,
        ):
            async for item in items:
                yield item


async def _wake(core: AppContext, task_id: str, caller: Caller) -> None:
    """Make a task run now; an interrupted one only needs a worker.

    The wait is recorded before the task runs, so that the task does not wait for a tick.
    """
    task = await core.service.load(task_id)
    held = (await core.task(task_id))["held_by"]
    if _can_start(task, is_held=bool(held)):
        await begin_wait(core, task, caller)  # which may wake the task for another worker
        if (await core.service.load(task_id)).state.terminal:  # its answer was there already
            return
    try:
        await call(core, "run_task", {"task_id": task_id}, caller)
    except Conflict:
        now = await core.service.load(task_id)
        was_taken = _was_taken_by_worker(task, now)
        if not (was_taken or _waits_for_others(now) or await _was_left(core, task_id, now)):
            raise
    await begin_wait(core, await core.service.load(task_id), caller)


def _can_start(task: Task, *, is_held: bool) -> bool:
    """Return True if a call cannot refuse to run the task, so that a wait may be recorded.

    A slot does not keep a task from starting.
    """
    if task.waits_for_tick:
        return True
    return not is_held and task.state in (State.PENDING, State.WAITING)


def _was_taken_by_worker(before: Task, now: Task) -> bool:
    """Return True if a worker started the task first; it may already have ended."""
    if before.state is not State.PENDING and not before.waits_for_tick:
        return False
    return now.in_flight or now.state.terminal


def _waits_for_others(task: Task) -> bool:
    """Return True if a task continues by itself when its wait is over."""
    return task.state is State.WAITING and not task.questions


async def _was_left(core: AppContext, task_id: str, task: Task) -> bool:
    """Return True if a task was interrupted and no worker works on it."""
    if not task.in_flight or task.session_id is not None:
        return False
    return bool(await core.unattended([task_id]))


async def _remote_run(settings: Settings, task_id: str) -> AsyncGenerator[Result]:
    """Run a task through a server.

    The wait wakes a task that waits for its tick; it is recorded before the task runs.
    """
    async with RemitClient(settings.get("url"), config.server_token(settings)) as client:
        await _wake_through(client, task_id)
    async with aclosing(
        _remote(settings, "task_output", {"task_id": task_id, "wait_seconds": ONE_DAY})
    ) as items:
        async for item in items:
            yield item


async def _wake_through(client: RemitClient, task_id: str) -> None:
    """Make a task run now, unless it continues by itself.

    The wait settles a task about which remit itself has asked.
    """
    task = await client.call("get_task", task_id=task_id)
    if _goes_on(task):
        return
    if task["state"] == "waiting":
        await client.call("task_output", task_id=task_id)
        task = await client.call("get_task", task_id=task_id)
        if task["state"] != "waiting":
            return
    await client.call("run_task", task_id=task_id)


def _goes_on(task: Result) -> bool:
    """Return True for a task that waits, but not for a person: it continues by itself."""
    kinds = awaited_kinds(task)
    return task["state"] == "waiting" and bool(kinds) and "user" not in kinds


async def _remote(
    settings: Settings, operation: str, fields: Mapping[str, Any]
) -> AsyncGenerator[Result]:
    """Delegate work through a server."""
    async with (
        RemitClient(settings.get("url"), config.server_token(settings)) as client,
        aclosing(client.attend(operation, **fields)) as items,
    ):
        yield OPENED
        async for item in items:
            yield item


async def _local(
    settings: Settings, operation: str, fields: Mapping[str, Any], *, everything: bool
) -> AsyncGenerator[Result]:
    """Delegate work in this process."""
    caller = Caller(actor=operator())
    async with (
        open_workspace(settings, to_write=True) as core,
        embedded_worker(core, settings, everything=everything),
        aclosing(_with_left_alone(core, attend(core, operation, fields, caller))) as items,
    ):
        yield OPENED
        async for item in items:
            yield item


async def _with_left_alone(
    core: AppContext, items: AsyncGenerator[Result, None]
) -> AsyncGenerator[Result, None]:
    """Yield the items; before the first one, the unfinished tasks that the worker of this process
    does not serve.
    """
    first = True
    async with aclosing(items):
        async for item in items:
            if first and core.scope is not None and (task_ids := await left_alone(core)):
                yield {"type": "left_alone", "task_ids": task_ids}
            first = False
            yield item
