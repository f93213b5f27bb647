"""Criteria that code decides, from the claim to the end of the task."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from remit.app.maintenance.verify import verify
from remit.domain.llm.messages import Request, Response
from remit.domain.task.task import State
from remit.ports import Claim
from tests.agents.stage import calls, results, says, stage
from tests.crash.process import environment
from tests.patience import patient

REPORT = {"text": "The report says so", "check": {"file": "report.md", "contains": "green"}}
ANSWER = {"text": "The answer is right", "check": {"output": "answer", "equals": 42}}


def writes(text: str) -> Response:
    """A call that writes the report."""
    return calls(("Write", {"file_path": "report.md", "content": text}))


async def test_a_passing_file_check_verifies_the_task(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [writes("all green"), says("Written.")]) as at:
        task = await at.run(acceptance=[REPORT], tools=["Write"])
        (criterion,) = task.acceptance
        assert (task.state, task.verification) == (State.DONE, "verified")
        assert (criterion.status, criterion.evidence, criterion.by) == (
            "pass",
            'report.md: contains "green"',
            "system:engine",
        )
        assert (await at.team.events(task.id))[-3:] == [
            "CompletionClaimed",
            "CriterionChecked",
            "TaskCompleted",
        ]
        await at.team.idle()
        assert (await verify(at.team.core.store)).faults == ()


async def test_a_text_in_an_output_of_json_verifies_the_task(any_url: str, tmp_path: Path) -> None:
    rows = {"name": "rows", "kind": "json"}
    named = {"text": "It names the port", "check": {"output": "rows", "contains": "port 8420"}}
    script = [
        calls(
            (
                "complete_task",
                {"outputs": {"rows": [{"note": "It is port 8420."}]}, "summary": "Found."},
            )
        )
    ]
    async with stage(any_url, tmp_path, script) as at:
        task = await at.run(acceptance=[named], outputs=[rows])
        assert (task.state, task.verification) == (State.DONE, "verified")


async def test_missing_results_are_reported_with_evidence_and_checked_again(
    any_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Response:
        if results(request):
            return says("Written.")
        return writes(
            "all green" if "[Not accepted yet]\n" in request.messages[-2].text else "all red"
        )

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(acceptance=[REPORT, "It reads well"], tools=["Write"])
        told = at.script.asked[2].messages[-2].text
        assert (
            told
            == "[Not accepted yet]\nThe result that you handed over does not meet these criteria"
            ':\n- c1: The report says so\n  Check: the file report.md contains "green".\n '
            " Found: report.md: does not contain 'green'.\nClose these gaps. Then call"
            " complete_task (without a summary, it hands over your last result again), or end with"
            " one message that holds the whole result."
        )
        assert (task.state, task.verification, task.rounds, task.counts.runs) == (
            State.DONE,
            "unverified",
            1,
            2,
        )
        assert [(item.status, item.by) for item in task.acceptance] == [
            ("pass", "system:engine"),
            ("attested", "agent:general"),
        ]


async def test_three_claims_that_do_not_hold_fail_the_task(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, lambda _: says("Done.")) as at:
        task = await at.run(acceptance=[REPORT])
        assert (task.state, task.reason, len(at.script.asked)) == (State.FAILED, "acceptance", 3)
        assert (
            task.failure_reason
            == "Not accepted after 3 claims: The report says so (report.md: does not exist)"
        )
        assert (await at.team.events(task.id)).count("AcceptanceRejected") == 2


async def test_an_unknown_check_does_not_block(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, lambda _: says("Done.")) as at:
        task = await at.run(
            acceptance=[
                {"text": "Tests", "check": {"command": "pytest"}},
                {"text": "Old", "check": "pytest"},
            ]
        )
        assert (task.state, task.verification) == (State.DONE, "unverified")
        assert [item.status for item in task.acceptance] == ["unverified", "unverified"]
        assert (
            task.acceptance[0].evidence
            == 'Code cannot decide a check of this kind: {"command":"pytest"}.'
        )


@pytest.mark.parametrize(
    ("path", "status", "why"),
    [
        ("none.md", "fail", "does not exist"),
        ("folder", "fail", "is a folder"),
        ("pipe", "fail", "is a device, pipe or socket"),
        ("big", "unverified", "is 10,000,001 bytes"),
        ("../secret", "unverified", "is outside the workspace"),
        ("away", "unverified", "is outside the workspace"),
        (".remit/remit.db", "unverified", "is reserved for remit"),
    ],
)
async def test_files_that_cannot_be_checked_are_named_and_never_read(
    tmp_path: Path, path: str, status: str, why: str
) -> None:
    folder = tmp_path / "ws"
    (folder / "folder").mkdir(parents=True)
    (folder / ".remit").mkdir()
    (folder / ".remit" / "remit.db").write_text("green")
    (tmp_path / "secret").write_text("green")
    (folder / "away").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "pipe")
    with (folder / "big").open("wb") as big:
        big.truncate(10_000_001)
    async with stage("memory:", folder, lambda _: says("Done.")) as at:
        task_id = await at.create(
            acceptance=[{"text": "There", "check": {"file": path, "contains": "green"}}]
        )
        task = await at.team.until(task_id, lambda task: task.acceptance[0].status == status)
        assert task.acceptance[0].evidence == f"{path}: {why}"
        ended = await at.team.ended(task_id)
        assert ended.state is (State.FAILED if status == "fail" else State.DONE)


async def test_without_a_workspace_nothing_hangs(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path / "gone", lambda _: says("Done."), workers=0) as at:
        task_id = await at.create(owner=None, acceptance=[REPORT])
        await at.call("complete_task", task_id=task_id)
        await at.team.hire()
        task = await at.team.ended(task_id)
        assert (task.state, task.acceptance[0].status) == (State.DONE, "unverified")
        assert "there was no workspace" in (task.acceptance[0].evidence or "")


async def test_a_person_without_a_run_is_checked_as_well(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, lambda _: says("never"), workers=0) as at:
        task_id = await at.create(owner=None, acceptance=[ANSWER])
        answer = await at.call("complete_task", task_id=task_id, outputs={"answer": 41})
        assert (answer["task"]["state"], await at.team.jobs()) == (
            "verifying",
            [f"check/{task_id}"],
        )
        await at.team.hire()
        back = await at.team.until(task_id, lambda task: task.state is State.PENDING)
        (told,) = back.queued
        assert (
            told.type,
            "- c1: The answer is right\n  Check: the output answer is 42.\n" in told.content,
        ) == ("rejection", True)
        assert told.content.endswith(
            'Then call complete_task with {"outputs": {"answer": <the new value>}}.'
        )
        await at.call("complete_task", task_id=task_id, outputs={"answer": 42})
        task = await at.team.ended(task_id)
        assert (task.state, task.verification, task.counts.runs) == (State.DONE, "verified", 0)


async def test_an_assigned_session_reads_the_gaps_and_is_checked_again(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, lambda _: says("never")) as at:
        task_id = await at.create(session_id="s1", acceptance=[ANSWER])
        await at.team.do("DeliverUpdates", "system:session", task_id=task_id, session_id="s1")
        await at.call("complete_task", task_id=task_id, outputs={"answer": "42"})
        back = await at.team.until(task_id, lambda task: task.rounds == 1)
        assert (back.state, len(back.queued)) == (State.PENDING, 1)
        await at.team.do("DeliverUpdates", "system:session", task_id=task_id, session_id="s1")
        assert (await at.team.task(task_id)).state is State.RUNNING
        await at.call("complete_task", task_id=task_id, outputs={"answer": 42})
        assert (await at.team.ended(task_id)).verification == "verified"
        assert at.script.asked == []


@pytest.mark.parametrize(
    ("meanwhile", "state", "events"),
    [
        ("cancel_task", State.CANCELED, ["CompletionClaimed", "TaskCanceled"]),
        ("fail_task", State.FAILED, ["CompletionClaimed", "TaskFailed"]),
        ("pause_task", State.PAUSED, ["CompletionClaimed", "TaskPaused"]),
        ("waive_criterion", State.DONE, ["CriterionWaived", "TaskCompleted"]),
    ],
)
async def test_a_check_that_comes_too_late_does_nothing(
    any_url: str, tmp_path: Path, meanwhile: str, state: State, events: list[str]
) -> None:
    more: dict[str, Any] = {
        "fail_task": {"message": "No"},
        "waive_criterion": {"criterion_id": "c1", "reason": "No need"},
    }.get(meanwhile, {})
    async with stage(any_url, tmp_path, lambda _: says("never"), workers=0) as at:
        task_id = await at.create(owner=None, acceptance=[REPORT])
        await at.call("complete_task", task_id=task_id)
        await at.call(meanwhile, task_id=task_id, **more)
        assert f"check/{task_id}" in await at.team.jobs()
        await at.team.hire()
        await at.team.idle()
        assert (await at.team.task(task_id)).state is state
        assert (await at.team.events(task_id))[-2:] == events


async def test_a_paused_claim_is_checked_when_it_goes_on(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, lambda _: says("never"), workers=0) as at:
        task_id = await at.create(owner=None, acceptance=[ANSWER])
        await at.call("complete_task", task_id=task_id, outputs={"answer": 42})
        await at.call("pause_task", task_id=task_id)
        await at.team.hire()
        await at.team.idle()
        await at.call("resume_task", task_id=task_id)
        assert (await at.team.ended(task_id)).verification == "verified"


async def test_the_second_of_two_claims_is_the_one_that_is_checked(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, lambda _: says("never"), workers=0) as at:
        task_id = await at.create(owner=None, acceptance=[ANSWER])
        await at.call("complete_task", task_id=task_id, outputs={"answer": 41})
        await at.call("complete_task", task_id=task_id, outputs={"answer": 42})
        await at.team.hire()
        assert (await at.team.ended(task_id)).verification == "verified"
        assert (await at.team.events(task_id)).count("CriterionChecked") == 1


async def test_a_check_that_a_dead_worker_had_claimed_is_made_once_by_another(
    any_url: str, tmp_path: Path
) -> None:
    (tmp_path / "report.md").write_text("green")
    async with stage(any_url, tmp_path, lambda _: says("never"), workers=0) as at:
        task_id = await at.create(owner=None, acceptance=[REPORT])
        await at.call("complete_task", task_id=task_id)
        (taken,) = (await at.team.core.store.claim(Claim("dead", {}, 0, 10, 0.2))).jobs
        assert taken.key == f"check/{task_id}"
        await at.team.hire(heartbeat_seconds=patient(1))
        await at.team.hire(heartbeat_seconds=patient(1))
        assert (await at.team.ended(task_id)).verification == "verified"
        await at.team.idle()
        assert (await at.team.events(task_id)).count("CriterionChecked") == 1


async def test_a_worker_that_is_killed_in_a_check_leaves_it_to_another(
    durable_url: str, tmp_path: Path
) -> None:
    (tmp_path / "report.md").write_text("green")
    async with stage(durable_url, tmp_path, [says("never")], workers=0) as at:
        task_id = await at.create(metadata={"script": [["finish", "Done."]]}, acceptance=[REPORT])
        doomed = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.agents.doomed", durable_url, env=environment()
        )
        assert await doomed.wait() == -signal.SIGKILL
        assert (await at.team.task(task_id)).state is State.VERIFYING
        assert await at.team.jobs() == [f"check/{task_id}"]
        await at.team.hire(heartbeat_seconds=patient(1))
        await at.team.hire(heartbeat_seconds=patient(1))
        assert (await at.team.ended(task_id)).verification == "verified"
        await at.team.idle()
        assert (await at.team.events(task_id))[-3:] == [
            "CompletionClaimed",
            "CriterionChecked",
            "TaskCompleted",
        ]
        assert (await verify(at.team.core.store)).faults == ()
