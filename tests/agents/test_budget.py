"""A tree never uses more than its root allows."""

import math
import re
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from remit.adapters.models.registry import ModelRegistry
from remit.app.engine.recovery import Recovery
from remit.domain.llm.failures import FailureKind, ModelFailed, Price
from remit.domain.llm.messages import Request, Response, Tokens
from remit.domain.llm.selection import Choices, Table, choose
from remit.domain.task.task import State
from remit.store_queries.tree_queries import BUDGET
from tests.agents.endpoint import Body, RuledServer, answers, may_call, objective, wants
from tests.agents.stage import Gate, Stage, calls, reached, results, says, stage, texts
from tests.modelserver import ModelServer, Say

CAP = 60_000
CHILDREN = 40
PRICE = Price(1, 122)
"""What makes the longest answer cost half a dollar."""


def spender(request: Request) -> Response:
    """Every answer costs something."""
    return _spent(request)._replace(tokens=Tokens(1500, 500))


def _spent(request: Request) -> Response:
    """A lead that hands work out again and again, and workers that never come to an end."""
    if request.may_call and "Waste" in request.messages[0].text:
        return calls(("LS", {"path": "."}))
    if "Waste" in request.messages[0].text:
        return says("I must stop.")
    if len(request.messages) > 6:
        return says("Enough.")
    return calls(
        *(
            (
                "task",
                {"objective": f"Waste {len(request.messages)} {n}", "subagent_type": "general"},
            )
            for n in range(3)
        )
    )


async def test_a_tree_never_uses_more_than_its_root_allows(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, spender) as at:
        root = await at.team.create(
            owner="build", instructions="Lead.", limits={"max_tokens": CAP}, metadata={}
        )
        task = await at.team.ended(root)
        children = [await at.team.ended(child.id) for child in task.children]
        spent = sum(
            each.usage.input_tokens + each.usage.output_tokens for each in [task, *children]
        )
        ((tokens, _),) = await at.team.core.store.select(BUDGET, {"id": int(root)})
        assert tokens == spent
        assert spent <= CAP
        assert {each.state for each in children} == {State.FAILED}
        assert {each.reason for each in children} == {"budget"}
        assert spent > CAP // 2


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"max_cost": 0.0019}, "The limit of $0.0019 for the whole"),
        ({"max_tokens": 100}, "The limit of 100 tokens for the whole"),
    ],
)
async def test_a_limit_below_one_request_says_what_one_needs(
    any_url: str, tmp_path: Path, limits: dict[str, Any], told: str
) -> None:
    async with stage(any_url, tmp_path, [], price=PRICE) as at:
        task = await at.run(limits=limits)
        assert (task.state, task.reason, task.usage.requests) == (State.FAILED, "budget", 0)
        assert re.fullmatch(
            re.escape(told)
            + r" tree is smaller than one request needs: up to (\$0\.\d+|[\d,]+ tokens)\. Nothing"
            r" was used\.",
            task.failure_reason or "",
        )
        assert at.script.asked == []


async def test_a_call_is_debited_before_it_is_made_and_settled_after_it(
    any_url: str, tmp_path: Path
) -> None:
    """The ledger is at the root, whichever task of the tree calls a model.

    While a call is under way it has at least what the call can take.
    """
    gate = Gate()

    def rule(request: Request) -> Response | Awaitable[Response]:
        if request.agent == "explore":
            return gate.then(says("Looked.")._replace(tokens=Tokens(300, 100), cost=0.02))
        answer = (
            says("Done.")
            if results(request)
            else calls(("task", {"objective": "Look", "subagent_type": "explore"}))
        )
        return answer._replace(tokens=Tokens(200, 50), cost=0.01)

    async with stage(any_url, tmp_path, rule, price=PRICE) as at:
        root = await at.create(owner="build", limits={"max_tokens": CAP, "max_cost": 5.0})
        await reached(gate)
        ((reserved, dollars),) = await ledger(at, root)
        assert reserved >= 250 + 4096, "what the first call took, and the most that the second can"
        assert dollars == pytest.approx(0.01 + PRICE.of(reserved - 250 - 4096, 4096), abs=1e-5), (
            "the second one's price was asked before it was made"
        )
        assert await ledger(at, "2") == []
        gate.open.set()
        await at.team.ended(root)
        assert await ledger(at, root) == [(250 + 400 + 250, 0.04)]


