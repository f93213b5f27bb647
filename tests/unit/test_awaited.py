"""Delegated and awaited tasks never wait for a tick, and all their waits count except those for a
person.
"""

from typing import Any

import pytest

from remit.domain.decisions.evolve import apply_events
from remit.domain.task import commands as cmd
from remit.domain.task import events as ev
from remit.domain.task.task import Criterion, Dependency, Output, State, Task
from tests.unit.given import (
    ANN,
    CHILD,
    LIVE,
    NOW,
    STARTED_RUN,
    Later,
    World,
    by_run,
    created,
    events,
    finish,
    finish_twice,
    given,
    only,
    plan_of,
    run_once,
    then,
)

AWAIT = cmd.AwaitTask(task_id="1")
DELIVER = cmd.DeliverUpdates(task_id="1")
PARKED = (
    created(steps=plan_of("Look")),
    *STARTED_RUN,
    ev.RunYielded(run_id="1-r000001", final_message="So far.", tick=True),
)


UNANSWERED = (
    created(steps=plan_of("Look"), completion="explicit"),
    *STARTED_RUN,
    ev.RunYielded(run_id="1-r000001", final_message="So far.", tick=True),
)


def running(**fields: Any) -> Task:
    return given(created(**fields), *STARTED_RUN)


def waits_on(task: Task) -> list[str]:
    return [item.kind for item in task.wait.on] if task.wait else []


# Which tasks.


def test_delegations_and_subtasks_are_awaited_from_the_start() -> None:
    world = World()
    plain = world.do(cmd.CreateTask(title="Plain", owner="build"))
    delegated = world.do(cmd.CreateDelegated(title="Delegated", owner="build"))
    cached = world.do(cmd.CreateCached(title="Cached", owner="build", cache_key="k"))
    below = [
        world.tasks[world.add(under=plain.id, wait=wait)] for wait in ("wake", "block", "none")
    ]
    assert [task.awaited for task in (plain, delegated, cached, *below)] == [
        False,
        True,
        True,
        True,
        True,
        True,
    ]


def test_a_subtask_from_before_the_property_existed_is_delegated_too() -> None:
    assert given(created("2", parent_id="1", root_id="1")).delegated


def test_a_delegation_and_a_task_of_the_same_body_share_their_key() -> None:
    world = World()
    first = world.do(cmd.CreateTask(title="Go", owner="build", idempotency_key="k"))
    assert (
        world.plan(cmd.CreateDelegated(title="Go", owner="build", idempotency_key="k")).task_id
        == first.id
    )


@pytest.mark.parametrize("command", ["rerun", "hand off"])
@pytest.mark.parametrize("awaited", [True, False])
def test_a_successor_is_awaited_if_the_first_was(command: str, awaited: bool) -> None:
    world = World()
    first = world.do(
        cmd.CreateDelegated(title="Go", owner="build")
        if awaited
        else cmd.CreateTask(title="Go", owner="build")
    )
    world.start(first.id)
    if command == "rerun":
        world.do(cmd.FailTask(task_id=first.id, message="No."))
        successor = world.do(cmd.RerunTask(task_id=first.id))
    else:
        successor = world.do(cmd.UpdateTask(task_id=first.id, owner="plan"))
    assert (successor.rerun_of, successor.awaited) == (first.id, awaited)


# Beginning to wait.


def test_a_task_that_waits_for_a_tick_is_woken_by_a_caller_that_waits() -> None:
    task = then(given(*UNANSWERED), AWAIT)
    assert (task.state, task.wait, task.awaited) == (State.PENDING, None, True)


def test_a_task_that_gave_its_answer_twice_completes_when_a_caller_begins_to_wait() -> None:
    parked = by_run(running(steps=plan_of("Look")), finish("First."), DELIVER, finish("Second."))
    assert waits_on(parked) == ["tick"]
    task = then(parked, AWAIT)
    assert (task.state, task.summary, task.awaited) == (State.DONE, "First.\n\nSecond.", True)
    assert [step.done for step in task.steps] == [False]


