"""Completion of a task: outputs, claims, criteria, rounds, waivers."""

from typing import Any

import pytest

from remit.domain.task import commands as cmd
from remit.domain.task import events as ev
from remit.domain.task.task import Criterion, Output, State, Step, Task
from remit.errors import Conflict, Forbidden, InvalidParam, NotFound, StaleRun
from tests.unit.given import (
    ANN,
    BUILD,
    CHECKED,
    CREATED,
    ENDED,
    LIVE,
    PLAN,
    RUNNING,
    SCHEDULER,
    STARTED_RUN,
    STATED,
    WAITING_TICK,
    World,
    by_run,
    created,
    events,
    finish,
    finish_twice,
    given,
    judged,
    only,
    plan_of,
    run_once,
    then,
)

COMPLETE = cmd.CompleteTask(task_id="1")
REPORT = (
    Output(name="report"),
    Output(name="data", kind="json"),
    Output(name="extra", required=False),
)


def running(**fields: Any) -> Task:
    return given(created(**fields), *STARTED_RUN)


# Outputs come first.


def test_missing_outputs_are_listed_before_any_other_objection() -> None:
    task = running(outputs=REPORT)
    with pytest.raises(
        InvalidParam, match="outputs: missing required outputs: report, data"
    ) as refused:
        events(task, COMPLETE, PLAN)
    assert refused.value.details["missing"] == ["report", "data"]
    with pytest.raises(Forbidden):
        events(task, cmd.CompleteTask(task_id="1", outputs={"report": "x", "data": {}}), PLAN)


def test_an_output_of_null_is_missing_and_an_empty_one_is_there() -> None:
    task = running(outputs=REPORT)
    with pytest.raises(InvalidParam, match=r"missing required outputs?: report"):
        events(task, cmd.CompleteTask(task_id="1", outputs={"report": None, "data": []}))
    assert (
        then(task, cmd.CompleteTask(task_id="1", outputs={"report": "", "data": []})).state
        is State.DONE
    )


def test_the_outputs_are_kept() -> None:
    done = then(
        running(outputs=REPORT),
        cmd.CompleteTask(
            task_id="1", outputs={"report": "x", "data": [1], "more": True}, summary="Did it"
        ),
    )
    assert (done.completion_outputs, done.summary) == (
        {"report": "x", "data": [1], "more": True},
        "Did it",
    )


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("text", 7),
        ("file", ["/tmp/a"]),
        ("url", 7),
        ("url", "example.org"),
        ("url", "http://[::1"),
        ("url", ""),
    ],
)
def test_an_output_of_the_wrong_kind_is_refused_by_name(kind: str, value: object) -> None:
    # A literal.
    task = given(created(outputs=(Output(name="a", kind=kind),)))  # type: ignore[arg-type]
    with pytest.raises(InvalidParam, match=r"outputs\.a"):
        events(task, cmd.CompleteTask(task_id="1", outputs={"a": value}))


ROWS = Output(name="rows", kind="json", schema={"type": "array", "items": {"type": "integer"}})


@pytest.mark.parametrize(
    ("schema", "given", "kept"),
    [
        (None, {"a": 1}, {"a": 1}),
        (None, '{"a": 1}', {"a": 1}),
        (None, '"text"', '"text"'),
        ({"type": "array"}, "[1, 2]", [1, 2]),
        ({"type": "string"}, "[1, 2]", "[1, 2]"),
    ],
)
def test_json_given_as_text_is_stored_as_its_value(schema: Any, given: Any, kept: Any) -> None:
    done = then(
        running(outputs=(Output(name="a", kind="json", schema=schema),)),
        cmd.CompleteTask(task_id="1", outputs={"a": given}),
    )
    assert (done.state, done.completion_outputs) == (State.DONE, {"a": kept})


