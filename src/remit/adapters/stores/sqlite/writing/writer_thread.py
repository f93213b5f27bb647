"""The thread that writes: it commits for all callers together, and answers them."""

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Any

from remit.adapters.stores.high_water_mark import MarkKeeper
from remit.adapters.stores.sqlite.watches import Watches, call_in_loops
from remit.adapters.stores.sqlite.writing.opened_file import OpenedFile
from remit.adapters.stores.sqlite.writing.writer import Answers, Request, Work
from remit.errors import Unacknowledged, Unavailable
from remit.ports import Unit

log = logging.getLogger("remit.sqlite")

BATCH = 256
UNKNOWN = "It is not known whether the change was stored. Check before you try again."


class WriterThread:
    """Takes requests from a queue, and has the writer of the opened file answer them."""

    def __init__(
        self,
        requests: SimpleQueue[Request | None],
        opened: OpenedFile,
        watches: Watches,
        keeper: MarkKeeper,
    ) -> None:
        self._requests, self._opened = requests, opened
        self._watches, self._keeper = watches, keeper
        self._thread = threading.Thread(target=self._work, name="remit-writer", daemon=True)
        self._thread.start()
        self._closed = False

    async def ask(self, *, ids: int = 0, unit: Unit | None = None, work: Work | None = None) -> Any:
        """Have the thread do something, and return its answer."""
        self.must_be_open()
        reply = asyncio.get_running_loop().create_future()
        self._requests.put(Request(reply, ids, unit, work, time.monotonic()))
        return await reply

    def must_be_open(self) -> None:
        """Raise Unavailable once the store is closed."""
        if self._closed:
            raise Unavailable(f"The store {self._opened.path} is closed.")

    async def close(self) -> None:
        """Finish accepted requests and close the file."""
        if not self._closed:
            self._closed = True
            self._requests.put(None)
            await asyncio.to_thread(self._finish)

    def _finish(self) -> None:
        """End the thread, and close the file."""
        self._thread.join()
        self._keeper.close()
        self._opened.close()

    def _work(self) -> None:
        """Commit all waiting requests together and answer them, until stopped."""
        open_for_more = True
        while open_for_more:
            batch, open_for_more = self._take()
            if batch:
                self._serve_safely(batch)

    def _take(self) -> tuple[list[Request], bool]:
        """Return the waiting requests, up to a batch, and whether more may come."""
        batch: list[Request] = []
        while len(batch) < BATCH:
            try:
                request = self._requests.get(block=not batch)
            except Empty:
                break
            if request is None:
                return batch, False
            batch.append(request)
        return batch, True

    def _serve_safely(self, batch: list[Request]) -> None:
        """Answer all requests, whatever happens."""
        path = self._opened.path
        try:
            self._serve(batch)
        except Exception as error:
            log.exception("the store %s failed unexpectedly", path)
            message = f"The store {path} failed unexpectedly: {type(error).__name__}."
            surprise = Unacknowledged(message, hint=UNKNOWN)
            _tell([(request.reply, surprise) for request in batch])

    def _serve(self, batch: list[Request]) -> None:
        """Answer a batch, and notify watchers of its commits."""
        self._opened.reopen_if_replaced()
        lost = self._opened.lost
        if lost is not None:
            _tell([(request.reply, lost) for request in batch])
            return
        answers = self._opened.writer.answer(batch)
        if any(request.unit for request in batch):
            self._watches.notify()
        _tell(answers)
        self._keeper.wake()


def _tell(answers: Answers) -> None:
    """Wake the callers, with one call into each event loop for the whole batch."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], object]]] = {}
    for reply, answer in answers:
        if reply is not None:
            loops.setdefault(reply.get_loop(), []).append((reply, answer))
    call_in_loops(_settle, loops)


def _settle(answers: Sequence[tuple[asyncio.Future[Any], object]]) -> None:
    for reply, answer in answers:
        if reply.done():
            continue
        if isinstance(answer, Exception):
            reply.set_exception(answer)
        else:
            reply.set_result(answer)
