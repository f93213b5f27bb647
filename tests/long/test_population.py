"""The whole population: every model as a parent of every model, and restarts in the middle of the
work.

`tests/agents/test_population.py` runs the population alone, each persona in each flow.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from remit import Remit
from remit.testing import PERSONAS, Answer, Asked, Call, Persona, Rule
from tests.agents import population as people
from tests.agents.population import ORDERS, SECONDS, Stage, end_of, is_honest, is_right, population

DELEGATIONS: dict[str, Callable[[], Call]] = {"blocked": people.delegation, "woken": people.subtask}
PARENTS: dict[str, Rule] = {"blocked": people.reports_result, "woken": people.reports_subtask}
WORK = [*ORDERS, *PARENTS]


def delegates_first(rule: Rule, call: Callable[[], Call]) -> Rule:
    """A model that begins with a delegation and then works as the persona does."""

    def answer(asked: Asked) -> Answer:
        if asked.turn == 0:
            return [call()]
        said = rule(asked._replace(turn=asked.turn - 1))
        assert isinstance(said, str | list)
        return said

    return answer


def ends_well(task: people.Outcome, persona: Persona) -> bool:
    return is_right(task) or (not persona.is_reliable and is_honest(task))


def named(persona: Persona) -> str:
    return persona.name


@pytest.mark.parametrize("delegation", DELEGATIONS)
@pytest.mark.parametrize("child", PERSONAS, ids=named)
@pytest.mark.parametrize("parent", PERSONAS, ids=named)
async def test_every_model_delegates_to_every_model(
    durable_url: str, tmp_path: Path, parent: Persona, child: Persona, delegation: str
) -> None:
    stage = Stage(child.rule())
    stage.parent = delegates_first(parent.rule(), DELEGATIONS[delegation])
    async with (
        population(stage.rule, tmp_path),
        Remit.open(tmp_path, database_url=durable_url) as remit,
    ):
        made = await remit.task(
            objective="Say RED.", subagent_type="build", timeout_seconds=SECONDS
        )
        outer = await people.ended(remit, made.task_id)
        inner = await people.ended(remit, "2")
    assert ends_well(outer, parent), end_of(outer)
    assert ends_well(inner, child) or inner["state"] == "canceled", end_of(inner)


@pytest.mark.parametrize("requests", [1, 2])
@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("persona", PERSONAS, ids=named)
async def test_every_model_ends_well_after_a_restart(
    durable_url: str, tmp_path: Path, persona: Persona, work: str, requests: int
) -> None:
    stage = Stage(persona.rule())
    stage.parent = PARENTS.get(work)
    hold = Hold(stage.rule, requests)
    async with population(hold.rule, tmp_path):
        async with Remit.open(tmp_path, database_url=durable_url) as remit:
            order = ORDERS.get(work, {"objective": "Have it said.", "subagent_type": "build"})
            made = await remit.task(**order, timeout_seconds=SECONDS, wait=False)
            task_id = made.task_id
            await _first(hold.reached.wait(), people.ended(remit, task_id))
        hold.released.set()
        async with Remit.open(tmp_path, database_url=durable_url) as remit:
            task = await people.ended(remit, task_id)
    assert ends_well(task, persona), end_of(task)


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait until one of these is over."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Hold:
    """Leaves one request unanswered until the process that sent it is gone."""

    def __init__(self, rule: Callable[[Asked], Awaitable[Answer]], requests: int) -> None:
        self._rule, self._requests, self._count = rule, requests, 0
        self.reached, self.released = asyncio.Event(), asyncio.Event()

    async def rule(self, asked: Asked) -> Answer:
        """Answer by the rule, except for the request that is held."""
        self._count += 1
        if self._count == self._requests:
            self.reached.set()
            await self.released.wait()
        return await self._rule(asked)
