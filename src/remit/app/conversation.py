"""The one conversation of a task: what was said, message by message, over all its runs."""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from remit.app.activation import CallRecord
from remit.app.order import DELEGATING, blocks, count, may_delegate
from remit.codec import opened
from remit.domain import brief, compaction
from remit.domain import event as ev
from remit.domain.compaction import Mark
from remit.domain.envelope import result_of, status_of
from remit.domain.media import Media, restored
from remit.domain.message import Message, Response, ToolCall, ToolResult, plain, restore, user
from remit.domain.project import Change
from remit.domain.table import BESIDE
from remit.domain.value import State, Task, Usage
from remit.domain.wire import dumps, instant
from remit.ports import EventStore

EVERYTHING = 1_000_000
LEAST_SAVING = 100
"""How many characters a mark must save to be worth setting."""
KEPT = ("model", "input", "output", "cached", "cost", "environment", "mark")
"""What is stored with a message beside its role and parts."""
READING = ("get_task", "task_output", *DELEGATING)
"""Tools whose answer shows the results of tasks that have ended."""
ENDED = frozenset(state.value for state in State if state.terminal)
RESULTS = frozenset({"completed", "failed", "timeout", "cancelled"})
"""How `task_output` names the status of a task that has ended."""
RECENT = 2
"""How many messages at the end of a conversation nearly always have an answer of its model."""


class Said(NamedTuple):
    """A message at its place."""

    number: int
    run_id: str
    turn: int
    at: str
    message: Message
    more: Mapping[str, Any]
    """What is stored with a message, by the names in `KEPT`."""

    @property
    def mark(self) -> Mark | None:
        """The mark that this row is, if it is not a message."""
        return compaction.mark_of(self.more["mark"]) if "mark" in self.more else None


class Summary(NamedTuple):
    """What the model reads instead of the messages up to a number."""

    through: int
    text: str


async def last_models(store: EventStore, task_ids: Sequence[str]) -> dict[str, str]:
    """The models that really answered last, by task; none for a task that no model has worked on."""
    found: dict[str, str] = {}
    for task_id, _, number, _ in await store.select("pulse", {"ids": [int(task_id) for task_id in task_ids]}):
        recent = await _models_after(store, task_id, max(0, number - RECENT))
        models = recent or (await _models_after(store, task_id, 0) if number > RECENT else [])
        if models:
            found[str(task_id)] = models[-1]
    return found


async def _models_after(store: EventStore, task_id: int, after: int) -> list[str]:
    rows = await store.select("messages", {"id": task_id, "after": after, "limit": EVERYTHING})
    documents = [json.loads(row[-1]) for row in rows]
    return [found["model"] for found in documents if found.get("model") and "mark" not in found]


