"""Delegating work from a program that is not asynchronous: what happens meanwhile, and then the result."""

import asyncio
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing
from typing import Any, Self

from remit import config
from remit.app.attendance import left_alone
from remit.app.delegate import begin_wait
from remit.app.progress import watched
from remit.bootstrap.api import operator
from remit.bootstrap.stop import at_once
from remit.bootstrap.worker import embedded_worker
from remit.bootstrap.workspace import open_workspace
from remit.catalog import Caller, Core, attend, call
from remit.client import RemitClient
from remit.config import Settings
from remit.domain.value import State
from remit.errors import Conflict

Result = dict[str, Any]
Stopping = Callable[[], None]

AT_REST = ("draft", "paused", "done", "failed", "canceled")
"""The states in which a task stays until a person acts on it, or for good."""
ONE_DAY = 86_400
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that end a wait: Ctrl-C, a supervisor, a terminal that is closed."""


def delegate_now(
    settings: Settings,
    operation: str,
    fields: Mapping[str, Any],
    stopping: Stopping,
    *,
    everything: bool = False,
) -> Generator[Result]:
    """Delegate work: what goes on meanwhile, each result as it comes, and last `end` with the answer.

    An item `left_alone` has the ids of unfinished tasks that no worker works on, if there are any.
    The first Ctrl-C or SIGTERM calls `stopping`, ends the wait and hands over what runs here; the second ends the process.
    """
    if settings.get("url"):
        return _each(_remote(settings, operation, fields), stopping)
    return _each(_local(settings, operation, fields, everything=everything), stopping)


def attend_now(settings: Settings, task_id: str, stopping: Stopping, *, everything: bool = False) -> Generator[Result]:
    """Run a task now and wait until it rests: how it and its subtasks stand, whenever that changes.

    A worker of this process works on it if no other one does; items `left_alone` are as for `delegate_now`.
    A task that cannot run now is refused (Conflict).
    """
    items = _remote_run(settings, task_id) if settings.get("url") else _run_here(settings, task_id, everything=everything)
    return _each(_until_rest(items, task_id), stopping)


class _Interrupt:
    """A signal that ends a wait, such as Ctrl-C: the first cancels the wait, the second ends the process."""

    def __init__(self, stopping: Stopping) -> None:
        self._stopping = stopping
        self._handled = _unhandled_signals()
        self._task: asyncio.Task[Any] | None = None
        self._number: int = signal.SIGINT
        self.begun = False

    def __enter__(self) -> Self:
        for number in self._handled:
            signal.signal(number, self._first)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handled.items():
            signal.signal(number, handler)

    @property
    def error(self) -> KeyboardInterrupt:
        """What ends the wait; it names the signal."""
        return KeyboardInterrupt(self._number)

    async def canceled_by(self, work: AsyncGenerator[Result]) -> Result:
        """The next item, unless Ctrl-C comes before it."""
        self._task = asyncio.current_task()
        if self.begun:  # it came before there was a task to cancel
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
        """Let the next signal end the process."""
        for number in self._handled:
            signal.signal(number, at_once)

    def _first(self, number: int, _frame: object) -> None:
        self.quit_from_now_on()
        self._number, self.begun = number, True
        self._stopping()
        if self._task is not None:
            self._task.get_loop().call_soon_threadsafe(self._task.cancel)


def _unhandled_signals() -> dict[signal.Signals, Any]:
    """The signals that would end this process as they are now, and their handlers.

    A process that ignores one, as one in the background does, keeps ignoring it; threads cannot handle signals.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    found = {number: signal.getsignal(number) for number in ENDING}
    return {number: handler for number, handler in found.items() if handler in (signal.default_int_handler, signal.SIG_DFL)}


def _each(items: AsyncGenerator[Result], stopping: Stopping) -> Generator[Result]:
    async def close() -> None:
        await items.aclose()

    with _Interrupt(stopping) as interrupt, asyncio.Runner() as runner:
        try:
            while True:
                if interrupt.begun:  # it came between two items
                    raise interrupt.error
                try:
                    yield runner.run(interrupt.canceled_by(items))
                except StopAsyncIteration:
                    return
        finally:
            interrupt.quit_from_now_on()
            runner.run(close())


