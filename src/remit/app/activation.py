"""One activation of a task: what a runner sees of it, and the only way it can write."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Literal

from remit.app.service import Held, Outcome, Service
from remit.domain import command as cmd
from remit.domain.model import storable
from remit.domain.project import Change
from remit.domain.record import record, replace
from remit.domain.table import BESIDE
from remit.domain.value import State, Task
from remit.domain.wire import dumps, instant
from remit.errors import StaleRun, Unacknowledged, Unavailable
from remit.ports import Clock, Debit, EventStore

CallStatus = Literal["started", "done", "failed", "denied", "unknown"]


@record
class CallRecord:
    """A tool call as it is kept: begun, ended, or begun and never seen to end."""

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
        """The row to write."""
        values = tuple(getattr(self, column) for column in BESIDE["call"].columns)
        return Change("call", values[:2], values)


class ToolFailed(Exception):
    """A tool said that it failed, in words for whoever called it."""


class ToolDenied(ToolFailed):
    """The call was not allowed, so it does not count as a use of the tool."""


async def _nothing() -> None:
    """Do nothing."""


class Activation:
    """A live run of a task, under its fence: every write is refused once the run is over or its lease is somebody else's."""

    def __init__(self, service: Service, store: EventStore, clock: Clock, held: Held, task: Task, stopping: asyncio.Event) -> None:
        assert task.run is not None
        self._service, self._store, self._clock, self.held = service, store, clock, held
        self._task_id, self.run_id = task.id, task.run.id
        self.stopping = stopping
        """Set while the run should stop at its next boundary: its task is paused, or its worker is about to stop."""
        self.handed_over = False
        """True once the run was cancelled so that its task can be given back at once."""
        self.actor = f"agent:{task.owner}"
        self.exclude_silence: Callable[[], Awaitable[None]] = _nothing
        """Leaves the time in which the process of this run stood still out of the clock of its task."""

    async def do(self, command: cmd.Command, *beside: CallRecord) -> Outcome:
        """Carry out a command as this run; calls that it completes are recorded with it."""
        return await self.write(command, [call.row() for call in beside])

    @property
    def task(self) -> Task:
        """The task as this run last knew it."""
        return self.held.seen[self._task_id].task

    async def tasks(self, ids: Iterable[str]) -> list[Task]:
        """Other tasks as they are now."""
        return await self._service.tasks(ids)

    async def write(self, command: cmd.Command, rows: Sequence[Change]) -> Outcome:
        """Carry out a command as this run, with rows that are kept beside its events."""
        await self.exclude_silence()  # before the command can stop the clock
        return await self._service.execute(command, self.actor, self.run_id, self.held, rows)

    async def keep(self, rows: Sequence[Change], debit: Debit | None = None) -> None:
        """Keep rows beside the events, under the fence; OverBudget if the tree has not got what is taken from its budget."""
        await self._service.keep(self.held, self.run_id, rows, debit)

    @property
    def over(self) -> bool:
        """True once the run has ended by a write of its own."""
        return self.task.run is None or self.task.run.id != self.run_id

    async def look(self) -> Task:
        """The task as it is now; an error if this run is not its live one any more. Asked before every model call and every effect."""
        return await self._service.fresh(self.held, self.run_id)

    async def may_go_on(self) -> bool:
        """False when the run should give the task back at this boundary: it is paused, or the worker is about to stop."""
        await self.look()
        return not self.halted

    @property
    def halted(self) -> bool:
        """The same as of the run's last write or look, or as it was told since."""
        return self.task.state is State.PAUSED or self.stopping.is_set()

    def now(self) -> datetime:
        """This instant."""
        return self._clock.now()

    async def release(self) -> None:
        """Give the task back unharmed."""
        await self.do(cmd.ReleaseRun(task_id=self.task.id))

    async def call(self, call_id: str, tool: str, arguments: Any, action: Callable[[], Awaitable[str]], *, repeatable: bool) -> CallRecord:
        """Carry out a tool call that is recorded before and after, at most once unless it is repeatable.

        A call that has ended is not made again. One that was begun by an earlier run and never ended is made again if that
        is harmless, and otherwise comes back as unknown: whoever asked must look what became of it.
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
        except Exception as error:  # noqa: BLE001 - whatever a tool does becomes data
            result, status = f"{type(error).__name__}: {error}", "failed"
        return await self._ended(begun, status, result)

    async def known_call(self, call_id: str) -> CallRecord | None:
        """What is recorded of a call."""
        rows = await self._store.select("call", {"id": int(self.task.id), "call": call_id})
        return CallRecord(**dict(zip(BESIDE["call"].columns, rows[0], strict=True))) if rows else None

    def begun(self, call_id: str, tool: str, arguments: Any, *, repeatable: bool) -> CallRecord:
        """A call of this run that begins now."""
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
        """A call that ends now; a tool may have said what no store can keep."""
        kept = None if result is None else storable(result)
        return replace(begun, run_id=self.run_id, ended_at=instant(self._clock.now()), status=status, result=kept)

    async def _ended(self, begun: CallRecord, status: CallStatus, result: str | None) -> CallRecord:
        ended = self.ended(begun, status, result)
        await self._service.keep(self.held, self.run_id, [ended.row()])
        return ended
