"""Runs: one at a time, attempts, idle runs, the task's clock, and what they spend."""

from datetime import timedelta
from typing import Any

import pytest

from remit.domain.decisions.decide import TaskCommand
from remit.domain.decisions.evolve import apply_events, evolve
from remit.domain.projection.follow_up_jobs import deadline, run_job
from remit.domain.task import commands as cmd
from remit.domain.task import events as ev
from remit.domain.task.task import Limits, Output, State, Task, ToolCount, Usage
from remit.errors import Conflict, StaleRun
from tests.unit.given import (
    ANN,
    AWAITED,
    BUILD,
    CHECKED,
    CHILD,
    CREATED,
    IDLE,
    NOW,
    PENDING,
    QUESTION,
    RUN,
    RUNNING,
    SCHEDULER,
    STARTED,
    STARTED_RUN,
    TIMER,
    WAITING_TICK,
    WAITING_USER,
    YIELDED,
    Later,
    World,
    by_run,
    created,
    events,
    finish,
    finish_twice,
    given,
    judged,
    plan_of,
    run_once,
    then,
)

START = cmd.StartRun(task_id="1", worker="w1")
FAIL = cmd.FailRun(task_id="1", error="Broken pipe")
IDLE_OUT = cmd.TimeOutRun(task_id="1", error="Silent for 300 s")
RELEASE, YIELD = cmd.ReleaseRun(task_id="1"), cmd.YieldRun(task_id="1")


def lose(task: Task) -> Task:
    assert task.run is not None
    return then(task, cmd.LoseRun(task_id="1", run_id=task.run.id))


def test_the_first_run_starts_the_task_and_later_ones_only_run() -> None:
    first = then(given(CREATED), START)
    assert events(given(CREATED), START) == [STARTED, RUN]
    assert (first.state, first.started_at, first.run and first.run.worker) == (
        State.RUNNING,
        first.updated_at,
        "w1",
    )
    again = then(by_run(first, RELEASE), START, seconds=60)
    assert (again.started_at, again.run and again.run.id) == (first.started_at, "1-r000002")


def test_a_task_has_one_live_run() -> None:
    with pytest.raises(Conflict, match="Worker w1 is already running task 1"):
        events(given(*RUNNING), cmd.StartRun(task_id="1", worker="w2"))


OF_A_RUN: list[cmd.Signal] = [
    cmd.DeliverUpdates(task_id="1"),
    cmd.AwaitSubtask(task_id="1", child_id="2"),
    cmd.SetTimer(task_id="1", due_at=given(CREATED).created_at),
    YIELD,
    finish(),
    RELEASE,
    FAIL,
    IDLE_OUT,
    cmd.SettleBudget(task_id="1", usage=Usage()),
]


@pytest.mark.parametrize("command", OF_A_RUN, ids=lambda command: type(command).__name__)
def test_commands_of_a_run_are_refused_from_others(command: cmd.Signal) -> None:
    task = given(*RUNNING, CHILD, ev.MessageSent(update_id="1-u1", message="Hello"))
    for run_id in (None, "1-r000009"):
        with pytest.raises(StaleRun):
            events(task, command, BUILD, run_id)


OF_ITS_AGENT: list[
    cmd.UpdateSteps
    | cmd.CompleteTask
    | cmd.AskUser
    | cmd.NotifyUser
    | cmd.FailTask
    | cmd.UpdateTask
] = [
    cmd.UpdateSteps(task_id="1", steps=()),
    cmd.CompleteTask(task_id="1"),
    cmd.AskUser(task_id="1", question="Which?"),
    cmd.NotifyUser(task_id="1", message="Hi"),
    cmd.FailTask(task_id="1", message="No"),
    cmd.UpdateTask(task_id="1", title="Other"),
]


@pytest.mark.parametrize("command", OF_ITS_AGENT, ids=lambda command: type(command).__name__)
def test_a_stale_run_writes_nothing(command: cmd.CompleteTask) -> None:
    task = then(lose(given(*RUNNING)), START)
    with pytest.raises(StaleRun, match="Run 1-r000001 of task 1 has ended; 1-r000002 is live"):
        events(task, command, BUILD, "1-r000001")


# Attempts.


@pytest.mark.parametrize(
    ("end", "reason"), [(FAIL, "error"), (IDLE_OUT, "timeout"), (None, "lost")]
)
def test_after_three_attempts_the_task_fails_with_the_reason_of_the_last(
    end: cmd.FailRun | None, reason: str
) -> None:
    task = given(*PENDING)
    for attempt in (1, 2, 3):
        task = then(task, START)
        task = by_run(task, end) if end else lose(task)
        assert task.attempts == attempt
        assert task.state is (State.PENDING if attempt < 3 else State.FAILED)
    assert task.reason == reason


