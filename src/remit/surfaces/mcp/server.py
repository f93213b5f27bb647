"""remit over MCP: one tool for each operation of the catalog.

Importing this module takes most of a second because the SDK builds its models, so import it only
when MCP is served.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast
from urllib.parse import parse_qs

import mcp_types as wire
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import RequestBodyLimitMiddleware
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from remit.app.delegation.progress import with_heartbeats
from remit.catalog import (
    FOR_EVERYONE,
    VIA_MCP,
    AppContext,
    Caller,
    Operation,
    attend,
    call,
    lean_answer,
    lean_fields,
    lean_input,
    lean_output,
    lean_refusal,
    tools_of,
)
from remit.domain.records.record import MEGABYTE, replace
from remit.domain.records.serialize import dumps
from remit.domain.records.validate import describe
from remit.errors import Internal, NotFound, RemitError, Unavailable, invalid, unknown
from remit.surfaces.disconnect import client_disconnected, until_first
from remit.surfaces.mcp.instructions import instructions
from remit.surfaces.mcp.progress_notifications import (
    REPORT,
    HttpReport,
    Report,
    report_progress,
    total_of,
)
from remit.surfaces.text.printed_commands import with_commands_in

MAX_MESSAGE = 8 * MEGABYTE
HEARTBEAT = 5.0
"""Seconds between the comments that keep a waiting HTTP call alive, and between the
notifications of a call that has no progress of its own.
"""
GREETINGS = ("initialize", "server/discover")
"""The requests whose answers carry the server's instructions."""

Context = ServerRequestContext[Any, Any]
Do = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
Follow = Callable[[str, Mapping[str, Any]], AsyncGenerator[dict[str, Any], None]]

_log = logging.getLogger(__name__)


def mcp_server(
    core: AppContext, caller: Caller, version: str, tools: str = "standard"
) -> Server[Any]:
    """Return a server whose tools are the catalog's operations, called as one caller.

    `tools` chooses the listed tools: a profile, or names separated by commas. All tools can be
    called.
    """
    caller = replace(caller, via=VIA_MCP)
    return mcp_relay(
        lambda name, fields: call(core, name, fields, caller),
        lambda name, fields: attend(core, name, fields, caller),
        version,
        tools,
    )


def mcp_relay(do: Do, follow: Follow, version: str, tools: str = "standard") -> Server[Any]:
    """Return a server that calls operations through these two functions, without or with
    progress.
    """
    listed = tools_of(tools, "mcp_tools")

    async def list_tools(
        context: Context, params: wire.PaginatedRequestParams | None
    ) -> wire.ListToolsResult:
        if params is not None and params.cursor is not None:
            raise MCPError(wire.INVALID_PARAMS, "Unknown cursor: all tools are on the first page.")
        names = _listed_tools(context, listed)
        return wire.ListToolsResult(tools=[_tool(FOR_EVERYONE[name]) for name in names])

    async def call_tool(
        context: Context, params: wire.CallToolRequestParams
    ) -> wire.CallToolResult:
        operation = FOR_EVERYONE.get(params.name)
        if operation is None:
            raise _unknown_tool(params.name)
        fields = lean_fields(operation, params.arguments or {})
        report = _report(context)
        if report is None:
            return await _result(operation, fields, do(operation.name, fields))
        if operation.stream is None:
            # It can wait as well: for a locked store, or until other workers have stopped.
            answer = _as_items(do(operation.name, fields))
            work = report_progress(with_heartbeats(answer, HEARTBEAT), report, None)
        else:
            items = follow(operation.name, fields)
            work = report_progress(items, report, total_of(fields))
        return await _result(operation, fields, work)

    async def add_instructions(ctx: Context, call_next: CallNext) -> HandlerResult:
        """Add instructions for the tools that this address or server lists."""
        found = await call_next(ctx)
        if ctx.method not in GREETINGS or not isinstance(found, dict):
            return found
        names = _listed_tools(ctx, listed)
        return found | {"instructions": instructions(names, is_http=ctx.request is not None)}

    server: Server[Any] = Server(
        "remit",
        version=version,
        title="remit",
        description="Durable delegation for AI agents.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        # No parameter is mirrored in a header; without this the SDK lists all tools at every call
        # to check that.
        get_tool_input_schema=lambda _: None,
    )
    server.middleware.append(add_instructions)
    return server


