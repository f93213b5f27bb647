"""When a task counts as done: claims, criteria, and what stands behind them."""

from collections.abc import Mapping
from datetime import datetime
from urllib.parse import urlsplit

from remit.domain import event as ev
from remit.domain.evolve import evolve
from remit.domain.policy import MAX_ROUNDS, missing_outputs, must_answer_for
from remit.domain.value import Criterion, CriterionStatus, Json, Output, State, Task, ToolCount, Verification
from remit.errors import Problem, invalid

Events = list[ev.Event]


def claim(
    task: Task,
    actor: str,
    now: datetime,
    *,
    run_id: str | None = None,
    outputs: Mapping[str, Json] | None = None,
    summary: str | None = None,
    final_message: str | None = None,
    tool_summary: tuple[ToolCount, ...] = (),
) -> Events:
    """Claim completion, and conclude at once where nothing is left to be checked by code."""
    must_have_outputs(task, outputs)
    must_answer_for(actor, task, "complete it")
    claimed = ev.CompletionClaimed(run_id=run_id, outputs=outputs, summary=summary, final_message=final_message, tool_summary=tool_summary)
    after = evolve(task, ev.Entry(id="", stream=task.id, version=task.version + 1, at=now, actor=actor, event=claimed))
    return [claimed, *conclude(after)]


def must_have_outputs(task: Task, given: Mapping[str, Json] | None) -> None:
    """Refuse a completion whose required outputs are missing or of the wrong kind."""
    if missing := missing_outputs(task, given):
        raise invalid("outputs", f"lacks {', '.join(missing)}", f"every required output of task {task.id}", missing=list(missing))
    for output in task.outputs:
        if output.name in (given or {}) and (problem := _wrong_kind(output, (given or {})[output.name])):
            raise invalid(*problem)


def conclude(task: Task) -> Events:
    """What follows once every criterion of a claimed task is decided; nothing while one is not."""
    if task.state is not State.VERIFYING or not all(criterion.decided for criterion in task.acceptance):
        return []
    checked = [_attested(criterion, task) for criterion in task.acceptance if criterion.status == "unchecked"]
    failing = [criterion for criterion in task.acceptance if criterion.status == "fail"]
    if failing:
        return [*checked, _rejected(task, failing)]
    statuses: list[CriterionStatus] = [criterion.status for criterion in task.acceptance]
    return [*checked, ev.TaskCompleted(verification=_verification(statuses))]


def _attested(criterion: Criterion, task: Task) -> ev.CriterionChecked:
    """No code can decide it: the claimer's own word stands, and is called that."""
    if word := task.summary or task.final_message:
        return ev.CriterionChecked(criterion_id=criterion.id, status="attested", evidence=word)
    return ev.CriterionChecked(criterion_id=criterion.id, status="unverified")


def _verification(statuses: list[CriterionStatus]) -> Verification:
    if not statuses:
        return "none"
    return "verified" if "pass" in statuses and set(statuses) <= {"pass", "waived"} else "unverified"


def _rejected(task: Task, failing: list[Criterion]) -> ev.Event:
    gaps = tuple(f"{item.text}{f' ({item.evidence})' if item.evidence else ''}" for item in failing)
    if task.rounds >= MAX_ROUNDS:
        return ev.TaskFailed(reason="acceptance", message=f"Not accepted after {MAX_ROUNDS + 1} claims: {'; '.join(gaps)}")
    return ev.AcceptanceRejected(update_id=f"{task.id}-u{task.counts.updates + 1}", gaps=gaps)


def _wrong_kind(output: Output, value: Json) -> Problem | None:
    field = f"outputs.{output.name}"
    if output.kind == "json" or value is None:
        return None
    if not isinstance(value, str):
        return Problem(field, "is not text", f"text, since its kind is {output.kind}")
    if output.kind == "url" and not _is_url(value):
        return Problem(field, f"is {value[:60]!r}", "an absolute URL")
    return None


def _is_url(value: str) -> bool:
    try:
        return all(urlsplit(value)[:2])
    except ValueError:
        return False
