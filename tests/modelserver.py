"""An endpoint for tests: it speaks two dialects, says what it is told to say, and fails in every
way that endpoints fail.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Literal, NamedTuple

from aiohttp import web

Dialect = Literal["openai", "anthropic", "responses"]
End = Literal["close", "stall", "drop"]

REFUSED = "refusal"
"""How an answer ends whose words are a refusal; chat completions say so in a field of its own."""
USAGE = (120, 30, 20)
"""Input, of which cached last, and output between."""


class Say(NamedTuple):
    """Words, in pieces, and tools that are called: (id, name, pieces of the arguments)."""

    texts: tuple[str, ...] = ()
    calls: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    usage: Any = USAGE
    finish: str = ""
    stream: bool = True


class Status(NamedTuple):
    """A refusal."""

    status: int
    body: Any = ""
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed


class Raw(NamedTuple):
    """Bytes as they are, each its own write, and how they end, if they do."""

    pieces: Iterable[bytes] = ()
    end: End = "close"
    content_type: str = "text/event-stream"


class Silent(NamedTuple):
    """Not even a status."""


Reply = Say | Status | Raw | Silent


class Asked(NamedTuple):
    """A request that came in."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class ModelServer:
    """Replies in order; the last one is said again and again."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect: Dialect = dialect
        self.replies: list[Reply] = [Say(("Hello",))]
        self.asked: list[Asked] = []
        self.transports: list[asyncio.Transport] = []
        """The connections that requests came by."""
        self.url = ""
        self._over = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ModelServer"]:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            self._over.set()
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(
            Asked(
                request.path, {name.lower(): value for name, value in request.headers.items()}, body
            )
        )
        assert request.transport is not None
        self.transports.append(request.transport)
        wrong = objection(self.dialect, body)
        reply = (
            Status(400, {"error": {"type": "invalid_request_error", "message": wrong}})
            if wrong
            else await self._choose(body)
        )
        match reply:
            case Say(stream=streams) if not (streams and self.asked[-1].body["stream"]):
                return web.json_response(document(self.dialect, reply))
            case Say():
                return await self._send(request, Raw(frames(self.dialect, reply)))
            case Raw():
                return await self._send(request, reply)
            case Status():
                text = reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
                return web.Response(status=reply.status, text=text, headers=reply.headers)
            case Silent():
                await self._over.wait()
                return web.Response()

    async def _choose(self, _body: dict[str, Any]) -> Reply:
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

    async def _send(self, request: web.Request, reply: Raw) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": reply.content_type})
        await response.prepare(request)
        for piece in reply.pieces:
            if request.transport is None or self._over.is_set():
                break
            await response.write(piece)
            await asyncio.sleep(0)
        if reply.end == "stall":
            await self._over.wait()
        if reply.end == "drop" and request.transport is not None:
            request.transport.close()
        return response


def objection(dialect: Dialect, body: dict[str, Any]) -> str:
    """The problem that such an endpoint would find in a request; empty if there is none."""
    if body.get("tools"):
        return ""
    if "tool_choice" in body:
        return "a choice of tools where there are none"
    blocks = [
        block
        for message in body.get("messages", ())
        if dialect == "anthropic"
        for block in message["content"]
    ]
    return (
        "tools were used and are not defined"
        if any(block["type"] in ("tool_use", "tool_result") for block in blocks)
        else ""
    )


def frames(dialect: Dialect, say: Say) -> tuple[bytes, ...]:
    """The answer as a stream."""
    return _FRAMES[dialect](say)


def document(dialect: Dialect, say: Say) -> dict[str, Any]:
    """The answer in one piece."""
    text = "".join(say.texts)
    if dialect == "openai":
        calls = [
            {
                "id": call_id,
                "type": "function",
                "function": {"name": name, "arguments": "".join(pieces)},
            }
            for call_id, name, pieces in say.calls
        ]
        refused = say.finish == REFUSED
        said = {"content": None, "refusal": text} if refused else {"content": text or None}
        message = {"role": "assistant", "tool_calls": calls, **said}
        return {
            "model": "really",
            "choices": [{"message": message, "finish_reason": _finish(dialect, say)}],
            "usage": _usage(dialect, say),
        }
    if dialect == "responses":
        return _response(say)
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    blocks += [
        {"type": "tool_use", "id": call_id, "name": name, "input": json.loads("".join(pieces))}
        for call_id, name, pieces in say.calls
    ]
    return {
        "type": "message",
        "model": "really",
        "content": blocks,
        "stop_reason": _finish(dialect, say),
        "usage": _usage(dialect, say),
    }


def sse(value: Any) -> bytes:
    """One frame."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _openai(say: Say) -> tuple[bytes, ...]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return sse(
            {
                "id": "1",
                "model": "really",
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
            }
        )

    field = "refusal" if say.finish == REFUSED else "content"
    out = [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({field: text}) for text in say.texts),
    ]
    for index, (call_id, name, pieces) in enumerate(say.calls):
        out.append(
            chunk(
                {
                    "tool_calls": [
                        {"index": index, "id": call_id, "function": {"name": name, "arguments": ""}}
                    ]
                }
            )
        )
        out += [
            chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
            for piece in pieces
        ]
    out.append(chunk({}, _finish("openai", say)))
    if say.usage is not None:
        out.append(sse({"model": "really", "choices": [], "usage": _usage("openai", say)}))
    return (*out, b"data: [DONE]\n\n")


