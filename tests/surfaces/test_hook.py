"""`remit hook`: another agent program gets what it is to add to its next request, and is never
stood in the way of.
"""

import json
from typing import Any

import pytest

from tests.surfaces.cli_host import Shop, shop

FINISH = 'Task 1. Finish with complete_task(task_id="1").'
ASSIGNMENT = f"[Task Assignment: Write the report]\nInstructions: Write the report\n{FINISH}"


def hook(at: Shop, **given: Any) -> str:
    """What a hook is answered, which says nothing but that."""
    said = at("hook", stdin=json.dumps({"session_id": "s1", **given}))
    assert (said.code, said.err) == (0, "")
    return said.out


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"hook_event_name": "UserPromptSubmit", "prompt": "Go on.", "cwd": "/x"},
        {"hook_event_name": "SessionStart"},
    ],
)
def test_a_session_gets_its_assignment_and_then_each_update_once(given: dict[str, Any]) -> None:
    with shop() as at:
        task = at.create("Write the report", "--session", "s1")
        assert hook(at, session_id="s2", **given) == ""
        assert hook(at, **given) == f"{ASSIGNMENT}\n"
        assert hook(at, **given) == ""
        at("task", "update", task, "--instructions", "One page: \u4f60\u597d.")
        text = "One page: \u4f60\u597d."
        update = f'[Task Update: Instructions Modified]\nTask {task} "Write the report"\n{text}'
        finish = f'Task {task}. Finish with complete_task(task_id="{task}").'
        assert hook(at, **given) == f"{update}\n\n{finish}\n"
        assert hook(at, **given) == ""


@pytest.mark.parametrize("event", ["PreToolUse", "PostToolUse"])
def test_hooks_around_tools_get_it_in_the_form_they_need(event: str) -> None:
    with shop() as at:
        at.create("Write the report", "--session", "s1")
        told = json.loads(hook(at, hook_event_name=event))
        assert told == {
            "hookSpecificOutput": {"hookEventName": event, "additionalContext": ASSIGNMENT}
        }
        assert hook(at, hook_event_name=event) == ""


def test_updates_are_not_consumed_without_a_reader() -> None:
    with shop() as at:
        at.create("Write the report", "--session", "s1")
        said = at("hook", stdin='{"session_id": "s1", "hook_event_name": "Stop"}')
        assert (said.code, said.out) == (0, "")
        assert (
            "Output for Stop is not added to requests. Use the hook for one of UserPromptSubmit"
            in said.err
        )
        assert hook(at) == f"{ASSIGNMENT}\n"


@pytest.mark.parametrize(
    "stdin",
    [
        "",
        "no JSON",
        "[1]",
        "{}",
        '{"session_id": 7}',
        '{"session_id": ""}',
        '{"session_id": "s1", "hook_event_name": 1}',
        "[" * 100_000,
    ],
)
def test_unreadable_input_is_reported_on_standard_error(stdin: str) -> None:
    with shop() as at:
        said = at("hook", stdin=stdin)
        assert (said.code, said.out) == (0, "")
        assert (
            said.err
            == "remit hook adds nothing. Standard input is not a JSON object with a session_id.\n"
        )


def test_an_impossible_session_id_is_not_an_error_of_the_caller() -> None:
    with shop() as at:
        said = at("hook", stdin=json.dumps({"session_id": "x" * 257}))
        assert (said.code, said.out) == (0, "")
        assert "session_id" in said.err


def test_the_added_context_has_no_hidden_characters() -> None:
    with shop() as at:
        at.create("Write\x1b[2J \u202eit", "--session", "s1")
        assert hook(at) == f"[Task Assignment: Write it]\nInstructions: Write it\n{FINISH}\n"


def test_people_see_the_same_with_a_command() -> None:
    with shop() as at:
        task = at.create("Write the report", "--session", "s1")
        assert at("session", "tasks", "s1", "--json").json["tasks"][0]["id"] == task
        assert task in at("session", "tasks", "s1").out
        assert "no such task" in at("session", "tasks", "s1", "--role", "created").err
        assert at("session", "pre-request", "s1").out == f"{ASSIGNMENT}\n"
        assert at("session", "pre-request", "s1", "--json").json == {
            "context": "",
            "task_ids": [],
            "update_ids": [],
        }
