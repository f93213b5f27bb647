"""A tree never uses more than its root allows."""

from collections.abc import Awaitable
from pathlib import Path

from remit.app.recovery import Recovery
from remit.domain.message import Request, Response, Tokens
from remit.domain.value import State
from tests.agents.stage import Gate, calls, results, says, stage
from tests.agents.test_interruption import reached

CAP = 60_000


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
    return calls(*(("task", {"objective": f"Waste {len(request.messages)} {n}", "subagent_type": "general"}) for n in range(3)))


async def test_a_tree_never_uses_more_than_its_root_allows(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, spender) as at:
        root = await at.team.create(owner="build", instructions="Lead.", limits={"max_tokens": CAP}, metadata={})
        task = await at.team.ended(root)
        children = [await at.team.ended(child.id) for child in task.children]
        spent = sum(each.usage.input_tokens + each.usage.output_tokens for each in [task, *children])
        ((tokens, _),) = await at.team.core.store.select("budget", {"id": int(root)})
        assert tokens == spent
        assert spent <= CAP
        assert {each.state for each in children} == {State.FAILED}
        assert {each.reason for each in children} == {"budget"}
        assert spent > CAP // 2


async def test_a_call_is_debited_before_it_is_made_and_settled_after_it(any_url: str, tmp_path: Path) -> None:
    """The ledger is at the root, whoever of its tree asks; while a call is under way it has at least what the call can take."""
    gate = Gate()

    def rule(request: Request) -> Response | Awaitable[Response]:
        if request.agent == "explore":
            return gate.then(says("Looked.")._replace(tokens=Tokens(300, 100), cost=0.02))
        answer = says("Done.") if results(request) else calls(("task", {"objective": "Look", "subagent_type": "explore"}))
        return answer._replace(tokens=Tokens(200, 50), cost=0.01)

    async with stage(any_url, tmp_path, rule) as at:

        async def ledger(task_id: str) -> list[tuple[int, float]]:
            return [(tokens, round(cost, 6)) for tokens, cost in await at.team.core.store.select("budget", {"id": int(task_id)})]

        root = await at.create(owner="build", limits={"max_tokens": CAP, "max_cost": 5.0})
        await reached(gate)
        ((reserved, _),) = await ledger(root)
        assert reserved >= 250 + 4096, "what the first call took, and the most that the second can"
        assert await ledger("2") == []
        gate.open.set()
        await at.team.ended(root)
        assert await ledger(root) == [(250 + 400 + 250, 0.04)]


async def test_nobody_spends_outside_the_budget_by_making_a_task_beside_it(any_url: str, tmp_path: Path) -> None:
    def rule(request: Request) -> Response:
        return says("Done.") if len(request.messages) > 2 else calls(("create_task", {"title": "Beside", "owner": "general"}))

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(owner="build", limits={"max_tokens": CAP})
        refused = results(at.script.asked[1])[0]
        assert (task.state, "create_subtask" in refused) == (State.DONE, True)
        assert [each["title"] for each in (await at.call("list_history"))["tasks"]] == [task.title]


async def test_a_tree_without_a_budget_has_no_ledger(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [says("Done.")]) as at:
        root = await at.team.create(instructions="Lead.", metadata={})
        await at.team.ended(root)
        assert await at.team.core.store.select("budget", {"id": int(root)}) == []
        assert at.script.asked[0].settings.max_tokens is None


async def test_what_was_used_before_a_limit_was_set_counts(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [calls(("ask_user", {"question": "Which?"})), says("Done.")]) as at:
        task_id = await at.create()
        asking = await at.waiting(task_id)
        used = asking.usage.input_tokens + asking.usage.output_tokens
        assert used > 0
        await at.call("update_task", task_id=task_id, limits={"max_tokens": 100_000})
        await at.call("respond", interaction_id=asking.questions[0].id, answer="This")
        usage = (await at.team.ended(task_id)).usage
        assert usage.input_tokens + usage.output_tokens > used
        assert await at.team.core.store.select("budget", {"id": int(task_id)}) == [(usage.input_tokens + usage.output_tokens, usage.cost)]
        assert (await Recovery(at.team.core.store, at.team.core.service).examine()).budgets_below_use == ()
