"""The handle of a live run: a runner reads its task and writes through it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, Literal

from remit.app.service import HeldJob, Outcome, Service
from remit.domain.llm.failures import storable
from remit.domain.projection.rows import Change
from remit.domain.projection.tables import BESIDE
from remit.domain.records.record import record, replace
from remit.domain.records.serialize import dumps, instant
from remit.domain.task import commands as cmd
from remit.domain.task.task import State, Task
from remit.errors import StaleRun, Unacknowledged, Unavailable
from remit.ports import Clock, Debit, EventStore
from remit.store_queries.run_queries import CALL

CallStatus = Literal["started", "done", "failed", "denied", "unknown"]


@record
class CallRecord:
    """A stored tool call: started, ended, or started with an unknown outcome."""

    task_id: int
    call_id: str
    run_id: str
    tool: str
    arguments: str
    repeatable: int
    started_at: str
    ended_at: str | None = None
    status: CallStatus = "started"
    result: str | None = None

    def row(self) -> Change:
        """Return the row to write."""
        values: tuple[Any, ...] = attrgetter(*BESIDE["call"].columns)(self)
        return Change("call", values[:2], values)


class ToolFailed(Exception):
    """A tool failed; the message is meant for its caller."""


class ToolDenied(ToolFailed):
    """The call was denied, so it does not count as a use of the tool."""


async def _nothing() -> None:
    """Do nothing."""


def _ignore(_: Task) -> None:
    """Do nothing."""


class RunHandle:
    """A live run of a task, under its fence.

    Every write is refused once the run is over or another worker holds its lease.
    """

    def __init__(
        self,
        service: Service,
        store: EventStore,
        clock: Clock,
        held: HeldJob,
        task: Task,
        stopping: asyncio.Event,
    ) -> None:
        assert task.run is not None
        self._service, self._store, self._clock, self.held = service, store, clock, held
        self._task_id, self.run_id = task.id, task.run.id
        self.stopping = stopping
        """Set while the run should stop at its next boundary.

        Its task is paused, or its worker is about to stop.
        """
        self.handed_over = False
        """True once the run was cancelled in order to release its task at once."""
        self.actor = f"agent:{task.owner}"
        self.unbooked = (0, 0.0)
        """Tokens and cost of answers without a reservation that are not stored yet."""
        self.exclude_silence: Callable[[], Awaitable[None]] = _nothing
        """Excludes the time in which this process stood still from the task's time."""
        self.changed: Callable[[Task], None] = _ignore
        """Called with the task after another writer has changed it."""
        self.told_version = 0
        """The version of the task that `changed` was last called with."""

    async def do(self, command: cmd.Command, *beside: CallRecord) -> Outcome:
        """Execute a command as this run; calls that it completes are recorded with it."""
        return await self.write(command, list(map(CallRecord.row, beside)))

    @property
    def task(self) -> Task:
        """The task as of this run's last read or write."""
        return self.held.seen[self._task_id].task

    async def tasks(self, ids: Iterable[str]) -> list[Task]:
        """Load other tasks."""
        return await self._service.tasks(ids)

    async def write(
        self,
        command: cmd.Command,
        rows: Sequence[Change],
        debit: Debit | None = None,
    ) -> Outcome:
        """Execute a command as this run, with rows and a debit in the same commit."""
        await self.exclude_silence()  # before the command can stop the clock
        return await self._service.execute(
            command,
            self.actor,
            self.run_id,
            self.held,
            rows,
            debit=debit,
        )

    async def keep(self, rows: Sequence[Change], debit: Debit | None = None) -> None:
        """Write rows under the fence of this run.

        Raise `OverBudget` if the budget of the tree does not cover the debit.
        """
        await self._service.keep(self.held, self.run_id, rows, debit)

    def unbooked_debit(self) -> Debit | None:
        """Return the debit for answers that had no reservation, to be written with their rows.

        A tree without a ledger stays without one.
        """
        (tokens, cost), self.unbooked = self.unbooked, (0, 0.0)
        if not (tokens or cost):
            return None
        return Debit(int(self.task.root_id), tokens, cost, opens=False)

    def tell(self, task: Task) -> None:
        """Pass on a task that another writer has changed."""
        self.told_version = task.version
        self.changed(task)

    @property
    def over(self) -> bool:
        """True once a write of this run has ended it."""
        return self.task.run_id != self.run_id

    async def look(self) -> Task:
        """Return the current task; raise `StaleRun` if this run is no longer its live run.

        Called before every model call and every effect.
        """
        return await self._service.fresh(self.held, self.run_id)

    async def may_go_on(self) -> bool:
        """Refresh the task; return False if the run should release it at this boundary.

        The task is paused, or the worker is about to stop.
        """
        await self.look()
        return not self.halted

    @property
    def halted(self) -> bool:
        """True if the run should release its task, as of its last read, write or notification."""
        return self.task.state is State.PAUSED or self.stopping.is_set()

    def now(self) -> datetime:
        """Return the current time."""
        return self._clock.now()

    async def release(self) -> None:
        """Release the task, so that another run can continue it."""
        await self.do(cmd.ReleaseRun(task_id=self.task.id))

    async def call(
        self,
        call_id: str,
        tool: str,
        arguments: Any,
        action: Callable[[], Awaitable[str]],
        *,
        repeatable: bool,
    ) -> CallRecord:
        """Make a tool call, recorded before and after, at most once unless it is repeatable.

        A call that has ended is not repeated. A call that an earlier run started and did not finish
        is repeated if it is repeatable; otherwise its status is `unknown`, and the caller must find
        out what happened.
        """
        known = await self.known_call(call_id)
        if known is not None and known.status != "started":
            return known
        if known is not None and known.run_id != self.run_id and not repeatable:
            return await self._ended(known, "unknown", None)
        begun = self.begun(call_id, tool, arguments, repeatable=repeatable)
        await self._service.keep(self.held, self.run_id, [begun.row()])
        status: CallStatus = "done"
        try:
            result = await action()
        except (StaleRun, Unavailable, Unacknowledged):
            raise
        except ToolFailed as failed:
            result, status = str(failed), "denied" if isinstance(failed, ToolDenied) else "failed"
        except Exception as error:  # noqa: BLE001 - any failure of a tool becomes data
            result, status = f"{type(error).__name__}: {error}", "failed"
        return await self._ended(begun, status, result)

    async def known_call(self, call_id: str) -> CallRecord | None:
        """Return the record of a call; None if it was never made."""
        rows = await self._store.select(CALL, {"id": int(self.task.id), "call": call_id})
        return CallRecord(**rows[0]._asdict()) if rows else None

    def begun(self, call_id: str, tool: str, arguments: Any, *, repeatable: bool) -> CallRecord:
        """Return the record of a call that this run starts now."""
        return CallRecord(
            task_id=int(self.task.id),
            call_id=call_id,
            run_id=self.run_id,
            tool=tool,
            arguments=dumps(arguments),
            repeatable=int(repeatable),
            started_at=instant(self._clock.now()),
        )

    def ended(self, begun: CallRecord, status: CallStatus, result: str | None) -> CallRecord:
        """Return the record of a call that ends now; text that cannot be stored is replaced."""
        kept = None if result is None else storable(result)
        return replace(
            begun,
            run_id=self.run_id,
            ended_at=instant(self._clock.now()),
            status=status,
            result=kept,
        )

    async def _ended(self, begun: CallRecord, status: CallStatus, result: str | None) -> CallRecord:
        """Store the end of a call, and return its record."""
        ended = self.ended(begun, status, result)
        await self._service.keep(self.held, self.run_id, [ended.row()])
        return ended
