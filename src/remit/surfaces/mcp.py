"""remit over MCP: one tool for each operation of the catalogue.

Importing this costs most of a second (the SDK builds its models then), so whoever offers MCP imports it when it is wanted.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast
from urllib.parse import parse_qs

import mcp_types as wire
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import RequestBodyLimitMiddleware
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from remit.catalog import (
    FOR_EVERYONE,
    PROFILES,
    VIA_MCP,
    Caller,
    Core,
    Operation,
    attend,
    call,
    lean_answer,
    lean_input,
    lean_output,
    lean_refusal,
    tools_of,
)
from remit.domain.record import MEGABYTE, replace
from remit.domain.shape import describe
from remit.domain.wire import dumps
from remit.errors import Internal, NotFound, RemitError, Unavailable, invalid
from remit.surfaces.mcp_progress import REPORT, HttpReport, Report, reported, total_of
from remit.surfaces.sse import gone

MAX_MESSAGE = 8 * MEGABYTE
INSTRUCTIONS = """\
remit runs tasks with sub-agents and records everything. A task has instructions, acceptance criteria, required outputs and a plan.

- Hand work to a sub-agent and get its result: task, or task_parallel for several at once. list_agents shows the agents. With wait \
false, task returns at once and task_output gets the result later.
- Create work that you do not wait for: create_task. Split it: create_subtask.
- Look: list_tasks for an overview, get_task for one task, get_events for what happened to it.
- Steer: update_task and send_message. The agent of the task is told before its next step.
- Finish your own task: complete_task with every required output, or fail_task if it cannot be done.
- Answer questions of agents: list_interactions shows them, respond answers one.

A task_id is a number such as "42", or a uid. Lists come in pages: pass next_cursor as cursor for the next page. An error says what was \
wrong and what would be right. If you may send a create twice, give it an idempotency_key: the same key makes one task.\
"""

MORE = "Not all tools are listed here. `remit mcp --tools all` lists every tool."
"""What is added for clients that are not shown everything."""

Context = ServerRequestContext[Any, Any]
Do = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
Follow = Callable[[str, Mapping[str, Any]], AsyncGenerator[dict[str, Any], None]]

_log = logging.getLogger(__name__)


def mcp_server(core: Core, caller: Caller, version: str, tools: str = "standard") -> Server[Any]:
    """A server whose tools are the operations of the catalogue, done in the name of one caller.

    `tools` says which of them clients are shown: a profile, or names with commas between them. All can be called.
    """
    caller = replace(caller, via=VIA_MCP)
    return mcp_relay(
        lambda name, fields: call(core, name, fields, caller),
        lambda name, fields: attend(core, name, fields, caller),
        version,
        tools,
    )


def mcp_relay(do: Do, follow: Follow, version: str, tools: str = "standard") -> Server[Any]:
    """The same, for operations that are carried out wherever these two do it: at once, or with what goes on meanwhile."""
    listed = tools_of(tools)

    async def list_tools(context: Context, params: wire.PaginatedRequestParams | None) -> wire.ListToolsResult:
        if params is not None and params.cursor is not None:
            raise MCPError(wire.INVALID_PARAMS, "There is no such cursor: all tools are on the first page.")
        names = _asked_for(getattr(context.request, "scope", {})) or listed
        return wire.ListToolsResult(tools=[_tool(FOR_EVERYONE[name]) for name in names])

    async def call_tool(context: Context, params: wire.CallToolRequestParams) -> wire.CallToolResult:
        operation = FOR_EVERYONE.get(params.name)
        if operation is None:
            raise _unknown_tool(params.name)
        fields = params.arguments or {}
        report = _report(context) if operation.stream is not None else None
        if report is None:
            return await _result(operation, fields, do(operation.name, fields))
        return await _result(operation, fields, reported(follow(operation.name, fields), report, total_of(fields)))

    return Server(
        "remit",
        version=version,
        title="remit",
        description="Durable delegation for AI agents.",
        instructions=INSTRUCTIONS if listed == PROFILES["all"] else f"{INSTRUCTIONS}\n\n{MORE}",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        # No parameter is mirrored in a header; without this the SDK lists all tools at every call to find that out.
        get_tool_input_schema=lambda _: None,
    )


class McpHttp:
    """MCP over streamable HTTP, an ASGI app that answers while `run` is entered.

    Modern clients need no session; older ones get one. Every answer is JSON, but for calls that wait and whose clients want to hear
    of their progress: they get a stream that ends with the answer. No other stream is ever held open: remit has nothing to say unasked.
    """

    def __init__(self, server: Server[Any]) -> None:
        # Host and Origin are checked by the guard in front, as for every HTTP surface: a second list could only
        # disagree with it, so the SDK's own check stays off.
        self._sessions = StreamableHTTPSessionManager(server, json_response=True, security_settings=None, max_request_body_size=MAX_MESSAGE)
        self._limited = RequestBodyLimitMiddleware(self._checked, MAX_MESSAGE)
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
            wrong = invalid("method", f"is {scope['method']}", "POST or DELETE: there is no stream to read")
            await JSONResponse(wrong.wire(), 405, {"Allow": "POST, DELETE"})(scope, receive, send)
        elif (refused := _wrong_tools(scope)) is not None:
            await JSONResponse(refused.wire(), refused.status)(scope, receive, send)
        elif self._open:
            await self._limited(scope, receive, send)
        else:
            closed = Unavailable("remit is shutting down.", hint="Try again in a moment.")
            await JSONResponse(closed.wire(), closed.status)(scope, receive, send)

    async def _checked(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse what is no message in the same words for clients of every age; the SDK has others for each."""
        request = await receive()
        message = decoded(request.get("body", b""))
        if isinstance(message, wire.JSONRPCError):
            await Response(encoded(message), 400, media_type="application/json")(scope, receive, send)
            return
        pending = [request]

        async def replay() -> Message:
            return pending.pop() if pending else await receive()

        token = _token(message) if _accepts_stream(scope) else None
        if token is None:
            await self._sessions.handle_request(scope, replay, send)
        else:
            await self._reporting(HttpReport(token, send, encoded), scope, replay, receive)

    async def _reporting(self, answer: HttpReport, scope: Scope, replay: Receive, receive: Receive) -> None:
        """Answer with progress on the way. The SDK would have to answer everything with streams for that, so it is told to answer with
        JSON here too, and what comes before the answer is sent past it."""
        async with asyncio.TaskGroup() as group:
            answering = self._sessions.handle_request({**scope, REPORT: answer.report}, replay, answer.send)
            parts = [group.create_task(answering), group.create_task(gone(receive))]
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            answer.close()
            for part in parts:
                part.cancel()


