"""The live runs of a worker: how they learn of changes in the store, and how they are stopped."""

import asyncio
from collections.abc import Callable, Generator, Sequence, Set
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial

from remit.app.engine.task_log import TaskLog
from remit.app.runs.run_handle import RunHandle
from remit.app.service import Service
from remit.domain.task import commands as cmd
from remit.domain.task.task import State, Task
from remit.errors import RemitError
from remit.ports import Clock, Store
from remit.store_queries.run_queries import LIVE_RUNS, LiveRun

SYSTEM = "system:engine"
LOOK_SECONDS = 0.1
"""How often at most live runs are compared with the store while it changes."""
GRACE_SECONDS = 0.05
GONE = "its run is over"
"""Why a run was stopped from outside."""


class LiveRuns:
    """The runs that are live in this process."""

    def __init__(
        self, store: Store, service: Service, clock: Clock, task_log: TaskLog | None
    ) -> None:
        self._store, self._service, self._clock = store, service, clock
        self._task_log = task_log
        self.silent_since: Callable[[], datetime | None] = lambda: None
        """Returns the time of the last heartbeat if it is older than a lease, else None."""
        self.stopping = asyncio.Event()
        self.at_once = False
        """True if runs must not even begin."""
        self._live: dict[str, tuple[RunHandle, asyncio.Task[object]]] = {}
        """Each run with the asyncio task that carries it out."""
        self.handed_over: set[str] = set()
        """The tasks that were given back to the queue because this process stops."""
        self._paused: set[str] = set()
        """The runs of paused tasks that have not noticed it yet."""

    @contextmanager
    def added(self, run: RunHandle, running: asyncio.Task[object]) -> Generator[None]:
        """Count a run as live within a block."""
        run.exclude_silence = partial(self._exclude_silence, run)
        self._live[run.run_id] = (run, running)
        self._tell(run, paused=False)
        try:
            yield
        finally:
            self._live.pop(run.run_id, None)
            self._paused.discard(run.run_id)
            if self.stopping.is_set() and run.over and run.task.state is State.PENDING:
                self.handed_over.add(run.task.id)

    def stop(self) -> None:
        """Tell every run to release its task at its next boundary."""
        self.stopping.set()
        for run, _ in self._live.values():
            run.stopping.set()

    def hand_over(self) -> None:
        """Stop every run where it is, even in the middle of a call, and release its task at
        once.
        """
        self.stop()
        self.at_once = True
        for run, running in self._live.values():
            if not run.handed_over and not run.over:  # a run that is over only cleans up
                run.handed_over = True
                running.cancel()

    async def exclude_silence(self) -> None:
        """Exclude the time in which this process stood still from the clocks of its own runs."""
        for run, _ in tuple(self._live.values()):
            await self._exclude_silence(run)

    async def _exclude_silence(self, run: RunHandle) -> None:
        """Exclude that time from the clock of one run."""
        since = self.silent_since()
        if since is None or run.over:
            return
        task = await self._service.load(run.task.id)
        if _is_live(run, task):
            excluded = cmd.ExcludeDowntime(task_id=task.id, since=since, until=self._clock.now())
            await self._service.execute(excluded, SYSTEM)

    async def watch(self) -> None:
        """Stop every run at once that is no longer live in the store, because its task was
        canceled, ended or taken over. Tell runs whose task was paused.
        """
        async with self._store.watch() as watch:
            while True:
                await watch.wait()
                await self._compare()
                await asyncio.sleep(LOOK_SECONDS)

    async def _compare(self) -> None:
        """Compare the live runs with the store; tell them about changes, and stop lost ones."""
        if not self._live:
            return
        mine = {run_id: run for run_id, (run, _) in self._live.items()}
        with suppress(RemitError):
            ids = [int(run.task.id) for run in mine.values()]
            found = await self._store.select(LIVE_RUNS, {"ids": ids})
            rows = {row.run_id: row for row in found}
            known = mine.keys() & rows.keys()
            for run_id in known:
                await self._notice(mine[run_id], paused=rows[run_id].state == State.PAUSED)
            await self._tell_changes(
                [mine[run_id] for run_id in known if _has_changed(mine[run_id], rows[run_id])]
            )
            await self._stop_lost(mine.keys() - known)

    async def _stop_lost(self, run_ids: Set[str]) -> None:
        """Cancel runs that are no longer live, except those that have just ended themselves."""
        if not run_ids:
            return
        await asyncio.sleep(GRACE_SECONDS)
        for run_id in run_ids & self._live.keys():
            _, running = self._live[run_id]
            running.cancel(GONE)

    async def _tell_changes(self, runs: Sequence[RunHandle]) -> None:
        """Tell runs how others have changed their tasks."""
        changed = {run.task.id: run for run in runs}
        for task in await self._service.tasks(changed):
            run = changed[task.id]
            if not run.over and _is_live(run, task):
                run.tell(task)

    async def _notice(self, run: RunHandle, *, paused: bool) -> None:
        """Log that a live run was paused or resumed, and tell it."""
        was_paused = run.run_id in self._paused
        if paused != was_paused:
            self._paused ^= {run.run_id}
            await self._log_news(run)
        self._tell(run, paused=paused)

    async def _log_news(self, run: RunHandle) -> None:
        """Log what people have just done to the task of a live run."""
        if self._task_log is None:
            return
        with suppress(RemitError):  # a run must not fail because of its log
            await self._task_log.log_news(run.task)

    def _tell(self, run: RunHandle, *, paused: bool) -> None:
        """Tell a run whether it should stop at its next boundary."""
        if paused or self.stopping.is_set():
            run.stopping.set()
        else:
            run.stopping.clear()


def _is_live(run: RunHandle, task: Task) -> bool:
    """Return whether a run is the live run of its task."""
    return task.run_id == run.run_id


def _has_changed(run: RunHandle, row: LiveRun) -> bool:
    """Return whether the task of a run has a newer version than the run knows."""
    return row.version > max(run.task.version, run.told_version)