def test_a_parked_task_without_its_required_output_runs_again_for_a_caller() -> None:
    parked = given(created(steps=plan_of("Look"), outputs=(Output(name="report"),)), *PARKED[1:])
    assert then(parked, AWAIT).state is State.PENDING


def test_a_parked_task_whose_instructions_changed_runs_again_for_a_caller() -> None:
    changed = then(given(*PARKED), cmd.UpdateTask(task_id="1", instructions="Otherwise."))
    assert then(changed, AWAIT).state is State.PENDING


def test_criteria_are_checked_before_a_parked_task_completes() -> None:
    checked = Criterion(id="c1", text="It is there.", check={"file_exists": "x"})
    parked = given(created(steps=plan_of("Look"), acceptance=(checked,)), *PARKED[1:])
    task = then(parked, AWAIT)
    assert (task.state, task.summary) == (State.VERIFYING, "So far.")


def test_a_paused_task_that_waited_for_a_tick_is_ready_when_it_is_resumed() -> None:
    task = then(given(*PARKED), cmd.PauseTask(task_id="1"), AWAIT)
    assert task.state is State.PAUSED
    assert then(task, cmd.ResumeTask(task_id="1")).state is State.PENDING


@pytest.mark.parametrize("state", [name for name in LIVE if name != "waiting for a tick"])
def test_no_other_state_changes_when_a_caller_begins_to_wait(state: str) -> None:
    task = given(*LIVE[state])
    after = then(task, AWAIT)
    assert (after.state, after.wait, after.awaited) == (task.state, task.wait, True)


def test_that_a_task_is_awaited_is_recorded_once() -> None:
    task = then(given(*UNANSWERED), AWAIT)
    assert events(task, AWAIT) == []
    ended = then(task, cmd.CancelTask(task_id="1"))
    assert events(ended, AWAIT) == []


def test_the_prerequisites_of_an_awaited_task_are_awaited_too() -> None:
    world = World()
    first = world.do(cmd.CreateTask(title="First", owner="build"))
    second = world.do(
        cmd.CreateTask(title="Second", owner="build", depends_on=(Dependency(task_id=first.id),))
    )
    plain = world.do(
        cmd.CreateTask(title="Plain", owner="build", depends_on=(Dependency(task_id=second.id),))
    )
    assert [world.tasks[task.id].awaited for task in (first, second, plain)] == [
        False,
        False,
        False,
    ]
    world.do(
        cmd.CreateDelegated(
            title="Delegated", owner="build", depends_on=(Dependency(task_id=second.id),)
        )
    )
    assert [world.tasks[task.id].awaited for task in (first, second, plain)] == [True, True, False]
    other = world.do(cmd.CreateTask(title="Other", owner="build"))
    world.do(cmd.UpdateTask(task_id=plain.id, depends_on=(Dependency(task_id=other.id),)))
    assert not world.tasks[other.id].awaited
    world.do(cmd.AwaitTask(task_id=plain.id))
    assert [task.title for task in world.tasks.values() if not task.awaited] == []


@pytest.mark.parametrize("lost", [False, True])
def test_a_prerequisite_whose_file_is_gone_does_not_complete_with_it(lost: bool) -> None:
    parked = (
        created(steps=plan_of("Look"), outputs=(Output(name="report", kind="file"),)),
        *STARTED_RUN,
        ev.CompletionClaimed(run_id="1-r000001", outputs={"report": "out.md"}, summary="First."),
        ev.AcceptanceRejected(update_id="", gaps=(), outdated=True),
        ev.RunStarted(run_id="1-r000002", worker="w1"),
        ev.RunYielded(run_id="1-r000002", final_message="So far.", tick=True),
    )
    world = World(last_id=1, lost={"out.md": "is gone"} if lost else {})
    for event in parked:
        world.happen("1", event, ANN)
    on_it = (Dependency(task_id="1"),)
    world.do(cmd.CreateDelegated(title="Delegated", owner="build", depends_on=on_it))
    assert world.tasks["1"].state is (State.PENDING if lost else State.DONE)


