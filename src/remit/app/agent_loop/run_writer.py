"""Writes of a run: rows that wait for the next write, and the usage that the run reports."""

from collections import Counter
from typing import TypedDict

from remit.app.conversations.conversation import Conversation
from remit.app.conversations.stored_message import StoredMessage
from remit.app.runs.run_handle import CallRecord, RunHandle
from remit.domain.llm.messages import Response
from remit.domain.projection.rows import Change
from remit.domain.projection.stored_usage import as_counts, tool_uses, uncounted
from remit.domain.records.record import replace
from remit.domain.task import commands as cmd
from remit.domain.task.task import ToolCount, Usage

EndOfRun = (
    cmd.YieldRun | cmd.ReleaseRun | cmd.FinishRun | cmd.FailRun | cmd.TimeOutRun | cmd.AbortTask
)


class _Taken(TypedDict):
    """The fields with which a command reports usage."""

    tool_summary: tuple[ToolCount, ...]
    usage: Usage


class RunWriter:
    """Stores the messages and calls of a run, and reports its usage when it ends."""

    def __init__(self, handle: RunHandle, conversation: Conversation) -> None:
        self._handle, self._conversation = handle, conversation
        self._rows: list[Change] = []
        """Rows to store with the next write.

        A prompt is stored together with its answer; until then it can be built again.
        """
        # A run that was lost has not recorded its usage.
        self.tool_counts = self._uncounted(conversation.tool_uses)
        """The uses of tools that the task has not counted yet."""
        self.usage = conversation.usage.beyond(handle.task.usage)
        """The usage of models that the task has not counted yet."""

    def add_message(self, row: StoredMessage) -> None:
        """Store a message or a mark with the next write."""
        self._rows.append(self._conversation.change(row))

    def add_calls(self, records: list[CallRecord]) -> None:
        """Store records of calls with the next write."""
        self._rows += map(CallRecord.row, records)

    def add_usage(self, response: Response) -> None:
        """Count what a response of a model has used."""
        used = Usage(
            requests=1,
            input_tokens=response.tokens.input,
            output_tokens=response.tokens.output,
            cost=response.cost or 0.0,
        )
        self.usage = self.usage.plus(used)

    def discard(self) -> None:
        """Forget the rows that are not stored; a prompt can be built again."""
        self._rows.clear()

    def count_stored_calls(self, *, is_ended: bool = False) -> None:
        """Count the stored calls again; see `tool_uses` for `is_ended`."""
        uses = tool_uses(self._conversation.calls.values(), is_ended=is_ended)
        self.tool_counts = self._uncounted(uses)

    def _uncounted(self, uses: Counter[str]) -> Counter[str]:
        return uncounted(uses, self._handle.task.tool_summary)

    async def write(self, command: cmd.Command) -> None:
        """Execute a command as the run, with all rows."""
        await self._handle.write(command, self._take_rows(), self._handle.unbooked_debit())

    async def save(self) -> None:
        """Store all rows."""
        await self._handle.keep(self._take_rows(), self._handle.unbooked_debit())

    async def end(self, command: EndOfRun) -> None:
        """Execute a command that ends the run, with all rows and the usage."""
        await self.write(replace(command, **self._take_usage()))

    async def release(self, retry_seconds: float | None = None) -> None:
        """Release the task, so that another run can continue it."""
        task_id = self._handle.task.id
        await self.end(cmd.ReleaseRun(task_id=task_id, retry_seconds=retry_seconds))

    async def report_usage(self) -> None:
        """Record the usage of the run before a call that may end it."""
        taken = self._take_usage()
        self.tool_counts.clear()
        await self._handle.do(cmd.SettleBudget(task_id=self._handle.task.id, **taken))

    def _take_rows(self) -> list[Change]:
        rows, self._rows = self._rows, []
        return rows

    def _take_usage(self) -> "_Taken":
        taken = _Taken(tool_summary=as_counts(self.tool_counts), usage=self.usage)
        self.usage = Usage()
        return taken