@pytest.mark.parametrize(
    ("schema", "given", "said"),
    [
        (None, "{", r"outputs\.a: is not valid JSON text: '{'; expected a JSON value"),
        (None, "[NaN]", "is not valid JSON text"),
        (None, "[" * 5000, "is not valid JSON text"),
        (None, "[" * 40 + "]" * 40, "is not valid JSON text"),
        ({"type": "array"}, "{}", r"outputs\.a: is an object; expected array"),
        ({"type": "array"}, "nonsense", r"outputs\.a: is text; expected array"),
        ({"required": ["n"], "type": "object"}, {}, r"outputs\.a\.n: is missing; expected a value"),
    ],
)
def test_json_that_is_not_as_required_is_refused_by_its_place(
    schema: Any, given: Any, said: str
) -> None:
    task = given_outputs(Output(name="a", kind="json", schema=schema))
    with pytest.raises(InvalidParam, match=said):
        events(task, cmd.CompleteTask(task_id="1", outputs={"a": given}))


def given_outputs(*outputs: Output) -> Task:
    return given(created(outputs=outputs))


def test_all_missing_and_wrong_outputs_are_named_together() -> None:
    task = given_outputs(
        Output(name="report"),
        ROWS,
        Output(name="page", kind="url"),
        Output(name="more", required=False),
    )
    with pytest.raises(InvalidParam) as refused:
        events(
            task,
            cmd.CompleteTask(task_id="1", outputs={"rows": [1, "x"], "page": "here", "more": 7}),
        )
    assert (
        str(refused.value)
        == "outputs: missing required output: report. Add report to outputs. outputs.rows[1]: is"
        " text; expected integer. outputs.page: is 'here'; expected an absolute URL."
        " outputs.more: is not text; expected text, since its kind is text."
    )
    assert (refused.value.details["missing"], refused.value.details["wrong"]) == (
        ["report"],
        ["rows", "page", "more"],
    )


def test_a_file_that_was_not_found_is_a_problem() -> None:
    world = World()
    task_id = world.add(outputs=(Output(name="report", kind="file"),))
    claimed = cmd.CompleteTask(task_id=task_id, outputs={"report": "out/report.md"})
    world.lost["out/report.md"] = "does not exist"
    with pytest.raises(
        InvalidParam,
        match=(
            r"outputs\.report: is 'out/report.md': does not exist; expected the path of a file in"
            r" the workspace"
        ),
    ):
        world.do(claimed)
    del world.lost["out/report.md"]
    assert world.do(claimed).state is State.DONE


@pytest.mark.parametrize("how", ["claims", "ends", "says done"])
def test_a_file_that_was_there_is_looked_for_again(how: str) -> None:
    world = World()
    task_id = world.add(
        outputs=(Output(name="report", kind="file"),),
        acceptance=(cmd.NewCriterion(text="The tests pass", check={"file": "green"}),),
    )
    world.start(task_id)
    world.by_run(cmd.CompleteTask(task_id=task_id, outputs={"report": "report.md"}))
    world.lost |= {"green": "does not exist", "report.md": "does not exist"}
    world.do(cmd.CheckCriteria(task_id=task_id))
    if how == "says done":
        with pytest.raises(InvalidParam, match="does not exist"):
            world.do(cmd.UpdateTask(task_id=task_id, status="done"))
        return
    world.start(task_id)
    world.by_run(cmd.DeliverUpdates(task_id=task_id))
    told = world.by_run(
        cmd.CompleteTask(task_id=task_id)
        if how == "claims"
        else cmd.FinishRun(task_id=task_id, final_message="Done.")
    )
    assert (told.state, told.output_asks) == (State.RUNNING, 1)
    assert (
        "does not exist"
        in only(ev.AcceptanceRejected, (entry.event for entry in world.entries[-1:])).gaps[0]
    )


def test_an_agent_gets_the_same_refusal_as_other_callers() -> None:
    world = World()
    task_id = world.add(outputs=REPORT)
    run = world.start(task_id).run
    assert run is not None
    refused = world.plan(cmd.CompleteTask(task_id=task_id), BUILD, run.id).refused
    with pytest.raises(InvalidParam) as heard:
        world.do(cmd.CompleteTask(task_id=task_id))
    assert str(refused) == str(heard.value)


