"""The state that all callers of an endpoint share: concurrent calls, pauses and circuit
breakers.
"""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Literal, NamedTuple, TypeVar

from remit.adapters.models.refusals.remembered_limits import Limits, RememberedLimits
from remit.domain.llm.failures import CAUSES, PERMANENT, UNHEALTHY, FailureKind, ModelFailed, Retry
from remit.domain.llm.messages import Pause

T = TypeVar("T")

CONCURRENT = 1024
MAX_RETRIES = 5
MAX_RETRY_AFTER = 120.0
FIRST_BACKOFF, MAX_BACKOFF = 0.5, 30.0
FAILURES_TO_OPEN = 10
FIRST_OPEN_SECONDS, MAX_OPEN_SECONDS = 30.0, 300.0
OPENED_FOR_GOOD = 3
"""How often in a row a circuit opens before its callers fail instead of waiting: by then, two
trials have failed, a minute apart.
"""
MAX_AGENTS = 1024
MAX_MODELS = 1024
"""The number of models of an endpoint whose limits are remembered."""

_OF_AN_AGENT: frozenset[FailureKind] = UNHEALTHY | (PERMANENT - CAUSES.keys())
"""The failures that count against an agent; these include requests that no endpoint accepts."""


class TimeSource(NamedTuple):
    """The source of time and randomness."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random


class BreakerState(NamedTuple):
    """The state of a circuit breaker: `since` is monotonic, `failures` are consecutive, `opened`
    counts the openings.
    """

    state: Literal["closed", "open", "half_open"]
    failures: int
    opened: int
    since: float
    last: str = ""
    """The text of the last failure."""


class EndpointState(NamedTuple):
    """The state of an endpoint."""

    name: str
    running: int
    cooling_seconds: float
    breaker: BreakerState
    agents: dict[str, BreakerState]


class Breaker:
    """Lets calls through until too many fail in a row.

    Then one at a time, after a pause that grows.
    """

    def __init__(
        self, now: float, kinds: frozenset[FailureKind], failures_to_open: int = FAILURES_TO_OPEN
    ) -> None:
        self._kinds, self._failures_to_open = kinds, failures_to_open
        self._failures = self._opened = self._in_a_row = 0
        self._since, self._open_until = now, 0.0
        self._trying = False
        self._cause: FailureKind | None = None
        self._said = ""

    def state(self, now: float) -> BreakerState:
        """Return the state of the breaker, with its last failure."""
        return BreakerState(
            self._state_name(now), self._failures, self._opened, self._since, self._said
        )

    def _state_name(self, now: float) -> Literal["closed", "open", "half_open"]:
        """Return the state: half open if a trial is due or under way."""
        if not self._in_a_row:
            return "closed"
        if self._trying or now >= self._open_until:
            return "half_open"
        return "open"

    def enter(self, now: float) -> float:
        """Return 0 if a call may proceed, else the seconds until one may."""
        if not self._in_a_row:
            return 0.0
        if now < self._open_until:
            return self._open_until - now
        if self._trying:
            return 1.0
        self._trying = True
        return 0.0

    def refusal(self, wait: float, whose: str) -> ModelFailed:
        """Return the failure of a refused call, with the reason of the last failed one."""
        text = (
            f"{self._said.rstrip('.')}; {whose} failed {self._failures} times in a row and is"
            f" paused for {wait:.0f} s"
        )
        return ModelFailed(
            "circuit_open",
            text,
            retry_after=wait,
            cause=self._cause,
            lasting=self._in_a_row >= OPENED_FOR_GOOD,
        )

    def leave(self, now: float, failure: FailureKind | None, said: str = "") -> None:
        """Record the end of a call that was let through.

        A failure that is not about the endpoint's health is ignored.
        """
        was_trying, self._trying = self._trying, False
        if failure is None:
            self._close(now)
        elif failure in self._kinds:
            self._count_failure(now, failure, said, was_trying=was_trying)

    def _close(self, now: float) -> None:
        """Forget all failures after a call that worked."""
        if self._in_a_row:
            self._since = now
        self._failures = self._in_a_row = 0
        self._said = ""

    def _count_failure(
        self, now: float, failure: FailureKind, said: str, *, was_trying: bool
    ) -> None:
        """Count a failure; open after a failed trial, or after too many failures."""
        self._failures += 1
        self._cause, self._said = failure, said
        is_too_many = not self._in_a_row and self._failures >= self._failures_to_open
        if was_trying or is_too_many:
            self._open(now)

    def _open(self, now: float) -> None:
        """Refuse calls for a time that grows with each opening."""
        self._open_until = now + min(FIRST_OPEN_SECONDS * 2**self._in_a_row, MAX_OPEN_SECONDS)
        self._in_a_row += 1
        self._opened += 1
        self._since = now

    @property
    def idle(self) -> bool:
        """True if it has nothing to remember."""
        return not any((self._failures, self._in_a_row, self._trying))


class Endpoint:
    """One address that models are asked at.

    Its name is shown; its address may have secrets. `memory` has what other processes have learned;
    without it, each learns alone.
    """

    def __init__(
        self,
        name: str,
        *,
        address: str = "",
        concurrent: int = CONCURRENT,
        ticks: TimeSource | None = None,
        memory: RememberedLimits | None = None,
    ) -> None:
        self.name = name
        self._ticks = ticks or TimeSource()
        self._slots = asyncio.Semaphore(concurrent)
        self._running = self._most_running = 0
        self._cool_until = 0.0
        self._breaker = Breaker(self._ticks.now(), UNHEALTHY)
        self._agents: dict[str, Breaker] = {}
        self._refused: dict[str, set[str]] = {}
        self._output_limits: dict[str, int] = {}
        self._address, self._memory = address or name, memory

    def recall(self, model: str, known: Collection[str]) -> None:
        """Read what other processes have learned about a model, once; other names than the known
        ones are ignored.
        """
        if self._memory is None or model in self._refused:
            return
        found = self._memory.read(self._address, model)
        self.refused(model).update(found.refused.intersection(known))
        if found.output_limit is not None:
            self.limit_output(model, found.output_limit)

    def share(self, model: str, found: Limits) -> None:
        """Write what an accepted request has confirmed for other processes."""
        if self._memory is not None:
            self._memory.add(self._address, model, found)

    def refused(self, model: str) -> set[str]:
        """Return the set of what a model here does not accept; callers add to it."""
        found = self._refused.get(model)
        if found is None:
            _make_room(self._refused, MAX_MODELS)
            found = self._refused[model] = set()
        return found

    def output_limit(self, model: str) -> int | None:
        """Return the maximum of output tokens that a model here has named; None if it has not."""
        return self._output_limits.get(model)

    def limit_output(self, model: str, most: int) -> None:
        """Remember the maximum of output tokens that a model here has named."""
        _make_room(self._output_limits, MAX_MODELS)
        self._output_limits[model] = most

    def state(self) -> EndpointState:
        """Return the current state."""
        now = self._ticks.now()
        agents = {agent: breaker.state(now) for agent, breaker in self._agents.items()}
        return EndpointState(
            self.name,
            self._running,
            max(0.0, self._cool_until - now),
            self._breaker.state(now),
            agents,
        )

    @property
    def most_running(self) -> int:
        """The highest number of concurrent calls since there was none."""
        return self._most_running

    async def call(
        self,
        attempt: Callable[[float], Awaitable[T]],
        *,
        agent: str = "",
        timeout_seconds: float = math.inf,
        pause: Pause | None = None,
    ) -> T:
        """Return the result of an attempt; retry while that can help.

        Each attempt gets the seconds that are left. `pause` comes before each retry.
        """
        deadline = self._ticks.now() + timeout_seconds
        tries = 0
        while True:
            try:
                return await self._once(attempt, agent, deadline, pause)
            except ModelFailed as failed:
                if tries >= MAX_RETRIES or not _may_retry(failed):
                    raise
                tries += 1
                await self._back_off(failed, tries, deadline, pause)

    async def _once(
        self,
        attempt: Callable[[float], Awaitable[T]],
        agent: str,
        deadline: float,
        pause: Pause | None,
    ) -> T:
        """Make one attempt when there is a slot and no pause."""
        crowded = self._slots.locked()
        await self._slot(deadline)
        try:
            if crowded:
                await self._wait(0.0, pause)
            if self._cool_until:
                await self._cool(deadline, pause)
            return await self._call_with_breakers(attempt, agent, deadline)
        finally:
            self._slots.release()

    async def _call_with_breakers(
        self, attempt: Callable[[float], Awaitable[T]], agent: str, deadline: float
    ) -> T:
        """Make a call that the breakers let through, and record its end."""
        mine = self._enter(agent)
        self._running += 1
        self._most_running = max(self._most_running, self._running)
        kind: FailureKind | None = "timed_out"  # a canceled call does not count
        said = ""
        try:
            answer = await attempt(deadline - self._ticks.now())
            kind = None
            return answer
        except ModelFailed as failed:
            kind, said = failed.kind, failed.text
            raise
        finally:
            self._running -= 1
            if not self._running:
                self._most_running = 0
            self._leave(mine, agent, kind, said)

    async def _slot(self, deadline: float) -> None:
        """Wait for a free slot, until the deadline."""
        if not self._slots.locked():
            await self._slots.acquire()
            return
        try:
            async with asyncio.timeout(deadline - self._ticks.now()):
                await self._slots.acquire()
        except TimeoutError as error:
            raise ModelFailed(
                "timed_out",
                f"{self.name} had no free slot for another call within the time allowed",
            ) from error

    def _enter(self, agent: str) -> Breaker | None:
        """Enter the breakers of the endpoint and of the agent; raise if one refuses."""
        now = self._ticks.now()
        if wait := self._breaker.enter(now):
            raise self._breaker.refusal(wait, "it")
        mine = self._agents.get(agent)
        if mine is not None and (wait := mine.enter(now)):
            self._breaker.leave(now, "timed_out")
            raise mine.refusal(wait, f"calls of {agent}")
        return mine

    def _leave(self, mine: Breaker | None, agent: str, kind: FailureKind | None, said: str) -> None:
        """Note the end of a call, also for its agent."""
        now = self._ticks.now()
        self._breaker.leave(now, kind, said)
        if mine is None and agent and kind in _OF_AN_AGENT:
            mine = self._add_agent(agent, now)
        if mine is None:
            return
        mine.leave(now, kind, said)
        if mine.idle:
            self._agents.pop(agent, None)

    def _add_agent(self, agent: str, now: float) -> Breaker:
        """Return the breaker of an agent, which is new."""
        _make_room(self._agents, MAX_AGENTS)
        return self._agents.setdefault(agent, Breaker(now, _OF_AN_AGENT))

    async def _back_off(
        self, failed: ModelFailed, tries: int, deadline: float, pause: Pause | None
    ) -> None:
        """Wait before the next try.

        Raise the failure itself if there is no time for a try, or if the circuit is open.
        """
        now = self._ticks.now()
        seconds = self._backoff_seconds(failed, tries)
        if failed.kind == "rate_limited":
            self._cool_until = max(self._cool_until, now + seconds)
        if now + seconds >= deadline or self._breaker.state(now).state == "open":
            raise failed
        retry = Retry(failed, seconds, tries + 1)
        if failed.kind == "rate_limited":
            seconds = 0.0  # all callers wait for the pause that the endpoint asked for
        await self._wait(seconds, pause, retry)

    def _backoff_seconds(self, failed: ModelFailed, tries: int) -> float:
        """Return how long to wait: as long as the endpoint asks for, or longer after each try."""
        if failed.retry_after is not None:
            return min(max(failed.retry_after, 0.0), MAX_RETRY_AFTER)
        longest: float = min(FIRST_BACKOFF * 2 ** (tries - 1), MAX_BACKOFF)
        return longest * (0.5 + self._ticks.chance() / 2)

    async def _cool(self, deadline: float, pause: Pause | None) -> None:
        """Wait out the pause that the endpoint asked for.

        Callers return at slightly different times.
        """
        while (left := self._cool_until - self._ticks.now()) > 0:
            if self._ticks.now() + left >= deadline:
                raise ModelFailed(
                    "rate_limited",
                    f"{self.name} asked for a pause that is longer than the time left",
                    retry_after=left,
                )
            await self._wait(left * (1 + self._ticks.chance() / 4), pause)
        self._cool_until = 0.0

    async def _wait(self, seconds: float, pause: Pause | None, retry: Retry | None = None) -> None:
        """Wait through `pause` if there is one; it may return early."""
        if pause is not None:
            await pause(self._ticks.sleep(seconds), retry)
        elif seconds:
            await self._ticks.sleep(seconds)


def _may_retry(failed: ModelFailed) -> bool:
    """Return True if the same call may succeed later, and no part of its answer was shown."""
    return not (failed.permanent or failed.started or failed.kind in ("circuit_open", "timed_out"))


def _make_room(entries: dict[str, Any], most: int) -> None:
    """Drop the oldest entry if there are too many for another one."""
    if len(entries) >= most:
        entries.pop(next(iter(entries)))
