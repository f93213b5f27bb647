"""REST: one route for each operation, made from the table."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import cache
from importlib.metadata import version
from typing import Any, cast
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from remit.catalog import FOR_EVERYONE, Caller, Core, Operation, attend, call, enveloped, fleet, task_counts
from remit.domain.record import fields
from remit.domain.schema import field_schema
from remit.domain.shape import describe
from remit.domain.wire import dumps
from remit.errors import Internal, InvalidParam, NotFound, RemitError, Unavailable, invalid
from remit.surfaces.late_answer import answer_in_time
from remit.surfaces.openapi import IN_QUERY, SHORTER, document
from remit.surfaces.sse import HEARTBEAT, EventStream, attended, followed, position

Handler = Callable[[Request], Awaitable[ASGIApp]]

RETRY_AFTER = {"Retry-After": "1"}
MAX_QUERY_FIELDS = 64
READY_SECONDS = 2.0
"""How long the store is waited for when somebody asks whether all is well: who asks wants to know, and other calls are more patient."""

log = logging.getLogger(__name__)


def rest_app(core: Core, *, caller: Caller, stopping: asyncio.Event, heartbeat: float = HEARTBEAT) -> Starlette:
    """Everything REST, in one app that answers on every path in the one error shape; streams of events end when `stopping` is set.

    What waits for tasks ends with the waits of the core.
    """
    app = Starlette(
        routes=rest_routes(core, caller, stopping=stopping, heartbeat=heartbeat),
        exception_handlers={404: _no_such_path, 405: _wrong_method},
    )
    app.router.redirect_slashes = False
    return app


def rest_routes(core: Core, caller: Caller, *, stopping: asyncio.Event | None = None, heartbeat: float = HEARTBEAT) -> list[Route]:
    """A route for each operation that everyone is offered, and those that only HTTP has."""
    streams = _Streams(core, caller, stopping or asyncio.Event(), heartbeat)
    calls = {operation.name: _Call(core, caller, operation) for operation in _with_route()}
    waits = {name: call for name, call in calls.items() if FOR_EVERYONE[name].stream is not None}
    waiting = {name: streams.or_else(call.in_time, streams.progress(call)) for name, call in waits.items()}
    handlers: dict[str, Handler] = {**calls, **waiting, "get_events": streams.or_else(calls["get_events"], streams.one_task)}
    return [
        *(_route(operation.path, handlers[operation.name], operation.method, operation.name) for operation in _with_route()),
        _route("/api/events", streams.all_tasks),
        _route("/healthz", _healthy),
        _route("/readyz", _Ready(core)),
        _route("/metrics", _Metrics(core)),
        _route("/openapi.json", _described),
    ]


def _with_route() -> list[Operation]:
    """In the order of matching: a fixed path before one whose parameter would swallow it."""
    found = [operation for operation in FOR_EVERYONE.values() if operation.path and not operation.alias_of]
    return sorted(found, key=lambda operation: operation.path.count("{"))


def _route(path: str, handler: Handler, method: str = "GET", name: str = "") -> Route:
    return Route(path, _Endpoint(handler), methods=[method], name=name or path.removeprefix("/"))


class _Endpoint:
    """The app of a route: what goes wrong before the answer begins is answered in the one error shape."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._handler(Request(scope, receive))
        except Exception as error:  # noqa: BLE001 - every error is answered in the one error shape
            answer = _failed(scope, error)
        await answer(scope, receive, send)


def _failed(scope: Scope, error: Exception) -> Response:
    """The answer to a request that failed; the log says more where the caller is not at fault."""
    if isinstance(error, RemitError):
        _log_failure(scope, error)
        return _failure(error)
    log.error("Request failed", exc_info=error, extra={"fields": _request_fields(scope, Internal.status)})
    return _failure(Internal("Something went wrong inside remit.", hint="The server's log says more."))


def _log_failure(scope: Scope, error: RemitError) -> None:
    """Log a request that failed through no fault of its caller."""
    fields = _request_fields(scope, error.status) | {"code": error.code}
    if error.status == Internal.status:
        log.error("Request failed: %s", error.message, exc_info=error, extra={"fields": fields})
    elif error.status > Internal.status:
        log.warning("Request failed: %s", error.message, extra={"fields": fields})


def _request_fields(scope: Scope, status: int) -> dict[str, Any]:
    return {"method": scope["method"], "path": scope["path"], "status": status}


# Operations.