def test_failures_of_different_kinds_add_up() -> None:
    task = lose(then(by_run(then(by_run(given(*RUNNING), FAIL), START), IDLE_OUT), START))
    assert (task.state, task.reason, task.failure_reason) == (
        State.FAILED,
        "lost",
        "The worker w1 stopped responding.",
    )


def test_the_number_of_attempts_can_be_set() -> None:
    task = given(created(limits=Limits(max_attempts=1)), *STARTED_RUN)
    assert by_run(task, FAIL).state is State.FAILED


def test_yields_and_releases_do_not_count_as_attempts() -> None:
    task = given(*RUNNING)
    for _ in range(10):
        task = then(by_run(task, RELEASE), START)
        task = then(by_run(task, YIELD), START)
    assert (task.state, task.attempts) == (State.RUNNING, 0)


def test_a_run_that_ends_well_makes_the_attempts_fresh() -> None:
    task = by_run(then(by_run(then(by_run(given(*RUNNING), FAIL), START), FAIL), START), YIELD)
    assert task.attempts == 0


def test_a_permanent_error_fails_the_task_at_once() -> None:
    task = by_run(given(*RUNNING), cmd.FailRun(task_id="1", error="Wrong key", permanent=True))
    assert (task.state, task.reason, task.failure_reason) == (State.FAILED, "error", "Wrong key")


def test_only_the_run_that_is_live_can_be_lost() -> None:
    assert events(given(*RUNNING), cmd.LoseRun(task_id="1", run_id="1-r000009")) == []
    assert events(given(*WAITING_TICK), cmd.LoseRun(task_id="1", run_id="1-r000001")) == []


@pytest.mark.parametrize("reason", ["timeout", "budget", "turns"])
def test_a_limit_ends_the_task_and_is_not_retried(reason: str) -> None:
    # A literal.
    task = then(given(*RUNNING), cmd.AbortTask(task_id="1", reason=reason, message="Too much"))  # type: ignore[arg-type]
    assert (task.state, task.reason, task.run) == (State.FAILED, reason, None)


# Idle runs.

OWN_QUESTION = ev.UserInteractionRequested(
    interaction_id="1-q1", question="How should the task continue?", asked_by="system:engine"
)


def idle_runs(task: Task, count: int) -> Task:
    for _ in range(count):
        task = run_once(
            then(task, cmd.Tick(task_id="1")),
            cmd.DeliverUpdates(task_id="1"),
            *finish_twice("Nothing to do"),
        )
    return task


def test_three_runs_without_progress_put_the_task_into_the_inbox() -> None:
    task = idle_runs(given(created(steps=plan_of("Look"))), 2)
    assert (task.wait and task.wait.on[0].kind, task.questions) == ("tick", ())
    task = idle_runs(task, 1)
    assert (task.state, task.wait and [item.kind for item in task.wait.on]) == (
        State.WAITING,
        ["user"],
    )
    assert "3 runs in a row made no progress" in task.questions[0].question
    assert task.questions[0].asked_by == "system:engine", "the agent asked nothing"
    assert "Nothing to do" in task.questions[0].question
    assert then(task, cmd.Tick(task_id="1")).state is State.WAITING


def test_an_answer_resets_the_count_of_idle_runs() -> None:
    task = idle_runs(given(created(steps=plan_of("Look"))), 3)
    task = then(task, cmd.Respond(interaction_id="1-q1", answer="Try harder"))
    assert (task.state, task.idle_runs) == (State.PENDING, 0)
    assert idle_runs(task, 2).questions == ()


def test_a_message_starts_the_count_afresh() -> None:
    task = idle_runs(given(created(steps=plan_of("Look"))), 2)
    task = then(task, cmd.SendMessage(task_id="1", message="Status?"))
    task = idle_runs(task, 1)
    assert (task.questions, task.idle_runs) == ((), 1)


def test_a_task_with_an_unfinished_subtask_does_not_ask_a_person() -> None:
    task = given(*RUNNING, ev.SubtaskLinked(child_id="2"), IDLE)
    for _ in range(4):
        task = run_once(then(task, cmd.RunTask(task_id="1")), finish("I still wait"))
    assert task.wait is not None
    assert [(item.kind, item.ref) for item in task.wait.on] == [("subtask", "2")]


