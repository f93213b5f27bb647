"""REST: one route for each operation, generated from the table."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import version
from typing import Any, cast
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from remit.catalog import (
    FOR_EVERYONE,
    AppContext,
    Caller,
    Operation,
    attend,
    call,
    fleet,
    refusal_in_envelope,
    task_counts,
)
from remit.domain.records.json_schema import field_schema
from remit.domain.records.record import fields
from remit.domain.records.serialize import dumps
from remit.domain.records.validate import describe
from remit.errors import (
    Internal,
    InvalidParam,
    NotFound,
    RemitError,
    RolledBack,
    Unavailable,
    invalid,
)
from remit.surfaces.http.late_answer import answer_in_time
from remit.surfaces.http.openapi import IN_QUERY, QUERY_ALIASES, document
from remit.surfaces.http.sse import HEARTBEAT, EventStream, event_blocks, position, progress_blocks

Handler = Callable[[Request], Awaitable[ASGIApp]]

RETRY_AFTER = {"Retry-After": "1"}
MAX_QUERY_FIELDS = 64
READY_SECONDS = 2.0
"""How long a health check waits for the store; other calls wait longer."""

log = logging.getLogger(__name__)


def rest_app(
    core: AppContext, *, caller: Caller, stopping: asyncio.Event, heartbeat: float = HEARTBEAT
) -> Starlette:
    """Return the REST app, which answers every path with the one error shape.

    Event streams end when `stopping` is set. Calls that wait for tasks end with the waits of the
    core.
    """
    app = Starlette(
        routes=rest_routes(core, caller, stopping=stopping, heartbeat=heartbeat),
        exception_handlers={404: _no_such_path, 405: _wrong_method},
    )
    app.router.redirect_slashes = False
    return app


def rest_routes(
    core: AppContext,
    caller: Caller,
    *,
    stopping: asyncio.Event | None = None,
    heartbeat: float = HEARTBEAT,
) -> list[Route]:
    """Return a route for each public operation, and the HTTP-only routes."""
    streams = _Streams(core, caller, stopping or asyncio.Event(), heartbeat)
    calls = {operation.name: _Call(core, caller, operation) for operation in _with_route()}
    waiting = {
        name: streams.negotiate(call.call_in_time, streams.progress(call))
        for name, call in calls.items()
        if FOR_EVERYONE[name].stream is not None
    }
    handlers: dict[str, Handler] = {
        **calls,
        **waiting,
        "get_events": streams.negotiate(calls["get_events"], streams.one_task),
    }
    return [
        *(
            _route(operation.path, handlers[operation.name], operation.method, operation.name)
            for operation in _with_route()
        ),
        _route("/api/events", streams.all_tasks),
        _route("/healthz", _health),
        _route("/readyz", _Ready(core)),
        _route("/metrics", _Metrics(core)),
        _route("/openapi.json", _describe),
    ]


def _with_route() -> list[Operation]:
    """Return the operations in matching order: fixed paths before paths with a parameter."""
    found = [operation for operation in FOR_EVERYONE.values() if operation.has_route]
    return sorted(found, key=lambda operation: operation.path.count("{"))


def _route(path: str, handler: Handler, method: str = "GET", name: str = "") -> Route:
    return Route(path, _Endpoint(handler), methods=[method], name=name or path.removeprefix("/"))


class _Endpoint:
    """The app of a route; errors before the response starts get the one error shape."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._handler(Request(scope, receive))
        except Exception as error:  # noqa: BLE001 - every error is answered in the one error shape
            answer = _error_response(scope, error)
        await answer(scope, receive, send)


def _error_response(scope: Scope, error: Exception) -> Response:
    """Return the response to a failed request; failures of the server are logged."""
    if isinstance(error, RemitError):
        _log_failure(scope, error)
        return _failure(error)
    log.error(
        "Request failed", exc_info=error, extra={"fields": _request_fields(scope, Internal.status)}
    )
    return _failure(Internal("Internal error.", hint="See the server's log."))


