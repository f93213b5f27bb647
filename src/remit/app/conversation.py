"""The one conversation of a task: what was said, message by message, over all its runs."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from remit.app.activation import CallRecord
from remit.domain import brief
from remit.domain.message import Message, Response, ToolCall, ToolResult, plain, restore
from remit.domain.project import Change
from remit.domain.table import BESIDE
from remit.domain.value import Usage
from remit.domain.wire import dumps
from remit.ports import EventStore

EVERYTHING = 1_000_000


class Said(NamedTuple):
    """A message at its place."""

    number: int
    run_id: str
    turn: int
    at: str
    message: Message
    more: Mapping[str, Any]
    """What is known of a model's answer: the model, tokens and cost."""


class Conversation:
    """What was said so far; results of tools are kept with their calls, and stand behind the message that made them."""

    def __init__(self, task_id: str, said: list[Said], calls: dict[str, CallRecord]) -> None:
        self.task_id, self.said, self.calls = task_id, said, calls

    @classmethod
    async def load(cls, store: EventStore, task_id: str) -> "Conversation":
        """The conversation as it is stored."""
        rows = await store.select("messages", {"id": int(task_id), "after": 0, "limit": EVERYTHING})
        records = await store.select("calls", {"id": int(task_id)}) if rows else []
        calls = [CallRecord(**dict(zip(BESIDE["call"].columns, row, strict=True))) for row in records]
        return cls(task_id, [_said(row) for row in rows], {call.call_id: call for call in calls})

    @property
    def turns(self) -> int:
        """How often a model has answered."""
        return sum(item.message.role == "assistant" for item in self.said)

    @property
    def usage(self) -> Usage:
        """What the model has used up for it."""
        told = [item.more for item in self.said if "model" in item.more]
        sent, received = (sum(more.get(name) or 0 for more in told) for name in ("input", "output"))
        return Usage(requests=len(told), input_tokens=sent, output_tokens=received, cost=sum(more.get("cost") or 0.0 for more in told))

    @property
    def finished(self) -> bool:
        """True after a last message of the agent: whoever goes on must say something first."""
        return bool(self.said) and self.said[-1].message.role == "assistant" and not _calls(self.said[-1].message)

    @property
    def silent(self) -> bool:
        """True if the agent was told to go on because its answer said nothing."""
        before = self.said[-2].message if len(self.said) > 1 else None
        return before is not None and before.role == "assistant" and not (before.text.strip() or _calls(before))

    def open_calls(self) -> list[tuple[str, ToolCall]]:
        """Calls of the last answer that have no result yet, each with the key it is kept under."""
        if not self.said or self.said[-1].message.role != "assistant":
            return []
        keyed = [(call_key(self.said[-1].number, call), call) for call in _calls(self.said[-1].message)]
        return [(key, call) for key, call in keyed if not self._ended(key)]

    def messages(self) -> tuple[Message, ...]:
        """Everything as a model reads it: each answer that made calls is followed by their results."""
        found: list[Message] = []
        for item in self.said:
            found.append(item.message)
            if calls := _calls(item.message):
                found.append(Message("tool", tuple(self._result(call_key(item.number, call), call) for call in calls)))
        return tuple(found)

    def next(self, message: Message, run_id: str, at: str, response: Response | None = None) -> Said:
        """A message at the next place; `keep` remembers it once it is stored."""
        more: dict[str, Any] = {}
        if response is not None:
            tokens = response.tokens
            more = {"model": response.model, "input": tokens.input, "output": tokens.output, "cached": tokens.cached, "cost": response.cost}
        return Said(len(self.said) + 1, run_id, self.turns + (message.role == "assistant"), at, message, more)

    def row(self, said: Said) -> Change:
        """The row of a message."""
        values = (int(self.task_id), said.number, said.run_id, said.turn, said.at, dumps({**plain(said.message), **said.more}))
        return Change("message", values[:2], values)

    def keep(self, said: Said) -> None:
        """Remember a message that is stored now."""
        self.said.append(said)

    def _ended(self, key: str) -> bool:
        return key in self.calls and self.calls[key].status != "started"

    def _result(self, key: str, call: ToolCall) -> ToolResult:
        record = self.calls.get(key)
        if record is None or record.status in ("started", "unknown"):
            return ToolResult(call.call_id, call.name, brief.UNKNOWN, is_error=True)
        return ToolResult(call.call_id, call.name, record.result or "", is_error=record.status == "failed")


def call_key(number: int, call: ToolCall) -> str:
    """What a call is kept under: models use the same id twice."""
    return f"{number}/{call.call_id}"[:200]


def _calls(message: Message) -> list[ToolCall]:
    return [part for part in message.parts if type(part) is ToolCall] if message.role == "assistant" else []


def _said(row: tuple[Any, ...]) -> Said:
    _, number, run_id, turn, at, document = row
    raw = json.loads(document)
    more = {name: raw[name] for name in ("model", "input", "output", "cached", "cost") if name in raw}
    return Said(number, run_id, turn, at, restore(raw), more)


def transcript(said: list[Said], calls: Mapping[str, CallRecord]) -> list[dict[str, Any]]:
    """The conversation as people and programs read it."""
    found: list[dict[str, Any]] = []
    for item in said:
        shape = plain(item.message)
        shown = {"role": shape["role"], "parts": shape["parts"], "run_id": item.run_id, "turn": item.turn, "at": item.at, **item.more}
        found.append(shown)
        results = [calls[key] for call in _calls(item.message) if (key := call_key(item.number, call)) in calls]
        found += [_result_view(item, record) for record in results]
    return found


def _result_view(item: Said, record: CallRecord) -> dict[str, Any]:
    part = {
        "type": "tool_result",
        "call_id": record.call_id.partition("/")[2],
        "name": record.tool,
        "text": record.result or "",
        "status": record.status,
    }
    return {"role": "tool", "parts": [part], "run_id": record.run_id, "turn": item.turn, "at": record.ended_at or record.started_at}
