"""Checks that code decides: how they are written, and what is said of a criterion."""

from typing import Any

import pytest

from remit.domain import command as cmd
from remit.domain.check import judge, known
from remit.domain.due import others
from remit.domain.output import Seen, Sought
from remit.domain.value import Criterion, Output, State, Task
from remit.errors import InvalidParam
from tests.unit.given import PENDING, VERIFYING, World, created, given, then

OWN: tuple[Any, ...] = ("pytest", 7, True, [], ["file"], {}, {"command": "pytest -q"}, {"contains": "x"}, {"File": "a"})


def handed(**outputs: Any) -> Task:
    return then(given(created(acceptance=(Criterion(id="c1", text="Open", check="never"),))), cmd.CompleteTask(task_id="1", outputs=outputs))


@pytest.mark.parametrize("check", OWN)
def test_a_check_of_somebodys_own_is_taken_and_called_unverified(check: Any) -> None:
    assert World().add(acceptance=(cmd.NewCriterion(text="Mine", check=check),)) == "1"
    status, evidence = judge(check, handed(), {})
    assert (status, evidence.startswith("No code here decides a check of this kind: ")) == ("unverified", True)


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ({"file": 7}, "acceptance[1].check.file: is a number; expected text."),
        ({"file": None}, "acceptance[1].check.file: is missing; expected a value."),
        ({"file": " "}, "acceptance[1].check.file: is blank; expected 1 to 4,096 characters."),
        ({"file": "a", "contains": ""}, "acceptance[1].check.contains: is blank; expected 1 to 10,000 characters."),
        ({"file": "a", "contans": "x"}, "acceptance[1].check.contans: is not a field here. Did you mean contains?"),
        ({"file": "a", "equals": "x"}, "acceptance[1].check.equals: is not a field here; expected one of file, contains."),
        ({"file": "a", "output": "b"}, "acceptance[1].check: has both file and output; expected one of them; another criterion can have the other."),
        ({"output": ["a"]}, "acceptance[1].check.output: is a list; expected text."),
        ({"output": "a", "contains": 7}, "acceptance[1].check.contains: is a number; expected text."),
        ({"output": "a", "equals": 1, "contains": "1"}, "acceptance[1].check: has both equals and contains; expected one of them."),
        ({"output": "a", "equals": None}, "acceptance[1].check.equals: is null; expected another value; an output of null counts as missing."),
    ],
)
def test_a_check_that_is_wrong_is_refused_by_its_place_when_it_is_given(check: Any, said: str) -> None:
    world = World()
    acceptance = (cmd.NewCriterion(text="Fine"), cmd.NewCriterion(text="Wrong", check=check))
    with pytest.raises(InvalidParam) as refused:
        world.add(acceptance=acceptance)
    assert str(refused.value) == said
    task_id = world.add()
    with pytest.raises(InvalidParam) as refused:
        world.do(cmd.UpdateTask(task_id=task_id, acceptance=acceptance))
    assert str(refused.value) == said


def test_a_wrong_check_from_before_they_were_looked_at_stands_in_nobodys_way() -> None:
    old = Criterion(id="c1", text="Old", check={"file": 7})
    task = given(created(acceptance=(old,)))
    kept = cmd.UpdateTask(task_id="1", acceptance=(cmd.NewCriterion(text="Old", check={"file": 7}), cmd.NewCriterion(text="New")))
    assert then(task, kept).acceptance[0] == old
    done = then(task, cmd.CompleteTask(task_id="1"), cmd.CheckCriteria(task_id="1"))
    assert (done.state, done.verification, done.acceptance[0].evidence) == (State.DONE, "unverified", "check.file: is a number; expected text.")


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        (Seen(True), ("pass", 'a.md: contains "yes"')),
        (Seen(False, "does not exist"), ("fail", "a.md: does not exist")),
        (Seen(None, "may not be opened"), ("unverified", "a.md: may not be opened")),
        (None, ("unverified", "a.md: there was no workspace to look for it where this was checked")),
    ],
)
def test_a_file_passes_fails_or_cannot_be_told(seen: Seen | None, verdict: tuple[str, str]) -> None:
    wanted = Sought("a.md", "yes")
    assert judge({"file": "a.md", "contains": "yes"}, handed(), {wanted: seen} if seen else {}) == verdict


def test_a_file_alone_need_only_be_there() -> None:
    assert judge({"file": "a.md"}, handed(), {Sought("a.md"): Seen(True)}) == ("pass", "a.md: is there")


@pytest.mark.parametrize(
    ("check", "value", "verdict"),
    [
        ({}, "", ("pass", "output a: is there")),
        ({}, False, ("pass", "output a: is there")),
        ({}, None, ("fail", "output a: is missing")),
        ({"equals": 1}, None, ("fail", "output a: is missing")),
        ({"equals": 3}, 3.0, ("pass", "output a: is 3.0")),
        ({"equals": 1}, True, ("fail", "output a: is true, not 1")),
        ({"equals": False}, 0, ("fail", "output a: is 0, not false")),
        ({"equals": {"x": [1], "y": 2}}, {"y": 2, "x": [1]}, ("pass", 'output a: is {"y":2,"x":[1]}')),
        ({"equals": "x"}, "y", ("fail", 'output a: is "y", not "x"')),
        ({"contains": "green"}, "all green", ("pass", 'output a: contains "green"')),
        ({"contains": "green"}, "all red", ("fail", 'output a: does not contain "green"')),
        ({"contains": "green"}, ["green"], ("fail", 'output a: is ["green"], which is no text')),
    ],
)
def test_an_output_is_there_or_is_what_it_should_be(check: dict[str, Any], value: Any, verdict: tuple[str, str]) -> None:
    assert judge({"output": "a", **check}, handed(a=value), {}) == verdict


def test_what_is_handed_over_as_text_of_json_is_compared_as_what_it_says() -> None:
    world = World()
    check = {"output": "n", "equals": {"passed": 42}}
    task_id = world.add(outputs=(Output(name="n", kind="json"),), acceptance=(cmd.NewCriterion(text="All pass", check=check),))
    world.do(cmd.CompleteTask(task_id=task_id, outputs={"n": '{"passed": 42}'}))
    done = world.do(cmd.CheckCriteria(task_id=task_id))
    assert (done.state, done.verification, done.acceptance[0].status) == (State.DONE, "verified", "pass")


def test_evidence_is_short_however_long_the_value() -> None:
    assert len(judge({"output": "a", "equals": "y" * 9999}, handed(a="x" * 9999), {}).evidence) < 200


def test_whatever_leaves_a_task_verifying_puts_the_job_that_checks_it() -> None:
    claimed = given(*VERIFYING)
    assert [job.key for job in others(None, claimed, ())] == ["check/1"]
    paused = then(claimed, cmd.PauseTask(task_id="1"))
    assert others(claimed, paused, ()) == ()
    assert [job.key for job in others(paused, then(paused, cmd.ResumeTask(task_id="1")), ())] == ["check/1"]
    assert others(None, given(*PENDING), ()) == ()


def test_only_known_kinds_are_read() -> None:
    assert known({"output": "a", "equals": [1]}, "check") == known({"equals": [1], "output": "a"}, "check")
    assert known({"outputs": "a"}, "check") is None
