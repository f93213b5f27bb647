"""What all callers of one endpoint share: how many call at once, the pause it asked for, and whether it is well."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple, TypeVar

from remit.domain.message import Pause
from remit.domain.model import CAUSES, PERMANENT, UNHEALTHY, FailureKind, ModelFailed

T = TypeVar("T")

CONCURRENT = 1024
MAX_RETRIES = 5
MAX_RETRY_AFTER = 120.0
FIRST_BACKOFF, MAX_BACKOFF = 0.5, 30.0
FAILURES_TO_OPEN = 10
FIRST_OPEN_SECONDS, MAX_OPEN_SECONDS = 30.0, 300.0
OPENED_FOR_GOOD = 3
"""How often in a row a circuit opens before nobody is asked to wait for it: by then two trials have failed, a minute apart."""
MAX_AGENTS = 1024
MAX_MODELS = 1024
"""Of how many models an endpoint remembers what they do not take."""

_OF_AN_AGENT: frozenset[FailureKind] = UNHEALTHY | (PERMANENT - CAUSES.keys())
"""What counts against an agent: also requests that no endpoint would take."""


class Ticks(NamedTuple):
    """Where time and chance come from."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random


class BreakerState(NamedTuple):
    """Whether calls are let through: `since` is monotonic, `failures` are those in a row, `opened` is how often it opened."""

    state: Literal["closed", "open", "half_open"]
    failures: int
    opened: int
    since: float
    last: str = ""
    """What was wrong last, in words."""


class EndpointState(NamedTuple):
    """How an endpoint is doing."""

    name: str
    running: int
    cooling_seconds: float
    breaker: BreakerState
    agents: dict[str, BreakerState]


class Breaker:
    """Lets calls through until too many fail in a row; then one at a time, after a pause that grows."""

    def __init__(self, now: float, kinds: frozenset[FailureKind], failures_to_open: int = FAILURES_TO_OPEN) -> None:
        self._kinds, self._failures_to_open = kinds, failures_to_open
        self._failures = self._opened = self._in_a_row = 0
        self._since, self._open_until = now, 0.0
        self._trying = False
        self._cause: FailureKind | None = None
        self._said = ""

    def state(self, now: float) -> BreakerState:
        """Where it stands."""
        if not self._in_a_row:
            return BreakerState("closed", self._failures, self._opened, self._since, self._said)
        half = self._trying or now >= self._open_until
        return BreakerState("half_open" if half else "open", self._failures, self._opened, self._since, self._said)

    def enter(self, now: float) -> float:
        """Zero if a call may go ahead, else the seconds until one may."""
        if not self._in_a_row:
            return 0.0
        if now < self._open_until:
            return self._open_until - now
        if self._trying:
            return 1.0
        self._trying = True
        return 0.0

    def turned_away(self, wait: float, whose: str) -> ModelFailed:
        """What somebody is told who is not let through: what was wrong with the last who was."""
        text = f"{self._said.rstrip('.')}; {whose} failed {self._failures} times in a row and will not be asked for {wait:.0f} s"
        return ModelFailed("circuit_open", text, retry_after=wait, cause=self._cause, lasting=self._in_a_row >= OPENED_FOR_GOOD)

    def leave(self, now: float, failure: FailureKind | None, said: str = "") -> None:
        """A call that was let through has ended; a failure that says nothing about health leaves things as they are."""
        trying, self._trying = self._trying, False
        if failure is None:
            if self._in_a_row:
                self._since = now
            self._failures = self._in_a_row = 0
            self._said = ""
        elif failure in self._kinds:
            self._failures += 1
            self._cause, self._said = failure, said
            if trying or (not self._in_a_row and self._failures >= self._failures_to_open):
                self._open(now)

    def _open(self, now: float) -> None:
        self._open_until = now + min(FIRST_OPEN_SECONDS * 2**self._in_a_row, MAX_OPEN_SECONDS)
        self._in_a_row += 1
        self._opened += 1
        self._since = now

    @property
    def idle(self) -> bool:
        """True if it has nothing to remember."""
        return not (self._failures or self._in_a_row or self._trying)