def _anthropic(say: Say) -> tuple[bytes, ...]:
    def event(kind: str, **fields: Any) -> bytes:
        return f"event: {kind}\n".encode() + sse({"type": kind, **fields})

    usage = _usage("anthropic", say) or {}
    out = [event("message_start", message={"model": "really", "usage": usage}), event("ping")]
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if say.texts:
        blocks.append(
            (
                {"type": "text", "text": ""},
                [{"type": "text_delta", "text": text} for text in say.texts],
            )
        )
    for call_id, name, pieces in say.calls:
        start = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        blocks.append(
            (start, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces])
        )
    for index, (start, deltas) in enumerate(blocks):
        out.append(event("content_block_start", index=index, content_block=start))
        out += [event("content_block_delta", index=index, delta=delta) for delta in deltas]
        out.append(event("content_block_stop", index=index))
    output = {"usage": {"output_tokens": usage.get("output_tokens")}} if usage else {}
    out.append(event("message_delta", delta={"stop_reason": _finish("anthropic", say)}, **output))
    return (*out, event("message_stop"))


def _response(say: Say) -> dict[str, Any]:
    """The answer as a document of the Responses API."""
    text = "".join(say.texts)
    kind = "refusal" if say.finish == REFUSED else "text"
    content = [{"type": "refusal" if kind == REFUSED else "output_text", kind: text}]
    items: list[dict[str, Any]] = (
        [{"type": "message", "role": "assistant", "content": content}] if text else []
    )
    items += [
        {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": call_id,
            "name": name,
            "arguments": "".join(pieces),
        }
        for number, (call_id, name, pieces) in enumerate(say.calls)
    ]
    is_cut = say.finish not in ("", REFUSED)
    details = {"reason": say.finish} if is_cut else None
    status = "incomplete" if is_cut else "completed"
    return {
        "model": "really",
        "status": status,
        "output": items,
        "incomplete_details": details,
        "usage": _usage("responses", say),
    }


def _responses(say: Say) -> tuple[bytes, ...]:
    def event(kind: str, **fields: Any) -> bytes:
        return f"event: {kind}\n".encode() + sse({"type": kind, **fields})

    whole = _response(say)
    out = [
        event("response.created", response={"status": "in_progress"}),
        event("response.in_progress"),
    ]
    for index, item in enumerate(whole["output"]):
        empty: dict[str, Any] = (
            {"arguments": ""} if item["type"] == "function_call" else {"content": []}
        )
        out.append(event("response.output_item.added", output_index=index, item={**item, **empty}))
        if item["type"] == "function_call":
            pieces = say.calls[int(item["id"].removeprefix("fc_"))][2]
            kind = "response.function_call_arguments.delta"
        else:
            pieces, kind = say.texts, "response.output_text.delta"
        out += [event(kind, output_index=index, delta=piece) for piece in pieces]
        out.append(event("response.output_item.done", output_index=index, item=item))
    return (*out, event(f"response.{whole['status']}", response=whole))


def _usage(dialect: Dialect, say: Say) -> Any:
    if not isinstance(say.usage, tuple):
        return say.usage
    sent, received, cached = say.usage
    if dialect == "openai":
        return {
            "prompt_tokens": sent,
            "completion_tokens": received,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
    if dialect == "responses":
        return {
            "input_tokens": sent,
            "output_tokens": received,
            "input_tokens_details": {"cached_tokens": cached},
        }
    return {
        "input_tokens": sent - cached,
        "output_tokens": received,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
    }


def _finish(dialect: Dialect, say: Say) -> str:
    if dialect == "openai" and say.finish == REFUSED:
        return "stop"
    if say.finish:
        return say.finish
    if dialect == "openai":
        return "tool_calls" if say.calls else "stop"
    return "tool_use" if say.calls else "end_turn"


_FRAMES: dict[Dialect, Callable[[Say], tuple[bytes, ...]]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "responses": _responses,
}
