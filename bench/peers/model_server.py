"""A scripted chat completions endpoint whose answers depend only on the request.

A worker, which has `read_note` and the objective `Job I: read K notes`, reads K notes, one per
turn, and then answers. A lead, with the objective `fan out N k=K`, delegates N such jobs in one
answer and summarizes the results. Answers are whole or streamed in small frames, as requested.

`POST /rules` sets the `Rules` and clears the record. `GET /record` returns all calls since then,
and the number of different results that the lead received. The server uses asyncio transports
directly, so that its own cost stays small.
"""

import asyncio
import json
import re
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

LEAD = -1
FAN_OUT = re.compile(r"fan out (\d+) k=(\d+)")
JOB = re.compile(r"Job (\d+): read (\d+) notes")
DONE = re.compile(r"job (\d+) is done")
CALLED = re.compile(r"(^|_)(agent|member|subagent|type|name|id)(_|$)")
"""Parameters of a delegation tool that name the agent."""
USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


@dataclass
class Rules:
    """The rules: seconds per call, the increase per job, and the number of jobs that must be open
    before one continues.
    """

    latency: float = 0.0
    stagger: float = 0.0
    barrier: int = 0
    delegate: str = ""


@dataclass
class Asked:
    """One call: its job, turn, and the times of request and answer."""

    job: int
    turn: int
    asked_at: float = field(default_factory=time.monotonic)
    answered_at: float | None = None


class Answer(NamedTuple):
    job: int
    turn: int
    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    """Tool calls: names with arguments."""
    results: int | None = None
    """The number of different jobs in the results that the lead received."""


# Content of the answers.


def answer(body: dict[str, Any], delegate: str) -> Answer:
    tools = {tool["function"]["name"]: tool["function"] for tool in body["tools"]}
    told = [
        _words(message) for message in body["messages"] if message["role"] in ("system", "user")
    ]
    results = [_words(message) for message in body["messages"] if message["role"] == "tool"]
    if "read_note" in tools:
        return _worker(*_numbers(JOB, told), len(results))
    count, notes = _numbers(FAN_OUT, told)
    if results:
        return Answer(
            LEAD,
            1,
            f"summary of {count} jobs",
            results=len({job for text in results for job in DONE.findall(text)}),
        )
    schema = tools[delegate]["parameters"]
    return Answer(
        LEAD,
        0,
        calls=tuple(
            (delegate, _arguments(schema, f"Job {job}: read {notes} notes")) for job in range(count)
        ),
    )


def _worker(job: int, notes: int, read: int) -> Answer:
    if read < notes:
        return Answer(job, read, calls=(("read_note", json.dumps({"note_id": f"{job}-{read}"})),))
    return Answer(job, read, f"job {job} is done")


def _numbers(pattern: re.Pattern[str], texts: list[str]) -> tuple[int, int]:
    for text in texts:
        if found := pattern.search(text):
            return int(found[1]), int(found[2])
    raise ValueError(f"nothing like {pattern.pattern!r} was said")


def _words(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return (
        content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)
    )


def _arguments(schema: dict[str, Any], job: str) -> str:
    return json.dumps(
        {name: "worker" if CALLED.search(name) else job for name in schema["required"]}
    )


# Format of the answers.


def whole(number: int, said: Answer) -> bytes:
    message: dict[str, Any] = {"role": "assistant", "content": said.text or None}
    if said.calls:
        message["tool_calls"] = [
            _call(number, at, name, arguments) for at, (name, arguments) in enumerate(said.calls)
        ]
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": "tool_calls" if said.calls else "stop",
    }
    value = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1,
        "model": "bench",
        "choices": [choice],
        "usage": USAGE,
    }
    return json.dumps(value).encode()