class Conversation:
    """What was said so far; results of tools are kept with their calls, and stand behind the message that made them."""

    def __init__(self, task_id: str, rows: list[Said], calls: dict[str, CallRecord]) -> None:
        self.task_id, self.calls = task_id, calls
        self.said = [row for row in rows if row.mark is None]
        self.marks = [row for row in rows if row.mark is not None]
        """Where the model reads less than was said, oldest first."""

    @classmethod
    async def load(cls, store: EventStore, task_id: str) -> "Conversation":
        """The conversation as it is stored."""
        rows = await store.select("messages", {"id": int(task_id), "after": 0, "limit": EVERYTHING})
        records = await store.select("calls", {"id": int(task_id)}) if rows else []
        calls = [CallRecord(**dict(zip(BESIDE["call"].columns, row, strict=True))) for row in records]
        return cls(task_id, [_said(row) for row in rows], {call.call_id: call for call in calls})

    @property
    def rows(self) -> list[Said]:
        """Messages and marks in the order in which they were stored."""
        return sorted([*self.said, *self.marks], key=lambda row: row.number)

    @property
    def turns(self) -> int:
        """How often a model has answered."""
        return sum(item.message.role == "assistant" for item in self.said)

    @property
    def environment(self) -> str:
        """The environment that the agent was shown with its first message; empty before that."""
        return str(self.said[0].more.get("environment", "")) if self.said else ""

    @property
    def usage(self) -> Usage:
        """What the model has used up for it."""
        told = [item.more for item in (*self.said, *self.marks) if "model" in item.more]
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

    @property
    def last_answer(self) -> str:
        """The text of the newest answer of the model, if it called no tool."""
        answers = [item.message for item in self.said if item.message.role == "assistant"]
        return answers[-1].text if answers and not _calls(answers[-1]) else ""

    @property
    def knows_how_to_call(self) -> bool:
        """True if the agent was told how to call tools and has not called one since."""
        for item in reversed(self.said):
            if _calls(item.message):
                return False
            if item.message.role == "user" and brief.says_how_to_call(item.message.text):
                return True
        return False

    @property
    def reminder(self) -> Said | None:
        """The reminder of open steps, if the agent was told of no other update since."""
        told = (item for item in reversed(self.said) if item.message.role == "user")
        last = next((item for item in told if brief.tells_news(item.message.text)), None)
        return last if last is not None and brief.only_reminds(last.message.text) else None

    @property
    def results_read(self) -> set[str]:
        """The tasks whose result the agent has read as the answer to a call."""
        answers = [call for call in self.calls.values() if call.tool in READING and call.status in ("done", "failed")]
        return {task_id for call in answers for task_id in _ended_tasks(call.result or "")}

    @property
    def tool_uses(self) -> Counter[str]:
        """How often each tool was used, by the calls on record; a denied call is not a use."""
        return Counter(call.tool for call in self.calls.values() if call.status not in ("started", "denied"))

    def open_calls(self) -> list[tuple[str, ToolCall]]:
        """Calls of the last answer that have no result yet, each with the key it is kept under."""
        if not self.said or self.said[-1].message.role != "assistant":
            return []
        keyed = [(call_key(self.said[-1].number, call), call) for call in _calls(self.said[-1].message)]
        return [(key, call) for key, call in keyed if not self._ended(key)]

    def messages(self) -> tuple[Message, ...]:
        """Everything as a model reads it: each answer that made calls is followed by their results.

        An answer that said nothing is left out: endpoints refuse it.
        """
        summary = self._summary()
        if summary is None:
            return tuple(message for item in self.said for message in self._read_now(item))
        first, *others = self.said
        replaced = [message for item in others if item.number <= summary.through for message in self.whole(item)]
        kept = [message for item in others if item.number > summary.through for message in self._read_now(item)]
        (begun,) = self._read_now(first)
        return (compaction.with_summary(begun, summary.text, replaced, kept), *kept)

    def next_mark(self) -> Mark | None:
        """The next thing to leave out so that the model reads less; None if nothing is left to leave out."""
        answers = [item.number for item in self.said if item.message.role == "assistant"]
        last = self.said[-1].number
        old = answers[-compaction.RECENT_TURNS - 1] if len(answers) > compaction.RECENT_TURNS else 0
        before_last_answer = answers[-1] - 1 if answers else 0
        summarized_through = (self._summary() or Summary(0, "")).through
        has_new = before_last_answer > summarized_through  # a summary of the same messages saves nothing
        candidates = (
            Mark("shortened", old),
            *([Mark("summarized", before_last_answer)] if has_new else []),
            Mark("shortened", last, compaction.LAST_CHARACTERS),
            Mark("shortened", last),
        )
        size = compaction.size_of(self.messages())
        return next((mark for mark in candidates if self._size_with(mark) < size - LEAST_SAVING), None)

    def _size_with(self, mark: Mark) -> int:
        """How many characters the model would read after one more mark, a summary itself left out."""
        row = Said(0, "", 0, "", Message("user", ()), {"mark": mark._asdict()})
        marked = Conversation(self.task_id, [*self.said, *self.marks, row], self.calls)
        return compaction.size_of(marked.messages())

    def replaced_by(self, mark: Mark) -> list[Message]:
        """What a summary would replace, the first message left out: the summary before it, and all since then."""
        before = self._summary() or Summary(0, "")
        earlier = [user(f"{compaction.SUMMARY_HEADING}\n{before.text}")] if before.text else []
        since = [item for item in self.said[1:] if before.through < item.number <= mark.through]
        return [*earlier, *(message for item in since for message in self.whole(item))]

    def _read_now(self, item: Said) -> list[Message]:
        """A message with the results of its calls, as the model reads them after compaction."""
        whole = self.whole(item)
        marks = [row.mark for row in self.marks if row.mark is not None]
        characters = compaction.characters_kept(marks, item.number)
        return whole if characters is None else [compaction.shortened(message, characters) for message in whole]

    def whole(self, item: Said) -> list[Message]:
        """A message with the results of its calls; an answer that said nothing is left out."""
        calls = _calls(item.message)
        if item.message.role == "assistant" and not (item.message.text.strip() or calls):
            return []
        if not calls:
            return [item.message]
        results = tuple(self._result(call_key(item.number, call), call) for call in calls)
        return [item.message, Message("tool", results)]

    def _summary(self) -> "Summary | None":
        summaries = [Summary(row.mark.through, row.message.text) for row in self.marks if row.mark is not None and row.mark.kind == "summarized"]
        return summaries[-1] if summaries else None

    def next(self, message: Message, run_id: str, at: str, response: Response | None = None) -> Said:
        """A message at the next place; `keep` remembers it once it is stored."""
        more: dict[str, Any] = {}
        if response is not None:
            tokens = response.tokens
            more = {"model": response.model, "input": tokens.input, "output": tokens.output, "cached": tokens.cached, "cost": response.cost}
        number = len(self.said) + len(self.marks) + 1
        return Said(number, run_id, self.turns + (message.role == "assistant"), at, message, more)

    def row(self, said: Said) -> Change:
        """The row of a message."""
        values = (int(self.task_id), said.number, said.run_id, said.turn, said.at, dumps({**plain(said.message), **said.more}))
        return Change("message", values[:2], values)

    def keep(self, said: Said) -> None:
        """Remember a message or a mark that is stored now."""
        (self.said if said.mark is None else self.marks).append(said)

    def _ended(self, key: str) -> bool:
        return key in self.calls and self.calls[key].status != "started"

    def _result(self, key: str, call: ToolCall) -> ToolResult:
        record = self.calls.get(key)
        if record is None or record.status in ("started", "unknown"):
            return ToolResult(call.call_id, call.name, brief.UNKNOWN, is_error=True)
        text, media = _told(record)
        return ToolResult(call.call_id, call.name, text, record.status in ("failed", "denied"), media)


