"""The limits of a run: turns, time, and what a subtask may use by itself."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from math import inf
from typing import Any, Literal, NamedTuple

from remit.app.agent_loop.budget import RunBudget, rest_of
from remit.app.agent_loop.current_run import CurrentRun
from remit.app.agent_loop.run_writer import RunWriter
from remit.domain.projection.follow_up_jobs import time_left
from remit.domain.prompts import agent_prompts
from remit.domain.prompts.environment import Allowance
from remit.domain.task.policy import MAX_TURNS
from remit.domain.task.task import Task
from remit.domain.text.counting import counted, dollars


class LimitReached(NamedTuple):
    """A limit that ends a task."""

    reason: Literal["turns", "budget"]
    scope: Literal["own", "tree"]
    message: str
    """What the agent is told."""
    error: str
    """What the task records as its error."""


class RunLimits:
    """What a run has left. The budget of the whole tree is checked by `RunBudget`."""

    def __init__(self, run: CurrentRun, budget: RunBudget, writer: RunWriter) -> None:
        self._run, self._budget, self._writer = run, budget, writer

    def seconds(self, task: Task) -> float | None:
        """Return how many seconds a task may take; None without a limit."""
        return task.limits.timeout_seconds or self._run.agent.timeout_seconds

    def time_left(self) -> float:
        """Return how many seconds the task has left; infinite without a limit."""
        task = self._run.task
        limit = self.seconds(task)
        return inf if limit is None else self.time_left_of(task, limit)

    def time_left_of(self, task: Task, limit: float) -> float:
        """Return how many seconds of a time limit a task has left."""
        return time_left(task, limit, self._run.services.clock.now())

    @property
    def _max_turns(self) -> int:
        return self._run.task.limits.max_turns or self._run.agent.max_turns or MAX_TURNS

    async def allowance(self) -> Allowance:
        """Return what the task has left: its turns, and what else is limited."""
        task = self._run.task
        tokens, cost = await self._budget.remaining()
        if task.parent_id is not None:
            used_tokens, used_cost = self._used()
            tokens = _lower_limit(tokens, task.limits.max_tokens, used_tokens)
            cost = _lower_limit(cost, task.limits.max_cost, used_cost)
        return Allowance(
            turns=max(0, self._max_turns - self._run.conversation.turns),
            seconds=None if self.seconds(task) is None else self.time_left(),
            tokens=tokens,
            cost=cost,
        )

    def reached(self) -> LimitReached | None:
        """Return the limit that leaves no turn with tools; None if there is one left."""
        most = self._max_turns
        if self._run.conversation.turns < most:
            return self.exceeded_budget()
        limit = counted(most, "turn")
        message = agent_prompts.LIMIT_REACHED.format(limit=limit)
        return LimitReached("turns", "own", message, f"The limit of {limit} is reached.")

    def exceeded_budget(self) -> LimitReached | None:
        """Return the limit that a subtask has reached by itself; None if it has not."""
        task = self._run.task
        if task.parent_id is None:
            return None
        limits = task.limits
        tokens, cost = self._used()
        if limits.max_tokens is not None and tokens >= limits.max_tokens:
            return _own_budget(counted(limits.max_tokens, "token"), counted(tokens, "token"))
        if limits.max_cost is not None and cost >= limits.max_cost:
            return _own_budget(dollars(limits.max_cost), dollars(cost))
        return None

    async def tree_budget(self) -> LimitReached:
        """Return the limit of the whole tree that did not cover the last refused request."""
        notice = await self._budget.last_report_notice()
        error = await self._budget.shortage(is_reported=True)
        return LimitReached("budget", "tree", notice, error)

    def _used(self) -> tuple[int, float]:
        """Return the tokens and the cost that the task itself has used."""
        used = self._run.task.usage.plus(self._writer.usage)
        return used.input_tokens + used.output_tokens, used.cost


class Deadline:
    """The time limit of a task as the timeout of its run."""

    def __init__(self, run: CurrentRun, limits: RunLimits) -> None:
        self._run, self._limits = run, limits
        self._timeout: asyncio.Timeout | None = None

    @contextmanager
    def opened(self) -> Generator[asyncio.Timeout]:
        """Open a timeout that `move` sets."""
        self._timeout = asyncio.timeout(None)
        try:
            yield self._timeout
        finally:
            self._timeout = None

    def move(self, task: Task) -> None:
        """Move the timeout to the current time limit of the task."""
        timeout = self._timeout
        if timeout is None or timeout.expired() or task.version < self._run.handle.told_version:
            return
        limit = self._limits.seconds(task)
        if limit is None:
            timeout.reschedule(None)
            return
        now = asyncio.get_running_loop().time()
        timeout.reschedule(now + self._limits.time_left_of(task, limit))


def _lower_limit(left: float | None, limit: float | None, used: float) -> Any:
    """Return what is left of the lower of two limits; None if neither is set."""
    set_limits = [most for most in (left, rest_of(limit, used)) if most is not None]
    return min(set_limits, default=None)


def _own_budget(limit: str, used: str) -> LimitReached:
    """Return the limit of a task itself, with what it used."""
    message = agent_prompts.LIMIT_REACHED.format(limit=limit)
    error = f"The limit of {limit} for this task is reached: it used {used}."
    return LimitReached("budget", "own", message, error)
