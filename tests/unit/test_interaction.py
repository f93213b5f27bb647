"""Questions to people: asked while running, answered at most once, closed at the end."""

import pytest

from remit.domain.records.record import replace
from remit.domain.task import commands as cmd
from remit.domain.task import events as ev
from remit.domain.task.task import State
from remit.errors import Conflict, Forbidden, InvalidParam, NotFound, StaleRun
from tests.unit.given import (
    BOB,
    BUILD,
    RUNNING,
    SCHEDULER,
    SESSION_RUNNING,
    WAITING_USER,
    World,
    by_run,
    events,
    finish_twice,
    given,
    plan_of,
    run_once,
    then,
)
from tests.unit.given import created as made

ASK = cmd.AskUser(task_id="1", question="Which one?", options=("a", "b"), call_id="call-1")
ASIDE = cmd.AskUser(task_id="1", question="Which one?", blocking=False)
ANSWER = cmd.Respond(interaction_id="1-q1", answer="a")


def waiting_world(question: cmd.AskUser = ASK) -> World:
    world = World()
    world.add()
    world.start("1")
    world.by_run(question)
    world.by_run(cmd.YieldRun(task_id="1"))
    return world


def test_a_question_waits_for_a_person_and_holds_no_run() -> None:
    task = waiting_world().tasks["1"]
    assert (task.state, task.run) == (State.WAITING, None)
    assert task.wait is not None
    assert [(item.kind, item.ref, item.call_id) for item in task.wait.on] == [
        ("user", "1-q1", "call-1")
    ]
    (question,) = task.questions
    assert (question.question, question.options, question.asked_by, question.blocking) == (
        "Which one?",
        ("a", "b"),
        BUILD,
        True,
    )


def test_an_answer_lets_the_task_go_on() -> None:
    world = waiting_world()
    task = world.do(ANSWER)
    assert (task.state, task.wait, task.questions) == (State.PENDING, None, ())


def test_an_answer_outside_the_options_is_refused_and_the_options_are_named() -> None:
    world = waiting_world()
    with pytest.raises(
        InvalidParam,
        match=r"answer: is 'c', which is not an option of question 1-q1; expected one of 'a', 'b'",
    ):
        world.do(cmd.Respond(interaction_id="1-q1", answer="c"))
    assert world.tasks["1"].questions, "the question stays open"


@pytest.mark.parametrize("typed", ["use the new one", "  Use the\tnew one\n", "USE THE NEW ONE"])
def test_an_option_may_be_typed_in_other_case_and_with_other_spaces(typed: str) -> None:
    world = waiting_world(replace(ASK, options=("Use the new  one", "Wait")))
    world.do(cmd.Respond(interaction_id="1-q1", answer=typed))
    answered = world.entries[-1].event
    assert isinstance(answered, ev.UserInteractionResponded)
    assert answered.answer == "Use the new  one", "the agent reads its own option"


def test_an_answer_that_may_mean_two_options_is_refused() -> None:
    world = waiting_world(replace(ASK, options=("Yes", "yes", "No")))
    with pytest.raises(InvalidParam, match="expected one of 'Yes', 'yes', 'No'"):
        world.do(cmd.Respond(interaction_id="1-q1", answer="YES"))
    world.do(cmd.Respond(interaction_id="1-q1", answer="yes"))


@pytest.mark.parametrize(
    "question",
    [
        replace(ASK, allow_other=True),
        replace(ASK, options=()),
        replace(ASK, options=(), allow_other=True),
    ],
)
def test_another_answer_is_accepted_where_it_was_allowed_or_nothing_was_offered(
    question: cmd.AskUser,
) -> None:
    world = World()
    world.add()
    world.start("1")
    world.by_run(question)
    world.by_run(cmd.YieldRun(task_id="1"))
    assert world.do(cmd.Respond(interaction_id="1-q1", answer="c")).questions == ()


def test_a_second_answer_is_refused_and_names_the_first() -> None:
    world = waiting_world()
    world.do(ANSWER, BOB)
    with pytest.raises(Conflict, match="1-q1 was answered by user:bob"):
        world.do(ANSWER)
    with pytest.raises(Conflict, match="is no longer open"):
        events(world.tasks["1"], ANSWER)


@pytest.mark.parametrize("actor", [BUILD, SCHEDULER])
def test_only_people_answer(actor: str) -> None:
    world = waiting_world()
    with pytest.raises(Forbidden, match="Only a person can answer a question"):
        world.do(ANSWER, actor)
    assert world.tasks["1"].questions


