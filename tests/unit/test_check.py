"""Checks that code decides: how they are written, and what is said of a criterion."""

from typing import Any

import pytest

from remit.domain.outputs.criteria import judge, parse_check
from remit.domain.outputs.required_outputs import FileFinding, FileQuery
from remit.domain.projection.follow_up_jobs import signal_jobs
from remit.domain.prompts.task_block import task_block
from remit.domain.task import commands as cmd
from remit.domain.task.task import Criterion, Output, State, Task
from remit.errors import InvalidParam
from tests.unit.given import PENDING, VERIFYING, World, created, given, then

OWN: tuple[Any, ...] = (
    "pytest",
    7,
    True,
    [],
    ["file"],
    {},
    {"command": "pytest -q"},
    {"contains": "x"},
    {"File": "a"},
)


def handed(**outputs: Any) -> Task:
    return then(
        given(created(acceptance=(Criterion(id="c1", text="Open", check="never"),))),
        cmd.CompleteTask(task_id="1", outputs=outputs),
    )


@pytest.mark.parametrize("check", OWN)
def test_a_custom_check_is_accepted_as_unverified(check: Any) -> None:
    assert World().add(acceptance=(cmd.NewCriterion(text="Mine", check=check),)) == "1"
    status, evidence = judge(check, handed(), {})
    assert (status, evidence.startswith("Code cannot decide a check of this kind: ")) == (
        "unverified",
        True,
    )


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ({"file": 7}, "acceptance[1].check.file: is a number; expected text."),
        ({"file": None}, "acceptance[1].check.file: is missing; expected a value."),
        ({"file": " "}, "acceptance[1].check.file: is blank; expected 1 to 4,096 characters."),
        (
            {"file": "a", "contains": ""},
            "acceptance[1].check.contains: is blank; expected 1 to 10,000 characters.",
        ),
        (
            {"file": "a", "contans": "x"},
            "acceptance[1].check.contans: is not a field here. Did you mean contains?",
        ),
        (
            {"file": "a", "equals": "x"},
            "acceptance[1].check.equals: is not a field here; expected one of file, contains.",
        ),
        (
            {"file": "a", "output": "b"},
            (
                "acceptance[1].check: has both file and output; expected one of them; use another"
                " criterion for the other."
            ),
        ),
        ({"output": ["a"]}, "acceptance[1].check.output: is a list; expected text."),
        (
            {"output": "a", "contains": 7},
            "acceptance[1].check.contains: is a number; expected text.",
        ),
        (
            {"output": "a", "equals": 1, "contains": "1"},
            "acceptance[1].check: has both equals and contains; expected one of them.",
        ),
        (
            {"output": "a", "equals": None},
            (
                "acceptance[1].check.equals: is null; expected another value; an output of null"
                " counts as missing."
            ),
        ),
    ],
)
def test_a_check_that_is_wrong_is_refused_by_its_place_when_it_is_given(
    check: Any, said: str
) -> None:
    world = World()
    acceptance = (cmd.NewCriterion(text="Fine"), cmd.NewCriterion(text="Wrong", check=check))
    with pytest.raises(InvalidParam) as refused:
        world.add(acceptance=acceptance)
    assert str(refused.value) == said
    task_id = world.add()
    with pytest.raises(InvalidParam) as refused:
        world.do(cmd.UpdateTask(task_id=task_id, acceptance=acceptance))
    assert str(refused.value) == said


def test_an_invalid_check_of_an_older_version_does_not_block_completion() -> None:
    old = Criterion(id="c1", text="Old", check={"file": 7})
    task = given(created(acceptance=(old,)))
    kept = cmd.UpdateTask(
        task_id="1",
        acceptance=(cmd.NewCriterion(text="Old", check={"file": 7}), cmd.NewCriterion(text="New")),
    )
    assert then(task, kept).acceptance[0] == old
    done = then(task, cmd.CompleteTask(task_id="1"), cmd.CheckCriteria(task_id="1"))
    assert (done.state, done.verification, done.acceptance[0].evidence) == (
        State.DONE,
        "unverified",
        "check.file: is a number; expected text.",
    )


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        (FileFinding(True), ("pass", 'a.md: contains "yes"')),
        (FileFinding(False, "does not exist"), ("fail", "a.md: does not exist")),
        (
            FileFinding(None, "cannot be opened: permission denied"),
            ("unverified", "a.md: cannot be opened: permission denied"),
        ),
        (
            None,
            ("unverified", "a.md: there was no workspace to check it in"),
        ),
    ],
)
def test_a_file_passes_fails_or_cannot_be_told(
    seen: FileFinding | None, verdict: tuple[str, str]
) -> None:
    wanted = FileQuery("a.md", "yes")
    assert (
        judge({"file": "a.md", "contains": "yes"}, handed(), {wanted: seen} if seen else {})
        == verdict
    )