@pytest.mark.parametrize(
    "news",
    [
        cmd.SendMessage(task_id="1", message="Go on."),
        cmd.UpdateTask(task_id="1", instructions="Go on."),
        cmd.UpdateTask(task_id="1", acceptance=(cmd.NewCriterion(text="It is green"),)),
    ],
)
@pytest.mark.parametrize("paused", [False, True])
def test_news_closes_the_question_of_remit_itself(news: TaskCommand, paused: bool) -> None:
    task = idle_runs(given(created(steps=plan_of("Look"))), 3)
    if paused:
        task = then(then(task, cmd.PauseTask(task_id="1"), news), cmd.ResumeTask(task_id="1"))
    else:
        task = then(task, news)
    assert (task.state, task.wait, task.questions) == (State.PENDING, None, ())
    assert idle_runs(task, 2).questions == ()


def test_the_end_of_a_subtask_closes_the_question_of_remit_itself() -> None:
    task = idle_runs(given(created(steps=plan_of("Look"))), 3)
    task = apply_events(task, [ev.SubtaskLinked(child_id="2")], ANN, NOW)
    task = then(task, cmd.SettleSubtask(task_id="1", child_id="2", state="done"))
    assert (task.state, task.wait, task.questions) == (State.PENDING, None, ())


def test_several_ends_of_subtasks_wake_the_task_once() -> None:
    world = World()
    world.has(*RUNNING)
    for title in ("One", "Two"):
        world.add(title, under="1")
    world.has(
        created(),
        *STARTED_RUN,
        ev.SubtaskLinked(child_id="2"),
        ev.SubtaskLinked(child_id="3"),
        OWN_QUESTION,
        YIELDED,
    )
    for child_id in ("2", "3"):
        world.has(
            created(child_id, parent_id="1", root_id="1"), ev.TaskFailed(reason="error", message="")
        )
    decided = world.plan(cmd.SettleSubtasks(task_id="1"), SCHEDULER)
    told = [type(event).__name__ for event in decided.events["1"]]
    assert sorted(told) == ["SubtaskSettled", "SubtaskSettled", "TaskWoken"]
    settled = [event for event in decided.events["1"] if isinstance(event, ev.SubtaskSettled)]
    assert [event.update_id for event in settled] == ["1-u1", "1-u2"]


def test_a_refused_claim_closes_the_question_of_remit_itself() -> None:
    task = given(created(acceptance=(CHECKED,)), *STARTED_RUN, OWN_QUESTION, YIELDED)
    task = judged(then(task, cmd.CompleteTask(task_id="1")), False)
    assert (task.state, task.wait, task.questions) == (State.PENDING, None, ())


def test_changed_terms_that_withdraw_a_claim_close_the_question_of_remit_itself() -> None:
    task = given(created(acceptance=(CHECKED,)), *STARTED_RUN, OWN_QUESTION, YIELDED)
    task = then(
        task, cmd.CompleteTask(task_id="1"), cmd.UpdateTask(task_id="1", instructions="Go on.")
    )
    assert (task.state, task.wait, task.questions) == (State.PENDING, None, ())


def test_run_task_answers_the_question_of_remit_itself_and_other_changes_do_not() -> None:
    task = idle_runs(given(created(steps=plan_of("Look"))), 3)
    task = then(task, cmd.UpdateTask(task_id="1", priority=0))
    assert (task.state, len(task.questions)) == (State.WAITING, 1)
    task = then(task, cmd.RunTask(task_id="1"))
    assert (task.state, task.questions) == (State.PENDING, ())


def test_a_caller_of_a_task_about_which_remit_asked_gets_its_answer() -> None:
    task = idle_runs(given(created(steps=plan_of("Look"))), 3)
    task = then(task, cmd.AwaitTask(task_id="1"))
    assert (task.state, task.questions, task.wait) == (State.DONE, (), None)
    assert task.summary == task.final_message


@pytest.mark.parametrize(
    "terms", [{"completion": "explicit"}, {"outputs": (Output(name="report"),)}]
)
def test_a_caller_wakes_a_task_about_which_remit_asked_and_that_cannot_complete(
    terms: dict[str, Any],
) -> None:
    task = idle_runs(given(created(steps=plan_of("Look"), **terms)), 3)
    task = then(task, cmd.AwaitTask(task_id="1"))
    assert (task.state, task.questions, task.wait) == (State.PENDING, (), None)