def _token(message: wire.JSONRPCRequest | wire.JSONRPCNotification | None) -> str | int | None:
    """What a client wants the progress of a call to be called, if the call may wait and the client wants to know."""
    if not isinstance(message, wire.JSONRPCRequest) or message.method != "tools/call":
        return None
    operation = FOR_EVERYONE.get(str((message.params or {}).get("name")))
    return progress_token_from_params(message.params) if operation is not None and operation.stream is not None else None


def _asked_for(scope: Mapping[str, Any]) -> tuple[str, ...]:
    """The tools that the address of a request asks for (`/mcp?tools=core`); none if it does not say."""
    query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
    return tools_of(query["tools"][-1]) if "tools" in query else ()


def _wrong_tools(scope: Scope) -> RemitError | None:
    """What is wrong with the tools that a request asks for."""
    try:
        _asked_for(scope)
    except RemitError as refused:
        return refused
    return None


def _accepts_stream(scope: Scope) -> bool:
    return any(name == b"accept" and b"text/event-stream" in value for name, value in scope["headers"])


def mcp_http(server: Server[Any]) -> McpHttp:
    """An ASGI app to be mounted at /mcp, behind the guard of the HTTP surfaces."""
    return McpHttp(server)


def decoded(text: bytes) -> wire.JSONRPCRequest | wire.JSONRPCNotification | wire.JSONRPCError | None:
    """A request or notification, an error to answer with, or nothing for what wants no answer."""
    if not text.strip():
        return None
    if len(text) > MAX_MESSAGE:
        return _refusal(wire.INVALID_REQUEST, f"Invalid request: a message is at most {MAX_MESSAGE:,} bytes long.")
    try:
        raw = json.loads(text.decode())
    except (ValueError, RecursionError):
        return _refusal(wire.PARSE_ERROR, "Parse error: a message is one JSON object in UTF-8.")
    if not isinstance(raw, dict):
        return _refusal(wire.INVALID_REQUEST, "Invalid request: a message is one JSON-RPC object; batches are not understood.")
    return _message(cast("dict[str, Any]", raw))


def encoded(message: wire.JSONRPCMessage) -> bytes:
    """A message as it is sent: ASCII alone, for some clients take U+2028 for the end of a line."""
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True, ensure_ascii=True).encode()
    except PydanticSerializationError:  # a lone surrogate that the client sent goes back to it, such as in its id
        return json.dumps(message.model_dump(by_alias=True, exclude_unset=True)).encode()


def _message(raw: dict[str, Any]) -> wire.JSONRPCRequest | wire.JSONRPCNotification | wire.JSONRPCError | None:
    if "method" not in raw and ("result" in raw or "error" in raw):
        return None  # an answer, though nothing was asked
    try:
        return (wire.JSONRPCRequest if "id" in raw else wire.JSONRPCNotification).model_validate(raw)
    except ValidationError:
        expected = "jsonrpc 2.0, a method, an id that is text or a whole number, and params that are an object"
        return _refusal(wire.INVALID_REQUEST, f"Invalid request: expected {expected}.", raw.get("id"))


def _refusal(code: int, message: str, request_id: object = None) -> wire.JSONRPCError:
    error = wire.ErrorData(code=code, message=message)
    try:
        return wire.JSONRPCError.model_validate({"jsonrpc": "2.0", "id": request_id, "error": error})
    except ValidationError:  # the id is none
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
    """How to tell a client of the progress of its call; nothing if it gave no token for it."""
    if context.meta is None or context.meta.get("progress_token") is None:
        return None
    scope: Mapping[str, Any] = getattr(context.request, "scope", {})
    report: Report = scope.get(REPORT, context.session.report_progress)
    return report


async def _result(operation: Operation, fields: Mapping[str, Any], work: Awaitable[dict[str, Any]]) -> wire.CallToolResult:
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
    except Exception:  # noqa: BLE001 - the edge: the caller learns nothing of what is inside, the log all of it
        _log.exception("%s failed", operation.name)
        return _failure(
            operation,
            Internal("Something went wrong inside remit.", hint="The server's log says more."),
        )
    return wire.CallToolResult(content=[wire.TextContent(text=dumps(found))], structured_content=found)


def _failure(operation: Operation, error: RemitError) -> wire.CallToolResult:
    text = wire.TextContent(text=f"{error.code}: {error}")
    told = lean_refusal(operation, error.wire())
    return wire.CallToolResult(content=[text], structured_content=told, is_error=True)


def _unknown_tool(name: str) -> MCPError:
    """What the protocol wants for a tool that does not exist: an error of the request, not a result of a tool."""
    error = NotFound(f"There is no tool {describe(name)}.", hint="tools/list names those there are.")
    return MCPError(wire.INVALID_PARAMS, str(error), error.wire())
