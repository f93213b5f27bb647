"""The shared state of the callers of an endpoint, with a clock that only advances in sleeps."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from remit.adapters.models.wires.endpoint import FAILURES_TO_OPEN, Breaker, Endpoint, TimeSource
from remit.domain.llm.failures import UNHEALTHY, ModelFailed


class Time:
    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def time() -> Time:
    return Time()


def endpoint(time: Time, chance: float = 0.0, concurrent: int = 8) -> Endpoint:
    return Endpoint(
        "e", concurrent=concurrent, ticks=TimeSource(lambda: time.now, time.sleep, lambda: chance)
    )


def script(*lines: ModelFailed | str) -> Callable[[float], Awaitable[str]]:
    left = list(lines)

    async def attempt(_seconds: float) -> str:
        line = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(line, ModelFailed):
            raise line
        return line

    return attempt


@pytest.mark.parametrize(
    ("chance", "slept"), [(0.0, [0.25, 0.5, 1.0, 2.0, 4.0]), (1.0, [0.5, 1.0, 2.0, 4.0, 8.0])]
)
async def test_pauses_grow_and_are_jittered(time: Time, chance: float, slept: list[float]) -> None:
    with pytest.raises(ModelFailed, match="overloaded"):
        await endpoint(time, chance).call(script(ModelFailed("overloaded", "x")))
    assert time.slept == slept


async def test_each_attempt_gets_the_remaining_time(time: Time) -> None:
    left: list[float] = []

    async def attempt(seconds: float) -> str:
        left.append(seconds)
        if len(left) < 3:
            raise ModelFailed("overloaded", "x")
        return "ok"

    assert await endpoint(time).call(attempt, timeout_seconds=10) == "ok"
    assert left == [10, 9.75, 9.25]


async def test_all_callers_wait_out_the_pause_that_one_was_asked_for(time: Time) -> None:
    shared = endpoint(time)
    with pytest.raises(ModelFailed):
        await shared.call(
            script(ModelFailed("rate_limited", "x", retry_after=20)), timeout_seconds=5
        )
    assert shared.state().cooling_seconds == 20
    assert await shared.call(script("ok"), agent="another") == "ok"
    assert time.slept == [20]
    assert shared.state().cooling_seconds == 0


async def test_no_more_call_at_once_than_allowed(time: Time) -> None:
    shared, gate = endpoint(time, concurrent=2), asyncio.Event()

    async def attempt(_seconds: float) -> str:
        await gate.wait()
        return "ok"

    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(shared.call(attempt)) for _ in range(5)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert shared.state().running == 2
        with pytest.raises(ModelFailed, match="no free slot"):
            await shared.call(attempt, timeout_seconds=0)
        gate.set()
    assert [call.result() for call in calls] == ["ok"] * 5
    assert shared.state().running == 0


async def test_a_call_that_is_canceled_counts_for_nothing(time: Time) -> None:
    shared = endpoint(time)

    async def attempt(_seconds: float) -> str:
        raise asyncio.CancelledError

    for _ in range(FAILURES_TO_OPEN + 1):
        with pytest.raises(asyncio.CancelledError):
            await shared.call(attempt, agent="a")
    assert shared.state().breaker == ("closed", 0, 0, 0.0, "")
    assert shared.state().agents == {}


async def test_an_agent_that_recovers_is_forgotten(time: Time) -> None:
    shared = endpoint(time)
    with pytest.raises(ModelFailed):
        await shared.call(script(ModelFailed("rejected_request", "x")), agent="a")
    assert shared.state().agents["a"].failures == 1
    await shared.call(script("ok"), agent="a")
    assert shared.state().agents == {}


def test_a_breaker_opens_longer_each_time_and_lets_one_try_at_once() -> None:
    breaker = Breaker(0.0, UNHEALTHY, failures_to_open=2)
    for _ in range(2):
        assert breaker.enter(0) == 0
        breaker.leave(0, "stalled", "silence")
    assert breaker.state(0) == ("open", 2, 1, 0, "silence")
    assert breaker.enter(10) == 20
    assert breaker.enter(30) == 0
    assert breaker.state(30).state == "half_open"
    assert breaker.enter(30) > 0
    breaker.leave(30, "refused", "nobody")
    assert breaker.state(31) == ("open", 3, 2, 30, "nobody")
    assert breaker.enter(31) == 59
    assert breaker.enter(90) == 0
    breaker.leave(90, "rate_limited")
    assert breaker.state(91).state == "half_open"
    assert breaker.enter(91) == 0
    breaker.leave(91, None)
    assert breaker.state(91) == ("closed", 0, 2, 91, "")


async def test_a_refused_caller_gets_the_last_error_and_whether_it_lasts(time: Time) -> None:
    shared = endpoint(time)
    for number in range(FAILURES_TO_OPEN):
        with pytest.raises(ModelFailed):
            await shared.call(
                script(ModelFailed("bad_response", f"nonsense {number}", started=True))
            )
    told: list[tuple[str, bool]] = []
    for failure in ("bad_response", "refused", "stalled"):
        with pytest.raises(ModelFailed) as turned:
            await shared.call(script("never"))
        assert (turned.value.kind, turned.value.cause) == ("circuit_open", failure)
        told.append((turned.value.text, turned.value.lasting))
        time.now += turned.value.retry_after or 0
        following = {
            "bad_response": ModelFailed("refused", "nobody there"),
            "refused": ModelFailed("stalled", "silence"),
        }.get(failure)
        if following:
            with pytest.raises(ModelFailed, match=following.text):
                await shared.call(script(following))
    assert told == [
        ("nonsense 9; it failed 10 times in a row and is paused for 30 s", False),
        ("nobody there; it failed 11 times in a row and is paused for 60 s", False),
        ("silence; it failed 12 times in a row and is paused for 120 s", True),
    ]
    assert await shared.call(script("ok")) == "ok"


@pytest.mark.parametrize("kind", ["rate_limited", "authentication", "quota", "timed_out"])
def test_errors_unrelated_to_health_do_not_open_the_circuit(kind: str) -> None:
    breaker = Breaker(0.0, UNHEALTHY, failures_to_open=1)
    breaker.leave(0, kind)  # type: ignore[arg-type]  # a kind by name
    assert breaker.state(0).state == "closed"