def test_a_caller_leaves_the_question_about_a_delegation_to_a_person() -> None:
    task = given(created(completion="explicit", parent_id="9"), *STARTED_RUN)
    task = by_run(task, *finish_twice())
    assert [question.asked_by for question in task.questions] == ["system:engine"]
    awaited = then(task, cmd.AwaitTask(task_id="1"))
    assert (awaited.state, awaited.questions) == (State.WAITING, task.questions)


def test_a_message_leaves_the_question_of_an_agent_open() -> None:
    task = then(given(*WAITING_USER), cmd.SendMessage(task_id="1", message="Go on."))
    assert (task.state, len(task.questions)) == (State.WAITING, 1)


def test_progress_starts_the_count_afresh() -> None:
    task = idle_runs(given(created(steps=plan_of("Look", "Build"))), 2)
    task = run_once(
        then(task, cmd.Tick(task_id="1")),
        cmd.UpdateStep(task_id="1", index=0, done=True),
        *finish_twice(),
    )
    assert task.idle_runs == 0
    assert idle_runs(task, 2).questions == ()


def test_changes_by_others_between_runs_are_not_progress_of_a_run() -> None:
    task = given(created(steps=plan_of("Look", "Build")))
    for _ in range(2):
        task = then(
            idle_runs(task, 1), cmd.UpdateStep(task_id="1", index=0, details=f"More {task.version}")
        )
    assert idle_runs(task, 1).questions


def test_a_subtask_that_ends_starts_the_count_afresh() -> None:
    children = [str(number) for number in range(2, 8)]
    task = run_once(
        given(CREATED, *(ev.SubtaskLinked(child_id=child) for child in children)), finish()
    )
    for child in children[:-1]:
        task = run_once(
            then(task, cmd.SettleSubtask(task_id="1", child_id=child, state="done")), finish()
        )
    assert (task.questions, task.wait and [item.ref for item in task.wait.on]) == (
        (),
        children[-1:],
    )


def test_a_message_during_the_last_answer_keeps_the_run_alive() -> None:
    task = then(given(*RUNNING), cmd.SendMessage(task_id="1", message="Wait"))
    task = by_run(task, finish())
    assert (task.state, task.run is not None, len(task.queued)) == (State.RUNNING, True, 1)
    with pytest.raises(Conflict, match="you have not read the update"):
        by_run(task, cmd.CompleteTask(task_id="1"))
    assert by_run(task, cmd.DeliverUpdates(task_id="1"), finish()).state is State.DONE


def test_only_updates_that_were_sent_count_as_delivered() -> None:
    task = given(*RUNNING)
    for text in ("One", "Two"):
        task = then(task, cmd.SendMessage(task_id="1", message=text))
    task = by_run(task, cmd.DeliverUpdates(task_id="1", update_ids=("1-u1",)))
    assert [update.content for update in task.queued] == ["Two"]


# The clock.


def blocked_until(seconds: float) -> World:
    """A task that has waited for its subtask for a minute, at a time."""
    world = World(now=NOW + timedelta(seconds=seconds))
    world.tasks["1"] = given(*RUNNING, CHILD, AWAITED, YIELDED)
    return world


def test_time_that_is_up_while_a_task_waits_lets_it_report_where_it_can() -> None:
    world = blocked_until(60)
    assert world.plan(cmd.EndTime(task_id="1", seconds=61, report=True)).events == {}
    assert world.do(cmd.EndTime(task_id="1", seconds=60)).reason == "timeout"
    world = blocked_until(60)
    task = world.do(cmd.EndTime(task_id="1", seconds=60, report=True))
    assert (task.state, task.overdue, task.duration) == (State.PENDING, world.now, 60)
    assert (deadline(task, 60), run_job(task).priority) == (world.now + timedelta(seconds=6), 0)
    assert deadline(task, 600) is None, "it was given more time"
    assert world.plan(cmd.EndTime(task_id="1", seconds=60, report=True)).events == {}, (
        "it is waited for"
    )
    world.now += timedelta(seconds=6)
    assert world.do(cmd.EndTime(task_id="1", seconds=60, report=True)).reason == "timeout"


def test_a_report_that_is_lost_is_asked_for_again() -> None:
    world = blocked_until(60)
    world.do(cmd.EndTime(task_id="1", seconds=60, report=True))
    run = world.start("1").run
    assert run is not None
    task = world.do(cmd.LoseRun(task_id="1", run_id=run.id))
    assert (task.state, task.overdue, deadline(task, 60)) == (State.WAITING, None, world.now)


