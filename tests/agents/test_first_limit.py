"""A tree that gets its first limit while models answer: every one of these answers counts."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from remit.adapters.tools.functions import repeatable
from remit.app.engine.recovery import Recovery
from remit.domain.llm.failures import Price
from remit.domain.llm.messages import Request, Response, Tokens
from remit.domain.task.task import State, Task
from remit.store_queries.tree_queries import BUDGET
from tests.agents.stage import Gate, Stage, calls, reached, results, says, stage

PRICE = Price(1, 1)
SHORT = Tokens(900, 100)
LONG = Tokens(30_000, 500)
LIMITS: list[dict[str, Any]] = [{"max_tokens": 60_000}, {"max_cost": 0.06}]


def look(tokens: Tokens = SHORT) -> Response:
    return calls(("LS", {"path": "."}))._replace(tokens=tokens)


def done(tokens: Tokens = SHORT) -> Response:
    return says("Done.")._replace(tokens=tokens)


async def parts(at: Stage, *titles: str) -> tuple[str, list[str]]:
    """A root without a worker, and its subtasks."""
    root = await at.create(owner=None)
    made = [
        await at.call(
            "create_subtask", task_id=root, title=title, instructions=title, owner="general"
        )
        for title in titles
    ]
    return root, [str(part["task_id"]) for part in made]


async def must_book(at: Stage, root: str, *tasks: Task) -> None:
    """Compare the ledger of a tree with what its tasks have used."""
    ((tokens, cost),) = await at.team.core.store.select(BUDGET, {"id": int(root)})
    assert tokens == sum(task.usage.input_tokens + task.usage.output_tokens for task in tasks)
    assert cost == pytest.approx(sum(task.usage.cost for task in tasks), abs=1e-9)
    assert (
        await Recovery(at.team.core.store, at.team.core.service).examine()
    ).budgets_below_use == ()


def about(request: Request) -> str:
    return request.messages[0].text


@pytest.mark.parametrize("limits", LIMITS)
async def test_an_answer_in_flight_counts_when_another_task_opens_the_ledger(
    any_url: str, tmp_path: Path, limits: dict[str, Any]
) -> None:
    slow, quick = Gate(), Gate()

    async def rule(request: Request) -> Response:
        if "Slow" in about(request):
            return await slow.then(done(LONG))
        return done() if results(request) else await quick.then(look())

    async with stage(any_url, tmp_path, rule, price=PRICE) as at:
        root, (first, second) = await parts(at, "Slow", "Quick")
        await reached(slow)
        await reached(quick)
        await at.call("update_task", task_id=root, limits=limits)
        quick.open.set()
        ended = await at.team.ended(second)
        slow.open.set()
        await must_book(at, root, await at.team.ended(first), ended)


@pytest.mark.parametrize("limits", LIMITS)
async def test_an_answer_in_flight_of_the_root_counts_too(
    any_url: str, tmp_path: Path, limits: dict[str, Any]
) -> None:
    root_gate, child_gate = Gate(), Gate()

    async def rule(request: Request) -> Response:
        if request.agent != "build":
            return done() if results(request) else await child_gate.then(look())
        if results(request):
            return await root_gate.then(done(LONG))
        return calls(
            (
                "create_subtask",
                {
                    "task_id": "1",
                    "title": "Part",
                    "instructions": "Look.",
                    "owner": "general",
                    "wait": "none",
                },
            )
        )

    async with stage(any_url, tmp_path, rule, price=PRICE) as at:
        root = await at.create(owner="build")
        await reached(root_gate)
        await reached(child_gate)
        await at.call("update_task", task_id=root, limits=limits)
        child_gate.open.set()
        child = await at.team.ended("2")
        root_gate.open.set()
        await must_book(at, root, await at.team.ended(root), child)


async def test_an_answer_whose_tools_still_run_counts(any_url: str, tmp_path: Path) -> None:
    """It is stored with the results of its tools, after the ledger was opened."""
    tool, quick = Gate(), Gate()

    @repeatable
    async def measure(text: str) -> str:
        """Measure it."""
        await tool.passed()
        return text

    async def rule(request: Request) -> Response:
        if "Quick" in about(request):
            return done() if results(request) else await quick.then(look())
        return (
            done() if results(request) else calls(("measure", {"text": "x"}))._replace(tokens=LONG)
        )

    async with stage(any_url, tmp_path, rule, functions=[measure]) as at:
        root = await at.create(owner=None)
        made = [
            await at.call(
                "create_subtask",
                task_id=root,
                title=title,
                instructions=title,
                owner="general",
                tools={"allow": ["measure", "LS"]},
            )
            for title in ("Slow", "Quick")
        ]
        first, second = (str(part["task_id"]) for part in made)
        await reached(tool)
        await reached(quick)
        await at.call("update_task", task_id=root, limits={"max_tokens": 90_000})
        quick.open.set()
        ended = await at.team.ended(second)
        tool.open.set()
        await must_book(at, root, await at.team.ended(first), ended)


async def test_an_answer_in_flight_leaves_nothing_for_the_next_request(
    any_url: str, tmp_path: Path
) -> None:
    slow, quick, later = Gate(), Gate(), Gate()

    async def rule(request: Request) -> Response:
        if "Slow" in about(request):
            return await slow.then(done(LONG))
        if not request.may_call:
            return done()
        asked = [each for each in at.script.asked if "Quick" in about(each)]
        return await (quick if len(asked) == 1 else later).then(look())

    async with stage(any_url, tmp_path, rule) as at:
        root, (first, second) = await parts(at, "Slow", "Quick")
        await reached(slow)
        await reached(quick)
        await at.call("update_task", task_id=root, limits={"max_tokens": 35_000})
        quick.open.set()
        await reached(later)
        slow.open.set()
        spent = await at.team.ended(first)
        later.open.set()
        ended = await at.team.ended(second)
        assert (ended.state, ended.reason, ended.usage.requests) == (State.FAILED, "budget", 2)
        await must_book(at, root, spent, ended)


async def test_a_run_without_a_limit_books_in_a_tree_that_had_one(
    any_url: str, tmp_path: Path
) -> None:
    """A limit that is removed and set again finds a ledger that knows everything."""
    async with stage(
        any_url, tmp_path, lambda request: done() if results(request) else look()
    ) as at:
        root, (first,) = await parts(at, "First")
        before = await at.team.ended(first)
        await at.call("update_task", task_id=root, limits={"max_tokens": 60_000})
        ended = [before]
        for limits in ({}, {"max_tokens": 60_000}):
            part = await at.call("create_subtask", task_id=root, title="Part", owner="general")
            ended.append(await at.team.ended(str(part["task_id"])))
            await at.call("update_task", task_id=root, limits=limits)
        part = await at.call("create_subtask", task_id=root, title="Part", owner="general")
        ended.append(await at.team.ended(str(part["task_id"])))
        await must_book(at, root, *ended)


async def test_many_answers_stored_while_the_ledger_is_opened_count_once(
    any_url: str, tmp_path: Path
) -> None:
    most = 12
    gates = [Gate() for _ in range(most)]

    async def rule(request: Request) -> Response:
        number = int(about(request).split()[-1])
        if results(request):
            return done()
        return await gates[number].then(look(Tokens(1000 + number, 10)))

    async with stage(any_url, tmp_path, rule, workers=0) as at:
        await at.hire(concurrency=most)
        await at.hire(concurrency=most)
        root, made = await parts(at, *(f"Part {number}" for number in range(most)))
        await asyncio.gather(*(reached(gate) for gate in gates))
        await at.call("update_task", task_id=root, limits={"max_tokens": 1_000_000})
        for gate in gates:
            gate.open.set()
        await must_book(at, root, *[await at.team.ended(part) for part in made])
