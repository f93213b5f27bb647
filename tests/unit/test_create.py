"""Creation of a task: defaults, owner, guides, resources, idempotency keys."""

import pytest

from remit.domain.planning.new_tasks import key_stream
from remit.domain.records.record import replace
from remit.domain.records.validate import parse
from remit.domain.task import commands as cmd
from remit.domain.task import events as ev
from remit.domain.task.task import Criterion, Limits, Output, Resource, State, Step, Tools
from remit.errors import Conflict, InvalidParam, NotFound
from tests.unit.given import AGENTS, ANN, BOB, BUILD, World


@pytest.mark.parametrize(
    ("instructions", "description", "expected"),
    [
        ("Do it", "Because", ("Do it", "Because")),
        ("Do it", None, ("Do it", "Do it")),
        (None, "Because", ("Because", "Because")),
        (None, None, ("Fix it", "Fix it")),
    ],
)
def test_instructions_and_description_stand_in_for_each_other(
    instructions: str | None, description: str | None, expected: tuple[str, str]
) -> None:
    task = World().do(
        cmd.CreateTask(title="Fix it", instructions=instructions, description=description)
    )
    assert (task.instructions, task.description) == expected


def test_a_task_starts_with_the_defaults_of_the_contract() -> None:
    task = World().do(cmd.CreateTask(title="Fix it", owner="build"))
    assert (task.state, task.state.status, task.completion, task.verification) == (
        State.PENDING,
        "active",
        "auto",
        "none",
    )
    assert (task.priority, task.channel, task.depth, task.root_id, task.version) == (
        2,
        "local",
        0,
        task.id,
        1,
    )
    assert (task.tools, task.limits, task.instructions_version) == (Tools(), Limits(), 1)
    assert (task.created_by, task.thread_id, task.created_at) == (ANN, "thread-1", task.updated_at)


def test_a_draft_is_not_worked_on_until_it_is_activated() -> None:
    world = World()
    task_id = world.add(status="draft")
    assert world.tasks[task_id].state is State.DRAFT
    with pytest.raises(Conflict):
        world.start(task_id)
    assert world.do(cmd.UpdateTask(task_id=task_id, status="active")).state is State.PENDING


def test_ids_ascend_and_a_refused_request_uses_none_up() -> None:
    world = World()
    assert world.add() == "1"
    with pytest.raises(InvalidParam):
        world.add(owner="nobody")
    with pytest.raises(InvalidParam, match="outputs"):
        world.add(outputs=(Output(name="a"), Output(name="a")))
    assert world.add() == "2"


def test_plain_strings_become_criteria_outputs_and_steps() -> None:
    command = parse(
        cmd.CreateTask,
        {
            "title": "Fix it",
            "acceptance": ["It is green"],
            "outputs": ["report"],
            "steps": ["Look"],
            "priority": "urgent",
        },
    )
    task = World().do(command)
    assert task.acceptance == (Criterion(id="c1", text="It is green", status="unchecked"),)
    assert task.outputs == (Output(name="report", kind="text", required=True),)
    assert task.steps == (Step(title="Look"),)
    assert task.priority == 0


def test_labels_and_guides_count_once() -> None:
    world = World(guides={"disk-full"})
    task = world.do(
        cmd.CreateTask(title="Fix it", labels=("a", "b", "a"), tsgs=("disk-full", "disk-full"))
    )
    assert (task.labels, task.guides) == (("a", "b"), ("disk-full",))


# Owner.


def test_an_unknown_owner_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidParam, match="owner") as refused:
        World().add(owner="nobody")
    assert all(agent in str(refused.value) for agent in AGENTS)


def test_the_owner_is_the_calling_agent_by_default() -> None:
    assert World().do(cmd.CreateTask(title="Fix it"), BUILD).owner == "build"


def test_a_task_of_a_person_without_owner_is_pending_but_not_ready() -> None:
    world = World()
    task = world.do(cmd.CreateTask(title="Fix it"))
    assert (task.owner, task.state) == (None, State.PENDING)
    with pytest.raises(Conflict, match="no owner"):
        world.start(task.id)
    world.do(cmd.UpdateTask(task_id=task.id, owner="plan"))
    assert world.start(task.id).state is State.RUNNING


def test_the_creator_stays_the_same_for_later_actors() -> None:
    world = World()
    task_id = world.add(actor=BOB)
    assert world.do(cmd.UpdateTask(task_id=task_id, labels=("seen",)), BUILD).created_by == BOB


# Guides and resources.


