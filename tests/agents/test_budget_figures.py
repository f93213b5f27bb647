"""The report of a task that ends at a limit: the limit, the usage, the rest and the need, with
exact figures.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from remit.domain.llm.failures import Price
from remit.domain.llm.messages import Request, Response, Tokens
from remit.domain.task.task import State, Task
from remit.store_queries.tree_queries import BUDGET
from tests.agents.spending import ANSWER, left, looking, number
from tests.agents.stage import Stage, calls, results, says, stage

TREE = re.compile(
    r"The budget of the whole tree \(([\d,]+) tokens\) is nearly used up: it had ([\d,]+) tokens"
    r" left before its last report, "
    r"but another request and a last report need up to ([\d,]+) tokens\."
)
LIMIT = 25_000


async def ended(at: Stage, limit: int) -> Task:
    return await at.run(limits={"max_tokens": limit, "max_turns": 40})


async def test_a_tree_that_runs_short_says_exactly_what_is_left_and_needed(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, looking) as at:
        task = await ended(at, LIMIT)
        told = TREE.match(task.failure_reason or "")
        assert (task.state, task.reason, bool(told)) == (
            State.FAILED,
            "budget",
            True,
        ), task.failure_reason
        assert told is not None
        limit, left, needed = map(number, told.groups())
        used = sum(ANSWER[:2]) * (task.usage.requests - 1)
        assert (limit, left) == (LIMIT, LIMIT - used), "the report came after this was found"
        assert needed > left
        assert (task.failure_reason or "").endswith(" Its report: Half of it.")
        more = await ended(at, used + needed)
        assert more.usage.requests == task.usage.requests + 1, (
            "with what was needed there is one more request"
        )
        less = await ended(at, used + needed - 100)
        assert less.usage.requests == task.usage.requests


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (
            {"max_tokens": 1500},
            (
                "The limit of 1,500 tokens for this task is reached: it used 3,000 tokens. Its"
                " report: Half of it."
            ),
        ),
        (
            {"max_cost": 0.0025},
            (
                "The limit of $0.0025 for this task is reached: it used $0.004. Its report: Half"
                " of it."
            ),
        ),
        ({"max_turns": 3}, "The limit of 3 turns is reached. Its report: Half of it."),
    ],
)
async def test_a_subtask_at_its_own_limit_says_what_it_used(
    any_url: str, tmp_path: Path, limits: dict[str, Any], told: str
) -> None:
    def rule(request: Request) -> Response:
        if request.agent != "build":
            return looking(request)
        return (
            says("Done.")
            if results(request)
            else calls(("task", {"objective": "Look", "limits": limits}))
        )

    async with stage(any_url, tmp_path, rule, price=Price(1, 1)) as at:
        parent = await at.run(owner="build")
        child = await at.team.task(parent.children[0].id)
        assert (child.state, child.reason) == (
            State.FAILED,
            "turns" if "max_turns" in limits else "budget",
        )
        assert child.failure_reason == told
        used = child.usage.input_tokens + child.usage.output_tokens
        assert "max_tokens" not in limits or f"it used {used:,} tokens" in told


async def test_use_before_a_question_counts(any_url: str, tmp_path: Path) -> None:
    def rule(request: Request) -> Response:
        if request.agent == "build":
            return (
                says("Done.")
                if results(request)
                else calls(("task", {"objective": "Look", "limits": {"max_tokens": 1500}}))
            )
        if not results(request):
            return calls(("ask_user", {"question": "Which?"}))._replace(tokens=ANSWER)
        return looking(request)

    async with stage(any_url, tmp_path, rule) as at:
        parent = await at.create(owner="build")
        child = (
            await at.team.until("2", lambda task: bool(task.questions) and task.run is None)
            if await at.waiting(parent)
            else None
        )
        assert child is not None
        await at.call("respond", interaction_id=child.questions[0].id, answer="This one")
        done = await at.team.ended("2")
        assert done.counts.runs == 2
        assert (
            done.failure_reason
            == "The limit of 1,500 tokens for this task is reached: it used 3,000 tokens. Its"
            " report: Half of it."
        )
        await at.team.ended(parent)


async def test_a_limit_of_turns_is_the_reason_although_no_report_can_be_paid(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(
        any_url, tmp_path, lambda request: looking(request)._replace(tokens=Tokens(24_500, 100))
    ) as at:
        task = await at.run(limits={"max_tokens": LIMIT, "max_turns": 1})
        assert task.reason == "turns"
        assert re.fullmatch(
            r"The limit of 1 turn is reached\. It could not report: The budget of the whole tree"
            r" \(25,000 tokens\) is nearly used up: it has 400 tokens left, "
            r"but a last report needs up to [\d,]+ tokens\.",
            task.failure_reason or "",
        ), task.failure_reason


async def test_the_last_turn_of_a_tree_says_what_is_used(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, looking) as at:
        await ended(at, LIMIT)
        last = at.script.asked[-1].messages[-1].text
        used = sum(ANSWER[:2]) * (len(at.script.asked) - 1)
        assert last.startswith(
            f"[Last turn]\n{used:,} of 25,000 tokens are used, and the rest does not cover another"
            " turn with tools. This is your last turn: you cannot call tools, even if a message"
            " above asks you to. Report now"
        )
        assert f", {LIMIT - used:,} tokens\n" in last, "the task block shows the same figures"
        assert "reached its limit" not in last


async def test_the_last_turn_of_an_unused_budget_says_that_it_is_unused(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, looking) as at:
        await ended(at, 6_000)
        (only,) = at.script.asked
        told = only.messages[-1].text
        assert told.startswith(
            "[Last turn]\n0 of 6,000 tokens are used, and the rest does not cover a turn with"
            " tools. "
        )
        assert ", 6,000 tokens\n" in told


async def test_a_subtask_with_the_limit_of_its_tree_names_its_own_limit(
    any_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Response:
        if request.agent != "build":
            return looking(request)._replace(tokens=Tokens(30_000, 0))
        return (
            says("Done.")
            if results(request)
            else calls(("task", {"objective": "Look", "limits": {"max_tokens": 30_000}}))
        )

    async with stage(any_url, tmp_path, rule) as at:
        parent = await at.create(owner="build", limits={"max_tokens": 30_000})
        child = await at.team.ended("2") if await at.waiting(parent) else None
        assert child is not None
        assert (child.failure_reason or "").startswith(
            "The limit of 30,000 tokens for this task is reached: it used 30,000 tokens. It could"
            " not report: "
        )
        await at.team.ended(parent)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"max_tokens": 60_000}, {"max_tokens": LIMIT}),
        ({"max_tokens": LIMIT}, {"max_tokens": 60_000}),
        ({}, {"max_tokens": LIMIT}),
        ({"max_tokens": LIMIT}, {}),
    ],
)
async def test_a_root_obeys_limits_that_change_during_its_run(
    any_url: str, tmp_path: Path, before: dict[str, Any], after: dict[str, Any]
) -> None:
    async def changing(request: Request) -> Response:
        if len(at.script.asked) == 2:
            await at.call("update_task", task_id="1", limits={**after, "max_turns": 80})
        if len(at.script.asked) == 40:
            return says("Enough.")
        return looking(request)

    async with stage(any_url, tmp_path, changing) as at:
        task = await at.run(limits={**before, "max_turns": 80})
        used = sum(ANSWER[:2])
        shown = [left(request) for request in at.script.asked]
        most_before, most = before.get("max_tokens"), after.get("max_tokens")
        assert shown[:2] == [most_before and most_before - n * used for n in (0, 1)]
        assert shown[2:] == [most and most - n * used for n in range(2, len(shown))]
        if most is None:
            assert (task.state, task.usage.requests) == (State.DONE, 40)
            return
        if most == LIMIT:
            told = TREE.match(task.failure_reason or "")
            assert told is not None, task.failure_reason
            assert number(told[1]) == most
            assert (
                at.script.asked[-1]
                .messages[-1]
                .text.startswith(
                    f"[Last turn]\n{used * (len(shown) - 1):,} of {most:,} tokens are used,"
                )
            )
        else:
            assert len(shown) > LIMIT // used, "the raised limit covers more requests"
        ((booked, _),) = await at.team.core.store.select(BUDGET, {"id": 1})
        assert booked == task.usage.input_tokens + task.usage.output_tokens


async def test_a_root_obeys_a_cost_limit_that_changes_during_its_run(
    any_url: str, tmp_path: Path
) -> None:
    async def changing(request: Request) -> Response:
        if len(at.script.asked) == 2:
            await at.call("update_task", task_id="1", limits={"max_cost": 0.025, "max_turns": 80})
        return looking(request)

    async with stage(any_url, tmp_path, changing, price=Price(1, 1)) as at:
        task = await at.run(limits={"max_cost": 0.06, "max_turns": 80})
        assert (task.failure_reason or "").startswith(
            "The budget of the whole tree ($0.025) is nearly used up: it had "
        )
        assert "$0.023" in at.script.asked[2].messages[-1].text


@pytest.mark.parametrize("before", [{"max_tokens": 60_000}, {}])
async def test_a_child_obeys_limits_of_its_root_that_change_during_its_run(
    any_url: str, tmp_path: Path, before: dict[str, Any]
) -> None:
    async def rule(request: Request) -> Response:
        if request.agent == "build":
            return (
                says("Done.")
                if results(request)
                else calls(("task", {"objective": "Look", "limits": {"max_turns": 80}}))
            )
        asked = [each for each in at.script.asked if each.agent != "build"]
        if len(asked) == 2:
            await at.call("update_task", task_id="1", limits={"max_tokens": LIMIT})
        return says("Enough.") if len(asked) == 40 else looking(request)

    async with stage(any_url, tmp_path, rule) as at:
        parent = await at.run(owner="build", limits=before)
        child = await at.team.task("2")
        assert (child.failure_reason or "").startswith(
            "The budget of the whole tree (25,000 tokens) is nearly used up: it had "
        ), child.failure_reason
        shown = [left(request) for request in at.script.asked if request.agent != "build"]
        lead = sum(calls().tokens[:2])
        assert shown[2:] == [LIMIT - lead - n * sum(ANSWER[:2]) for n in range(2, len(shown))]
        ((booked, _),) = await at.team.core.store.select(BUDGET, {"id": 1})
        assert booked == sum(
            task.usage.input_tokens + task.usage.output_tokens for task in (parent, child)
        )
