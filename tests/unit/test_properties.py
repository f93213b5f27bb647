"""The invariants of the contract hold for any commands in any order."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from random import Random
from typing import Any

from hypothesis import given as for_any
from hypothesis import note, settings
from hypothesis import strategies as st

from remit.codec import GENESIS, decode_event, encode_event, task_of
from remit.domain.decisions.evolve import replay
from remit.domain.planning.lookups import Plan
from remit.domain.records.serialize import dumps, plain
from remit.domain.task import commands as cmd
from remit.domain.task import events as ev
from remit.domain.task.task import State, Task
from remit.errors import RemitError
from tests.unit.anything import TOOLS, Move, some_move
from tests.unit.given import World, permits

ENDS = (ev.TaskCompleted, ev.TaskFailed, ev.TaskCanceled)
SEEDS, LENGTHS = st.integers(0, 2**32), st.integers(20, 80)
"""A history is its seed and its length: what fails is cut down to the shortest beginning that
still does.
"""
patient = settings(deadline=None)


def seeded() -> World:
    """Three tasks, one of them part of another."""
    world = World()
    world.add(steps=(cmd.NewStep(title="Look"),))
    world.add(under="1", step_index=0)
    world.add(acceptance=(cmd.NewCriterion(text="Green", check={"file": "green"}),))
    return world


def moves_of(seed: int, length: int, world: World) -> Iterator[tuple[Move, Plan | None]]:
    """Move after move, each with what it decided, or with nothing if it was refused."""
    random = Random(seed)
    for _ in range(length):
        move = some_move(random, world)
        yield move, play(world, move)


def play(world: World, move: Move) -> Plan | None:
    """Make a move; whatever is raised but a RemitError fails the test."""
    note(
        f"{move.actor} {move.run_id or ''}: {dumps(plain(move.command))}"
        f" {type(move.command).__name__}"
    )
    world.now += timedelta(seconds=move.seconds)
    before = dict(world.tasks)
    try:
        decided = world.plan(move.command, move.actor, move.run_id)
    except RemitError:
        return None
    assert all(decided.events.values()), "a stream is named for which nothing happened"
    for stream, happened in decided.events.items():
        for event in happened:
            world.happen(stream, event, move.actor)
    world.tell(decided)
    if move.run_id is not None:
        mine = before[move.run_id.rpartition("-r")[0]]
        assert decided.events == {} or (mine.run is not None and mine.run.id == move.run_id), (
            "a stale run wrote something"
        )
    assert not any(
        before[task_id].state.terminal for task_id in decided.events if task_id in before
    ), "an ended task was changed"
    return decided


def played(seed: int, length: int) -> World:
    """A world after some moves."""
    world = seeded()
    for _ in moves_of(seed, length, world):
        pass
    return world


def live(world: World) -> list[Task]:
    return [task for task in world.tasks.values() if not task.state.terminal]


@settings(patient, max_examples=300)
@for_any(SEEDS, LENGTHS)
def test_every_task_is_in_a_state_that_makes_sense(seed: int, length: int) -> None:
    world = seeded()
    for _, decided in moves_of(seed, length, world):
        for task_id in decided.events if decided else ():
            if task_id in world.tasks:
                _makes_sense(world.tasks[task_id])


def _makes_sense(task: Task) -> None:
    assert (task.paused_from is not None) == (task.state is State.PAUSED)
    at = task.paused_from or task.state
    assert at is not State.WAITING or (task.wait is not None and task.wait.on), (
        "a task waits for nothing"
    )
    assert (
        at in (State.WAITING, State.RUNNING)
        or task.wait is None
        or task.overdue is not None
        or (at is State.VERIFYING and task.wait.holds)
    )
    assert task.run is None or at is State.RUNNING
    assert at is not State.RUNNING or task.run is not None or task.session_id is not None, (
        "nobody runs it"
    )
    assert task.state is not State.VERIFYING or not all(item.decided for item in task.acceptance), (
        "nothing is left to check"
    )
    assert (task.archived_at is not None) == task.state.terminal
    assert not task.state.terminal or (
        task.queued,
        task.questions,
        task.clock_since,
    ) == ((), (), None)
    assert (task.reason is not None) == (task.state in (State.FAILED, State.CANCELED))
    assert not (task.delegated and task.waits_for_tick), (
        "somebody waits for a task that waits for a tick"
    )


@settings(patient, max_examples=300)
@for_any(SEEDS, LENGTHS)
def test_the_history_holds_together(seed: int, length: int) -> None:
    world = played(seed, length)
    streams: dict[str, list[ev.Entry]] = {}
    for entry in world.entries:
        streams.setdefault(entry.stream, []).append(entry)
    for task_id, task in world.tasks.items():
        entries = streams[task_id]
        assert [entry.version for entry in entries] == list(range(1, task.version + 1))
        assert replay(entries) == task
        assert sum(isinstance(entry.event, ENDS) for entry in entries) == task.state.terminal
        _one_run_at_a_time(entries)
    created = [
        int(entry.stream) for entry in world.entries if isinstance(entry.event, ev.TaskCreated)
    ]
    assert created == sorted(set(created))
    _once(
        entry.event.interaction_id
        for entry in world.entries
        if isinstance(entry.event, ev.UserInteractionResponded)
    )
    _once(
        update
        for entry in world.entries
        if isinstance(entry.event, ev.UpdateDelivered)
        for update in entry.event.update_ids
    )
    _once(entry.event.timer_id for entry in world.entries if isinstance(entry.event, ev.TimerSet))


def _once(found: Any) -> None:
    assert max(Counter(found).values(), default=1) == 1


def _one_run_at_a_time(entries: list[ev.Entry]) -> None:
    task: Task | None = None
    for number, entry in enumerate(entries, 1):
        if isinstance(entry.event, ev.RunStarted):
            assert task is not None
            assert task.run is None
        task = replay(entries[:number])


@settings(patient, max_examples=150)
@for_any(SEEDS, LENGTHS)
def test_events_survive_the_store(seed: int, length: int) -> None:
    world = played(seed, length)
    for entry in world.entries:
        assert decode_event(encode_event(entry, GENESIS)) == entry
    for task in world.tasks.values():
        assert task_of(dumps(plain(task))) == task


@settings(patient, max_examples=300)
@for_any(SEEDS, LENGTHS)
def test_the_forest_holds_together(seed: int, length: int) -> None:
    world = played(seed, length)
    for task in live(world):
        _knows_its_parent(world, task)
        _waits_for_what_can_come(world, task)
        linked = [step.task_id for step in task.steps if step.task_id]
        assert len(linked) == len(set(linked))
        assert len({child.id for child in task.children}) == len(task.children)
        assert not _in_circle(world, task)


def _knows_its_parent(world: World, task: Task) -> None:
    if task.parent_id is None:
        return
    parent = world.tasks[task.parent_id]
    assert task.id in [child.id for child in parent.children]
    assert all(permits(parent.tools, tool) for tool in TOOLS if permits(task.tools, tool)), (
        "a child may do more than its parent"
    )


def _waits_for_what_can_come(world: World, task: Task) -> None:
    """Nothing is waited for, and nothing holds a task, that has ended already."""
    awaited = [item.ref for item in task.wait.on if item.kind == "subtask"] if task.wait else []
    holding = [child.id for child in task.children if child.holds]
    for child_id in {*awaited, *holding}:
        assert not world.tasks[child_id].state.terminal, (
            f"{task.id} waits for {child_id}, which has ended"
        )
        assert world.tasks[child_id].parent_id == task.id


def _in_circle(world: World, task: Task) -> bool:
    seen: set[str] = set()
    edge = {item.task_id for item in task.depends_on}
    while edge:
        seen |= edge
        edge = {item.task_id for task_id in edge for item in world.tasks[task_id].depends_on} - seen
    return task.id in seen


@settings(patient, max_examples=300)
@for_any(SEEDS, LENGTHS, st.sampled_from(["1", "2", "3"]))
def test_cancel_leaves_no_live_descendant(seed: int, length: int, task_id: str) -> None:
    world = played(seed, length)
    if world.tasks[task_id].state.terminal:
        return
    world.do(cmd.CancelTask(task_id=task_id))
    assert [task.id for task in live(world) if task_id in _above(world, task)] == []


def _above(world: World, task: Task) -> list[str]:
    return [task.parent_id, *_above(world, world.tasks[task.parent_id])] if task.parent_id else []


@settings(patient, max_examples=150)
@for_any(SEEDS, LENGTHS)
def test_deciding_changes_nothing_and_is_the_same_each_time(seed: int, length: int) -> None:
    world = played(seed, length)
    last = some_move(Random(seed), world)
    seen = (dict(world.tasks), len(world.entries), world.last_id)
    answers = []
    for _ in range(2):
        world.last_id = seen[2]
        try:
            answers.append(repr(world.plan(last.command, last.actor)))
        except RemitError as refused:
            answers.append(str(refused))
    assert answers[0] == answers[1]
    assert (world.tasks, len(world.entries)) == seen[:2]
