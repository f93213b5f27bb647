"""The operations of the catalog as methods: coroutines and blocking calls.

Type checkers read api/methods.pyi, which scripts/stubs.py generates from the same catalog.
"""

import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from typing import Any, cast, get_type_hints

from remit import results
from remit.api.closable import Closable
from remit.api.output_type import TypedOutput, reader_of
from remit.catalog import FOR_EVERYONE, Operation
from remit.catalog.method_parameters import HIDDEN, TYPED, positional
from remit.catalog.output_schemas import result_class
from remit.domain.delegation.result_envelope import Envelope
from remit.domain.records.pick import among, beyond
from remit.domain.records.record import MISSING, fields
from remit.domain.text.counting import counted
from remit.errors import invalid
from remit.results import StreamItem, TaskResult, TaskResults


class Operations(Closable):
    """Every operation as a coroutine; the base of `Remit` and `RemitClient`."""

    async def call(self, operation: str, /, **fields: Any) -> dict[str, Any]:
        """Call an operation by name; return plain JSON."""
        raise NotImplementedError


class SyncOperations:
    """Every operation as a blocking call; the base of what `open_sync()` returns."""

    def call(self, operation: str, /, **fields: Any) -> dict[str, Any]:
        """Call an operation by name; return plain JSON."""
        return self._run(lambda remit: remit.call(operation, **fields))

    def _run(self, ask: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        raise NotImplementedError


class OperationStreams:
    """`stream` of every operation that may wait; type checkers know the fields of each."""

    def stream(self, operation: str, /, **fields: Any) -> AsyncGenerator[StreamItem, None]:
        """Call an operation that waits; yield its progress and results, and finally `StreamEnd`.

        Leaving the loop ends the wait; it does not cancel the task.
        """
        return self._stream(operation, fields)

    def _stream(self, operation: str, fields: dict[str, Any]) -> AsyncGenerator[StreamItem, None]:
        raise NotImplementedError


class SyncOperationStreams:
    """`stream` as a blocking call; the base of what `open_sync()` returns."""

    def stream(self, operation: str, /, **fields: Any) -> Generator[StreamItem, None, None]:
        """Call an operation that waits; yield its progress and results, and finally `StreamEnd`."""
        return self._iterate(lambda remit: remit.stream(operation, **fields))

    def _iterate(
        self, ask: Callable[[Any], AsyncGenerator[Any, None]]
    ) -> Generator[Any, None, None]:
        raise NotImplementedError


def result_of(
    operation: Operation, answer: Mapping[str, Any], typed: TypedOutput | None = None
) -> Any:
    """Convert the answer of an operation to the result object of its method."""
    read = reader_of(typed)
    name = result_class(operation.output)
    if name == "TaskResult":
        return _task_result(answer, read)
    if name == "TaskResults":
        return TaskResults(_task_result(each, read) for each in answer["results"])
    return getattr(results, name).from_dict(answer)


def _task_result(answer: Mapping[str, Any], read: Callable[[Any], Any] | None) -> TaskResult[Any]:
    assert isinstance(answer, Envelope)
    return TaskResult(answer, answer.about, read)


def _coroutine_method(operation: Operation) -> Callable[..., Any]:
    """Return an operation as a method that is awaited."""
    order = positional(operation.input)

    async def method(self: Operations, *args: Any, **named: Any) -> Any:
        self._require_open()  # pyright: ignore[reportPrivateUsage]
        given = _bind_arguments(operation.name, order, args, named)
        output_type = given.pop("output_type", None) if operation.name in TYPED else None
        if output_type is None:
            return result_of(operation, await self.call(operation.name, **given))
        typed = TypedOutput(output_type)
        name, asked = typed.request(operation.name, given)
        return result_of(operation, await self.call(name, **asked), typed)

    return method


def _blocking_method(operation: Operation) -> Callable[..., Any]:
    """Return an operation as a method that blocks."""

    def method(self: SyncOperations, *args: Any, **named: Any) -> Any:
        def ask(remit: Any) -> Any:
            return getattr(remit, operation.name)(*args, **named)

        return self._run(ask)  # pyright: ignore[reportPrivateUsage]

    return method


def _bind_arguments(
    name: str, order: list[str], args: tuple[Any, ...], named: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all arguments by name."""
    if len(args) > len(order):
        allowed = counted(len(order), "positional argument")
        raise TypeError(f"{name} accepts {allowed} ({', '.join(order)}).")
    if repeated := among(order[: len(args)], named):
        raise TypeError(f"{name} got {repeated[0]} twice.")
    given = {**dict(zip(order, args, strict=False)), **named}
    if name in TYPED:
        refuse_format(given)
    return given


def refuse_format(given: Mapping[str, Any]) -> None:
    """Refuse the field `format`: a result object has a method for each form."""
    tasks = given.get("tasks")
    items = cast("list[Any]", tasks) if isinstance(tasks, list | tuple) else []
    for sent in (given, *items):
        if isinstance(sent, Mapping) and "format" in sent:
            raise invalid(
                "format", "is not a parameter here", "to_dict() or envelope() of the result"
            )


def _add_methods() -> None:
    for operation in FOR_EVERYONE.values():
        signature = _signature(operation)
        _add(Operations, _coroutine_method(operation), operation, signature)
        _add(SyncOperations, _blocking_method(operation), operation, signature)


def _add(owner: type[Any], method: Any, operation: Operation, signature: inspect.Signature) -> None:
    method.__name__, method.__qualname__ = operation.name, f"{owner.__name__}.{operation.name}"
    method.__doc__, method.__signature__ = operation.description, signature
    setattr(owner, operation.name, method)


_OUTPUT_TYPE = inspect.Parameter(
    "output_type", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=type[Any] | None
)


def _signature(operation: Operation) -> inspect.Signature:
    """Return the signature that inspect and help() show."""
    order = positional(operation.input)
    defaults, hints = fields(operation.input), get_type_hints(operation.input)
    hidden, added = frozenset[str](), list[inspect.Parameter]()
    if operation.name in TYPED:
        hidden, added = HIDDEN, [_OUTPUT_TYPE]
    rest = beyond(defaults, {*order, *hidden})
    parameters = [
        *_parameters(order, inspect.Parameter.POSITIONAL_OR_KEYWORD, defaults, hints),
        *_parameters(rest, inspect.Parameter.KEYWORD_ONLY, defaults, hints),
        *added,
    ]
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return inspect.Signature(
        [own, *parameters], return_annotation=getattr(results, result_class(operation.output))
    )


def _parameters(
    names: list[str], kind: Any, defaults: Mapping[str, Any], hints: Mapping[str, Any]
) -> list[inspect.Parameter]:
    """Return fields of an operation as parameters of one kind."""
    parameters: list[inspect.Parameter] = []
    for name in names:
        default = defaults[name]
        if default is MISSING:
            default = inspect.Parameter.empty
        parameters.append(inspect.Parameter(name, kind, default=default, annotation=hints[name]))
    return parameters


_add_methods()