def test_a_schema_that_cannot_be_checked_is_refused_when_it_is_given() -> None:
    world = World()
    with pytest.raises(
        InvalidParam,
        match=r"outputs\[1\]\.schema\.items\.type: is 'int'; expected one or several of",
    ):
        world.add(
            outputs=(
                Output(name="a"),
                Output(name="b", kind="json", schema={"items": {"type": "int"}}),
            )
        )
    with pytest.raises(
        InvalidParam,
        match=r"outputs\[0\]\.schema: is given for an output of kind text; expected kind json",
    ):
        world.add(outputs=(Output(name="a", schema={}),))
    task_id = world.add()
    with pytest.raises(InvalidParam, match=r"outputs\[0\]\.schema\.\$ref: .* nothing is fetched"):
        world.do(
            cmd.UpdateTask(
                task_id=task_id,
                outputs=(
                    Output(name="b", kind="json", schema={"$ref": "https://example.org/s.json"}),
                ),
            )
        )


def test_an_invalid_schema_of_an_older_version_does_not_block_completion() -> None:
    task = given_outputs(Output(name="a", kind="json", schema={"type": "whatever", "required": 7}))
    assert then(task, cmd.CompleteTask(task_id="1", outputs={"a": 1})).state is State.DONE


def test_outputs_given_with_a_rejected_claim_need_not_be_given_again() -> None:
    task = judged(
        then(
            running(outputs=REPORT[:1], acceptance=(CHECKED,)),
            cmd.CompleteTask(task_id="1", outputs={"report": "x"}),
        ),
        False,
    )
    assert judged(then(task, COMPLETE), True).completion_outputs == {"report": "x"}


def test_status_done_checks_the_outputs_too() -> None:
    with pytest.raises(InvalidParam, match=r"missing required outputs?: report"):
        events(running(outputs=REPORT), cmd.UpdateTask(task_id="1", status="done"))


# Actors that may complete.


@pytest.mark.parametrize("state", list(LIVE))
def test_a_person_completes_from_every_live_state(state: str) -> None:
    task = then(given(*LIVE[state]), COMPLETE)
    assert task.state in (State.DONE, State.VERIFYING)
    assert (task.run, task.wait, task.paused_from) == (None, None, None)


@pytest.mark.parametrize("state", list(LIVE))
def test_a_person_fails_from_every_live_state(state: str) -> None:
    task = then(given(*LIVE[state]), cmd.FailTask(task_id="1", message="No way"))
    assert (task.state, task.reason, task.failure_reason, task.archived_at) == (
        State.FAILED,
        "error",
        "No way",
        task.updated_at,
    )


@pytest.mark.parametrize("state", list(ENDED))
def test_an_ended_task_never_changes(state: str) -> None:
    with pytest.raises(Conflict, match=f"is {state}; an ended task cannot change.*rerun_task"):
        events(given(*ENDED[state]), COMPLETE)


def test_a_run_is_fenced_out_by_a_completion_from_outside() -> None:
    task = then(running(acceptance=(CHECKED,)), COMPLETE)
    assert (task.state, task.run) == (State.VERIFYING, None)
    with pytest.raises(StaleRun):
        events(task, finish(), BUILD, "1-r000001")


@pytest.mark.parametrize(
    ("actor", "allowed"), [(ANN, True), (BUILD, True), ("agent:general", True), (PLAN, False)]
)
def test_people_the_owner_and_the_creator_complete(actor: str, allowed: bool) -> None:
    task = given(*RUNNING, actor="agent:general")
    if allowed:
        assert then(task, COMPLETE, actor=actor).state is State.DONE
        return
    with pytest.raises(Forbidden, match="agent:plan does not own task 1 and cannot complete it"):
        events(task, COMPLETE, actor)
    with pytest.raises(Forbidden, match="cannot fail it"):
        events(task, cmd.FailTask(task_id="1", message="No"), actor)