async def _until_rest(items: AsyncGenerator[Result], task_id: str) -> AsyncGenerator[Result]:
    """The items of a task up to the one with which it rests: it has ended, or it waits for a person.

    If it is handed to another agent, its successor goes on in its place.
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
    """True if the task has ended or waits for a person; a task that waits for its subtasks goes on."""
    asks = item["state"] == "waiting" and bool(item["questions"])
    return asks or item["state"] in AT_REST


async def _run_here(settings: Settings, task_id: str, *, everything: bool) -> AsyncGenerator[Result]:
    async with open_workspace(settings, create=False, to_write=True) as core:
        await _wake(core, task_id, Caller(actor=operator()))
        worker = embedded_worker(core, settings, everything=everything)
        async with worker, aclosing(_with_left_alone(core, watched(core, {task_id: 0}))) as items:
            async for item in items:
                yield item


async def _wake(core: Core, task_id: str, caller: Caller) -> None:
    """Have a task run now; one that was left in the middle of its work only needs a worker.

    That somebody waits for it is recorded before it runs, so that it does not wait for a tick.
    """
    task = await core.service.load(task_id)
    held = (await core.task(task_id))["held_by"]
    if task.state in (State.PENDING, State.WAITING) and not held:  # one that cannot start may be refused, and then nobody waits
        await begin_wait(core, task, caller)
    try:
        await call(core, "run_task", {"task_id": task_id}, caller)
    except Conflict:
        now = await core.service.load(task_id)
        was_faster = task.state is State.PENDING or task.waits_for_tick  # a worker, which may have ended it as well
        has_begun = was_faster and (now.in_flight or now.state.terminal)
        goes_on = now.state is State.WAITING and not now.questions  # when what it waits for has ended
        was_left = now.in_flight and now.session_id is None and bool(await core.unattended([task_id]))
        if not (has_begun or goes_on or was_left):
            raise
    await begin_wait(core, await core.service.load(task_id), caller)


async def _remote_run(settings: Settings, task_id: str) -> AsyncGenerator[Result]:
    """Run a task through a server; one that waits for its tick is woken by the wait, which is recorded before it runs."""
    async with RemitClient(settings.get("url"), config.token(settings)) as client:
        task = await client.call("get_task", {"task_id": task_id})
        if not _goes_on(task):
            await client.call("run_task", {"task_id": task_id})
    async with aclosing(_remote(settings, "task_output", {"task_id": task_id, "wait_seconds": ONE_DAY})) as items:
        async for item in items:
            yield item


def _goes_on(task: Result) -> bool:
    """True for a task that waits, but not for a person: it is only waited for."""
    kinds = {item["kind"] for item in task["wait"]["on"]} if task["wait"] else set[str]()
    return task["state"] == "waiting" and bool(kinds) and "user" not in kinds


async def _remote(settings: Settings, operation: str, fields: Mapping[str, Any]) -> AsyncGenerator[Result]:
    async with RemitClient(settings.get("url"), config.token(settings)) as client, aclosing(client.stream(operation, **fields)) as items:
        async for item in items:
            yield item


async def _local(settings: Settings, operation: str, fields: Mapping[str, Any], *, everything: bool) -> AsyncGenerator[Result]:
    caller = Caller(actor=operator())
    async with (
        open_workspace(settings, to_write=True) as core,
        embedded_worker(core, settings, everything=everything),
        aclosing(_with_left_alone(core, attend(core, operation, fields, caller))) as items,
    ):
        async for item in items:
            yield item


async def _with_left_alone(core: Core, items: AsyncGenerator[Result, None]) -> AsyncGenerator[Result, None]:
    """The same items; before the first one, the unfinished tasks that the worker of this process does not work on."""
    first = True
    async with aclosing(items):
        async for item in items:
            if first and core.scope is not None and (task_ids := await left_alone(core)):
                yield {"type": "left_alone", "task_ids": task_ids}
            first = False
            yield item
