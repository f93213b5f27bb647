"""Operations as methods of a class: what they need in order, the rest by name."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, get_type_hints

from remit.catalog.output import SHAPES
from remit.catalog.table import Operation, Result
from remit.domain.envelope import TaskResult
from remit.domain.record import MISSING, fields

Method = Callable[..., Awaitable[Result]]


def method_of(owner: str, operation: Operation, call: Callable[[Any, str, dict[str, Any]], Awaitable[Result]]) -> Method:
    """An operation as a method of the class that is called so, which carries it out by `call`."""
    order = _in_order(operation.input)

    async def method(self: Any, *args: Any, **named: Any) -> Result:
        if len(args) > len(order) or not named.keys().isdisjoint(order[: len(args)]):
            raise TypeError(f"{operation.name} takes {', '.join(order) or 'nothing'} in order, and each field once")
        return await call(self, operation.name, dict(zip(order, args, strict=False)) | named)

    method.__name__, method.__qualname__, method.__doc__ = operation.name, f"{owner}.{operation.name}", operation.description
    method.__signature__ = _signature(operation, order)  # type: ignore[attr-defined]  # what inspect and help read
    return method


def _in_order(kind: type[Any]) -> list[str]:
    """The fields that may be given without their names: those that are needed or, where none is, the first."""
    known = fields(kind)
    return [name for name, default in known.items() if default is MISSING] or list(known)[:1]


def _signature(operation: Operation, order: list[str]) -> inspect.Signature:
    hints, known = get_type_hints(operation.input), fields(operation.input)
    given = TaskResult if operation.output is SHAPES["envelope"] else Result
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD if name in order else inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if known[name] is MISSING else known[name],
            annotation=hints[name],
        )
        for name in (*order, *(name for name in known if name not in order))
    ]
    return inspect.Signature([inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD), *parameters], return_annotation=given)