def _log_failure(scope: Scope, error: RemitError) -> None:
    """Log a request that failed because of the server, not the caller."""
    fields = _request_fields(scope, error.status) | {"code": error.code}
    if error.status == Internal.status:
        log.error("Request failed: %s", error.message, exc_info=error, extra={"fields": fields})
    elif error.status > Internal.status:
        log.warning("Request failed: %s", error.message, extra={"fields": fields})


def _request_fields(scope: Scope, status: int) -> dict[str, Any]:
    return {"method": scope["method"], "path": scope["path"], "status": status}


# Operations


class _Call:
    """Turns a request into an operation call, and its result into a response."""

    def __init__(self, core: AppContext, caller: Caller, operation: Operation) -> None:
        self._core, self._caller, self.name = core, caller, operation.name
        self._has_body = operation.method not in ("GET", "DELETE")
        self._types: dict[str, str] = {
            name: field_schema(operation.input, name).get("type", "")
            for name in fields(operation.input)
        }

        self._in_query = [name for name in IN_QUERY if name in self._types]

    async def __call__(self, request: Request) -> Response:
        return _json(await call(self._core, self.name, await self.fields(request), self._caller))

    async def call_in_time(self, request: Request) -> ASGIApp:
        """Handle an operation that may wait: the response starts after a first pause, ready
        or not.
        """
        return await answer_in_time(self(request), self._core.progress_seconds, _error_response)

    async def fields(self, request: Request) -> dict[str, Any]:
        """Return the fields from the path and from the query or the body.

        An unreadable request is refused in the same way as by the operation.
        """
        with refusal_in_envelope(self.name, {}):
            return await self._sent(request)

    async def _sent(self, request: Request) -> dict[str, Any]:
        """Return the fields that were sent; the path counts more than body and query."""
        if self._has_body:
            sent = await self._sent_in_body(request)
        else:
            sent = self._sent_in_query(request)
        for name, text in request.path_params.items():
            value = self._convert(name, text)
            _must_agree(name, sent.get(name), value, "the path")
            sent[name] = value
        return sent

    async def _sent_in_body(self, request: Request) -> dict[str, Any]:
        """Return the fields of the body, and those that the query may have beside it."""
        query = _query(request)
        in_query = {name: query.pop(name) for name in self._in_query if name in query}
        if query:
            raise invalid(next(iter(query)), "is in the query", "it in the JSON body")
        sent = _body(await request.body())
        for name, text in in_query.items():
            _must_agree(name, sent.get(name), text, "the query")
        return sent | in_query

    def _sent_in_query(self, request: Request) -> dict[str, Any]:
        """Return the fields of the query, in the types of the operation."""
        query = _query(request)
        _must_have_no_body(request)
        named = self._map_query(query)
        return {name: self._convert(name, text) for name, text in named.items()}

    def _map_query(self, query: dict[str, str]) -> dict[str, str]:
        """Map the query to the names of the operation's fields."""
        for short, name in QUERY_ALIASES.get(self.name, {}).items():
            if short not in query:
                continue
            if name in query:
                problem = f"means the same as {name}, which is also given"
                raise invalid(short, problem, "one of them")
            query[name] = query.pop(short)
        return query

    def _convert(self, name: str, text: str) -> Any:
        """Return a text of the query or the path as the type of its field."""
        kind = self._types.get(name, "")
        if kind not in _CONVERT:
            return text
        return _CONVERT[kind](name, text)


def _must_agree(name: str, sent: Any, value: Any, place: str) -> None:
    """Refuse a field that is given twice with different values."""
    if sent is not None and str(sent) != str(value):
        raise invalid(
            name, f"is {describe(sent)}, but {describe(value)} in {place}", f"it only in {place}"
        )


def _parse_integer(name: str, text: str) -> int:
    _must_match(r"-?[0-9]{1,18}", name, text, "a whole number")
    return int(text)