# Final messages.


def test_open_steps_are_named_once_and_stay_open() -> None:
    task = by_run(running(steps=plan_of("Look", "Build"), awaited=True), finish("First."))
    (update,) = task.queued
    assert (task.state, task.run is not None, update.type, task.final_message) == (
        State.RUNNING,
        True,
        "steps",
        "First.",
    )
    assert "- step 0: Look\n- step 1: Build" in update.content
    assert 'update_step with {"index": 0, "done": true}' in update.content
    done = by_run(task, DELIVER, finish("Second."))
    assert (done.state, done.summary) == (State.DONE, "First.\n\nSecond.")
    assert [step.done for step in done.steps] == [False, False]


@pytest.mark.parametrize(
    ("first", "last", "result"),
    [
        ("Here is the whole report.", "Ticked.", "Here is the whole report.\n\nTicked."),
        (
            "The port is 8420.",
            "As I said, everything is done and nothing is left to do, so I end now.",
            (
                "The port is 8420.\n\nAs I said, everything is done and nothing is left to do, so I"
                " end now."
            ),
        ),
        (
            "The port\nis 8420.",
            "Again: The port is 8420. All is done.",
            "Again: The port is 8420. All is done.",
        ),
        ("The port is 8420.", "The port  is 8420.\n", "The port  is 8420.\n"),
        ("It is 42. All done.", "All done.", "It is 42. All done."),
        ("The total is 1,042 items.", "42 items.", "The total is 1,042 items.\n\n42 items."),
    ],
)
def test_a_message_after_the_reminder_does_not_replace_the_answer(
    first: str, last: str, result: str
) -> None:
    task = by_run(
        running(steps=plan_of("Look"), awaited=True),
        cmd.FinishRun(task_id="1", final_message=first),
    )
    task = by_run(by_run(task, DELIVER), cmd.FinishRun(task_id="1", final_message=last))
    assert (task.state, task.summary, task.final_message) == (State.DONE, result, result)


def test_an_answer_that_was_refused_is_not_part_of_the_next_one() -> None:
    criterion = Criterion(id="c1", text="There is a report.", check={"file": "report.md"})
    task = running(steps=plan_of("Look"), awaited=True, acceptance=(criterion,))
    claimed = by_run(task, *finish_twice("It is 41."))
    assert (claimed.state, claimed.summary) == (State.VERIFYING, "It is 41.")
    refused = apply_events(
        claimed, [ev.AcceptanceRejected(update_id="1-u2", gaps=("no report",))], ANN, NOW
    )
    again = run_once(refused, DELIVER, finish("It is 42."))
    assert again.final_message == "It is 42."


def test_a_reminder_does_not_count_as_an_attempt_an_idle_run_or_a_round() -> None:
    task = by_run(running(steps=plan_of("Look"), awaited=True), finish())
    assert (task.attempts, task.idle_runs, task.rounds, task.output_asks) == (0, 0, 0, 0)


def test_a_ticked_plan_needs_no_reminder() -> None:
    tick = cmd.UpdateStep(task_id="1", index=0, done=True)
    assert by_run(running(steps=plan_of("Look"), awaited=True), tick, finish()).state is State.DONE


def test_outputs_are_asked_for_after_the_reminder() -> None:
    task = running(steps=plan_of("Look"), outputs=(Output(name="report"),), awaited=True)
    told = by_run(task, *finish_twice())
    assert [update.type for update in told.queued] == ["rejection"]
    assert told.state is State.RUNNING


def test_children_are_waited_for_before_any_reminder() -> None:
    task = by_run(
        given(created(steps=plan_of("Look"), awaited=True), *STARTED_RUN, CHILD), finish()
    )
    assert (task.state, waits_on(task), task.queued) == (State.WAITING, ["subtask"], ())
    woken = then(task, cmd.SettleSubtask(task_id="1", child_id="2", state="done"))
    assert run_once(woken, *finish_twice()).state is State.DONE