def test_the_clock_of_a_lost_run_stops_at_its_last_heartbeat() -> None:
    world = World(now=NOW + timedelta(seconds=51))
    world.tasks["1"] = given(*RUNNING)
    seen = NOW + timedelta(seconds=6)
    task = world.do(cmd.LoseRun(task_id="1", run_id="1-r000001", last_seen_at=seen))
    assert (task.state, task.duration, task.clock_since) == (State.PENDING, 6, None)


def test_a_lost_run_of_which_nothing_was_heard_takes_no_time() -> None:
    world = World(now=NOW + timedelta(seconds=51))
    world.tasks["1"] = given(*RUNNING)
    assert world.do(cmd.LoseRun(task_id="1", run_id="1-r000001")).duration == 0


def test_a_lost_run_of_an_older_version_counts_as_it_did() -> None:
    task = given(*RUNNING)
    lost = ev.Entry(
        id="e",
        stream="1",
        version=9,
        at=NOW + timedelta(seconds=51),
        actor="system:engine",
        event=ev.RunLost(run_id="1-r000001"),
    )
    assert evolve(task, lost).duration == 51


def test_the_clock_of_a_blocked_task_continues_after_its_run_was_lost() -> None:
    world = World(now=NOW + timedelta(seconds=51))
    world.tasks["1"] = given(*RUNNING, CHILD, AWAITED)
    seen = NOW + timedelta(seconds=6)
    task = world.do(cmd.LoseRun(task_id="1", run_id="1-r000001", last_seen_at=seen))
    assert (task.state, task.duration, task.clock_since) == (State.WAITING, 6, world.now)


def test_time_without_a_worker_is_left_out_once() -> None:
    world = blocked_until(100)
    since = NOW + timedelta(seconds=10)
    for _ in range(3):
        task = world.do(
            cmd.ExcludeDowntime(task_id="1", since=since, until=NOW + timedelta(seconds=100))
        )
        assert (task.duration, task.clock_since) == (10, NOW + timedelta(seconds=100))
    world.now += timedelta(seconds=1)
    task = world.do(cmd.ExcludeDowntime(task_id="1", since=since, until=world.now))
    assert (task.duration, task.clock_since) == (10, world.now), "what was worked before is kept"
    assert deadline(task, 60) == world.now + timedelta(seconds=50)


def test_only_a_clock_that_runs_can_be_moved() -> None:
    world = World(now=NOW + timedelta(seconds=100))
    downtime = cmd.ExcludeDowntime(task_id="1", since=NOW, until=world.now)
    world.tasks["1"] = given(*WAITING_TICK)
    assert world.plan(downtime).events == {}
    world.tasks["1"] = given(*RUNNING)
    (excluded,) = world.plan(downtime).events["1"]
    assert excluded == ev.DowntimeExcluded(since=NOW, until=world.now), (
        "a worker that stood still says so of its own run"
    )


def test_the_clock_counts_runs_and_not_the_queue() -> None:
    task = given(
        CREATED,
        Later(100, STARTED),
        Later(100, RUN),
        Later(130, ev.RunReleased(run_id="1-r000001")),
        Later(500, ev.RunStarted(run_id="1-r000002", worker="w1")),
        Later(512, ev.TaskCompleted(verification="none")),
    )
    assert (task.duration, task.clock_since) == (42, None)


@pytest.mark.parametrize(
    ("asked", "ends", "expected"),
    [
        (AWAITED, ev.SubtaskSettled(child_id="2", state="done"), 110),
        (QUESTION, ev.UserInteractionResponded(interaction_id="1-q1", answer="a"), 10),
        (
            ev.TimerSet(timer_id="1-t1", due_at=given(CREATED).created_at),
            ev.TimerFired(ref="1-t1"),
            10,
        ),
    ],
)
def test_the_clock_runs_while_a_call_of_a_subtask_blocks_and_stops_while_a_person_is_awaited(
    asked: ev.Event, ends: ev.Event, expected: float
) -> None:
    task = given(*RUNNING, CHILD, Later(5, asked), Later(10, YIELDED), Later(110, ends))
    assert (task.state, task.duration) == (State.PENDING, expected)


def test_a_claimed_task_stops_waiting_once_its_last_call_is_answered() -> None:
    of_a_call = ev.TimerSet(timer_id="1-t2", due_at=NOW, call_id="call-1")
    claimed = given(*RUNNING, TIMER, of_a_call, ev.CompletionClaimed(run_id="1-r000001"))
    assert claimed.wait is not None
    assert claimed.wait.holds
    task = then(claimed, cmd.FireTimer(task_id="1", timer_id="1-t2"))
    assert (task.state, task.wait) == (State.VERIFYING, None)


