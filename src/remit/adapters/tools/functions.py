"""Python functions as tools: the signature becomes the schema and the docstring the description."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from remit.adapters.tools.call_deadline import Halted
from remit.domain.agents.tools import ToolCallRequest, ToolOutcome, ToolSpec, clip
from remit.domain.outputs.required_outputs import FileQuery, Files
from remit.domain.records.validate import describe
from remit.domain.text.counting import in_seconds
from remit.errors import invalid
from remit.ports import ToolHost

Function = Callable[..., Any]
_TYPES: dict[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    tuple: "array",
    dict: "object",
}
_STOP_REQUESTED: ContextVar[threading.Event | None] = ContextVar("stop_requested", default=None)


def repeatable(function: Function) -> Function:
    """Mark a function as safe to call again after a crash.

    Without the mark, an interrupted call is not repeated.
    """
    function.__dict__["remit_repeatable"] = True
    return function


def stopping() -> bool:
    """Return True once the current call must end: its task was paused or canceled, or the worker
    stops.

    Long-running functions check it from time to time.
    """
    stop_requested = _STOP_REQUESTED.get()
    return stop_requested is not None and stop_requested.is_set()


def check_functions(functions: Sequence[Any], taken: Collection[str]) -> None:
    """Refuse what cannot be a tool, and a name that is taken or used twice."""
    names: set[str] = set()
    for function in functions:
        _check_function(function)
        name = function.__name__
        if name in taken:
            raise invalid("tools", f"has {name}, which is a tool of remit", "another name")
        if name in names:
            raise invalid("tools", f"has two functions named {name}", "different names")
        names.add(name)


def _check_function(function: Any) -> None:
    expected = "functions that were made with def, with typed parameters"
    if isinstance(function, type) or not str(getattr(function, "__name__", "")).isidentifier():
        raise invalid("tools", f"has {describe(function)}, which is not a function", expected)
    try:
        spec_of(function)
    except (TypeError, ValueError, NameError) as error:
        raise invalid("tools", f"has {function.__name__}: {error}", expected) from error


def spec_of(function: Function) -> ToolSpec:
    """Describe a function as a tool."""
    name = function.__name__
    hints = get_type_hints(function)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
            parameter.POSITIONAL_ONLY,
        ):
            raise invalid(
                "tools",
                f"parameter {parameter.name} of {name} cannot be passed by name",
                "named parameters with types",
            )
        properties[parameter.name] = _schema(hints.get(parameter.name, str))
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    parameters = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    is_repeatable = bool(getattr(function, "remit_repeatable", False))
    return ToolSpec(
        name,
        inspect.getdoc(function) or name,
        parameters,
        effects=not is_repeatable,
        repeatable=is_repeatable,
    )


def _schema(hint: Any) -> dict[str, Any]:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return _schema(next(part for part in get_args(hint) if part is not NoneType))
    if origin is Literal:
        return {"type": "string", "enum": list(get_args(hint))}
    return {"type": _TYPES.get(origin or hint, "string")}


class FunctionTools:
    """Add functions to the tools of a host.

    The host is created when one of its tools is first used.
    """

    def __init__(
        self, host: Callable[[], ToolHost], functions: Mapping[str, tuple[Function, ToolSpec]]
    ) -> None:
        self._create, self._functions = host, functions
        self._created: ToolHost | None = None

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return every tool, granted or not."""
        return (*self._host.specs(), *(spec for _, spec in self._functions.values()))

    async def refusal(self, tools: frozenset[str]) -> str:
        """Return why one of the host's tools cannot be used here; empty if all can."""
        return await self._host.refusal(tools)

    async def call(self, call: ToolCallRequest) -> ToolOutcome:
        """Make one call, if it is granted."""
        if call.tool not in self._functions.keys() & call.granted:
            own = [name for name in self._functions if name in call.granted]
            return await self._host.call(call._replace(operations=(*own, *call.operations)))
        function, spec = self._functions[call.tool]
        if problem := _problem(spec, call.arguments):
            return ToolOutcome(problem, is_error=True)
        clock = asyncio.timeout(call.deadline_seconds)
        try:
            async with clock:
                result = await _call_function(function, call)
        except Halted:
            return ToolOutcome(f"{call.tool} was stopped before it finished.", is_error=True)
        except Exception as error:  # noqa: BLE001 - every error of a function is its outcome
            if clock.expired():
                return ToolOutcome(
                    f"{call.tool} was stopped after {in_seconds(call.deadline_seconds)}.",
                    is_error=True,
                )
            return ToolOutcome(
                f"{call.tool} failed: {type(error).__name__}: {error}", is_error=True
            )
        return clip(_text(result), "Ask for less output.")

    async def look_for(self, files: Sequence[FileQuery]) -> Files:
        """Check files with the host."""
        return await self._host.look_for(files)

    async def fingerprint(self) -> str | None:
        """Return a hash of the files that the host's tools can read; files that functions read do
        not count.
        """
        return await self._host.fingerprint()

    async def close(self) -> None:
        """Close the host."""
        if self._created is not None:
            await self._created.close()

    @property
    def _host(self) -> ToolHost:
        self._created = self._created or self._create()
        return self._created


async def _call_function(function: Function, call: ToolCallRequest) -> Any:
    """Run a function and return its result.

    If the call must end, a coroutine is canceled; a thread cannot be canceled, so wait for it.
    """
    stop_requested = threading.Event()
    before = _STOP_REQUESTED.set(stop_requested)
    thread = not inspect.iscoroutinefunction(function)
    if thread:
        work = asyncio.ensure_future(asyncio.to_thread(function, **call.arguments))
    else:
        work = asyncio.ensure_future(function(**call.arguments))
    stop: asyncio.Future[Any] | None = None
    try:
        await asyncio.sleep(0)
        if not work.done():  # a function that has already returned needs no cancellation
            stop = asyncio.ensure_future(call.cancel.wait())
            await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop_requested.set()
        if thread or work.done():
            return await work
        work.cancel()
        await asyncio.wait({work})
        if work.cancelled():
            raise Halted("canceled")
        return work.result()
    finally:
        stop_requested.set()
        if stop is not None:
            stop.cancel()
        if not work.done():
            work.cancel()
            await asyncio.wait({work})
        _STOP_REQUESTED.reset(before)


def by_name(functions: Sequence[Function]) -> dict[str, tuple[Function, ToolSpec]]:
    """Map each function and its tool by the function's name."""
    return {function.__name__: (function, spec_of(function)) for function in functions}


def _problem(spec: ToolSpec, arguments: Mapping[str, Any]) -> str:
    """Return what is wrong with the names of arguments; empty if they fit."""
    known = spec.parameters["properties"]
    unknown = sorted(arguments.keys() - known.keys())
    if unknown:
        available = ", ".join(known) or "none"
        return f"unknown parameter {unknown[0]!r} of {spec.name}. Available: {available}."
    missing = [name for name in spec.parameters["required"] if name not in arguments]
    if missing:
        return f"missing parameter {missing[0]!r} of {spec.name}."
    return ""


def _text(value: Any) -> str:
    """Return a result as text for a model."""
    if isinstance(value, str):
        return value
    import json

    return json.dumps(value, ensure_ascii=False, default=str)
