"""remit without async: blocking calls on an event loop in its own thread."""

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from remit.api.closable import closed_error
from remit.api.methods import SyncOperations, SyncOperationStreams
from remit.api.streaming import Streams
from remit.errors import Conflict, Unavailable
from remit.results import Event, IndexedResult, Readiness

if TYPE_CHECKING:
    from remit.inputs import WorkInput

T = TypeVar("T")
R = TypeVar("R", bound=Streams)
_END: Any = object()


class SyncRemit(SyncOperations, SyncOperationStreams):
    """A workspace or a server with blocking calls: `with Remit.open_sync() as remit: …`.

    Calls run on an event loop in its own thread, so they also work inside a running event loop,
    such as that of a notebook. Ctrl-C ends the wait, not the task.
    """

    def __init__(self, opened: Callable[[], AbstractAsyncContextManager[Streams]]) -> None:
        self._thread = _LoopThread(opened)
        self._thread.start()

    def close(self) -> None:
        """Close everything and release live runs; later calls raise `Unavailable`."""
        self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @overload
    def stream_parallel(
        self,
        tasks: "Sequence[str | WorkInput]",
        *,
        output_type: type[T],
        timeout_seconds: float | None = None,
        session_id: str | None = None,
    ) -> Generator[IndexedResult[T], None, None]: ...

    @overload
    def stream_parallel(
        self,
        tasks: "Sequence[str | WorkInput]",
        *,
        output_type: None = None,
        timeout_seconds: float | None = None,
        session_id: str | None = None,
    ) -> Generator[IndexedResult[None], None, None]: ...

    def stream_parallel(
        self, tasks: "Sequence[str | WorkInput]", **common: Any
    ) -> Generator[IndexedResult[Any], None, None]:
        """Delegate several tasks; yield each result as it settles."""
        return self._thread.iterate(lambda remit: remit.stream_parallel(tasks, **common))

    def events(
        self, after: str | None = None, task_id: str | None = None
    ) -> Generator[Event, None, None]:
        """Follow the events of all tasks or of one, from now on or after a position.

        The position "" is the beginning.
        """
        return self._thread.iterate(lambda remit: remit.events(after, task_id))

    def ready(self) -> Readiness:
        """Check that the store responds; return the workers and the queues."""
        found: Readiness = self._run(lambda remit: remit.ready())
        return found

    def _run(self, ask: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        return self._thread.run(ask)

    def _iterate(
        self, ask: Callable[[Any], AsyncGenerator[Any, None]]
    ) -> Generator[Any, None, None]:
        return self._thread.iterate(ask)


class _LoopThread(Generic[R]):
    """A thread whose event loop keeps a context open and runs coroutines for other threads."""

    def __init__(self, opened: Callable[[], AbstractAsyncContextManager[R]]) -> None:
        self._opened = opened
        self._process = os.getpid()
        self._ready: Future[R] = Future()
        self._lock = threading.Lock()
        self._is_closed = False
        self._calls: set[_Call[Any]] = set()
        self._streams: set[AsyncGenerator[Any, None]] = set()
        self._error: BaseException | None = None
        self._opening: asyncio.Task[Any] | None = None
        """The task that opens the context; None once it is open."""
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        # A daemon thread: a program that does not close remit must still be able to exit.
        self._thread = threading.Thread(target=self._main, name="remit", daemon=True)

    def start(self) -> None:
        """Open the context; raise the errors of opening it."""
        self._thread.start()
        _close_at_exit(weakref.ref(self))
        try:
            self._ready.result()
        except BaseException:
            self._error = None
            self.close()
            raise

    def run(self, ask: Callable[[R], Awaitable[T]]) -> T:
        """Run a coroutine on the loop and wait for it; Ctrl-C during the wait cancels it."""
        self._check_process()
        if threading.current_thread() is self._thread:
            raise Conflict(
                "A blocking call cannot be made in remit's own event loop.",
                hint="Use the coroutines of Remit.open() there.",
            )
        call = _Call(ask)
        with self._lock:
            if self._is_closed:
                raise closed_error()
            self._calls.add(call)
        try:
            self._loop.call_soon_threadsafe(call.start, self._loop, self._ready.result())
            return call.result(self._loop)
        finally:
            self._calls.discard(call)

    def iterate(self, ask: Callable[[R], AsyncGenerator[T, None]]) -> Generator[T, None, None]:
        """Yield the items of an async generator that runs on the loop."""
        items = self.run(lambda remit: self._begin(ask(remit)))
        try:
            while (item := self.run(lambda _: anext(items, _END))) is not _END:
                yield item
        finally:
            if self._is_own_process() and not self._is_closed:
                self.run(lambda _: self._finish(items))

    def close(self) -> None:
        """Close the context and end the thread; raise the errors of closing it.

        In a forked process, which has no such thread, nothing is closed.
        """
        if not self._is_own_process():
            return
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        if not was_closed and self._thread.is_alive() and hasattr(self, "_stop"):
            self._loop.call_soon_threadsafe(self._end)
        self._thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _is_own_process(self) -> bool:
        """Return True unless this process is a fork of the one that opened the context."""
        return os.getpid() == self._process

    def _check_process(self) -> None:
        """Refuse a call in a forked process, which has neither the thread nor SQLite's locks."""
        if not self._is_own_process():
            raise Unavailable(
                "This Remit was opened in another process.",
                hint="Start processes with the method spawn, and call open_sync() in each.",
            )

    def _main(self) -> None:
        try:
            asyncio.run(self._hold())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that opens or closes
            was_stopped = isinstance(error, asyncio.CancelledError) and self._is_closed
            self._error = None if was_stopped else error
            if not self._ready.done():
                self._ready.set_exception(error)
        with self._lock:
            self._is_closed = True
            left = list(self._calls)
        for call in left:
            call.abandon()

    async def _hold(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._opening = asyncio.current_task()
        self._loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix="remit"))
        async with self._opened() as remit:
            self._opening = None
            self._ready.set_result(remit)
            if not self._is_closed:  # closed while it was being opened
                await self._stop.wait()
            await self._end_calls()

    def _end(self) -> None:
        """End the block; a context that is still being opened is not waited for."""
        self._stop.set()
        if self._opening is not None:
            self._opening.cancel()

    async def _end_calls(self) -> None:
        """Cancel the running calls before the context that they use is closed."""
        tasks = [call.task for call in list(self._calls) if call.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for items in list(self._streams):
            await self._finish(items)

    async def _begin(self, items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        self._streams.add(items)
        return items

    async def _finish(self, items: AsyncGenerator[Any, None]) -> None:
        self._streams.discard(items)
        await items.aclose()


class _Call(Generic[T]):
    """One call from another thread."""

    def __init__(self, ask: Callable[[Any], Awaitable[T]]) -> None:
        self._ask = ask
        self._outcome: Future[T] = Future()
        self.task: asyncio.Task[T] | None = None

    def start(self, loop: asyncio.AbstractEventLoop, remit: Any) -> None:
        """Start on the loop."""
        self.task = loop.create_task(self._work(remit))
        self.task.add_done_callback(self._end)

    def result(self, loop: asyncio.AbstractEventLoop) -> T:
        """Return or raise the result in the calling thread."""
        try:
            return self._outcome.result()
        except CancelledError:
            raise closed_error() from None
        except BaseException:
            if not self._outcome.done():
                loop.call_soon_threadsafe(self._cancel)
                self._outcome.exception()
            raise

    def abandon(self) -> None:
        """Tell the caller that the loop has ended."""
        if not self._outcome.done():
            self._outcome.set_exception(CancelledError())

    async def _work(self, remit: Any) -> T:
        return await self._ask(remit)

    def _cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def _end(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self._outcome.set_exception(CancelledError())
        elif (error := task.exception()) is not None:
            self._outcome.set_exception(error)
        else:
            self._outcome.set_result(task.result())


def _close_at_exit(thread: "weakref.ref[_LoopThread[Any]]") -> None:
    """Close a thread that the program did not close, before executors are shut down."""

    def close() -> None:
        if (left := thread()) is not None:
            left.close()

    # concurrent.futures uses this hook; plain atexit handlers run after all executors have ended.
    register: Callable[[Callable[[], None]], object] = getattr(
        threading, "_register_atexit", atexit.register
    )
    register(close)
