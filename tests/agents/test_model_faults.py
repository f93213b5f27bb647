"""Every way in which a model's endpoint fails, met by a delegation: it ends in a typed state, in
time, and alone.
"""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from remit.adapters.models.wires.anthropic import AnthropicGateway
from remit.adapters.models.wires.endpoint import Endpoint, TimeSource
from remit.adapters.models.wires.openai_chat import OpenAIChatGateway
from remit.adapters.models.wires.response import Limits
from remit.app.maintenance.verify import verify
from remit.domain.llm.failures import UNBILLED, FailureKind, ModelFailed
from remit.domain.llm.messages import Request, Response
from remit.domain.task.task import State
from remit.ports import ResolvedModel
from remit.store_queries.queue_queries import JOBS
from remit.store_queries.tree_queries import BUDGET
from tests.agents.endpoint import Body, RuledServer, answers, may_call, tool_results, wants
from tests.agents.stage import Stage, says, stage
from tests.modelserver import Dialect, ModelServer, Raw, Reply, Say, Silent, Status, frames, sse
from tests.patience import patient

KEY = "canary.key.of.the.endpoint"
SPEED = 1000.0
"""The pauses between tries go by a clock that is so much faster."""
TICKS = TimeSource(
    now=lambda: time.monotonic() * SPEED, sleep=lambda seconds: asyncio.sleep(seconds / SPEED)
)
PATIENT = Limits(
    first_byte_seconds=patient(60),
    idle_seconds=patient(60),
    frame_bytes=20_000,
    message_bytes=50_000,
    tool_calls=8,
)
BUSY = PATIENT._replace(total_seconds=1.5)
FINE = "There is nothing to see."


class Fault(NamedTuple):
    """A fault of an endpoint, and the required end of a delegation that meets it."""

    reply: Reply | Callable[[Body], Reply]
    ends: tuple[str, str | None, str | None]
    """The status of the delegation, the code of its error, and the reason of its task."""
    names: str = ""
    """A part of the error's text."""
    limits: Limits = PATIENT
    allowed: dict[str, Any] = {}  # noqa: RUF012 - never changed
    tries: int | None = None
    """How often the endpoint may be asked."""


