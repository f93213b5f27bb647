"""A stand-in for an endpoint that speaks chat completions: a tool call on each turn but the last, in a stream of small frames.

It is written on the bare transport, so that what is measured beside it is the caller.
"""

import asyncio
import json
from typing import Any, cast

TURNS = 3


def frame(delta: dict[str, Any], finish: str | None = None, usage: dict[str, int] | None = None) -> bytes:
    choices = [] if usage else [{"index": 0, "delta": delta, "finish_reason": finish}]
    value = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "bench", "choices": choices}
    return b"data: " + json.dumps(value | ({"usage": usage} if usage else {})).encode() + b"\n\n"


def frames(number: int, results: int) -> list[bytes]:
    """The same for everybody who asks for the same turn."""
    last = results >= TURNS - 1
    call = {"index": 0, "id": f"call_{number}", "type": "function", "function": {"name": "read_note", "arguments": ""}}
    pieces = ['{"note_id": ', f'"{results}"}}']
    said = (
        [{"content": piece} for piece in ("The ", "notes ", "are ", "read.")]
        if last
        else [{"tool_calls": [call]}, *({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces)]
    )
    return [
        frame({"role": "assistant", "content": ""}),
        *map(frame, said),
        frame({}, "stop" if last else "tool_calls"),
        frame({}, usage={"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}),
        b"data: [DONE]\n\n",
    ]


class Server(asyncio.Protocol):
    def __init__(self) -> None:
        self.buffer = b""
        self.number = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        if len(body) < length:
            return
        self.buffer = body[length:]
        self.number += 1
        results = sum(message["role"] == "tool" for message in json.loads(body[:length])["messages"])
        self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for part in frames(self.number, results):
            self.transport.write(b"%x\r\n%s\r\n" % (len(part), part))
        self.transport.write(b"0\r\n\r\n")


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