class McpHttp:
    """MCP over streamable HTTP: an ASGI app that answers while `run` is entered.

    Modern clients need no session; older ones get one. Every answer is JSON, except for calls that
    wait longer than a moment: if the client accepts a stream, it gets one that ends with the
    answer, with progress if it sent a token, and comments. There are no other streams, because
    remit sends nothing unrequested.
    """

    def __init__(self, server: Server[Any], heartbeat: float = HEARTBEAT) -> None:
        self._heartbeat = heartbeat
        # The guard in front checks Host and Origin for every HTTP surface; a second list could only
        # disagree, so the SDK's own check is off.
        self._sessions = StreamableHTTPSessionManager(
            server, json_response=True, security_settings=None, max_request_body_size=MAX_MESSAGE
        )
        self._limited = RequestBodyLimitMiddleware(self._check_message, MAX_MESSAGE)
        self._open = False

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None, None]:
        """Answer within this block, which can be entered once; sessions end with it."""
        async with self._sessions.run():
            self._open = True
            try:
                yield
            finally:
                self._open = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] not in ("POST", "DELETE"):
            wrong = invalid(
                "method", f"is {scope['method']}", "POST or DELETE; GET streams are not supported"
            )
            await JSONResponse(wrong.wire(), 405, {"Allow": "POST, DELETE"})(scope, receive, send)
        elif (refused := _tools_error(scope)) is not None:
            await JSONResponse(refused.wire(), refused.status)(scope, receive, send)
        elif self._open:
            await self._limited(scope, receive, send)
        else:
            closed = Unavailable("remit is shutting down.", hint="Try again in a moment.")
            await JSONResponse(closed.wire(), closed.status)(scope, receive, send)

    async def _check_message(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse invalid messages with the same text for all protocol versions; the SDK has
        several.
        """
        request = await receive()
        message = decode_message(request.get("body", b""))
        if isinstance(message, wire.JSONRPCError):
            await Response(encode_message(message), 400, media_type="application/json")(
                scope, receive, send
            )
            return
        pending = [request]

        async def replay() -> Message:
            return pending.pop() if pending else await receive()

        if _may_wait(message) and _accepts_stream(scope):
            token = _progress_token(message)
            answer = HttpReport(token, send, encode_message)
            reporting = {} if token is None else {REPORT: answer.report}
            await self._answer_with_progress(answer, {**scope, **reporting}, replay, receive)
        else:
            await self._sessions.handle_request(scope, replay, send)

    async def _answer_with_progress(
        self, answer: HttpReport, scope: Scope, replay: Receive, receive: Receive
    ) -> None:
        """Answer with progress.

        With the SDK, every answer would have to be a stream, so the SDK answers with JSON and the
        progress before it is sent separately.
        """
        answering = self._sessions.handle_request(scope, replay, answer.send)
        async with until_first(answering, client_disconnected(receive), self._beat(answer)):
            answer.close()

    async def _beat(self, answer: HttpReport) -> None:
        """Keep the connection alive while a call waits."""
        while True:
            await asyncio.sleep(self._heartbeat)
            await answer.keep_alive()


async def _as_items(work: Awaitable[dict[str, Any]]) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the answer of a call without progress as the end of a wait."""
    yield {"type": "end", "answer": await work}


def _may_wait(message: wire.JSONRPCRequest | wire.JSONRPCNotification | None) -> bool:
    """True if a message calls an operation: each may wait, if only for the store."""
    if not isinstance(message, wire.JSONRPCRequest) or message.method != "tools/call":
        return False
    return str((message.params or {}).get("name")) in FOR_EVERYONE


def _progress_token(
    message: wire.JSONRPCRequest | wire.JSONRPCNotification | None,
) -> str | int | None:
    """Return the client's progress token, if it sent one."""
    if message is None:
        return None
    return progress_token_from_params(message.params)


def _listed_tools(context: Context, listed: tuple[str, ...]) -> tuple[str, ...]:
    """Return the tools that a client sees: those of its address, or those of the server."""
    return _requested_tools(getattr(context.request, "scope", {})) or listed


def _requested_tools(scope: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the tools that the address asks for (`/mcp?tools=core`); empty if it asks for none.

    Raise `InvalidParam` for any other parameter.
    """
    text = scope.get("query_string", b"").decode("latin-1")
    query = parse_qs(text, keep_blank_values=True)
    for name in query:
        if name != "tools":
            raise unknown(name, "query parameter", name, ["tools"])
    if "tools" not in query:
        return ()
    if len(query["tools"]) > 1:
        raise invalid("tools", "is given twice", "one list, separated by commas")
    return tools_of(query["tools"][0])


def _tools_error(scope: Scope) -> RemitError | None:
    """Return what is wrong with the query of an address."""
    try:
        _requested_tools(scope)
    except RemitError as refused:
        return refused
    return None


def _accepts_stream(scope: Scope) -> bool:
    return any(
        name == b"accept" and b"text/event-stream" in value for name, value in scope["headers"]
    )


def mcp_http(server: Server[Any], heartbeat: float = HEARTBEAT) -> McpHttp:
    """Return an ASGI app to mount at /mcp, behind the guard of the HTTP surfaces."""
    return McpHttp(server, heartbeat)


def decode_message(
    text: bytes,
) -> wire.JSONRPCRequest | wire.JSONRPCNotification | wire.JSONRPCError | None:
    """Return a request or notification, an error to send back, or None if no answer is needed."""
    if not text.strip():
        return None
    if len(text) > MAX_MESSAGE:
        return _refusal(
            wire.INVALID_REQUEST,
            f"Invalid request: a message is at most {MAX_MESSAGE:,} bytes long.",
        )
    try:
        raw = json.loads(text.decode())
    except (ValueError, RecursionError):
        return _refusal(wire.PARSE_ERROR, "Parse error: a message is one JSON object in UTF-8.")
    if not isinstance(raw, dict):
        return _refusal(
            wire.INVALID_REQUEST,
            "Invalid request: a message is one JSON-RPC object; batches are not supported.",
        )
    return _message(cast("dict[str, Any]", raw))


def encode_message(message: wire.JSONRPCMessage) -> bytes:
    """Encode a message as ASCII: some clients take U+2028 for the end of a line."""
    try:
        return message.model_dump_json(
            by_alias=True, exclude_unset=True, ensure_ascii=True
        ).encode()
    except (
        PydanticSerializationError
    ):  # a lone surrogate from the client, for example in its id, is sent back unchanged
        return json.dumps(message.model_dump(by_alias=True, exclude_unset=True)).encode()


def _message(
    raw: dict[str, Any],
) -> wire.JSONRPCRequest | wire.JSONRPCNotification | wire.JSONRPCError | None:
    """Return a JSON-RPC object as a message, or as the error to send back."""
    if "method" not in raw and ("result" in raw or "error" in raw):
        return None  # a response without a request
    try:
        return (wire.JSONRPCRequest if "id" in raw else wire.JSONRPCNotification).model_validate(
            raw
        )
    except ValidationError:
        expected = (
            "jsonrpc 2.0, a method, an id that is text or a whole number, and params that are an"
            " object"
        )
        return _refusal(
            wire.INVALID_REQUEST, f"Invalid request: expected {expected}.", raw.get("id")
        )


def _refusal(code: int, message: str, request_id: object = None) -> wire.JSONRPCError:
    """Return an error message; an id that is not valid is left out."""
    error = wire.ErrorData(code=code, message=message)
    try:
        return wire.JSONRPCError.model_validate(
            {"jsonrpc": "2.0", "id": request_id, "error": error}
        )
    except ValidationError:  # the id is null
        return wire.JSONRPCError(jsonrpc="2.0", id=None, error=error)


def _tool(operation: Operation) -> wire.Tool:
    same = f" The same as {operation.alias_of}." if operation.alias_of else ""
    title = operation.name.replace("_", " ").capitalize()
    return wire.Tool(
        name=operation.name,
        title=title,
        description=operation.description + same,
        input_schema=lean_input(operation),
        output_schema=lean_output(operation),
        annotations=wire.ToolAnnotations(
            title=title,
            read_only_hint=operation.effect == "read",
            destructive_hint=operation.effect == "destroy",
            idempotent_hint=operation.idempotent,
            open_world_hint=False,
        ),
    )


def _report(context: Context) -> Report | None:
    """Return a function that reports progress; None if the client sent no token."""
    if context.meta is None or context.meta.get("progress_token") is None:
        return None
    scope: Mapping[str, Any] = getattr(context.request, "scope", {})
    report: Report = scope.get(REPORT, context.session.report_progress)
    return report


async def _result(
    operation: Operation, fields: Mapping[str, Any], work: Awaitable[dict[str, Any]]
) -> wire.CallToolResult:
    """Return the result of a call; errors become results that say so."""
    try:
        found = lean_answer(operation, fields, await work)
    except RemitError as error:
        if error.status >= Internal.status:
            _log.warning(
                "%s failed: %s",
                operation.name,
                error.message,
                extra={"fields": {"code": error.code}},
            )
        return _failure(operation, error)
    except Exception:  # noqa: BLE001 - the log gets the details, the caller does not
        _log.exception("%s failed", operation.name)
        return _failure(
            operation,
            Internal("Internal error.", hint="See the server's log."),
        )
    return wire.CallToolResult(
        content=[wire.TextContent(text=dumps(found))], structured_content=found
    )


def _failure(operation: Operation, error: RemitError) -> wire.CallToolResult:
    printed = with_commands_in(error)
    text = wire.TextContent(text=f"{printed.code}: {printed}")
    refusal = lean_refusal(operation, printed.wire())
    return wire.CallToolResult(content=[text], structured_content=refusal, is_error=True)


def _unknown_tool(name: str) -> MCPError:
    """Return the protocol error for an unknown tool: a request error, not a tool result."""
    error = NotFound(f"Unknown tool {describe(name)}.", hint="Use tools/list to list the tools.")
    return MCPError(wire.INVALID_PARAMS, str(error), error.wire())
