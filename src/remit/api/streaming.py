"""Streams of a workspace or a server: results as they settle, progress, and events."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar, overload

from remit.api.closable import Closable
from remit.api.methods import OperationStreams, refuse_format, result_of
from remit.api.output_type import TypedOutput, reader_of
from remit.catalog import FOR_EVERYONE
from remit.catalog.method_parameters import TYPED
from remit.domain.records.pick import omit_none
from remit.results import (
    Event,
    IndexedResult,
    Progress,
    StreamEnd,
    StreamIdle,
    StreamItem,
    TaskResult,
)

if TYPE_CHECKING:
    from remit.inputs import WorkInput

T = TypeVar("T")
Item = dict[str, Any]


class Streams(OperationStreams, Closable):
    """The streams of `Remit` and `RemitClient`, built from the items of `attend` and `follow`."""

    def attend(self, operation: str, /, **fields: Any) -> AsyncGenerator[Item, None]:
        """Call an operation that waits; yield items as plain JSON."""
        raise NotImplementedError

    def follow(
        self, after: str | None = None, task_id: str | None = None
    ) -> AsyncGenerator[Item, None]:
        """Follow events; yield each as plain JSON."""
        raise NotImplementedError

    async def _stream(
        self, operation: str, fields: dict[str, Any]
    ) -> AsyncGenerator[StreamItem, None]:
        self._require_open()
        if operation in TYPED:
            refuse_format(fields)
        typed = _typed(fields.pop("output_type", None))
        name, asked = (operation, fields) if typed is None else typed.request(operation, fields)
        async with aclosing(self.attend(name, **asked)) as items:
            async for item in items:
                yield _read(operation, item, typed)

    @overload
    def stream_parallel(
        self,
        tasks: "Sequence[str | WorkInput]",
        *,
        output_type: type[T],
        timeout_seconds: float | None = None,
        session_id: str | None = None,
    ) -> AsyncGenerator[IndexedResult[T], None]: ...

    @overload
    def stream_parallel(
        self,
        tasks: "Sequence[str | WorkInput]",
        *,
        output_type: None = None,
        timeout_seconds: float | None = None,
        session_id: str | None = None,
    ) -> AsyncGenerator[IndexedResult[None], None]: ...

    async def stream_parallel(
        self,
        tasks: "Sequence[str | WorkInput]",
        *,
        output_type: Any = None,
        timeout_seconds: float | None = None,
        session_id: str | None = None,
    ) -> AsyncGenerator[IndexedResult[Any], None]:
        """Delegate several tasks; yield each result as it settles."""
        common: dict[str, Any] = {
            "timeout_seconds": timeout_seconds,
            "session_id": session_id,
            "output_type": output_type,
        }
        given: dict[str, Any] = omit_none(common)
        async with aclosing(self.stream("task_parallel", tasks=list(tasks), **given)) as items:
            async for item in items:
                if isinstance(item, IndexedResult):
                    yield item

    async def events(
        self, after: str | None = None, task_id: str | None = None
    ) -> AsyncGenerator[Event, None]:
        """Follow the events of all tasks or of one, from now on or after a position.

        The position "" is the beginning.
        """
        async with aclosing(self.follow(after, task_id)) as events:
            async for event in events:
                yield Event.from_dict(event)


def _typed(output_type: Any) -> TypedOutput | None:
    return None if output_type is None else TypedOutput(output_type)


def _read(operation: str, item: Item, typed: TypedOutput | None) -> StreamItem:
    """Convert an item of a stream to an object."""
    return _READERS.get(item["type"], _read_progress)(operation, item, typed)


def _read_result(_: str, item: Item, typed: TypedOutput | None) -> StreamItem:
    result = TaskResult(item["result"], item["about"], reader_of(typed))
    return IndexedResult(item["index"], result)


def _read_idle(_: str, item: Item, __: TypedOutput | None) -> StreamItem:
    return StreamIdle(item["seconds"])


def _read_end(operation: str, item: Item, typed: TypedOutput | None) -> StreamItem:
    return StreamEnd(result_of(FOR_EVERYONE[operation], item["answer"], typed))


def _read_progress(_: str, item: Item, __: TypedOutput | None) -> StreamItem:
    return Progress.from_dict(item)


_READERS: Mapping[str, Callable[[str, Item, TypedOutput | None], StreamItem]] = {
    "result": _read_result,
    "waiting": _read_idle,
    "end": _read_end,
}
"""How each type of item is read; all others are progress."""