def test_open_steps_and_live_subtasks_do_not_refuse_an_explicit_completion() -> None:
    task = given(
        created(steps=plan_of("Look")), *STARTED_RUN, ev.SubtaskLinked(child_id="2", wait="block")
    )
    assert by_run(task, COMPLETE).state is State.DONE


# The final message of a run.


def test_a_final_message_claims_completion_with_itself_as_summary() -> None:
    done = by_run(given(*RUNNING), finish("All green"))
    assert (done.state, done.summary, done.final_message, done.verification) == (
        State.DONE,
        "All green",
        "All green",
        "none",
    )
    assert (done.completed_at, done.archived_at, done.wait) == (
        done.updated_at,
        done.updated_at,
        None,
    )


def test_under_explicit_completion_a_final_message_only_ends_the_run() -> None:
    task = by_run(running(completion="explicit"), finish("Later"))
    assert (task.state, task.final_message, task.summary) == (State.WAITING, "Later", None)
    assert task.wait is not None
    assert [item.kind for item in task.wait.on] == ["tick"]


def test_open_steps_hold_automatic_completion() -> None:
    task = by_run(
        running(steps=(Step(title="Look", done=True), Step(title="Build"))), *finish_twice()
    )
    assert (task.state, task.wait and task.wait.on[0].kind) == (State.WAITING, "tick")
    task = then(task, cmd.UpdateStep(task_id="1", index=1, done=True), cmd.Tick(task_id="1"))
    assert run_once(task, finish()).state is State.DONE


@pytest.mark.parametrize(
    ("wait", "expected"), [("wake", State.WAITING), ("block", State.WAITING), ("none", State.DONE)]
)
def test_live_children_hold_automatic_completion_unless_they_are_not_awaited(
    wait: str, expected: State
) -> None:
    # A literal.
    task = given(*RUNNING, ev.SubtaskLinked(child_id="2", wait=wait))  # type: ignore[arg-type]
    assert by_run(task, finish()).state is expected


def test_a_task_with_live_children_waits_for_them() -> None:
    task = by_run(
        given(
            *RUNNING, ev.SubtaskLinked(child_id="2"), ev.SubtaskLinked(child_id="3", wait="none")
        ),
        finish(),
    )
    assert task.wait is not None
    assert [(item.kind, item.ref) for item in task.wait.on] == [("subtask", "2")]


def test_a_settled_child_holds_nothing() -> None:
    task = given(
        *RUNNING, ev.SubtaskLinked(child_id="2"), ev.SubtaskSettled(child_id="2", state="failed")
    )
    assert by_run(task, finish()).state is State.DONE


def test_missing_outputs_are_named_twice_in_one_run_and_then_the_task_fails() -> None:
    task = running(outputs=REPORT)
    for count in (1, 2):
        task = by_run(task, finish())
        assert (task.state, task.output_asks, len(task.queued)) == (State.RUNNING, count, 1)
        assert "report" in task.queued[-1].content
        task = by_run(task, cmd.DeliverUpdates(task_id="1"))
    task = by_run(task, finish())
    assert (task.state, task.reason) == (State.FAILED, "acceptance")
    assert "report, data" in (task.failure_reason or "")


def test_an_agent_with_wrong_outputs_is_told_twice_however_it_ends() -> None:
    task = running(outputs=(ROWS,))
    wrong = cmd.CompleteTask(task_id="1", outputs={"rows": ["x"]})
    task = by_run(task, wrong)
    assert (task.state, task.output_asks, task.queued) == (State.RUNNING, 1, ())
    task = by_run(task, finish(), cmd.DeliverUpdates(task_id="1"))
    assert (task.state, task.output_asks, task.counts.updates) == (State.RUNNING, 2, 2)
    failed = by_run(task, wrong)
    assert (failed.state, failed.reason, failed.run) == (State.FAILED, "acceptance", None)
    assert failed.failure_reason == "outputs.rows[0]: is text; expected integer."