def frames(number: int, said: Answer) -> list[bytes]:
    """The frames of an answer: single words, and arguments in two halves."""
    deltas: list[dict[str, Any]] = [{"content": word} for word in re.findall(r"\S+\s*", said.text)]
    for at, (name, arguments) in enumerate(said.calls):
        half = len(arguments) // 2
        deltas.append({"tool_calls": [{"index": at, **_call(number, at, name, "")}]})
        deltas += (
            {"tool_calls": [{"index": at, "function": {"arguments": part}}]}
            for part in (arguments[:half], arguments[half:])
        )
    return [
        _frame(number, {"role": "assistant", "content": ""}),
        *(_frame(number, delta) for delta in deltas),
        _frame(number, {}, "tool_calls" if said.calls else "stop"),
        _frame(number, None),
        b"data: [DONE]\n\n",
    ]


def _call(number: int, at: int, name: str, arguments: str) -> dict[str, Any]:
    return {
        "id": f"call_{number}_{at}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _frame(number: int, delta: dict[str, Any] | None, finish: str | None = None) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    value = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "bench",
        "choices": choices,
    }
    return (
        b"data: "
        + json.dumps(value | ({"usage": USAGE} if delta is None else {})).encode()
        + b"\n\n"
    )


# The service.


class Desk:
    """State shared by all connections: the rules, the record, and the calls held at the barrier."""

    def __init__(self) -> None:
        self.set({})

    def set(self, rules: dict[str, Any]) -> None:
        self.rules = Rules(**rules)
        self.asked: list[Asked] = []
        self.results = 0
        self.held: list[tuple[Server, dict[str, Any], Answer, Asked]] = []

    def record(self) -> dict[str, Any]:
        return {
            "results": self.results,
            "calls": [
                [asked.job, asked.turn, asked.asked_at, asked.answered_at] for asked in self.asked
            ],
        }

    def take(self, server: "Server", body: dict[str, Any]) -> None:
        said = answer(body, self.rules.delegate)
        asked = Asked(said.job, said.turn)
        self.asked.append(asked)
        if said.results is not None:
            self.results = said.results
        if self.rules.barrier and said.job != LEAD and said.turn == 0:
            self.held.append((server, body, said, asked))
            if len(self.held) == self.rules.barrier:
                for one in self.held:
                    one[0].say(*one[1:])
            return
        delay = self.rules.latency + self.rules.stagger * max(said.job, 0)
        if delay:
            asyncio.get_running_loop().call_later(delay, server.say, body, said, asked)
        else:
            server.say(body, said, asked)


class Server(asyncio.Protocol):
    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.buffer = b""
        self.number = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
        if len(body) < length:
            return
        self.buffer = body[length:]
        try:
            self.handle(head.split(b" ", 2)[1].decode(), body[:length])
        except (KeyError, TypeError, ValueError) as error:  # show the error to the caller
            self.reply(json.dumps({"error": {"message": repr(error)}}).encode(), b"400 Bad Request")

    def handle(self, path: str, body: bytes) -> None:
        if path == "/rules":
            self.desk.set(json.loads(body))
            self.reply(b"{}")
        elif path == "/record":
            self.reply(json.dumps(self.desk.record()).encode())
        else:
            self.desk.take(self, json.loads(body))

    def reply(self, body: bytes, status: bytes = b"200 OK") -> None:
        self.transport.write(
            b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
            % (status, len(body), body)
        )

    def say(self, body: dict[str, Any], said: Answer, asked: Asked) -> None:
        """Answer the call. If the caller is gone, the call stays unanswered in the record."""
        if self.transport.is_closing():
            return
        asked.answered_at = time.monotonic()
        self.number += 1
        if not body.get("stream"):
            self.reply(whole(self.number, said))
            return
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding:"
            b" chunked\r\n\r\n"
        )
        for part in frames(self.number, said):
            self.transport.write(b"%x\r\n%s\r\n" % (len(part), part))
        self.transport.write(b"0\r\n\r\n")


async def main() -> None:
    desk = Desk()
    server = await asyncio.get_running_loop().create_server(
        lambda: Server(desk), "127.0.0.1", 0, backlog=4096
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