class Endpoint:
    """One address that models are asked at."""

    def __init__(self, name: str, *, concurrent: int = CONCURRENT, ticks: Ticks | None = None) -> None:
        self.name = name
        self._ticks = ticks or Ticks()
        self._slots = asyncio.Semaphore(concurrent)
        self._running = self._most_running = 0
        self._cool_until = 0.0
        self._breaker = Breaker(self._ticks.now(), UNHEALTHY)
        self._agents: dict[str, Breaker] = {}
        self._refused: dict[str, set[str]] = {}
        self._output_limits: dict[str, int] = {}

    def refused(self, model: str) -> set[str]:
        """What was found that a model here does not take; who finds out more adds it."""
        if model not in self._refused and len(self._refused) >= MAX_MODELS:
            self._refused.pop(next(iter(self._refused)))
        return self._refused.setdefault(model, set())

    def output_limit(self, model: str) -> int | None:
        """The most output tokens that a model here takes; None if it has not named a maximum."""
        return self._output_limits.get(model)

    def limit_output(self, model: str, most: int) -> None:
        """Remember the maximum of output tokens that a model here has named."""
        if len(self._output_limits) >= MAX_MODELS:
            self._output_limits.pop(next(iter(self._output_limits)))
        self._output_limits[model] = most

    def state(self) -> EndpointState:
        """How it is doing now."""
        now = self._ticks.now()
        agents = {agent: breaker.state(now) for agent, breaker in self._agents.items()}
        return EndpointState(self.name, self._running, max(0.0, self._cool_until - now), self._breaker.state(now), agents)

    @property
    def most_running(self) -> int:
        """How many calls were under way at once since there was none."""
        return self._most_running

    async def call(
        self,
        attempt: Callable[[float | None], Awaitable[T]],
        *,
        agent: str = "",
        timeout_seconds: float | None = None,
        pause: Pause | None = None,
    ) -> T:
        """What an attempt gives, tried again while that can help; each is told how many seconds are left. `pause` comes before all but the first."""
        deadline = None if timeout_seconds is None else self._ticks.now() + timeout_seconds
        tries = 0
        while True:
            try:
                return await self._once(attempt, agent, deadline, pause)
            except ModelFailed as failed:
                if failed.permanent or failed.started or failed.kind in ("circuit_open", "timed_out") or tries >= MAX_RETRIES:
                    raise
                tries += 1
                await self._back_off(failed, tries, deadline, pause)

    async def _once(self, attempt: Callable[[float | None], Awaitable[T]], agent: str, deadline: float | None, pause: Pause | None) -> T:
        crowded = self._slots.locked()
        await self._slot(deadline)
        try:
            if crowded:
                await self._wait(0.0, pause)
            if self._cool_until:
                await self._cool(deadline, pause)
            return await self._guarded(attempt, agent, deadline)
        finally:
            self._slots.release()

    async def _guarded(self, attempt: Callable[[float | None], Awaitable[T]], agent: str, deadline: float | None) -> T:
        mine = self._enter(agent)
        self._running += 1
        self._most_running = max(self._most_running, self._running)
        kind: FailureKind | None = "timed_out"  # so a call that is canceled counts for nothing
        said = ""
        try:
            answer = await attempt(None if deadline is None else deadline - self._ticks.now())
            kind = None
            return answer
        except ModelFailed as failed:
            kind, said = failed.kind, failed.text
            raise
        finally:
            self._running -= 1
            self._most_running = self._most_running if self._running else 0
            self._leave(mine, agent, kind, said)

    async def _slot(self, deadline: float | None) -> None:
        if deadline is None or not self._slots.locked():
            await self._slots.acquire()
            return
        try:
            async with asyncio.timeout(deadline - self._ticks.now()):
                await self._slots.acquire()
        except TimeoutError as error:
            raise ModelFailed("timed_out", f"{self.name} had no room for another call within the time allowed") from error

    def _enter(self, agent: str) -> Breaker | None:
        now = self._ticks.now()
        if wait := self._breaker.enter(now):
            raise self._breaker.turned_away(wait, "it")
        mine = self._agents.get(agent)
        if mine is not None and (wait := mine.enter(now)):
            self._breaker.leave(now, "timed_out")
            raise mine.turned_away(wait, f"calls of {agent}")
        return mine

    def _leave(self, mine: Breaker | None, agent: str, kind: FailureKind | None, said: str) -> None:
        now = self._ticks.now()
        self._breaker.leave(now, kind, said)
        if mine is None and agent and kind in _OF_AN_AGENT:
            if len(self._agents) >= MAX_AGENTS:
                self._agents.pop(next(iter(self._agents)))
            mine = self._agents.setdefault(agent, Breaker(now, _OF_AN_AGENT))
        if mine is not None:
            mine.leave(now, kind, said)
            if mine.idle:
                self._agents.pop(agent, None)

    async def _back_off(self, failed: ModelFailed, tries: int, deadline: float | None, pause: Pause | None) -> None:
        """Wait before the next try; the failure itself if there is no time for one, or no sense in one."""
        now = self._ticks.now()
        backoff = min(FIRST_BACKOFF * 2 ** (tries - 1), MAX_BACKOFF) * (0.5 + self._ticks.chance() / 2)
        seconds = backoff if failed.retry_after is None else min(max(failed.retry_after, 0.0), MAX_RETRY_AFTER)
        if failed.kind == "rate_limited":
            self._cool_until = max(self._cool_until, now + seconds)
        if (deadline is not None and now + seconds >= deadline) or self._breaker.state(now).state == "open":
            raise failed
        await self._wait(0.0 if failed.kind == "rate_limited" else seconds, pause)  # the endpoint's own pause is waited for by all

    async def _cool(self, deadline: float | None, pause: Pause | None) -> None:
        """Wait out the pause that the endpoint asked for; everybody comes back at a slightly different time."""
        while (left := self._cool_until - self._ticks.now()) > 0:
            if deadline is not None and self._ticks.now() + left >= deadline:
                raise ModelFailed("rate_limited", f"{self.name} asked for a pause that is longer than the time left", retry_after=left)
            await self._wait(left * (1 + self._ticks.chance() / 4), pause)
        self._cool_until = 0.0

    async def _wait(self, seconds: float, pause: Pause | None) -> None:
        if pause is not None:
            await pause(self._ticks.sleep(seconds))
        elif seconds:
            await self._ticks.sleep(seconds)