def test_outputs_that_come_after_being_asked_for_complete_the_task() -> None:
    task = by_run(running(outputs=REPORT[:1]), finish(), cmd.DeliverUpdates(task_id="1"))
    assert by_run(task, finish(outputs={"report": "x"})).state is State.DONE


# Criteria.


def test_a_criterion_that_code_cannot_decide_is_attested_and_does_not_block() -> None:
    done = by_run(running(acceptance=(STATED,)), finish("I read it twice"))
    assert (done.state, done.verification) == (State.DONE, "unverified")
    assert done.acceptance == (
        Criterion(
            id="c2", text="It reads well", status="attested", evidence="I read it twice", by=BUILD
        ),
    )


def test_without_a_word_it_is_unverified() -> None:
    done = then(running(acceptance=(STATED,)), COMPLETE)
    assert (done.acceptance[0].status, done.verification) == ("unverified", "unverified")


def test_a_claim_with_checks_waits_for_them() -> None:
    task = by_run(running(acceptance=(CHECKED, STATED)), finish())
    assert (task.state, task.run, task.verification) == (State.VERIFYING, None, "none")
    assert [(item.status, item.by) for item in task.acceptance] == [
        ("unchecked", None),
        ("attested", BUILD),
    ]


@pytest.mark.parametrize(
    ("acceptance", "found", "verification"),
    [
        ((CHECKED,), True, "verified"),
        ((CHECKED,), None, "unverified"),
        ((CHECKED, STATED), True, "unverified"),
    ],
)
def test_verification_says_what_stands_behind_done(
    acceptance: tuple[Criterion, ...], found: bool | None, verification: str
) -> None:
    done = judged(by_run(running(acceptance=acceptance), finish()), found)
    assert (done.state, done.verification, done.acceptance[0].by) == (
        State.DONE,
        verification,
        SCHEDULER,
    )


def test_one_failing_check_among_others_rejects_the_claim() -> None:
    other = Criterion(id="c3", text="It is fast", check={"file": "fast"})
    task = judged(by_run(running(acceptance=(CHECKED, other)), finish()), False, True)
    assert (
        task.state,
        "c1: The tests pass" in task.queued[-1].content,
        "c3" in task.queued[-1].content,
    ) == (State.PENDING, True, False)
    assert [item.status for item in task.acceptance] == ["fail", "pass"]


def test_a_rejected_claim_reaches_the_agent_as_an_update() -> None:
    claimed = by_run(running(acceptance=(CHECKED,)), finish())
    task = judged(claimed, False)
    assert (task.state, task.rounds, task.queued[0].type) == (State.PENDING, 1, "rejection")
    assert (
        task.queued[0].update_id,
        "\n  Found: green: 2 failed.\n" in task.queued[0].content,
    ) == ("1-u1", True)


def test_after_two_rejected_rounds_the_task_fails() -> None:
    task = running(acceptance=(CHECKED,))
    for _ in range(2):
        task = judged(by_run(task, finish()), False)
        assert task.state is State.PENDING
        task = run_once(task, cmd.DeliverUpdates(task_id="1"))
    task = judged(by_run(task, finish()), False)
    assert (task.state, task.reason) == (State.FAILED, "acceptance")
    assert "The tests pass (green: 2 failed)" in (task.failure_reason or "")


def test_each_claim_is_checked_afresh() -> None:
    task = judged(by_run(running(acceptance=(CHECKED,)), finish()), False)
    task = run_once(task, cmd.DeliverUpdates(task_id="1"), finish())
    assert (task.state, task.acceptance) == (State.VERIFYING, (CHECKED,))


@pytest.mark.parametrize("state", [*LIVE, *ENDED])
def test_only_a_claimed_task_is_checked(state: str) -> None:
    found = events(given(*({**LIVE, **ENDED}[state])), cmd.CheckCriteria(task_id="1"), SCHEDULER)
    assert bool(found) is (state == "verifying")