def test_the_clock_stops_while_a_person_and_a_subtask_are_awaited_together() -> None:
    task = given(
        *RUNNING,
        CHILD,
        AWAITED,
        QUESTION,
        Later(10, YIELDED),
        Later(50, ev.UserInteractionResponded(interaction_id="1-q1", answer="a")),
    )
    assert task.duration == 10
    assert (
        then(task, cmd.SettleSubtask(task_id="1", child_id="2", state="done"), seconds=60).duration
        == 20
    )


def test_the_clock_stands_while_only_wake_children_are_awaited() -> None:
    assert (
        given(
            *RUNNING,
            CHILD,
            Later(10, ev.RunYielded(run_id="1-r000001", tick=True)),
            Later(99, ev.TaskCanceled(reason="user")),
        ).duration
        == 10
    )


# Reports and use of a run.


def test_tool_counts_add_up_over_runs() -> None:
    first, second = ToolCount(tool="Read", count=2), ToolCount(tool="Bash", count=1)
    task = by_run(given(*RUNNING), cmd.ReleaseRun(task_id="1", tool_summary=(first,)))
    task = run_once(task, finish(tool_summary=(first, second)))
    assert task.tool_summary == (ToolCount(tool="Read", count=4), ToolCount(tool="Bash", count=1))
    assert task.usage.tool_calls == 5


USED = Usage(requests=1, input_tokens=300, output_tokens=40, cost=0.1)


def test_settled_usage_adds_up() -> None:
    settle = cmd.SettleBudget(
        task_id="1", usage=USED, tool_summary=(ToolCount(tool="Read", count=2),)
    )
    task = by_run(given(*RUNNING), settle, settle)
    assert task.usage == Usage(
        requests=2, input_tokens=600, output_tokens=80, tool_calls=4, cost=0.2
    )
    assert task.tool_summary == (ToolCount(tool="Read", count=4),)


# Run now.


def test_run_task_wakes_what_waits_for_a_tick() -> None:
    assert events(given(*WAITING_TICK), cmd.RunTask(task_id="1")) == [
        ev.TaskWoken(ref="tick", cause="run")
    ]


def test_run_task_has_nothing_to_record_for_what_is_pending_anyway() -> None:
    world = World()
    world.add()
    assert world.plan(cmd.RunTask(task_id="1")).events == {}


def test_a_wake_happens_once() -> None:
    task = then(given(*WAITING_TICK), cmd.RunTask(task_id="1"))
    assert events(task, cmd.RunTask(task_id="1")) == []
    assert events(task, cmd.Tick(task_id="1")) == []


@pytest.mark.parametrize("fields", [{"owner": None}, {"session_id": "s1"}])
def test_run_task_refuses_what_no_worker_can_take(fields: dict[str, Any]) -> None:
    world = World()
    world.has(created(**fields))
    with pytest.raises(Conflict):
        world.do(cmd.RunTask(task_id="1"))
    with pytest.raises(Conflict):
        world.do(START)


# The fence of a run holds for whatever it does, to other tasks too.

BESIDE: list[cmd.Operation] = [
    cmd.CreateTask(title="Another"),
    cmd.CreateGuide(title="Disk full", body="Delete."),
    cmd.UpdateTask(task_id="2", instructions="Otherwise"),
    cmd.SendMessage(task_id="2", message="Hello"),
    cmd.CancelTask(task_id="2"),
    cmd.RerunTask(task_id="3"),
]


def family() -> World:
    """A task with two subtasks, of which one is canceled."""
    world = World()
    world.add(under=world.add())
    world.do(cmd.CancelTask(task_id=world.add(under="1")))
    world.start("1")
    return world


@pytest.mark.parametrize("command", BESIDE, ids=lambda command: type(command).__name__)
def test_a_live_run_acts_on_other_tasks_under_its_own_fence(command: cmd.Operation) -> None:
    plan = family().plan(command, BUILD, "1-r000001")
    assert plan.events
    assert "1" in plan.guards, "its task must be unchanged at the commit"


@pytest.mark.parametrize("command", BESIDE, ids=lambda command: type(command).__name__)
def test_a_stale_run_does_nothing_to_other_tasks_either(command: cmd.Operation) -> None:
    world = family()
    world.do(cmd.LoseRun(task_id="1", run_id="1-r000001"))
    with pytest.raises(StaleRun):
        world.plan(command, BUILD, "1-r000001")