def _parse_number(name: str, text: str) -> float:
    _must_match(r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?", name, text, "a number")
    return float(text)


def _parse_boolean(name: str, text: str) -> bool:
    _must_match("true|false", name, text, "true or false")
    return text == "true"


def _must_match(form: str, name: str, text: str, expected: str) -> None:
    """Refuse a text of the query or the path that does not have the form of its field."""
    if re.fullmatch(form, text) is None:
        raise invalid(name, f"is {describe(text)}", expected)


_CONVERT: dict[str, Callable[[str, str], Any]] = {
    "integer": _parse_integer,
    "number": _parse_number,
    "boolean": _parse_boolean,
}


def _query(request: Request) -> dict[str, str]:
    """Return the parameters of the query; each may be given once."""
    raw: bytes = request.scope["query_string"]
    try:
        pairs = parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MAX_QUERY_FIELDS,
        )
    except ValueError as error:
        raise invalid(
            "query",
            "cannot be read",
            f"at most {MAX_QUERY_FIELDS} parameters in percent-encoded UTF-8",
        ) from error
    found = dict(pairs)
    if len(found) < len(pairs):
        raise invalid("query", "repeats a parameter", "each parameter at most once")
    return found


def _must_have_no_body(request: Request) -> None:
    headers: dict[bytes, bytes] = dict(request.scope["headers"])
    if b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0":
        raise invalid("body", f"is not read with {request.method}", "fields in the query")


def _body(raw: bytes) -> dict[str, Any]:
    """Return the JSON object in a body; empty without a body."""
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
    """Return the object of these pairs; refuse a repeated key."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _bad_body("repeats a key")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_unique)


# HTTP only


class _Streams:
    """The streams: events of all tasks or of one, and the progress of an operation that waits."""

    def __init__(
        self, core: AppContext, caller: Caller, stopping: asyncio.Event, heartbeat: float
    ) -> None:
        self._core, self._caller = core, caller
        self._stopping, self._heartbeat = stopping, heartbeat

    async def all_tasks(self, request: Request) -> ASGIApp:
        """Stream the events of every task; `after` is a position."""
        after = _after(request)
        start = await position(self._core, _resume_position(request) or after)
        return self._events(event_blocks(self._core, start, None))

    def negotiate(self, handler: Handler, streamed: Handler) -> Handler:
        """Return a stream if the client asks for one, otherwise the plain response."""

        async def negotiated(request: Request) -> ASGIApp:
            kinds = request.headers.get("accept", "").split(",")
            if "text/event-stream" in [kind.partition(";")[0].strip() for kind in kinds]:
                return await streamed(request)
            return await handler(request)

        return negotiated

    def progress(self, call: _Call) -> Handler:
        """Stream the progress of a call while it waits.

        Refusals are answered before the stream starts.
        """

        async def streamed(request: Request) -> ASGIApp:
            items = attend(self._core, call.name, await call.fields(request), self._caller)
            return EventStream(
                progress_blocks(await anext(items), items), heartbeat=self._heartbeat
            )

        return streamed

    async def one_task(self, request: Request) -> ASGIApp:
        """Stream the events of one task; `after` is a version."""
        after, resumed = _after(request), _resume_position(request)
        task_id = request.path_params["task_id"]
        task = await call(self._core, "get_task", {"task_id": task_id}, self._caller)
        if resumed is not None or after is None:
            start = await position(self._core, resumed)
        else:
            version = _parse_integer("after", after)
            start = await self._position_of_version(task["id"], version)
        return self._events(event_blocks(self._core, start, task["id"]))

    async def _position_of_version(self, task_id: str, version: int) -> str:
        """Return the position of a task's version: for one task `after` is a version, as in the
        operation.
        """
        if version < 0:
            raise invalid(
                "after", f"is {version}", "the version of an event, or 0 for the beginning"
            )
        if version == 0:
            return ""
        page = await call(
            self._core,
            "get_events",
            {"task_id": task_id, "after": version - 1, "limit": 1},
            self._caller,
        )
        if not page["events"]:
            return await position(self._core, None)
        return str(page["events"][0]["position"])

    def _events(self, blocks: AsyncGenerator[str, None]) -> ASGIApp:
        return EventStream(blocks, stopping=self._stopping, heartbeat=self._heartbeat)


def _after(request: Request) -> str | None:
    """Return the only parameter that a stream takes."""
    query = _query(request)
    after = query.pop("after", None)
    if query:
        raise invalid(next(iter(query)), "is not a parameter of a stream", "after")
    return after


def _resume_position(request: Request) -> str | None:
    """Return where a listener lost its connection; it takes precedence over `after`."""
    return request.headers.get("last-event-id") or None


class _Ready:
    def __init__(self, core: AppContext) -> None:
        self._core = core

    async def __call__(self, _: Request) -> Response:
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self._core.store.tail()
                found = await fleet(self._core)
        except RolledBack as error:  # the store does respond
            raise Unavailable(error.message, hint=error.hint) from error
        except Exception as error:
            if not isinstance(error, TimeoutError | Unavailable):
                log.warning("The store does not respond", exc_info=True)
            raise Unavailable(
                f"The store does not respond{_reason(error)}", hint="See the server's log."
            ) from error
        return _json({"status": "ok", **found})


def _reason(error: Exception) -> str:
    """Return why the store does not respond, as the end of a sentence."""
    if isinstance(error, TimeoutError):
        return f" within {READY_SECONDS:g} seconds."
    if isinstance(error, RemitError):
        return f": {str(error).rstrip('.')}."
    return "."


class _Metrics:
    """Metrics for Prometheus, in its text format."""

    def __init__(self, core: AppContext) -> None:
        self._core = core

    async def __call__(self, _: Request) -> Response:
        counts = await task_counts(self._core)
        found = await fleet(self._core)
        workers = [worker for worker in found["workers"] if worker["alive"]]
        lines = [
            *_metric_head("remit_tasks", "The number of tasks in each state."),
            *(f'remit_tasks{{state="{state}"}} {count}' for state, count in counts.items()),
            *_metric_head("remit_jobs", "The number of jobs in each queue."),
            *_queue_lines(found["queues"]),
            *_metric_head("remit_workers", "The number of live workers."),
            f"remit_workers {len(workers)}",
            *_metric_head("remit_model_trouble", "Models that a worker has paused."),
            *(_trouble(worker, model) for worker in workers for model in worker["models"]),
        ]
        return Response("\n".join([*lines, ""]), media_type="text/plain; version=0.0.4")


def _metric_head(name: str, text: str) -> tuple[str, str]:
    """Return the lines that describe a metric."""
    return f"# HELP {name} {text}", f"# TYPE {name} gauge"


def _queue_lines(queues: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return how many jobs of each queue wait and how many are claimed."""
    lines: list[str] = []
    for row in queues:
        place = f'remit_jobs{{queue="{row["queue"]}",state='
        lines.append(f'{place}"queued"}} {row["queued"]}')
        lines.append(f'{place}"claimed"}} {row["claimed"]}')
    return lines