def test_an_unknown_criterion_is_not_found_with_the_known_ones() -> None:
    with pytest.raises(NotFound, match=r"no criterion 'c9'.*c1, c2"):
        events(
            running(acceptance=(CHECKED, STATED)),
            cmd.WaiveCriterion(task_id="1", criterion_id="c9", reason="Not needed"),
        )


# Waivers.

WAIVE = cmd.WaiveCriterion(task_id="1", criterion_id="c1", reason="Not needed")


def test_only_a_person_waives() -> None:
    with pytest.raises(Forbidden, match="Only a person can waive a criterion"):
        events(running(acceptance=(CHECKED,)), WAIVE, BUILD)


def test_a_waiver_says_who_and_why_and_outlives_the_claim() -> None:
    task = then(running(acceptance=(CHECKED, STATED)), WAIVE)
    assert task.acceptance[0] == Criterion(
        id="c1",
        text="The tests pass",
        check={"file": "green"},
        status="waived",
        evidence="Not needed",
        by=ANN,
    )
    done = by_run(task, finish())
    assert (done.state, [item.status for item in done.acceptance]) == (
        State.DONE,
        ["waived", "attested"],
    )


def test_waiving_the_last_open_check_concludes_the_claim() -> None:
    done = then(by_run(running(acceptance=(CHECKED,)), finish()), WAIVE)
    assert (done.state, done.verification) == (State.DONE, "unverified")


def test_passing_and_waived_criteria_together_are_verified() -> None:
    other = Criterion(id="c3", text="It is fast", check={"file": "fast"})
    task = then(by_run(running(acceptance=(CHECKED, other)), finish()), WAIVE)
    assert judged(task, True).verification == "verified"


def test_a_run_that_ends_without_a_claim_is_not_picked_up_at_once() -> None:
    task = given(*WAITING_TICK)
    with pytest.raises(Conflict, match="only a pending task can start"):
        events(task, cmd.StartRun(task_id="1", worker="w1"))
    assert then(given(CREATED), cmd.StartRun(task_id="1", worker="w1")).state is State.RUNNING


@pytest.mark.parametrize(
    "change", [{"instructions": "New"}, {"acceptance": ()}, {"outputs": REPORT}]
)
@pytest.mark.parametrize("held", [(), (ev.TaskPaused(),)])
def test_terms_that_change_take_back_a_claim(
    change: dict[str, Any], held: tuple[ev.Event, ...]
) -> None:
    claimed = given(
        created(acceptance=(CHECKED,)),
        *STARTED_RUN,
        ev.CompletionClaimed(run_id="1-r000001", summary="Green"),
        *held,
    )
    task = then(claimed, cmd.UpdateTask(task_id="1", **change))
    assert (task.paused_from if held else task.state, task.rounds, len(task.queued)) == (
        State.PENDING,
        0,
        1,
    )
    assert task.counts.updates == 1


def test_a_claim_with_the_new_terms_is_judged_by_them() -> None:
    claimed = given(
        created(acceptance=(CHECKED,)),
        *STARTED_RUN,
        ev.CompletionClaimed(run_id="1-r000001", summary="Green"),
    )
    task = then(claimed, cmd.UpdateTask(task_id="1", acceptance=(), status="done"))
    assert task.state is State.DONE
    with pytest.raises(InvalidParam, match="missing required outputs"):
        then(claimed, cmd.UpdateTask(task_id="1", outputs=REPORT, status="done"))


@pytest.mark.parametrize("live", ["waiting for a person", "waiting for a call"])
def test_a_claim_that_is_withdrawn_leaves_the_open_call_of_the_agent_open(live: str) -> None:
    before = given(*LIVE[live])
    claimed = then(
        before,
        cmd.UpdateTask(
            task_id="1", acceptance=(cmd.NewCriterion(text="Good", check={"file": "a"}),)
        ),
        COMPLETE,
        actor=ANN,
    )
    assert claimed.state is State.VERIFYING
    after = then(claimed, cmd.UpdateTask(task_id="1", instructions="Do it well."), actor=ANN)
    assert (after.state, after.wait) == (State.WAITING, before.wait)