async def ledger(at: Stage, task_id: str) -> list[tuple[int, float]]:
    """The ledger of a root."""
    return [
        (tokens, round(cost, 6))
        for tokens, cost in await at.team.core.store.select(BUDGET, {"id": int(task_id)})
    ]


async def test_forty_children_at_once_cannot_pay_with_the_same_money(
    any_url: str, tmp_path: Path
) -> None:
    """Half a dollar for each first call, one dollar for all: the price is set aside before, not
    learned after.
    """
    booked: list[float] = []

    async def rule(request: Request) -> Response:
        booked.extend(cost for _, cost in await ledger(at, root))
        if not request.may_call:
            return says("Nothing yet.")
        if request.agent == "build":
            return calls(
                *(
                    ("task", {"objective": f"Look {n}", "subagent_type": "explore"})
                    for n in range(CHILDREN)
                )
            )
        return says("Looked.")._replace(tokens=Tokens(1000, 4090), cost=0.5)

    async with stage(any_url, tmp_path, rule, workers=0, price=PRICE) as at:
        root = await at.create(owner="build", limits={"max_cost": 1.0})
        await at.hire(concurrency=CHILDREN)
        lead = await at.team.ended(root)
        children = [await at.team.ended(child.id) for child in lead.children]
        paid = [child for child in children if child.state is State.DONE]
        unpaid = [child for child in children if child.state is not State.DONE]
        assert (len(children), len(paid)) == (CHILDREN, 1)
        assert {(child.state, child.reason) for child in unpaid} == {(State.FAILED, "budget")}
        left = (
            r"The budget of the whole tree \(\$1\.00\) is nearly used up: it (has \$\S+ left|had"
            r" \$\S+ left before its last report), but"
        )
        reported = (
            rf"{left} another request and a last report need up to \$\S+\. Its report: Nothing"
            r" yet\."
        )
        short = rf"{left} a last report needs up to \$\S+\."
        reasons = [child.failure_reason or "" for child in unpaid]
        assert [
            reason for reason in reasons if not re.fullmatch(f"{reported}|{short}", reason)
        ] == []
        reports = {
            round(child.usage.cost, 6)
            for child in unpaid
            if re.fullmatch(reported, child.failure_reason or "")
        }
        assert reports == {round(PRICE.of(10, 5), 6)}, (
            "something was left for reports, and they are priced though the endpoint says nothing"
            " of it"
        )
        assert (lead.state, lead.reason) == (State.FAILED, "budget")
        ((_, cost),) = await ledger(at, root)
        assert cost == pytest.approx(
            math.fsum(task.usage.cost for task in (lead, *children)), abs=1e-5
        )
        assert max(*booked, cost) <= 1.0


@pytest.mark.parametrize(
    ("kind", "booked"), [("rate_limited", 0), ("rejected_request", 0), ("stalled", 4096)]
)
async def test_a_call_that_was_not_taken_costs_nothing(
    any_url: str, tmp_path: Path, kind: FailureKind, booked: int
) -> None:
    def rule(_: Request) -> Response:
        raise ModelFailed(kind, "Not now.")

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(limits={"max_tokens": CAP, "max_attempts": 1})
        ((tokens, _),) = await ledger(at, task.id)
        assert (task.state, tokens >= booked, bool(tokens)) == (State.FAILED, True, bool(booked))


TO_DO = (
    "Set price_input and price_output of its tier in the config ([models.main] or [models.light]),"
    " or limit max_tokens instead of max_cost."
)