def test_an_unknown_guide_is_not_found() -> None:
    with pytest.raises(NotFound, match="no guide wat"):
        World(guides={"disk-full"}).add(tsgs=("disk-full", "wat"))


def test_a_guide_gets_its_id_from_its_title() -> None:
    plan = World().plan(cmd.CreateGuide(title="Était-ce plein? Disk  full!", body="Delete."))
    assert plan.events == {
        "guide/etait-ce-plein-disk-full": (
            ev.GuideCreated(
                id="etait-ce-plein-disk-full", title="Était-ce plein? Disk  full!", body="Delete."
            ),
        )
    }


def test_a_guide_without_letters_needs_an_id() -> None:
    with pytest.raises(InvalidParam, match="id: is missing"):
        World().plan(cmd.CreateGuide(title="壊れた", body="Delete."))
    assert World().plan(cmd.CreateGuide(title="壊れた", body="Delete.", id="broken")).events


def test_a_guide_cannot_be_made_twice() -> None:
    world = World(guides={"disk-full"})
    with pytest.raises(Conflict, match="disk-full"):
        world.plan(cmd.CreateGuide(title="Disk full", body="Delete."))


@pytest.mark.parametrize("value", ["notes.md", "./notes.md", "~/notes.md", "C:notes.md"])
def test_a_file_resource_needs_an_absolute_path(value: str) -> None:
    with pytest.raises(InvalidParam, match=r"resources\[1\].value.*absolute file path"):
        World().add(
            resources=(
                Resource(type="file", value="/etc/hosts"),
                Resource(type="file", value=value),
            )
        )


@pytest.mark.parametrize("value", ["example.org", "https:", "http://[::1", "//example.org/x"])
def test_a_url_resource_needs_a_whole_url(value: str) -> None:
    with pytest.raises(InvalidParam, match=r"resources\[0\].value.*absolute URL"):
        World().add(resources=(Resource(type="url", value=value),))


def test_absolute_paths_of_every_system_are_accepted() -> None:
    resources = (
        Resource(type="file", value="/etc/hosts"),
        Resource(type="file", value=r"C:\notes.md"),
        Resource(type="url", value="https://a.org/x"),
    )
    assert World().do(cmd.CreateTask(title="Fix it", resources=resources)).resources == resources


# Idempotency keys.

KEYED = cmd.CreateTask(title="Fix it", owner="build", labels=("a",), idempotency_key="k")


def test_the_same_key_and_body_give_the_same_task() -> None:
    world = World()
    first = world.do(KEYED)
    again = world.plan(KEYED)
    assert (again.task_id, again.events) == (first.id, {})
    assert first.idempotency_key == "k"


def test_a_key_stands_for_its_task_for_ever() -> None:
    world = World()
    first = world.do(KEYED)
    world.do(cmd.CancelTask(task_id=first.id))
    assert world.plan(KEYED).task_id == first.id


def test_bodies_are_compared_as_validated() -> None:
    world = World()
    first = world.do(
        parse(
            cmd.CreateTask,
            {
                "title": "Fix it",
                "priority": "normal",
                "acceptance": ["Green"],
                "idempotency_key": "k",
            },
        )
    )
    same = parse(
        cmd.CreateTask,
        {
            "idempotency_key": "k",
            "acceptance": [{"text": "Green"}],
            "title": "Fix it",
            "status": "active",
        },
    )
    assert world.plan(same).task_id == first.id


@pytest.mark.parametrize(
    "changed", [{"title": "Other"}, {"labels": ("b",)}, {"metadata": {"a": 1}}, {"owner": "plan"}]
)
def test_the_same_key_with_another_body_is_a_conflict(changed: dict[str, object]) -> None:
    world = World()
    first = world.do(KEYED)
    with pytest.raises(Conflict, match=f"belongs to task {first.id}"):
        world.do(replace(KEYED, **changed))  # type: ignore[arg-type]  # fields by name


def test_each_actor_has_keys_of_its_own() -> None:
    world = World()
    assert world.do(KEYED, ANN).id != world.do(KEYED, BOB).id
    assert set(world.keys) == {key_stream(ANN, "k"), key_stream(BOB, "k")}


def test_a_key_holds_for_subtasks_too() -> None:
    world = World()
    parent = world.add()
    command = cmd.CreateSubtask(task_id=parent, title="A part", owner="build", idempotency_key="k")
    first = world.do(command)
    assert world.do(command).id == first.id
    assert len(world.tasks[parent].children) == 1
    with pytest.raises(Conflict):
        world.do(cmd.CreateTask(title="A part", owner="build", idempotency_key="k"))