@pytest.mark.parametrize("interaction_id", ["1-q2", "7-q1", "1", "", "x-q1", "0-q1", "1-q"])
def test_an_unknown_question_is_not_found(interaction_id: str) -> None:
    with pytest.raises(NotFound, match="list_interactions"):
        waiting_world().do(cmd.Respond(interaction_id=interaction_id, answer="a"))


@pytest.mark.parametrize(
    "end",
    [
        cmd.CompleteTask(task_id="1"),
        cmd.FailTask(task_id="1", message="No"),
        cmd.CancelTask(task_id="1"),
    ],
)
def test_a_question_is_closed_when_its_task_ends(end: cmd.Operation) -> None:
    world = waiting_world()
    assert world.do(end).questions == ()
    with pytest.raises(Conflict, match="was closed without an answer"):
        world.do(ANSWER)


def test_a_question_that_does_not_block_leaves_the_run_alone() -> None:
    task = by_run(given(*RUNNING), ASIDE)
    assert (task.state, task.wait, len(task.questions)) == (State.RUNNING, None, 1)


def test_the_answer_to_a_question_that_did_not_block_comes_as_a_message() -> None:
    task = then(by_run(given(*RUNNING), ASIDE), ANSWER)
    assert (task.state, task.questions) == (State.RUNNING, ())
    assert [(item.type, item.content) for item in task.queued] == [
        ("message", 'Answer to "Which one?": a')
    ]


def test_the_answer_to_a_question_that_did_not_block_wakes_a_task_that_waits_for_a_tick() -> None:
    task = by_run(given(made(steps=plan_of("Look")), *RUNNING[1:]), ASIDE, *finish_twice())
    assert task.state is State.WAITING
    assert then(task, ANSWER).state is State.PENDING


def test_a_question_that_did_not_block_wakes_nothing_that_waits_for_another_answer() -> None:
    task = by_run(given(*RUNNING), ASIDE, ASK, cmd.YieldRun(task_id="1"))
    assert then(task, ANSWER).state is State.WAITING
    assert then(task, ANSWER, cmd.Respond(interaction_id="1-q2", answer="b")).state is State.PENDING


def test_several_questions_of_one_response_are_all_answered_first() -> None:
    task = by_run(given(*RUNNING), ASK, ASK, cmd.YieldRun(task_id="1"))
    assert [item.id for item in task.questions] == ["1-q1", "1-q2"]
    task = then(task, cmd.Respond(interaction_id="1-q2", answer="b"))
    assert task.state is State.WAITING
    assert then(task, ANSWER).state is State.PENDING


def test_an_answer_before_the_run_yields_is_not_missed() -> None:
    task = then(by_run(given(*RUNNING), ASK), ANSWER)
    assert (task.state, task.wait) == (State.RUNNING, None)
    assert by_run(task, cmd.YieldRun(task_id="1")).state is State.PENDING


def test_a_lost_run_leaves_its_question_open() -> None:
    task = then(by_run(given(*RUNNING), ASK), cmd.LoseRun(task_id="1", run_id="1-r000001"))
    assert task.state is State.WAITING
    assert then(task, ANSWER).state is State.PENDING


def test_question_ids_are_never_used_again() -> None:
    task = then(given(*WAITING_USER), ANSWER)
    assert run_once(task, ASK).questions[0].id == "1-q2"


def test_a_stale_run_cannot_ask_a_question() -> None:
    with pytest.raises(StaleRun):
        events(given(*RUNNING), ASK, BUILD, "1-r000009")


def test_an_answer_while_running_does_not_move_the_task() -> None:
    assert then(by_run(given(*RUNNING), ASIDE), ANSWER).state is State.RUNNING


def test_the_clock_stops_while_a_session_waits_for_a_person() -> None:
    task = then(given(*SESSION_RUNNING), ASK)
    task = then(task, ANSWER, seconds=600)
    assert then(task, cmd.CompleteTask(task_id="1"), seconds=660).duration == pytest.approx(60)


# Notices.


def test_a_notice_does_not_wait() -> None:
    task = by_run(given(*RUNNING), cmd.NotifyUser(task_id="1", message="Half way"))
    assert (task.state, task.counts.notifications) == (State.RUNNING, 1)
    assert events(task, cmd.NotifyUser(task_id="1", message="Nearly"), BUILD, "1-r000001") == [
        ev.UserNotified(notification_id="1-n2", message="Nearly")
    ]
