"""Ends of a waiting command: the same exit code for the same end, and a correct message in every
state.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.cli_host import Shop, shop
from tests.surfaces.shell import Shell

ENDS = {"done": 0, "failed": 1, "timeout": 124, "canceled": 130}
FUTURE = "2030-01-31T08:00:00Z"


@pytest.fixture
def at() -> Iterator[Shop]:
    with shop() as opened:
        yield opened


def ended(at: Shop, how: str) -> str:
    """A task that has ended."""
    task_id = at.create("Work", "--owner", "general")
    if how == "done":
        at("task", "complete", task_id)
    elif how == "canceled":
        at("task", "cancel", task_id)
    else:
        at.do(
            "AbortTask",
            "system:test",
            task_id=task_id,
            reason="timeout" if how == "timeout" else "error",
            message="It went wrong.",
        )
    return task_id


@pytest.mark.parametrize(("how", "code"), ENDS.items())
def test_every_command_that_waits_ends_with_the_same_code(
    at: Shop, monkeypatch: pytest.MonkeyPatch, how: str, code: int
) -> None:
    task_id = ended(at, how)
    assert at("task", "watch", task_id).code == code
    assert at("task", "result", task_id).code == code

    def attend(attended: str, _stopping: Any, **_options: Any) -> Iterator[dict[str, Any]]:
        if how == "done":
            at("task", "complete", attended)
        elif how == "canceled":
            at("task", "cancel", attended)
        else:
            reason = "timeout" if how == "timeout" else "error"
            at.do(
                "AbortTask",
                "system:test",
                task_id=attended,
                reason=reason,
                message="It went wrong.",
            )
        yield from ()

    monkeypatch.setattr(at.host, "attend", attend)
    fresh = at.create("Again", "--owner", "general")
    said = at("task", "run", fresh)
    assert said.code == code
    assert ("It went wrong." in said.out) == (how in ("failed", "timeout"))


def test_task_run_fails_like_run_and_shows_why(tmp_path: Path, durable_url: str) -> None:
    shell = Shell(tmp_path, REMIT_DATABASE_URL=durable_url)
    for name in ("LLM_MODEL_ID", "LLM_API_KEY", "LLM_BASE_URL"):
        shell.env.pop(name, None)
    ran = shell.remit("run", "Mend the typo", "--allow", "Edit")
    assert (ran.code, ran.out.startswith("No model is configured")) == (1, True), ran
    shell.remit("task", "create", "Mend the typo", "--owner", "general", "--allow", "Edit")
    again = shell.remit("task", "run", "2")
    assert (again.code, "No model is configured" in again.out) == (1, True), again
    assert shell.remit("task", "result", "2").code == 1
    assert (
        "[Task failed: error] No model is configured" in shell.remit("task", "transcript", "2").out
    )


def test_a_failed_task_shows_the_answer_that_is_on_record(
    at: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    check = '{"text": "There is a report.", "check": {"file": "report.md"}}'
    task_id = at.create("Work", "--owner", "general", "--accept", check)
    at("task", "complete", task_id, "--summary", "The port is 8420.")
    at.do("AbortTask", "system:test", task_id=task_id, reason="error", message="It went wrong.")
    shown = "It went wrong.\nThe answer on record:\nThe port is 8420.\n"
    assert at("task", "result", task_id).out == shown

    def delegate(
        operation: str, _fields: Any, _stopping: Any, **_options: Any
    ) -> Iterator[dict[str, Any]]:
        one = at.host.call("task_output", {"task_id": task_id})
        yield {"type": "end", "answer": {"results": [one]} if operation == "task_parallel" else one}

    monkeypatch.setattr(at.host, "delegate", delegate)
    assert at("run", "Work").out == shown
    work = tmp_path / "work.json"
    work.write_text('["Work"]')
    assert at("parallel", str(work)).out.endswith("  The answer on record:\n  The port is 8420.\n")


# What is said after a change.


@pytest.mark.parametrize("attended", [True, False])
@pytest.mark.parametrize(
    ("arguments", "told", "alone"),
    [
        (
            ("--owner", "general"),
            "",
            "No worker is running for it. Run it here with: remit task run 2\n",
        ),
        ((), "It has no owner, so it will not start.", ""),
        (
            ("--owner", "general", "--draft"),
            "It is a draft. Activate it with: remit task update 2 --status active",
            "",
        ),
        (
            ("--draft",),
            "It is a draft. Activate it with: remit task update 2 --status active\nIt has no"
            " owner, so it will not start. Set one with: remit task update 2 --owner AGENT",
            "",
        ),
        (
            ("--owner", "general", "--draft", "--depends-on", "1", "--not-before", FUTURE),
            "It is a draft. Activate it with: remit task update 2 --status active\nOnce active,"
            " it starts when #1 is done.\nOnce active, it does not start before 2030-01-31 ",
            "",
        ),
        (
            ("--owner", "general", "--not-before", FUTURE),
            "It does not start before 2030-01-31 ",
            "it needs one then. Start one with: remit worker\n",
        ),
        (
            ("--owner", "general", "--depends-on", "1"),
            "It starts when #1 is done.",
            "it needs one then. Start one with: remit worker\n",
        ),
        (
            ("--owner", "general", "--depends-on", "1:settled"),
            "It starts when #1 has ended.",
            "it needs one then",
        ),
        (("--session", "s1"), "It is assigned to session s1, which receives it", ""),
    ],
)
def test_the_next_step_of_a_new_task_is_true(
    at: Shop, attended: bool, arguments: tuple[str, ...], told: str, alone: str
) -> None:
    at.create("First")
    at.host.attended = attended
    said = at("task", "create", "Second", *arguments).err
    assert told in said
    assert ("No worker" in said) == bool(alone and not attended), said
    assert attended or alone in said
    assert "starts when one does" not in said


def test_a_task_that_cannot_start_yet_is_not_waited_for(at: Shop) -> None:
    at.create("First", "--owner", "general")
    blocked = at("task", "run", at.create("Second", "--owner", "general", "--depends-on", "1"))
    hint = "It starts when #1 is done. See #1 with: remit task show 1"
    assert (blocked.code, blocked.err) == (4, f"error: Task 2 waits for task 1.\n{hint}\n")
    now = at("task", "run", at.create("Later", "--owner", "general", "--not-before", FUTURE))
    assert (now.code, now.out, now.err) == (
        0,
        "Ready to run: #3 Later (pending)\n",
        "",
    ), "run means now"
    unowned = at("task", "run", at.create("Nobody's"))
    assert (unowned.code, unowned.err) == (
        4,
        "error: Task 4 has no owner.\nSet one with: remit task update 4 --owner AGENT\n",
    )