async def test_without_a_price_a_limit_of_cost_ends_a_task_before_it_asks(
    any_url: str, tmp_path: Path
) -> None:
    """Without a price, its use would have no known cost, and the limit no effect."""
    async with (
        ModelServer("openai").running() as server,
        opened(server.url) as desk,
        stage(any_url, tmp_path, [], workers=0) as at,
    ):
        await at.hire(desk)
        task = await at.run(limits={"max_cost": 0.01})
        assert (task.state, task.reason, task.usage.requests) == (State.FAILED, "budget", 0)
        asked = f"main: m at {server.url}/v1"
        assert (
            task.failure_reason == "The model was not called: max_cost is $0.01, but the price of"
            f" {asked} is unknown. {TO_DO}"
        )
        assert server.asked == []
        assert await ledger(at, task.id) == []
        assert (await at.call("task_output", task_id=task.id))["error"]["code"] == "LIMIT_EXCEEDED"


@pytest.mark.parametrize("own", [True, False])
async def test_a_subtask_without_a_price_ends_before_it_asks_and_its_parent_hears_why(
    any_url: str, tmp_path: Path, own: bool
) -> None:
    """Be it limited for itself, or by its tree, in which others have a price."""

    def rule(request: Request) -> Response:
        if heard := results(request):
            return says(heard[0])
        limits = {"limits": {"max_cost": 0.5}} if own else {}
        return calls(
            ("task", {"objective": "Look", "subagent_type": "explore", "model": "light", **limits})
        )

    async with stage(any_url, tmp_path, rule, price=PRICE, unpriced="light") as at:
        task = await at.run(owner="build", limits={} if own else {"max_cost": 5.0})
        child = await at.team.task("2")
        assert (task.state, child.state, child.reason, child.usage.requests) == (
            State.DONE,
            State.FAILED,
            "budget",
            0,
        )
        assert TO_DO in str(child.failure_reason)
        assert TO_DO in str(task.final_message)


async def test_a_limit_set_on_a_running_task_ends_it_before_its_next_call(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, [calls(("ask_user", {"question": "Which?"}))]) as at:
        task_id = await at.create()
        asking = await at.waiting(task_id)
        await at.call("update_task", task_id=task_id, limits={"max_cost": 0.5})
        await at.call("respond", interaction_id=asking.questions[0].id, answer="This")
        task = await at.team.ended(task_id)
        assert (task.reason, task.usage.requests, len(at.script.asked)) == ("budget", 1, 1)


async def test_without_a_model_nothing_costs_anything(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [], workers=0) as at:
        await at.hire(ModelRegistry(Choices({}, {})))
        task = await at.run(limits={"max_cost": 0.0})
        assert (task.state, task.usage.cost) == (State.DONE, 0.0)


async def test_the_price_that_a_tier_sets_bounds_its_calls(any_url: str, tmp_path: Path) -> None:
    """Tokens are priced by the tier of the endpoint, before and after a call."""

    async def rule(body: Body) -> Say:
        if objective(body).startswith("Look"):
            return (
                Say(("Looked.",), usage=(1000, 4090, 0))
                if may_call(body)
                else Say(("Nothing yet.",), usage=(10, 5, 0))
            )
        given = [
            wants(f"c{n}", "task", objective=f"Look {n}", subagent_type="explore")
            for n in range(CHILDREN)
        ]
        return (
            Say((), tuple(given), usage=(100, 100, 0))
            if may_call(body) and not answers(body)
            else Say(("That is all.",), usage=(10, 5, 0))
        )

    async with (
        RuledServer(rule).running() as server,
        opened(server.url, price_input=1, price_output=122) as desk,
        stage(any_url, tmp_path, [], workers=0) as at,
    ):
        await at.hire(desk, concurrency=CHILDREN)
        lead = await at.run(owner="build", limits={"max_cost": 1.0})
        children = [await at.team.ended(child.id) for child in lead.children]
        assert sorted(str(child.reason) for child in children) == ["None"] + ["budget"] * (
            CHILDREN - 1
        )
        ((_, cost),) = await ledger(at, lead.id)
        assert cost == pytest.approx(
            math.fsum(task.usage.cost for task in (lead, *children)), abs=1e-5
        )
        assert 0.49 <= cost <= 1.0