def _trouble(worker: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    """Return the metric of a model that a worker has paused."""
    labels = {
        "worker": worker["worker"],
        "endpoint": model["endpoint"],
        "agent": model["agent"] or "",
        "circuit": model["circuit"],
    }
    pairs = ",".join(f"{name}={dumps(value)}" for name, value in labels.items())
    return f"remit_model_trouble{{{pairs}}} 1"


async def _health(_: Request) -> Response:
    return _json({"status": "ok"})


async def _describe(_: Request) -> Response:
    return Response(_openapi(), media_type="application/json")


@cache
def _openapi() -> bytes:
    return dumps(document(version("remit"))).encode()


# Responses


def _json(
    value: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(dumps(value).encode(), status, headers, "application/json")


def _failure(
    error: RemitError, status: int = 0, headers: Mapping[str, str] | None = None
) -> Response:
    usual = {Unavailable.status: RETRY_AFTER}.get(error.status)
    return _json(error.wire(), status or error.status, headers or usual)


async def _no_such_path(request: Request, _: Exception) -> Response:
    return _failure(
        NotFound(
            f"There is no such path: {describe(request.scope['path'])}.",
            hint="See /openapi.json for all paths.",
        )
    )


async def _wrong_method(request: Request, _: Exception) -> Response:
    known = [
        route
        for route in request.app.routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
    ]
    allowed = ", ".join(sorted({method for route in known for method in route.methods or ()}))
    return _failure(invalid("method", f"is {request.method}", allowed), 405, {"Allow": allowed})
