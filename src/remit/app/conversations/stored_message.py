"""One row of a conversation: a message or a compaction mark."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from remit.app.runs.run_handle import CallRecord
from remit.domain.agents.media import Media, restored
from remit.domain.llm.messages import Message, ToolCall, restore
from remit.domain.prompts import compaction
from remit.domain.prompts.compaction import Mark
from remit.domain.records.pick import pick
from remit.store_queries.run_queries import MessageRow

KEPT = (
    "model",
    "input",
    "output",
    "cached",
    "cost",
    "environment",
    "instructions",
    "terms_version",
    "mark",
    "stop",
)
"""Fields that are stored with a message in addition to its role and parts."""


class StoredMessage(NamedTuple):
    """A message, or a compaction mark, with its number in the conversation."""

    number: int
    run_id: str
    turn: int
    at: str
    message: Message
    more: Mapping[str, Any]
    """Additional stored fields; `KEPT` lists their names."""

    @property
    def mark(self) -> Mark | None:
        """The compaction mark in this row; None for a message."""
        if "mark" not in self.more:
            return None
        return compaction.mark_of(self.more["mark"])

    @property
    def is_answer(self) -> bool:
        """True for a message of the model."""
        return self.message.role == "assistant"

    @property
    def calls(self) -> list[ToolCall]:
        """The tool calls in a message of the model; empty for any other message."""
        if self.message.role != "assistant":
            return []
        return [part for part in self.message.parts if type(part) is ToolCall]

    def keyed_calls(self) -> list[tuple[str, ToolCall]]:
        """Return the tool calls, each with its key."""
        return [(call_key(self.number, call), call) for call in self.calls]

    def number_of(self, name: str) -> float:
        """Return an additional stored number; 0 if it is missing or unknown."""
        return self.more.get(name) or 0

    @property
    def is_empty_answer(self) -> bool:
        """True for a message of the model without a text and without a call."""
        return self.is_answer and not self.calls and not self.message.text.strip()


History = Sequence[StoredMessage]
"""The messages of a conversation, without compaction marks."""


def stored_message(row: MessageRow) -> StoredMessage:
    """Return a message as its row stores it."""
    raw = json.loads(row.doc)
    more = pick(raw, KEPT)
    return StoredMessage(row.number, row.run_id, row.turn, row.at, restore(raw), more)


def call_key(number: int, call: ToolCall) -> str:
    """Return the key of a call, which is unique although models reuse call ids."""
    return f"{number}/{call.call_id}"[:200]


def call_result(record: CallRecord) -> tuple[str, Media | None]:
    """Return the result of a call as the model reads it."""
    result = record.result or ""
    if record.tool != "Read":
        return result, None
    return restored(result)
