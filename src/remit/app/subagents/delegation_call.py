"""A call that asks for subtasks, and the run that makes it."""

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Literal, NamedTuple

from remit.app.agents.registry import Agent, AgentRegistry
from remit.app.runs.run_handle import CallRecord, RunHandle
from remit.app.subagents.children import ChildrenByCall, children_by_call
from remit.domain.agents.tools import ToolOutcome
from remit.domain.llm.messages import ToolCall
from remit.domain.task import commands as cmd
from remit.domain.task.task import Task
from remit.errors import RemitError, StaleRun, Unacknowledged, Unavailable
from remit.ports import AgentEquipment, EventStore, OperationTools

KeyedCall = tuple[str, ToolCall]
"""A call with its key."""
AnsweredCall = tuple[str, ToolCall, ToolOutcome]
NoteKind = Literal["refused", "found", "shared", "uncached"]


class DelegatingRun(NamedTuple):
    """A run that delegates, and what is needed to do so."""

    store: EventStore
    agents: AgentRegistry
    handle: RunHandle
    agent: Agent
    calls: Mapping[str, CallRecord]
    """The recorded calls of the conversation, by key."""
    operations: OperationTools
    now: Callable[[], datetime]
    equipment: Callable[[], AbstractAsyncContextManager[AgentEquipment]]

    @property
    def task(self) -> Task:
        """The task as of the last read or write of the run."""
        return self.handle.task

    async def children(self) -> ChildrenByCall:
        """Return the subtasks that the conversation created, by call and position."""
        return await children_by_call(self.task, self.handle.tasks)

    def begun(self, key: str, call: ToolCall) -> CallRecord:
        """Return the record of a call that starts now and may be repeated."""
        return self.handle.begun(key, call.name, call.arguments, repeatable=True)

    def refusal(self, call: ToolCall, refused: RemitError) -> ToolOutcome:
        """Return the refusal of a call, as its model reads it."""
        return failed(self.operations.refusal(call.name, refused, self.handle))

    def stored_notes(self, key: str) -> "Notes":
        """Return the notes that were stored with a call."""
        record = self.calls.get(key)
        if record is None or not record.result:
            return {}
        return {int(place): Note(*note) for place, note in json.loads(record.result).items()}


class Note(NamedTuple):
    """A stored note on an item of a delegation call, beside its subtask or instead of one."""

    kind: NoteKind
    text: str
    """Refused: why. Found: the id of the task whose result is reused.

    Shared: the cache key of the item that does the same work. Uncached: why the cache was not used.
    """
    code: str = ""
    """The error code if the item was refused."""


Notes = dict[int, Note]


class DelegationCall(NamedTuple):
    """A call that asks for subtasks: existing and new subtasks and notes, by position."""

    key: str
    call: ToolCall
    children: Mapping[int, Task]
    subtasks: dict[int, cmd.CreateSubtask]
    notes: Notes

    def note(self, place: int, *kinds: NoteKind) -> Note | None:
        """Return the note at a position if it is of one of these kinds."""
        note = self.notes.get(place)
        return note if note is not None and note.kind in kinds else None

    @property
    def made(self) -> list[int]:
        """The positions of new subtasks that were not refused."""
        return [place for place in self.subtasks if self.note(place, "refused") is None]

    def refuse(self, place: int, error: RemitError) -> None:
        """Note that an item was refused; raise an error that ends the run instead."""
        raise_if_run_ends(error)
        self.notes[place] = Note("refused", error.for_agent or str(error), error.code)


def raise_if_run_ends(error: RemitError) -> None:
    """Raise an error that ends the run; return if it only refuses a call."""
    if isinstance(error, StaleRun | Unavailable | Unacknowledged):
        raise error


def failed(text: str) -> ToolOutcome:
    """Return the outcome of a call that failed."""
    return ToolOutcome(text, is_error=True)
