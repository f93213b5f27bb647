"""Python functions as tools: their signature is what a model is shown, their docstring says what they do."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from remit.adapters.tools.stop import Halted
from remit.domain.counting import in_seconds
from remit.domain.output import Files, Sought
from remit.domain.tool import ToolCallRequest, ToolOutcome, ToolSpec, clip
from remit.errors import invalid
from remit.ports import ToolHost

Function = Callable[..., Any]
_TYPES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", tuple: "array", dict: "object"}
_TOLD: ContextVar[threading.Event | None] = ContextVar("told", default=None)


def repeatable(function: Function) -> Function:
    """Mark a function as harmless to call again after a crash; without the mark, a call that was cut off is never repeated."""
    function.__dict__["remit_repeatable"] = True
    return function


def stopping() -> bool:
    """For functions that take long: True once the call must end, because its task was paused or canceled or the worker is about to stop."""
    told = _TOLD.get()
    return told is not None and told.is_set()


def spec_of(function: Function) -> ToolSpec:
    """A function as a tool."""
    name = function.__name__
    hints = get_type_hints(function)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise invalid("tools", f"has {name}, whose parameter {parameter.name} cannot be named by a model", "plain parameters with types")
        properties[parameter.name] = _schema(hints.get(parameter.name, str))
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    again = bool(getattr(function, "remit_repeatable", False))
    return ToolSpec(name, inspect.getdoc(function) or name, parameters, effects=not again, repeatable=again)


def _schema(hint: Any) -> dict[str, Any]:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return _schema(next(part for part in get_args(hint) if part is not NoneType))
    if origin is Literal:
        return {"type": "string", "enum": list(get_args(hint))}
    return {"type": _TYPES.get(origin or hint, "string")}


class WithFunctions:
    """A host's own tools, and functions beside them; the host is made when one of its tools is wanted."""

    def __init__(self, host: Callable[[], ToolHost], functions: Mapping[str, tuple[Function, ToolSpec]]) -> None:
        self._make, self._functions = host, functions
        self._made: ToolHost | None = None

    def specs(self) -> tuple[ToolSpec, ...]:
        """Every tool there is, granted or not."""
        return (*self._host.specs(), *(spec for _, spec in self._functions.values()))

    async def refusal(self, tools: frozenset[str]) -> str:
        """Why one of the host's tools cannot be used here."""
        return await self._host.refusal(tools)

    async def call(self, call: ToolCallRequest) -> ToolOutcome:
        """Do one call, if it is granted."""
        if call.tool not in self._functions or call.tool not in call.granted:
            own = [name for name in self._functions if name in call.granted]
            return await self._host.call(call._replace(operations=(*own, *call.operations)))
        function, spec = self._functions[call.tool]
        if problem := _problem(spec, call.arguments):
            return ToolOutcome(problem, is_error=True)
        clock = asyncio.timeout(call.deadline_seconds)
        try:
            async with clock:
                found = await _found(function, call)
        except Halted:
            return ToolOutcome(f"{call.tool} was told to stop before it was done.", is_error=True)
        except Exception as error:  # noqa: BLE001 - whatever somebody's function does becomes an outcome for the model
            if clock.expired():
                return ToolOutcome(f"{call.tool} was stopped after {in_seconds(call.deadline_seconds)}.", is_error=True)
            return ToolOutcome(f"{call.tool} failed: {type(error).__name__}: {error}", is_error=True)
        return clip(found if isinstance(found, str) else _text(found), "Ask for less.")

    async def look_for(self, files: Sequence[Sought]) -> Files:
        """What the host sees of files."""
        return await self._host.look_for(files)

    async def fingerprint(self) -> str | None:
        """All files that the host's tools can see; what functions look at is nobody's to know."""
        return await self._host.fingerprint()

    async def close(self) -> None:
        """Let go of the host."""
        if self._made is not None:
            await self._made.close()

    @property
    def _host(self) -> ToolHost:
        self._made = self._made or self._make()
        return self._made


async def _found(function: Function, call: ToolCallRequest) -> Any:
    """What a function returns. Once its call must end, a coroutine is cancelled; a thread cannot be, and is waited for."""
    told = threading.Event()
    before = _TOLD.set(told)
    thread = not inspect.iscoroutinefunction(function)
    work = asyncio.ensure_future(asyncio.to_thread(function, **call.arguments) if thread else function(**call.arguments))
    stop: asyncio.Future[Any] | None = None
    try:
        await asyncio.sleep(0)
        if not work.done():  # what takes no time needs nobody who could stop it
            stop = asyncio.ensure_future(call.cancel.wait())
            await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
        told.set()
        if thread or work.done():
            return await work
        work.cancel()
        await asyncio.wait({work})
        if work.cancelled():
            raise Halted("canceled")
        return work.result()
    finally:
        told.set()
        if stop is not None:
            stop.cancel()
        if not work.done():
            work.cancel()
            await asyncio.wait({work})
        _TOLD.reset(before)


def named(functions: Sequence[Function]) -> dict[str, tuple[Function, ToolSpec]]:
    """Functions by the name a model calls them by."""
    return {function.__name__: (function, spec_of(function)) for function in functions}


def _problem(spec: ToolSpec, arguments: Mapping[str, Any]) -> str:
    known = spec.parameters["properties"]
    if unknown := sorted(arguments.keys() - known.keys()):
        return f"{unknown[0]!r} is not a parameter of {spec.name}; it takes {', '.join(known) or 'none'}."
    missing = [name for name in spec.parameters["required"] if name not in arguments]
    return f"{missing[0]!r} is missing: {spec.name} needs it." if missing else ""


def _text(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False, default=str)
