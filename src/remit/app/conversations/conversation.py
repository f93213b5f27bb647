"""The conversation of a task: every message and tool call of all its runs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from remit.app.conversations.read_results import results_read
from remit.app.conversations.statements import asks_to_continue, last_answer
from remit.app.conversations.stored_message import StoredMessage, stored_message
from remit.app.runs.run_handle import CallRecord
from remit.domain.llm.messages import UNFINISHED, Message, Response, ToolCall, plain
from remit.domain.projection.rows import Change
from remit.domain.projection.stored_usage import model_usage, tool_uses
from remit.domain.prompts.environment import Allowance
from remit.domain.records.serialize import dumps
from remit.domain.task.task import Usage
from remit.ports import EventStore
from remit.store_queries.query import NO_LIMIT
from remit.store_queries.run_queries import CALLS, MESSAGES


class Conversation:
    """The stored messages and tool calls of a task."""

    def __init__(
        self, task_id: str, rows: list[StoredMessage], calls: dict[str, CallRecord]
    ) -> None:
        self.task_id, self.calls = task_id, calls
        self.history: list[StoredMessage] = []
        """The messages, oldest first."""
        self.marks: list[StoredMessage] = []
        """Compaction marks, oldest first."""
        for row in rows:
            self.append(row)

    @classmethod
    async def load(cls, store: EventStore, task_id: str) -> "Conversation":
        """Load the stored conversation of a task."""
        rows = await store.select(MESSAGES, {"id": int(task_id), "after": 0, "limit": NO_LIMIT})
        found = await store.select(CALLS, {"id": int(task_id)}) if rows else []
        calls = {row.call_id: CallRecord(**row._asdict()) for row in found}
        return cls(task_id, list(map(stored_message, rows)), calls)

    async def reload(self, store: EventStore) -> None:
        """Replace everything with what is stored now."""
        stored = await self.load(store, self.task_id)
        self.history, self.marks = stored.history, stored.marks
        self.calls.clear()
        self.calls.update(stored.calls)

    @property
    def rows(self) -> list[StoredMessage]:
        """Messages and marks in the order in which they were stored."""
        return sorted([*self.history, *self.marks], key=lambda row: row.number)

    @property
    def turns(self) -> int:
        """How often a model has answered."""
        return sum(item.is_answer for item in self.history)

    @property
    def last_turn(self) -> Allowance:
        """The tokens and the cost of the last answer."""
        answers = (item for item in reversed(self.history) if item.is_answer)
        last = next(answers, None)
        if last is None:
            return Allowance(turns=1, tokens=0, cost=0.0)
        tokens = last.number_of("input") + last.number_of("output")
        return Allowance(turns=1, tokens=int(tokens), cost=float(last.number_of("cost")))

    @property
    def environment(self) -> str:
        """The environment in the first message; empty before that message."""
        return str(_first_facts(self.history).get("environment", ""))

    @property
    def first_terms_version(self) -> int:
        """The version of the terms that the agent has read first."""
        return int(_first_facts(self.history).get("terms_version", 1))

    @property
    def usage(self) -> Usage:
        """What the model calls of this conversation have used."""
        return model_usage(item.more for item in (*self.history, *self.marks))

    @property
    def tool_uses(self) -> Counter[str]:
        """How often each tool was used; a denied call does not count."""
        return tool_uses(self.calls.values())

    @property
    def results_read(self) -> set[str]:
        """The tasks whose result the agent has read as the answer to a call."""
        return results_read(self.calls.values())

    @property
    def finished(self) -> bool:
        """True after a final message of the agent: the next message must be a user message."""
        return bool(self.history) and self.history[-1].is_answer and not self.history[-1].calls

    @property
    def was_silent(self) -> bool:
        """True if the agent was told to continue after an empty answer."""
        return len(self.history) > 1 and self.history[-2].is_empty_answer

    @property
    def is_continued(self) -> bool:
        """True if the next answer continues one that was cut off."""
        return bool(self.history) and asks_to_continue(self.history[-1].message)

    @property
    def is_cut_off(self) -> bool:
        """True after an answer without a call that ended before it was complete."""
        is_unfinished = self.finished and "stop" in self.history[-1].more
        return is_unfinished and bool(last_answer(self.history).strip())

    def open_calls(self) -> list[tuple[str, ToolCall]]:
        """Return the calls of the last answer that have no result yet, each with its key."""
        if not self.history:
            return []
        keyed = self.history[-1].keyed_calls()
        return [(key, call) for key, call in keyed if not self._has_ended(key)]

    def _has_ended(self, key: str) -> bool:
        """True for a call with a result."""
        record = self.calls.get(key)
        return record is not None and record.status != "started"

    def next_row(
        self, message: Message, run_id: str, at: str, response: Response | None = None
    ) -> StoredMessage:
        """Build the row of the next message; call `append` once it is stored."""
        number = len(self.history) + len(self.marks) + 1
        turn = self.turns + (message.role == "assistant")
        more = {} if response is None else _facts(response)
        return StoredMessage(number, run_id, turn, at, message, more)

    def change(self, row: StoredMessage) -> Change:
        """Return the store change that writes a row."""
        values = (
            int(self.task_id),
            row.number,
            row.run_id,
            row.turn,
            row.at,
            dumps({**plain(row.message), **row.more}),
        )
        return Change("message", values[:2], values)

    def append(self, row: StoredMessage) -> None:
        """Add a message or a mark that has been stored."""
        if row.mark is None:
            self.history.append(row)
        else:
            self.marks.append(row)


def _first_facts(history: Sequence[StoredMessage]) -> Mapping[str, Any]:
    """Return what is stored with the first message; empty before that message."""
    return history[0].more if history else {}


def _facts(response: Response) -> dict[str, Any]:
    """Return what is stored with an answer besides its message."""
    tokens = response.tokens
    facts: dict[str, Any] = {
        "model": response.model,
        "input": tokens.input,
        "output": tokens.output,
        "cached": tokens.cached,
        "cost": response.cost,
    }
    if response.stop in UNFINISHED:
        facts["stop"] = response.stop
    return facts