@asynccontextmanager
async def opened(url: str, **tier: Any) -> AsyncIterator[ModelRegistry]:
    """The models of a config that says so much of its main one."""
    desk = ModelRegistry(
        choose(
            Table("", {}),
            Table("config.toml", {"main": {"model": "m", "base_url": f"{url}/v1", **tier}}),
            {},
        )
    )
    try:
        yield desk
    finally:
        await desk.close()


async def test_tools_are_input_like_any_other(any_url: str, tmp_path: Path) -> None:
    """An agent with many tools makes its model read thousands of tokens in every call, whatever
    its task says.
    """
    gate = Gate()
    async with stage(any_url, tmp_path, lambda _: gate.then(says("Done."))) as at:
        root = await at.create(owner="build", limits={"max_tokens": CAP})
        await reached(gate)
        ((reserved, _),) = await ledger(at, root)
        (asked,) = at.script.asked
        read = len(texts(asked)) + sum(
            len(tool.name) + len(tool.description) + len(str(tool.schema)) for tool in asked.tools
        )
        assert reserved == pytest.approx(read / 3 + 4096, abs=10)
        gate.open.set()
        await at.team.ended(root)


async def test_a_separate_task_cannot_spend_outside_the_budget(
    any_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Response:
        return (
            says("Done.")
            if len(request.messages) > 2
            else calls(("create_task", {"title": "ExtraWrites", "owner": "general"}))
        )

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(owner="build", limits={"max_tokens": CAP})
        refused = results(at.script.asked[1])[0]
        assert (task.state, "create_subtask" in refused) == (State.DONE, True)
        assert [each["title"] for each in (await at.call("list_history"))["tasks"]] == [task.title]


async def test_no_task_beside_one_with_a_limit_of_its_own(any_url: str, tmp_path: Path) -> None:
    beside = calls(("create_task", {"title": "ExtraWrites", "owner": "general"}))

    def rule(request: Request) -> Response:
        return says("Done.") if results(request) else beside

    async with stage(any_url, tmp_path, rule) as at:
        parent = await at.create(owner=None, title="Lead")
        part: dict[str, Any] = {"task_id": parent, "title": "Part", "owner": "build"}
        limits = {"limits": {"max_tokens": CAP}}
        child = (await at.call("create_subtask", **part, **limits))["task_id"]
        await at.team.ended(child)
        assert "create_subtask" in results(at.script.asked[-1])[0]
        active = (await at.call("list_tasks"))["tasks"]
        assert [task["id"] for task in active] == [parent]


async def test_a_tree_without_a_budget_has_no_ledger(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [says("Done.")]) as at:
        root = await at.team.create(instructions="Lead.", metadata={})
        await at.team.ended(root)
        assert await at.team.core.store.select(BUDGET, {"id": int(root)}) == []
        assert at.script.asked[0].settings.max_tokens is None


async def test_use_before_a_limit_was_set_counts(any_url: str, tmp_path: Path) -> None:
    async with stage(
        any_url, tmp_path, [calls(("ask_user", {"question": "Which?"})), says("Done.")]
    ) as at:
        task_id = await at.create()
        asking = await at.waiting(task_id)
        used = asking.usage.input_tokens + asking.usage.output_tokens
        assert used > 0
        await at.call("update_task", task_id=task_id, limits={"max_tokens": 100_000})
        await at.call("respond", interaction_id=asking.questions[0].id, answer="This")
        usage = (await at.team.ended(task_id)).usage
        assert usage.input_tokens + usage.output_tokens > used
        assert await at.team.core.store.select(BUDGET, {"id": int(task_id)}) == [
            (usage.input_tokens + usage.output_tokens, usage.cost)
        ]
        assert (
            await Recovery(at.team.core.store, at.team.core.service).examine()
        ).budgets_below_use == ()