def test_a_file_alone_need_only_be_there() -> None:
    assert judge({"file": "a.md"}, handed(), {FileQuery("a.md"): FileFinding(True)}) == (
        "pass",
        "a.md: is there",
    )


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
        (
            {"equals": {"x": [1], "y": 2}},
            {"y": 2, "x": [1]},
            ("pass", 'output a: is {"y":2,"x":[1]}'),
        ),
        ({"equals": "x"}, "y", ("fail", 'output a: is "y", not "x"')),
        ({"contains": "green"}, "all green", ("pass", 'output a: contains "green"')),
        ({"contains": "green"}, "all red", ("fail", 'output a: does not contain "green"')),
        ({"contains": "green"}, ["all green"], ("pass", 'output a: contains "green"')),
        (
            {"contains": '"n": 42'},
            {"m": [1], "n": 42},
            ("pass", 'output a: contains "\\"n\\": 42"'),
        ),
        ({"contains": "[1, 2]"}, {"m": [1, 2]}, ("pass", 'output a: contains "[1, 2]"')),
        (
            {"contains": 'say "gr\u00fcn"\n'},
            {"m": ['We say "gr\u00fcn"\n']},
            ("pass", 'output a: contains "say \\"gr\u00fcn\\"\\n"'),
        ),
        ({"contains": "42"}, 42, ("pass", 'output a: contains "42"')),
        (
            {"contains": "green"},
            ["red"],
            ("fail", 'output a: does not contain "green", its JSON text is ["red"]'),
        ),
    ],
)
def test_an_output_is_there_or_is_what_it_should_be(
    check: dict[str, Any], value: Any, verdict: tuple[str, str]
) -> None:
    assert judge({"output": "a", **check}, handed(a=value), {}) == verdict


def test_an_output_given_as_json_text_is_compared_by_its_value() -> None:
    world = World()
    check = {"output": "n", "equals": {"passed": 42}}
    task_id = world.add(
        outputs=(Output(name="n", kind="json"),),
        acceptance=(cmd.NewCriterion(text="All pass", check=check),),
    )
    world.do(cmd.CompleteTask(task_id=task_id, outputs={"n": '{"passed": 42}'}))
    done = world.do(cmd.CheckCriteria(task_id=task_id))
    assert (done.state, done.verification, done.acceptance[0].status) == (
        State.DONE,
        "verified",
        "pass",
    )


def test_a_text_is_found_in_an_output_of_json() -> None:
    world = World()
    check = {"output": "n", "contains": '"passed": 42'}
    task_id = world.add(
        outputs=(Output(name="n", kind="json"),),
        acceptance=(cmd.NewCriterion(text="All pass", check=check),),
    )
    compared = '(anywhere in its JSON, written like {"a": [1, 2]})'
    assert f'(check: the output n contains "\\"passed\\": 42" {compared})' in task_block(
        world.tasks[task_id], {}, {}
    )
    world.do(cmd.CompleteTask(task_id=task_id, outputs={"n": '{"passed":42}'}))
    done = world.do(cmd.CheckCriteria(task_id=task_id))
    assert (done.state, done.acceptance[0].status) == (State.DONE, "pass")


def test_evidence_is_short_however_long_the_value() -> None:
    assert (
        len(judge({"output": "a", "equals": "y" * 9999}, handed(a="x" * 9999), {}).evidence) < 200
    )


def test_whatever_leaves_a_task_verifying_puts_the_job_that_checks_it() -> None:
    claimed = given(*VERIFYING)
    assert [job.key for job in signal_jobs(None, claimed, ())] == ["check/1"]
    paused = then(claimed, cmd.PauseTask(task_id="1"))
    assert signal_jobs(claimed, paused, ()) == ()
    assert [
        job.key for job in signal_jobs(paused, then(paused, cmd.ResumeTask(task_id="1")), ())
    ] == ["check/1"]
    assert signal_jobs(None, given(*PENDING), ()) == ()


def test_only_known_kinds_are_read() -> None:
    assert parse_check({"output": "a", "equals": [1]}, "check") == parse_check(
        {"equals": [1], "output": "a"}, "check"
    )
    assert parse_check({"outputs": "a"}, "check") is None