def test_each_scheduled_run_gets_its_reminder() -> None:
    task = by_run(running(steps=plan_of("Look")), *finish_twice())
    assert (waits_on(task), task.reminded) == (["tick"], False)
    again = run_once(then(task, cmd.Tick(task_id="1")), finish())
    assert (again.state, len(again.queued)) == (State.RUNNING, 1)
    assert waits_on(by_run(again, DELIVER, finish())) == ["tick"]


def test_a_task_that_becomes_awaited_during_its_run_completes() -> None:
    task = by_run(running(steps=plan_of("Look")), finish())
    assert by_run(then(task, AWAIT), DELIVER, finish()).state is State.DONE


# Tasks that only complete_task completes.


def test_an_awaited_task_that_is_not_completed_explicitly_goes_to_a_person() -> None:
    task = by_run(running(completion="explicit", awaited=True), finish("Look here."))
    assert "call complete_task" in task.queued[0].content
    asked = by_run(task, DELIVER, finish("Look here."))
    assert (asked.state, waits_on(asked), asked.clock_since) == (State.WAITING, ["user"], None)
    assert "Look here." in asked.questions[0].question
    answered = then(
        asked, cmd.Respond(interaction_id=asked.questions[0].id, answer="Complete it."), actor=ANN
    )
    again = run_once(answered, DELIVER, finish())
    assert (again.state, [update.type for update in again.queued]) == (
        State.RUNNING,
        ["steps"],
    ), "each run has one reminder"


def test_an_explicit_task_that_is_not_awaited_waits_for_its_tick() -> None:
    assert waits_on(by_run(running(completion="explicit"), finish())) == ["tick"]


# The clock.


@pytest.mark.parametrize(("awaited", "expected"), [(True, 99), (False, 10)])
def test_the_wait_for_wake_children_counts_for_a_task_that_is_awaited(
    awaited: bool, expected: float
) -> None:
    waits = Later(10, ev.RunYielded(run_id="1-r000001", tick=True))
    task = given(
        created(awaited=awaited),
        *STARTED_RUN,
        CHILD,
        waits,
        Later(99, ev.TaskCanceled(reason="user")),
    )
    assert task.duration == expected


def test_a_person_stops_the_clock_of_an_awaited_task() -> None:
    asked = ev.UserInteractionRequested(interaction_id="1-q1", question="Which?", call_id="c")
    ended = Later(99, ev.TaskCanceled(reason="user"))
    task = given(
        created(awaited=True),
        *STARTED_RUN,
        asked,
        Later(10, ev.RunYielded(run_id="1-r000001")),
        ended,
    )
    assert task.duration == 10


def test_wake_children_that_wait_for_a_person_stop_the_clock() -> None:
    world = World()
    top = world.do(cmd.CreateDelegated(title="Top", owner="build"))
    child = world.add(under=top.id, wait="wake")
    world.start(top.id)
    world.by_run(finish())
    assert world.tasks[top.id].clock_since is not None
    world.start(child)
    world.by_run(cmd.AskUser(task_id=child, question="Which?", call_id="c"))
    world.by_run(cmd.YieldRun(task_id=child))
    task = world.do(cmd.SettleSubtasks(task_id=top.id))
    assert (task.held, task.clock_since) == (True, None)
    world.do(cmd.Respond(interaction_id=f"{child}-q1", answer="This."))
    task = world.do(cmd.SettleSubtasks(task_id=top.id))
    assert (task.held, task.clock_since is not None) == (False, True)


def test_the_reminder_is_an_event_of_its_own() -> None:
    happened = events(
        running(steps=plan_of("Look"), awaited=True), finish("First."), "agent:build", "1-r000001"
    )
    reminded = only(ev.AgentReminded, happened)
    assert (reminded.open_steps, reminded.final_message, reminded.update_id) == (
        (0,),
        "First.",
        "1-u1",
    )