def _ended_tasks(result: str) -> set[str]:
    """The tasks that an answer shows with their results; tasks that have not ended are left out."""
    try:
        answer: Any = json.loads(result)
    except ValueError:  # an error in words, or a long answer that was cut
        return set()
    if not isinstance(answer, dict):
        return set()
    found = cast("Mapping[str, Any]", answer)
    return {task_id for item in found.get("results", (found,)) if (task_id := _ended_task(item))}


def _ended_task(answer: Mapping[str, Any]) -> str:
    """The task that an answer shows with its result; empty if the task has not ended."""
    shown = answer.get("data", answer)
    has_ended = shown.get("state") in ENDED or shown.get("status") in RESULTS
    return str(shown.get("task_id") or shown.get("id") or "") if has_ended else ""


def _told(record: CallRecord) -> tuple[str, Media | None]:
    """What a model is told of a call that has ended."""
    result = record.result or ""
    return restored(result) if record.tool == "Read" else (result, None)


def call_key(number: int, call: ToolCall) -> str:
    """What a call is kept under: models use the same id twice."""
    return f"{number}/{call.call_id}"[:200]


def _calls(message: Message) -> list[ToolCall]:
    return [part for part in message.parts if type(part) is ToolCall] if message.role == "assistant" else []


def _said(row: tuple[Any, ...]) -> Said:
    _, number, run_id, turn, at, document = row
    raw = json.loads(document)
    more = {name: raw[name] for name in KEPT if name in raw}
    return Said(number, run_id, turn, at, restore(raw), more)


ByPlace = Mapping[int, Task]
Reports = Mapping[str, Task]
"""Subtasks that ended, by the text that told the agent of it."""


async def reports(
    store: EventStore,
    task_id: str,
    said: Sequence[Said],
    load: Callable[[Iterable[str]], Awaitable[list[Task]]],
) -> dict[str, Task]:
    """The subtasks whose end these messages may tell of, by the text that tells it."""
    told = "\n".join(item.message.text for item in said if item.message.role == "user")
    if brief.SUBTASK_ENDED not in told:
        return {}
    rows = await store.select("events", {"stream": task_id, "after": 0, "limit": EVERYTHING})
    stored = [ev.Stored(*row[:8]) for row in rows if row[3] == ev.SubtaskSettled.__name__]
    events = [opened(entry).event for entry in stored]
    settled = [event for event in events if isinstance(event, ev.SubtaskSettled)]
    texts = {event.child_id: brief.subtask_ended(event.report) for event in settled if event.report}
    return {texts[child.id]: child for child in await load(texts)}


def transcript(
    said: list[Said],
    calls: Mapping[str, CallRecord],
    children: Mapping[str, ByPlace],
    ended: Reports,
) -> list[dict[str, Any]]:
    """The conversation as people and programs read it.

    `children` are the subtasks of each call, `ended` those whose end the agent was told of.
    """
    found: list[dict[str, Any]] = []
    for item in said:
        if item.mark is not None:
            found.append(_mark_view(item, item.mark))
            continue
        shape = plain(item.message)
        told = _parts_told(item.message.text, ended) if shape["role"] == "user" else []
        parts = told or _shown_parts(shape["parts"])
        more = {name: value for name, value in item.more.items() if name != "environment"}
        shown = {"role": shape["role"], "parts": parts, "run_id": item.run_id, "turn": item.turn}
        found.append({**shown, "at": item.at, **more})
        for call in _calls(item.message):
            key = call_key(item.number, call)
            if key in calls:
                found.append(_result_view(item, call, calls[key], children.get(key, {})))
    return found