class _Call:
    """Turns a request into a call of an operation, and its result into the answer."""

    def __init__(self, core: Core, caller: Caller, operation: Operation) -> None:
        self._core, self._caller, self.name = core, caller, operation.name
        self._has_body = operation.method not in ("GET", "DELETE")
        self._types: dict[str, str] = {name: field_schema(operation.input, name).get("type", "") for name in fields(operation.input)}

    async def __call__(self, request: Request) -> Response:
        return _json(await call(self._core, self.name, await self.fields(request), self._caller))

    async def in_time(self, request: Request) -> ASGIApp:
        """The same for an operation that may wait: its answer begins after a first silence, ready or not."""
        return await answer_in_time(self(request), self._core.progress_seconds, _failed)

    async def fields(self, request: Request) -> dict[str, Any]:
        """What was sent: in the path, and in the query or the body; what cannot be read is refused as the operation refuses."""
        with enveloped(self.name, {}):
            return await self._sent(request)

    async def _sent(self, request: Request) -> dict[str, Any]:
        query = _query(request)
        if self._has_body:
            shaped = {name: query.pop(name) for name in IN_QUERY if name in query and name in self._types}
            if query:
                raise invalid(next(iter(query)), "is in the query", "it in the JSON body")
            sent = _body(await request.body())
            for name, text in shaped.items():
                _must_agree(name, sent.get(name), text, "the query")
            sent |= shaped
        else:
            _must_have_no_body(request)
            sent = {name: self._converted(name, text) for name, text in self._named(query).items()}
        for name, text in request.path_params.items():
            value = self._converted(name, text)
            _must_agree(name, sent.get(name), value, "the path")
            sent[name] = value
        return sent

    def _named(self, query: dict[str, str]) -> dict[str, str]:
        """The query in the names of the operation's fields."""
        for short, name in SHORTER.get(self.name, {}).items():
            if short in query:
                if name in query:
                    raise invalid(short, f"is there beside {name}, which means the same", "one of them")
                query[name] = query.pop(short)
        return query

    def _converted(self, name: str, text: str) -> Any:
        convert = _CONVERT.get(self._types.get(name, ""))
        return convert(name, text) if convert else text


def _must_agree(name: str, sent: Any, value: Any, place: str) -> None:
    if sent is not None and str(sent) != str(value):
        raise invalid(name, f"is {describe(sent)}, but {describe(value)} in {place}", f"it in {place} alone")


def _whole(name: str, text: str) -> int:
    if re.fullmatch(r"-?[0-9]{1,18}", text) is None:
        raise invalid(name, f"is {describe(text)}", "a whole number")
    return int(text)