FAILED = ("failed", "INTERNAL_ERROR", "error")
UNUSABLE = ("failed", "UNAVAILABLE", "error")
SPENT = ("failed", "LIMIT_EXCEEDED", "error")
LATE = ("timeout", "TIMEOUT", "timeout")
DONE = ("completed", None, None)
JSON = "application/json"


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return sse({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def once(*replies: Reply) -> Iterator[Reply]:
    """Some replies, and then a good one."""
    yield from replies
    yield from repeat(Say((FINE,)))


def calls_first(*calls: tuple[str, str, tuple[str, ...]]) -> Callable[[Body], Reply]:
    """Calls that are wrong, and then the results of them."""
    return lambda body: (
        Say((" / ".join(tool_results(body)),)) if answers(body) else Say(calls=calls)
    )


def in_turn(*replies: Reply) -> Callable[[Body], Reply]:
    left = once(*replies)
    return lambda _: next(left)


def hasty() -> Limits:
    """Return limits that end the wait for a silent endpoint, after it was asked."""
    return PATIENT._replace(first_byte_seconds=patient(0.3))


def restless() -> Limits:
    """Return limits that end the wait for an endpoint that falls silent, after it began to
    answer.
    """
    return PATIENT._replace(idle_seconds=patient(0.3))


def faults() -> dict[str, Fault]:
    """One of each."""
    whole = frames("openai", Say(("Half ", "of it")))
    return {
        "busy-once": Fault(in_turn(Status(429, "slow down")), DONE, tries=2),
        "busy-once-for-a-while": Fault(
            in_turn(Status(429, "slow down", {"Retry-After": "30"})), DONE, tries=2
        ),
        "busy": Fault(
            Status(429, f"slow down {KEY}"), FAILED, "accepts no more requests for now", tries=6
        ),
        "busy-for-an-hour": Fault(
            Status(429, "slow down", {"Retry-After": "3600"}),
            FAILED,
            "accepts no more requests for now",
            tries=6,
        ),
        "broken-once": Fault(in_turn(Status(500, "oops")), DONE, tries=2),
        "broken": Fault(
            Status(500, {"error": {"message": f"Traceback: Authorization: Bearer {KEY}"}}),
            FAILED,
            "is overloaded or has an internal error",
            tries=6,
        ),
        "no-key": Fault(
            Status(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}),
            UNUSABLE,
            "did not accept the API key",
            tries=1,
        ),
        "no-money": Fault(
            Status(429, {"error": {"code": "insufficient_quota", "message": "Pay."}}),
            SPENT,
            "has no quota left",
            tries=1,
        ),
        "refused": Fault(Silent(), UNUSABLE, "cannot be reached"),
        "deaf": Fault(
            Silent(),
            UNUSABLE,
            "could not be reached within 0.2 s",
            PATIENT._replace(connect_seconds=0.2),
        ),
        "silent": Fault(Silent(), LATE, "did not start to answer in time", hasty(), tries=6),
        "stalls": Fault(
            Raw(whole[:2], "stall"),
            LATE,
            "stopped in the middle of its answer",
            restless(),
            tries=1,
        ),
        "hangs-up": Fault(
            Raw(whole[:2], "drop"),
            FAILED,
            "broke (ClientPayloadError). Try again, or use another model",
            tries=1,
        ),
        "half-json": Fault(
            Raw((f'{{"choices": [{{"message": {{"content": "{KEY}'.encode(),), content_type=JSON),
            FAILED,
            "sent an unusable answer",
        ),
        "half-a-stream": Fault(Raw((whole[1][:-20],)), FAILED, "sent an unusable answer"),
        "garbage": Fault(
            Raw((b"\x00\xff\xfe\x80" * 500,), content_type=JSON),
            FAILED,
            "sent an unusable answer",
        ),
        "web-page": Fault(
            Raw(
                (f"<html><title>Sign in, {KEY}</title></html>".encode(),), content_type="text/html"
            ),
            FAILED,
            "a web page",
            tries=1,
        ),
        "other-type": Fault(
            Raw((f"Back in five minutes, {KEY}.".encode(),), content_type="text/plain"),
            FAILED,
            "sent an unusable answer",
        ),
        "picture": Fault(
            Raw((b"\x89PNG\r\n\x1a\n" + bytes(2000),), content_type="image/png"),
            FAILED,
            "sent an unusable answer",
        ),
        "no-choices": Fault(
            Raw((b'{"choices": []}',), content_type=JSON), FAILED, "gave no answer"
        ),
        "no-choices-in-a-stream": Fault(
            Raw((sse({"choices": []}), b"data: [DONE]\n\n")), FAILED, "gave no answer"
        ),
        "nothing-at-all": Fault(Raw(()), FAILED, "gave no answer"),
        "error-that-looks-well": Fault(
            Raw((b'{"error": {"message": "Rate limit reached", "code": 429}}',), content_type=JSON),
            FAILED,
            "accepts no more requests for now",
        ),
        "error-in-the-stream": Fault(
            Raw((*whole[:2], sse({"error": {"message": f"Overloaded by {KEY}"}}))),
            FAILED,
            "is overloaded or has an internal error",
            tries=1,
        ),
        "ends-in-an-error": Fault(
            Raw((*whole[:2], chunk({}, "error"), b"data: [DONE]\n\n")),
            FAILED,
            "broke off its answer (reason: error)",
        ),
        "breaks-off": Fault(
            Say(("The port is",), finish="network_error"), FAILED, "broke off", tries=1
        ),
        "breaks-off-once": Fault(in_turn(Say((), finish="network_error")), DONE, tries=2),
        "sensitive": Fault(
            Say((), finish="sensitive"), FAILED, "refused to answer: sensitive", tries=1
        ),
        "ends-without-a-word": Fault(Say((), finish="tired"), FAILED, "(reason: tired)", tries=6),
        "says-nothing": Fault(Say(()), FAILED, "its answer was empty twice. Try again", tries=2),
        "says-nothing-once": Fault(in_turn(Say(("",)), Say((FINE,))), DONE, tries=2),
        "filtered": Fault(Say(("I cannot",), finish="content_filter"), FAILED, "refused to answer"),
        "refuses": Fault(
            Say(("I cannot",), finish="refusal"), FAILED, "it refused to answer: I cannot", tries=1
        ),
        "endless-words": Fault(
            Raw(repeat(chunk({"content": "and so on, " * 50}))),
            FAILED,
            "more than 50,000 bytes",
            tries=1,
        ),
        "endless-nothing": Fault(
            Raw(repeat(b": still here\n\n")), LATE, "did not finish within", BUSY
        ),
        "endless-for-a-task": Fault(
            Raw(repeat(b": still here\n\n")),
            LATE,
            "time limit of 0.7 seconds",
            allowed={"timeout_seconds": 0.7},
        ),
        "huge": Fault(Say(("x" * 60_000,), stream=False), FAILED, "more than 50,000 bytes"),
        "huge-frame": Fault(
            Raw((chunk({"content": "x" * 30_000}),)), FAILED, "longer than 20,000 bytes"
        ),
        "too-many-calls": Fault(
            Say(calls=tuple((f"c{n}", "LS", ("{}",)) for n in range(9))),
            FAILED,
            "more than 8 tools",
        ),
        "broken-arguments": Fault(calls_first(("c1", "LS", ('{"path": ',))), DONE, tries=2),
        "unknown-tool": Fault(calls_first(wants("c1", "LaunchRocket")), DONE, tries=2),
        "one-id-twice": Fault(
            calls_first(wants("c1", "LS", path="."), wants("c1", "LS", path="sub")), DONE, tries=2
        ),
        "only-wrong-calls": Fault(
            lambda body: (
                Say(calls=(("c1", "LS", ("{",)),)) if may_call(body) else Say(("I gave up.",))
            ),
            ("failed", "LIMIT_EXCEEDED", "turns"),
            "3 turns",
            allowed={"max_turns": 3},
            tries=4,
        ),
        "cut-off": Fault(
            lambda body: (
                Say((FINE,))
                if answers(body)
                else Say(("And the most important th",), finish="length")
            ),
            DONE,
            tries=2,
        ),
    }


class Endpoints:
    """A model for each fault, all of one server; what it is called says which."""

    def __init__(
        self, url: str, known: dict[str, Fault], ports: dict[str, int], dialect: Dialect
    ) -> None:
        self._urls = {
            name: f"http://127.0.0.1:{ports[name]}" if name in ports else url for name in known
        }
        self._known, self._made, self._dialect = (
            known,
            dict[str, OpenAIChatGateway | AnthropicGateway](),
            dialect,
        )

    def trouble(self) -> list[dict[str, Any]]:
        return []

    def resolve(self, model: str | None = None) -> ResolvedModel:
        """The gateway of one fault."""
        name = (model or "").partition(":")[2] or "fine"
        if name not in self._made:
            endpoint = Endpoint(name, ticks=TICKS)
            kind, base = (
                (OpenAIChatGateway, "/v1") if self._dialect == "openai" else (AnthropicGateway, "")
            )
            self._made[name] = kind(
                KEY, f"{self._urls[name]}{base}", limits=self._known[name].limits, endpoint=endpoint
            )
        return ResolvedModel(self._made[name], name, f"test: {name}")

    async def close(self) -> None:
        """Close them all."""
        for gateway in self._made.values():
            await gateway.close()


@contextmanager
def deaf() -> Iterator[int]:
    """A port whose host never answers, because its queue is full."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen(0)
        queue = [socket.socket() for _ in range(4)]
        for place in queue:
            place.setblocking(False)
            place.connect_ex(door.getsockname())
        try:
            yield door.getsockname()[1]
        finally:
            for place in queue:
                place.close()


@asynccontextmanager
async def faulty(
    url: str,
    folder: Path,
    known: dict[str, Fault],
    ports: dict[str, int],
    dialect: Dialect = "openai",
) -> AsyncIterator[tuple[Stage, ModelServer]]:
    """A stage whose models are as they are said to be."""

    async def rule(body: Body) -> Reply:
        reply = known[body["model"]].reply
        return reply(body) if callable(reply) else reply

    async with (
        RuledServer(rule, dialect).running() as server,
        stage(url, folder, [says("never")], workers=0) as at,
    ):
        models = Endpoints(server.url, known, ports, dialect)
        await at.hire(models, concurrency=64, heartbeat_seconds=patient(30))
        try:
            yield at, server
        finally:
            await models.close()


async def test_every_fault_is_its_own_and_ends_in_time(
    durable_url: str, tmp_path: Path, unused_tcp_port: int
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "inner.txt").touch()
    known = {**faults(), "fine": Fault(calls_first(wants("c1", "LS", path=".")), DONE)}
    works = [
        {
            "objective": f"Meet {name}",
            "model": f"openai:{name}",
            "limits": {"max_attempts": 1, "timeout_seconds": patient(30), **fault.allowed},
        }
        for name, fault in known.items()
    ]
    with deaf() as port:
        async with faulty(
            durable_url, tmp_path, known, {"refused": unused_tcp_port, "deaf": port}
        ) as (at, server):
            async with asyncio.timeout(patient(60)):
                results = (await at.call("task_parallel", tasks=works))["results"]
            found = dict(zip(known, results, strict=True))
            tasks = {
                name: await at.team.task(item["data"]["task_id"]) for name, item in found.items()
            }
            ends = {
                name: (
                    item["data"]["status"],
                    item.get("error", {}).get("code"),
                    tasks[name].reason,
                )
                for name, item in found.items()
            }
            assert ends == {name: fault.ends for name, fault in known.items()}
            assert {name: item["status"] for name, item in found.items()} == {
                name: "success" if fault.ends is DONE else "error" for name, fault in known.items()
            }
            silent = {
                name: tasks[name].failure_reason
                for name, fault in known.items()
                if fault.names not in (tasks[name].failure_reason or "")
            }
            assert silent == {}
            assert {name for name, item in found.items() if not item["data"]["result"]} == set()
            asked = [item.body["model"] for item in server.asked]
            assert {name: asked.count(name) for name, fault in known.items() if fault.tries} == {
                name: fault.tries for name, fault in known.items() if fault.tries
            }
            assert KEY not in json.dumps(
                [*results, *[await at.transcript(task.id) for task in tasks.values()]]
            )
            assert KEY not in str(await at.team.core.store.feed("", 10_000))
            assert "sub/" in found["fine"]["data"]["result"]
            assert "not a JSON object" in found["broken-arguments"]["data"]["result"]
            assert (
                "'LaunchRocket' is not a tool that this task may use"
                in found["unknown-tool"]["data"]["result"]
            )
            both = found["one-id-twice"]["data"]["result"]
            assert ("sub/" in both.split(" / ")[0], "inner.txt" in both.split(" / ")[1]) == (
                True,
                True,
            )
            assert await at.team.jobs() == []
            assert (await verify(at.team.core.store)).faults == ()


def other_faults() -> dict[str, Fault]:
    """The same as another wire has them: one of each that an endpoint was promised to fail by."""
    whole = frames("anthropic", Say(("Half ", "of it")))
    return {
        "busy": Fault(
            Status(429, {"error": {"type": "rate_limit_error", "message": f"slow down {KEY}"}}),
            FAILED,
            "accepts no more requests for now",
            tries=6,
        ),
        "broken": Fault(
            Status(500, "oops"), FAILED, "is overloaded or has an internal error", tries=6
        ),
        "overloaded": Fault(
            Status(529, {"error": {"type": "overloaded_error", "message": "Overloaded"}}),
            FAILED,
            "is overloaded or has an internal error",
            tries=6,
        ),
        "refused": Fault(Silent(), UNUSABLE, "cannot be reached"),
        "silent": Fault(Silent(), LATE, "did not start to answer in time", hasty(), tries=6),
        "stalls": Fault(
            Raw(whole[:4], "stall"),
            LATE,
            "stopped in the middle of its answer",
            restless(),
            tries=1,
        ),
        "hangs-up": Fault(Raw(whole[:4], "drop"), FAILED, "sent an unusable answer", tries=1),
        "half-json": Fault(
            Raw((b'{"type": "message", "content": [{"type": "text", "te',), content_type=JSON),
            FAILED,
            "sent an unusable answer",
        ),
        "garbage": Fault(Raw((b"\x00\xff\xfe\x80" * 500,)), FAILED, "sent an unusable answer"),
        "web-page": Fault(
            Raw((b"<html><title>Sign in</title></html>",), content_type="text/html"),
            FAILED,
            "a web page",
            tries=1,
        ),
        "error-in-the-stream": Fault(
            Raw(
                (
                    *whole[:4],
                    sse(
                        {
                            "type": "error",
                            "error": {"type": "overloaded_error", "message": "Overloaded"},
                        }
                    ),
                )
            ),
            FAILED,
            "is overloaded or has an internal error",
            tries=1,
        ),
        "broken-once": Fault(in_turn(Status(500, "oops")), DONE, tries=2),
        "fine": Fault(Say((FINE,)), DONE, tries=1),
    }


async def test_the_other_wire_fails_in_the_same_ways(
    durable_url: str, tmp_path: Path, unused_tcp_port: int
) -> None:
    known = other_faults()
    works = [
        {
            "objective": f"Meet {name}",
            "model": f"anthropic:{name}",
            "limits": {"max_attempts": 1, "timeout_seconds": patient(30)},
        }
        for name in known
    ]
    async with faulty(durable_url, tmp_path, known, {"refused": unused_tcp_port}, "anthropic") as (
        at,
        server,
    ):
        async with asyncio.timeout(patient(60)):
            found = dict(
                zip(known, (await at.call("task_parallel", tasks=works))["results"], strict=True)
            )
        tasks = {name: await at.team.task(item["data"]["task_id"]) for name, item in found.items()}
        ends = {
            name: (item["data"]["status"], item.get("error", {}).get("code"), tasks[name].reason)
            for name, item in found.items()
        }
        assert ends == {name: fault.ends for name, fault in known.items()}
        assert {
            name: tasks[name].failure_reason
            for name, fault in known.items()
            if fault.names not in (tasks[name].failure_reason or "")
        } == {}
        asked = [item.body["model"] for item in server.asked]
        assert {name: asked.count(name) for name, fault in known.items() if fault.tries} == {
            name: fault.tries for name, fault in known.items() if fault.tries
        }
        assert KEY not in json.dumps(found)
        assert await at.team.jobs() == []


@pytest.mark.parametrize(
    ("kind", "after", "rests", "attempts"),
    [
        ("circuit_open", 30.0, 30.0, 0),
        ("rate_limited", 3600.0, 60.0, 1),
        ("overloaded", None, 1.0, 1),
    ],
)
async def test_a_run_turned_away_by_the_endpoint_retries_when_allowed(
    durable_url: str, tmp_path: Path, kind: FailureKind, after: float, rests: float, attempts: int
) -> None:
    """What others did to an endpoint must not use up the attempts of a task, nor its budget,
    without an answer of the model's.
    """

    def rule(_: Request) -> Response:
        raise ModelFailed(kind, "Not now.", retry_after=after)

    async with stage(durable_url, tmp_path, rule) as at:
        begun = datetime.now(UTC)
        task_id = await at.create(limits={"max_tokens": 50_000})
        task = await at.team.until(task_id, lambda task: task.counts.runs == 1 and task.run is None)
        ended = datetime.now(UTC)
        (due,) = [
            job.at
            for job in await at.team.core.store.select(JOBS, {"limit": 10})
            if job.key == f"run/{task_id}"
        ]
        assert due is not None
        assert (task.state, task.attempts) == (State.PENDING, attempts)
        (budget,) = await at.team.core.store.select(BUDGET, {"id": int(task_id)})
        assert (budget.tokens > 0) is (kind not in UNBILLED)
        assert (
            begun + timedelta(seconds=rests)
            <= datetime.fromisoformat(due)
            <= ended + timedelta(seconds=rests)
        )


@pytest.mark.parametrize(
    ("cause", "reason", "fail_cause", "told"),
    [
        ("refused", "error", "model_unreachable", "cannot be used: it cannot be reached."),
        ("overloaded", "error", None, "is overloaded or has an internal error:"),
        ("no_first_byte", "timeout", None, "did not start to answer in time:"),
    ],
)
async def test_a_circuit_that_keeps_opening_fails_the_task_with_the_cause(
    durable_url: str,
    tmp_path: Path,
    cause: FailureKind,
    reason: str,
    fail_cause: str | None,
    told: str,
) -> None:
    def rule(_: Request) -> Response:
        raise ModelFailed(
            "circuit_open",
            "Nobody there; it failed 12 times in a row.",
            retry_after=120.0,
            cause=cause,
            lasting=True,
        )

    async with stage(durable_url, tmp_path, rule) as at:
        task = await at.run()
        assert (task.state, task.reason, task.counts.runs) == (State.FAILED, reason, 1)
        assert task.cause == fail_cause
        said = f"The model scripted {told} Nobody there; it failed 12 times in a row."
        assert (task.failure_reason or "").startswith(said)