def _parts_told(text: str, ended: Reports) -> list[dict[str, Any]]:
    """The end of a subtask as the result of a task, the rest as text; nothing if none has ended."""
    places = sorted((text.find(report), report) for report in ended if report in text)
    if not places:
        return []
    parts: list[dict[str, Any]] = []
    start = 0
    for place, report in places:
        parts += _text_part(text[start:place])
        parts.append(_task_result(ended[report], report))
        start = place + len(report)
    return [*parts, *_text_part(text[start:])]


def _text_part(text: str) -> list[dict[str, Any]]:
    """A part of text without the empty line between it and each neighbor."""
    words = text.removeprefix("\n\n").removesuffix("\n\n")
    return [{"type": "text", "text": words}] if words else []


def _shown_parts(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts of a message, with thoughts as text; what their provider has sealed is its own."""
    thoughts = [part for part in parts if part["type"] == "thinking"]
    if not thoughts:
        return parts
    shown = [part for part in parts if part["type"] != "thinking" or part["text"]]
    return [{"type": "thinking", "text": part["text"]} if part in thoughts else part for part in shown]


def _mark_view(item: Said, mark: Mark) -> dict[str, Any]:
    """What people read where the model began to read less."""
    text = f"[Context full] The model now reads shorter tool results up to message {mark.through}."
    if mark.kind == "summarized":
        text = f"[Context full] The model now reads this summary instead of the messages up to {mark.through}:"
        text = f"{text}\n{item.message.text}"
    return {
        "role": "system",
        "parts": [{"type": "text", "text": text}],
        "run_id": item.run_id,
        "turn": item.turn,
        "at": item.at,
    }


def delegates(said: list[Said]) -> bool:
    """True if a call among messages may have made subtasks."""
    return any(may_delegate(call.name) for item in said for call in _calls(item.message))


def unanswered(task: Task) -> dict[str, Any] | None:
    """What the agent was told, if its task ended before the first answer: that message is stored with the answer."""
    if task.started_at is None or not task.state.terminal:
        return None
    return {
        "role": "user",
        "parts": [{"type": "text", "text": brief.first_message(task)}],
        "run_id": f"{task.id}-r{1:06d}",
        "turn": 0,
        "at": instant(task.started_at),
    }


def ending(task: Task, said: list[Said]) -> dict[str, Any] | None:
    """The last entry of a transcript whose task failed or was canceled: why it ended. None for any other task."""
    if task.state not in (State.FAILED, State.CANCELED):
        return None
    heading = f"[Task {task.state.value}: {task.reason}]"
    part = _task_result(task, f"{heading} {task.failure_reason or ''}".rstrip())
    last = said[-1] if said else None
    return {
        "role": "system",
        "parts": [part],
        "run_id": last.run_id if last else "",
        "turn": last.turn if last else 0,
        "at": instant(task.archived_at or task.updated_at),
    }


def _result_view(item: Said, call: ToolCall, record: CallRecord, made: ByPlace) -> dict[str, Any]:
    return {
        "role": "tool",
        "parts": _result_parts(call, record, made),
        "run_id": record.run_id,
        "turn": item.turn,
        "at": record.ended_at or record.started_at,
    }


def _result_parts(call: ToolCall, record: CallRecord, made: ByPlace) -> list[dict[str, Any]]:
    """What came of a call: the results of the sub-agents that it waited for, or else its own."""
    named = {"call_id": call.call_id, "name": record.tool}
    text, media = _told(record)
    own: dict[str, Any] = {"type": "tool_result", **named, "text": text, "status": record.status}
    if media is not None:
        own["media"] = {"type": media.type, "bytes": media.size}
    awaited = [task for place, task in sorted(made.items()) if blocks(call, place)]
    if not awaited or record.status == "started":
        return [own]
    results = [_task_result(task, result_of(task)) | named for task in awaited]
    if count(call) == 1:
        return [results[0] | {"text": record.result or ""}]
    return results if len(results) == count(call) else [own, *results]


def _task_result(task: Task, text: str) -> dict[str, Any]:
    return {
        "type": "task_result",
        "task_id": task.id,
        "status": status_of(task),
        "state": task.state.value,
        "reason": task.reason,
        "text": text,
    }