def _number(name: str, text: str) -> float:
    if re.fullmatch(r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?", text) is None:
        raise invalid(name, f"is {describe(text)}", "a number")
    return float(text)


def _truth(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise invalid(name, f"is {describe(text)}", "true or false")
    return text == "true"


_CONVERT: dict[str, Callable[[str, str], Any]] = {"integer": _whole, "number": _number, "boolean": _truth}


def _query(request: Request) -> dict[str, str]:
    raw: bytes = request.scope["query_string"]
    if not raw:
        return {}
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_QUERY_FIELDS)
    except ValueError as error:
        raise invalid("query", "cannot be read", f"at most {MAX_QUERY_FIELDS} parameters in percent-encoded UTF-8") from error
    found = dict(pairs)
    if len(found) < len(pairs):
        raise invalid("query", "has a parameter more than once", "each at most once")
    return found


def _must_have_no_body(request: Request) -> None:
    for name, value in request.scope["headers"]:
        if name == b"transfer-encoding" or (name == b"content-length" and value != b"0"):
            raise invalid("body", f"is not read with {request.method}", "fields in the query")


def _body(raw: bytes) -> dict[str, Any]:
    if not raw:
        return {}
    try:
        value = _DECODER.decode(raw.decode())
    except UnicodeDecodeError as error:
        raise _bad_body("is not UTF-8") from error
    except RecursionError as error:
        raise _bad_body("is nested too deeply") from error
    except ValueError as error:
        raise _bad_body(f"is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise _bad_body("is not an object")
    return cast("dict[str, Any]", value)


def _bad_body(problem: str) -> InvalidParam:
    return invalid("body", problem, "a JSON object")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _bad_body("has a key more than once")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_unique)


# What only HTTP has.


class _Streams:
    """What is streamed: the events of all tasks or of one, and what goes on while an operation waits."""

    def __init__(self, core: Core, caller: Caller, stopping: asyncio.Event, heartbeat: float) -> None:
        self._core, self._caller = core, caller
        self._stopping, self._heartbeat = stopping, heartbeat

    async def all_tasks(self, request: Request) -> ASGIApp:
        """Events of every task; `after` is a position."""
        after = _after(request)
        return self._events(followed(self._core, await position(self._core, _resumed(request) or after), None))

    def or_else(self, handler: Handler, streamed: Handler) -> Handler:
        """A stream for whoever asks for one, for others the plain answer."""

        async def negotiated(request: Request) -> ASGIApp:
            accepted = [kind.partition(";")[0].strip() for kind in request.headers.get("accept", "").split(",")]
            return await (streamed(request) if "text/event-stream" in accepted else handler(request))

        return negotiated

    def progress(self, call: _Call) -> Handler:
        """A call whose caller hears what goes on while it waits; what is refused is refused before the stream begins."""

        async def streamed(request: Request) -> ASGIApp:
            items = attend(self._core, call.name, await call.fields(request), self._caller)
            return EventStream(attended(await anext(items), items), heartbeat=self._heartbeat)

        return streamed

    async def one_task(self, request: Request) -> ASGIApp:
        """Events of one task; there `after` is a version."""
        after, resumed, task_id = _after(request), _resumed(request), request.path_params["task_id"]
        task = await call(self._core, "get_task", {"task_id": task_id}, self._caller)
        known = resumed is not None or after is None
        start = await position(self._core, resumed) if known else await self._of_version(task["id"], _whole("after", str(after)))
        return self._events(followed(self._core, start, task["id"]))

    async def _of_version(self, task_id: str, version: int) -> str:
        """Where an event of a task is: on a task `after` is a version, as in the operation."""
        if version < 0:
            raise invalid("after", f"is {version}", "the version of an event, or 0 for the beginning")
        if version == 0:
            return ""
        page = await call(self._core, "get_events", {"task_id": task_id, "after": version - 1, "limit": 1}, self._caller)
        return page["events"][0]["position"] if page["events"] else await position(self._core, None)

    def _events(self, blocks: AsyncGenerator[str, None]) -> ASGIApp:
        return EventStream(blocks, stopping=self._stopping, heartbeat=self._heartbeat)


def _after(request: Request) -> str | None:
    query = _query(request)
    after = query.pop("after", None)
    if query:
        raise invalid(next(iter(query)), "is not a parameter of a stream", "after")
    return after


def _resumed(request: Request) -> str | None:
    """Where a listener lost its connection; it stands above the `after` of the address it comes back to."""
    return request.headers.get("last-event-id") or None


class _Ready:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def __call__(self, _: Request) -> Response:
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self._core.store.tail()
                found = await fleet(self._core)
        except Exception as error:
            late = isinstance(error, TimeoutError)
            why = f"not within {READY_SECONDS:g} seconds." if late else f"{str(error).rstrip('.')}."
            if not late and not isinstance(error, Unavailable):
                log.warning("The store does not answer", exc_info=True)
            told = f": {why}" if late or isinstance(error, RemitError) else "."
            raise Unavailable(f"The store does not answer{told}", hint="The server's log says more.") from error
        return _json({"status": "ok", **found})


class _Metrics:
    """Figures for a Prometheus server, in its text format."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def __call__(self, _: Request) -> Response:
        lines = [f'remit_tasks{{state="{state}"}} {count}' for state, count in (await task_counts(self._core)).items()]
        head = ["# HELP remit_tasks How many tasks there are in each state.", "# TYPE remit_tasks gauge"]
        found = await fleet(self._core)
        lines += ["# HELP remit_jobs How many jobs each queue has.", "# TYPE remit_jobs gauge"]
        for row in found["queues"]:
            lines += [f'remit_jobs{{queue="{row["queue"]}",state="{state}"}} {row[state]}' for state in ("queued", "claimed")]
        lines += ["# HELP remit_workers How many workers are alive.", "# TYPE remit_workers gauge"]
        lines.append(f"remit_workers {sum(worker['alive'] for worker in found['workers'])}")
        lines += ["# HELP remit_model_trouble Models that a worker leaves alone for now.", "# TYPE remit_model_trouble gauge"]
        lines += [_trouble(worker, model) for worker in found["workers"] if worker["alive"] for model in worker["models"]]
        return Response("\n".join([*head, *lines, ""]), media_type="text/plain; version=0.0.4")


def _trouble(worker: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    labels = {"worker": worker["worker"], "endpoint": model["endpoint"], "agent": model["agent"] or "", "circuit": model["circuit"]}
    return f"remit_model_trouble{{{','.join(f'{name}={dumps(value)}' for name, value in labels.items())}}} 1"


async def _healthy(_: Request) -> Response:
    return _json({"status": "ok"})


async def _described(_: Request) -> Response:
    return Response(_openapi(), media_type="application/json")


@cache
def _openapi() -> bytes:
    return dumps(document(version("remit"))).encode()


# Answers.


def _json(value: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(dumps(value).encode(), status, headers, "application/json")


def _failure(error: RemitError, status: int = 0, headers: Mapping[str, str] | None = None) -> Response:
    return _json(error.wire(), status or error.status, headers or (RETRY_AFTER if error.status == Unavailable.status else None))


async def _no_such_path(request: Request, _: Exception) -> Response:
    return _failure(NotFound(f"There is nothing at {describe(request.scope['path'])}.", hint="/openapi.json says what there is."))


async def _wrong_method(request: Request, _: Exception) -> Response:
    known = [route for route in request.app.routes if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE]
    allowed = ", ".join(sorted({method for route in known for method in route.methods or ()}))
    return _failure(invalid("method", f"is {request.method}", allowed), 405, {"Allow": allowed})
