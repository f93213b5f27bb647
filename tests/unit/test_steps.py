"""The plan of a task, its resources and its guides."""

import pytest

from remit.domain.records.validate import parse
from remit.domain.task import commands as cmd
from remit.domain.task import events as ev
from remit.domain.task.task import Resource, Step
from remit.errors import InvalidParam, NotFound
from tests.unit.given import CREATED, RUNNING, World, created, events, given, plan_of, then

LINKED = created(steps=(Step(title="Look"), Step(title="Build", task_id="2"), Step(title="Ship")))


def new(*titles: str) -> tuple[cmd.NewStep, ...]:
    return tuple(cmd.NewStep(title=title) for title in titles)


def test_a_new_plan_replaces_the_old_one() -> None:
    task = then(
        given(created(steps=plan_of("Look"))),
        cmd.UpdateSteps(task_id="1", steps=new("Build", "Ship")),
    )
    assert task.steps == plan_of("Build", "Ship")


def test_a_plan_can_be_emptied_while_no_step_is_linked() -> None:
    assert (
        then(given(created(steps=plan_of("Look"))), cmd.UpdateSteps(task_id="1", steps=())).steps
        == ()
    )


def test_a_linked_step_keeps_its_link() -> None:
    task = then(
        given(LINKED),
        cmd.UpdateSteps(
            task_id="1", steps=(*new("Read", "Build"), cmd.NewStep(title="Rest", done=True))
        ),
    )
    assert task.steps == (
        Step(title="Read"),
        Step(title="Build", task_id="2"),
        Step(title="Rest", done=True),
    )


@pytest.mark.parametrize(
    "titles", [("Look",), (), ("Build", "Look", "Ship"), ("Look", "Built", "Ship")]
)
def test_a_linked_step_must_keep_its_place_and_title(titles: tuple[str, ...]) -> None:
    with pytest.raises(InvalidParam, match=r"steps\[1\].*linked to a subtask.*'Build'"):
        events(given(LINKED), cmd.UpdateSteps(task_id="1", steps=new(*titles)))


def test_a_link_in_the_input_is_refused() -> None:
    with pytest.raises(InvalidParam, match=r"steps\[0\].task_id: is not a field here"):
        parse(cmd.UpdateSteps, {"task_id": "1", "steps": [{"title": "Look", "task_id": "2"}]})


def test_an_unchanged_plan_makes_no_event() -> None:
    assert (
        events(given(LINKED), cmd.UpdateSteps(task_id="1", steps=new("Look", "Build", "Ship")))
        == []
    )


def test_one_step_changes_and_keeps_its_link() -> None:
    task = then(
        given(LINKED),
        cmd.UpdateStep(task_id="1", index=1, title="Compile", details="With make", done=True),
    )
    assert task.steps[1] == Step(title="Compile", details="With make", done=True, task_id="2")
    assert (task.steps[0], task.steps[2]) == (Step(title="Look"), Step(title="Ship"))


def test_a_step_says_only_what_changed() -> None:
    step = given(created(steps=(Step(title="Look", details="Closely", done=True),)))
    assert events(step, cmd.UpdateStep(task_id="1", index=0, title="Look", done=False)) == [
        ev.StepUpdated(index=0, done=False)
    ]
    assert (
        events(
            step, cmd.UpdateStep(task_id="1", index=0, title="Look", details="Closely", done=True)
        )
        == []
    )


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 steps; expected a task that has a step"),
        (1, "1 step; expected 0 to 0"),
        (2, "2 steps; expected 0 to 1"),
    ],
)
def test_an_index_past_the_plan_is_refused_with_what_there_is(count: int, expected: str) -> None:
    task = given(created(steps=plan_of(*("Look", "Build")[:count])))
    with pytest.raises(InvalidParam, match=f"index: is 7, but task 1 has {expected}"):
        events(task, cmd.UpdateStep(task_id="1", index=7, done=True))


# Resources.


def test_resources_are_added_at_the_end_and_removed_by_index() -> None:
    task = then(
        given(CREATED),
        cmd.AddResource(task_id="1", type="url", value="https://a.org/", label="The spec"),
        cmd.AddResource(task_id="1", type="file", value="/tmp/a"),
        cmd.AddResource(task_id="1", type="file", value="/tmp/b"),
        cmd.RemoveResource(task_id="1", index=1),
    )
    assert task.resources == (
        Resource(type="url", value="https://a.org/", label="The spec"),
        Resource(type="file", value="/tmp/b"),
    )


@pytest.mark.parametrize(("kind", "value"), [("file", "notes.md"), ("url", "example.org")])
def test_a_relative_resource_is_refused(kind: str, value: str) -> None:
    with pytest.raises(InvalidParam, match=r"value.*absolute"):
        events(
            given(CREATED), parse(cmd.AddResource, {"task_id": "1", "type": kind, "value": value})
        )


def test_a_resource_that_is_not_there_cannot_be_removed() -> None:
    with pytest.raises(InvalidParam, match="index: is 0, but task 1 has 0 resources"):
        events(given(CREATED), cmd.RemoveResource(task_id="1", index=0))


# Guides.


def test_a_guide_is_linked_once() -> None:
    world = World(guides={"disk-full"})
    task_id = world.add()
    assert world.do(cmd.AttachTsg(task_id=task_id, tsg_id="disk-full")).guides == ("disk-full",)
    assert world.plan(cmd.AttachTsg(task_id=task_id, tsg_id="disk-full")).events == {}


def test_an_unknown_guide_cannot_be_linked() -> None:
    world = World(guides={"disk-full"})
    with pytest.raises(NotFound, match=r"no guide wat.*list_guides"):
        world.do(cmd.AttachTsg(task_id=world.add(), tsg_id="wat"))


def test_an_unknown_task_is_not_found_by_any_name() -> None:
    for ref in ("7", "00000000-0000-7000-8000-000000000007"):
        with pytest.raises(NotFound, match=f"no task {ref}"):
            World().do(cmd.UpdateSteps(task_id=ref, steps=()))


def test_a_task_is_found_by_id_and_by_uid() -> None:
    world = World()
    task = world.has(*RUNNING)
    assert world.plan(cmd.PauseTask(task_id=task.uid)).task_id == "1"
    assert world.plan(cmd.PauseTask(task_id="1")).task_id == "1"
