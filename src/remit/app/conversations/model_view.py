"""A conversation as its model reads it: with results after their calls, and compacted."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from remit.app.conversations.conversation import Conversation
from remit.app.conversations.stored_message import StoredMessage, call_key, call_result
from remit.app.runs.run_handle import CallRecord
from remit.domain.llm.messages import Message, Part, TextPart, ToolCall, ToolResult, user
from remit.domain.prompts import agent_prompts, compaction, terms
from remit.domain.prompts.compaction import Mark
from remit.domain.task.task import Task

LEAST_SAVING = 100
"""How many characters a compaction mark must save at least."""
NO_OUTCOME = ("started", "unknown")
"""The statuses of calls whose outcome is unknown."""


class Summary(NamedTuple):
    """The text that the model reads instead of the messages up to a number."""

    through: int
    text: str


NO_SUMMARY = Summary(0, "")


def messages(conversation: Conversation, task: Task | None = None) -> tuple[Message, ...]:
    """Return the conversation as the model reads it, with results after their calls.

    Empty answers are left out: endpoints refuse them. After a summary, the first message has the
    current instructions and criteria of the task, if it is given.
    """
    view = _View(conversation)
    summary = view.summary
    if summary is None:
        return view.compacted(conversation.history)
    first, *others = conversation.history
    old = [item for item in others if item.number <= summary.through]
    recent = [item for item in others if item.number > summary.through]
    kept = view.compacted(recent)
    current = first if task is None else as_of_now(first, task)
    (begun,) = view.compacted([current])
    replaced = view.whole(old)
    whole = compaction.with_summary(
        begun, summary.text, replaced, kept, is_current=current is not first
    )
    return (whole, *kept)


def first_message(conversation: Conversation, task: Task) -> Message:
    """Return the first message with the current terms of the task, and any summary."""
    view = _View(conversation)
    if view.summary is not None:
        return messages(conversation, task)[0]
    (first,) = view.compacted([as_of_now(conversation.history[0], task)])
    return first


def as_of_now(first: StoredMessage, task: Task) -> StoredMessage:
    """Return the first message with the current instructions and criteria of its task."""
    length = first.more.get("instructions")
    if length is None or first.more.get("terms_version") == task.terms_version:
        return first
    begun, *others = first.message.parts
    assert isinstance(begun, TextPart), "first_message returns a text"
    text = task.instructions + begun.text[length:]
    kept = [part for part in others if not _has_criteria(part)]
    criteria = map(TextPart, terms.criteria_in_full(task))
    parts = (TextPart(text), *criteria, *kept)
    return first._replace(message=first.message._replace(parts=parts))


def _has_criteria(part: Part) -> bool:
    return isinstance(part, TextPart) and part.text.startswith(terms.CRITERIA_IN_FULL)


def next_mark(conversation: Conversation) -> Mark | None:
    """Return the next compaction mark; None if nothing more can be left out."""
    most = compaction.size_of(messages(conversation)) - LEAST_SAVING
    marks = _possible_marks(conversation)
    return next((mark for mark in marks if _size_with(conversation, mark) < most), None)


def replaced_by(conversation: Conversation, mark: Mark) -> list[Message]:
    """Return the messages that a summary would replace: the previous summary and all since.

    The first message is never replaced.
    """
    view = _View(conversation)
    before = view.summary or NO_SUMMARY
    earlier = [user(f"{compaction.SUMMARY_HEADING}\n{before.text}")] if before.text else []
    others = conversation.history[1:]
    since = [item for item in others if before.through < item.number <= mark.through]
    return [*earlier, *view.whole(since)]


def _possible_marks(conversation: Conversation) -> list[Mark]:
    """Return the marks that may come next, those that keep the most first."""
    answers = [0] * (compaction.RECENT_TURNS + 1)
    answers += [item.number for item in conversation.history if item.is_answer]
    last = conversation.history[-1].number
    marks = [
        Mark("shortened", answers[-compaction.RECENT_TURNS - 1]),
        Mark("shortened", last, compaction.LAST_CHARACTERS),
        Mark("shortened", last),
    ]
    before_last_answer = max(0, answers[-1] - 1)
    summary = _View(conversation).summary or NO_SUMMARY
    if before_last_answer > summary.through:  # else a summary saves nothing
        marks.insert(1, Mark("summarized", before_last_answer))
    return marks


def _size_with(conversation: Conversation, mark: Mark) -> int:
    """Return how many characters the model would read after one more mark.

    A new summary itself is not counted.
    """
    row = StoredMessage(0, "", 0, "", Message("user", ()), {"mark": mark._asdict()})
    rows = [*conversation.history, *conversation.marks, row]
    marked = Conversation(conversation.task_id, rows, conversation.calls)
    return compaction.size_of(messages(marked))


class _View:
    """Reads the messages of a conversation after its compaction marks."""

    def __init__(self, conversation: Conversation) -> None:
        self._calls = conversation.calls
        self._marks: list[Mark] = []
        self.summary: Summary | None = None
        """The last summary; None without one."""
        for row in conversation.marks:
            mark = row.mark
            assert mark is not None, "only rows with a mark"
            self._marks.append(mark)
            if mark.kind == "summarized":
                self.summary = Summary(mark.through, row.message.text)

    def compacted(self, items: Sequence[StoredMessage]) -> tuple[Message, ...]:
        """Return messages and their results, shortened by the marks."""
        return tuple(chain.from_iterable(map(self._compacted, items)))

    def whole(self, items: Sequence[StoredMessage]) -> list[Message]:
        """Return messages and their results as they are stored."""
        return list(chain.from_iterable(map(self._with_results, items)))

    def _compacted(self, item: StoredMessage) -> list[Message]:
        """Return a message and its results, shortened by the marks."""
        found = self._with_results(item)
        characters = compaction.characters_kept(self._marks, item.number)
        if characters is None:
            return found
        calls = {call.call_id: call for call in item.calls}
        return [compaction.shortened(message, characters, calls) for message in found]

    def _with_results(self, item: StoredMessage) -> list[Message]:
        """Return a message with the results of its calls; nothing for an empty answer."""
        calls = item.calls
        if calls:
            results = tuple(map(partial(_result, self._calls, item.number), calls))
            return [item.message, Message("tool", results)]
        if item.is_empty_answer:
            return []
        return [item.message]


def _result(calls: Mapping[str, CallRecord], number: int, call: ToolCall) -> ToolResult:
    """Return the result of a call in the message with a number."""
    record = calls.get(call_key(number, call))
    if record is None or record.status in NO_OUTCOME:
        return ToolResult(call.call_id, call.name, agent_prompts.UNKNOWN, is_error=True)
    text, media = call_result(record)
    is_error = record.status in ("failed", "denied")
    return ToolResult(call.call_id, call.name, text, is_error, media)
