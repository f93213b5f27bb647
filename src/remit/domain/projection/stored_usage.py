"""What the stored messages and tool calls of a task say about its usage."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from remit.domain.records.record import record
from remit.domain.task.task import ToolCount, Usage, by_tool


class StoredCall(Protocol):
    """A stored tool call."""

    @property
    def tool(self) -> str:
        """The name of the tool."""
        ...

    @property
    def repeatable(self) -> int:
        """1 if a run may repeat the call, else 0."""
        ...

    @property
    def status(self) -> str:
        """The status of the call."""
        ...


@record
class StoredUsage:
    """The usage of all stored messages and calls of a task."""

    usage: Usage = Usage()
    tools: tuple[ToolCount, ...] = ()


def model_usage(messages: Iterable[Mapping[str, Any]]) -> Usage:
    """Return what the model calls in stored messages have used."""
    answers = [message for message in messages if "model" in message]
    return Usage(
        requests=len(answers),
        input_tokens=_total(answers, "input"),
        output_tokens=_total(answers, "output"),
        cost=float(_total(answers, "cost")),
    )


def _total(answers: Iterable[Mapping[str, Any]], field: str) -> Any:
    """Return the sum of a field that an answer may lack."""
    return sum(answer.get(field) or 0 for answer in answers)


def tool_uses(calls: Iterable[StoredCall], *, is_ended: bool = False) -> Counter[str]:
    """Return how often each tool was used; a denied call does not count.

    A call that has not ended counts when it ends. In an ended task it never ends, so it counts
    there if it may have taken effect.
    """
    return Counter(call.tool for call in calls if _is_use(call, is_ended=is_ended))


def _is_use(call: StoredCall, *, is_ended: bool) -> bool:
    if call.status == "started":
        return is_ended and not call.repeatable
    return call.status != "denied"


def uncounted(uses: Counter[str], counted: Iterable[ToolCount]) -> Counter[str]:
    """Return the uses of tools that a task has not counted yet."""
    return uses - by_tool(counted)


def as_counts(uses: Counter[str]) -> tuple[ToolCount, ...]:
    """Return the uses of tools as a task records them."""
    return tuple(
        ToolCount(tool=tool, count=count) for tool, count in sorted(uses.items()) if count > 0
    )
