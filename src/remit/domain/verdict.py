"""When a task counts as done: claims, criteria, and what stands behind them."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from remit.domain import event as ev
from remit.domain.brief import failed_criteria, missing_outputs
from remit.domain.evolve import foreseen
from remit.domain.output import Files, Gap, gaps, handed, refusal
from remit.domain.policy import MAX_OUTPUT_ASKS, MAX_ROUNDS, must_answer_for
from remit.domain.value import Criterion, CriterionStatus, Json, State, Task, ToolCount, Verification

Events = list[ev.Event]
NO_FILES: Files = {}


def claim(
    task: Task,
    actor: str,
    now: datetime,
    *,
    run_id: str | None = None,
    authorized: bool = False,
    outputs: Mapping[str, Json] | None = None,
    summary: str | None = None,
    final_message: str | None = None,
    tool_summary: tuple[ToolCount, ...] = (),
    files: Files = NO_FILES,
) -> Events:
    """Claim completion, and conclude at once where nothing is left to be checked by code.

    A run whose task has authority over this one is `authorized`; other agents must own or have created the task.
    """
    if found := gaps(task, outputs, files):
        raise refusal(found)
    if not authorized:
        must_answer_for(actor, task, "complete it")
    if outputs is not None:
        everything = handed(task, outputs)
        outputs = {name: everything[name] for name in outputs}
    claimed = ev.CompletionClaimed(run_id=run_id, outputs=outputs, summary=summary, final_message=final_message, tool_summary=tool_summary)
    after = foreseen(task, [claimed], actor, now)
    # Now, since it is the claimer who says so: the checks are concluded by somebody else.
    attested = [_attested(item, after) for item in after.acceptance if item.check is None and item.status == "unchecked"]
    return [claimed, *attested, *conclude(foreseen(after, attested, actor, now))]


def tell_gaps(task: Task, found: Sequence[Gap], *, told: bool = False) -> Events:
    """Tell a running agent what is missing or wrong, in one more turn; after two of them the task fails."""
    if task.output_asks >= MAX_OUTPUT_ASKS:
        missing = [gap.name for gap in found if not gap.problems]
        first = [f"Required outputs are missing: {', '.join(missing)}."] if missing else []
        return [ev.TaskFailed(reason="acceptance", message=" ".join([*first, *(gap.told for gap in found if gap.problems)]))]
    rejected = ev.AcceptanceRejected(
        update_id=f"{task.id}-u{task.counts.updates + 1}",
        gaps=tuple(gap.told for gap in found),
        missing_outputs=True,
        told=told,
        message=missing_outputs(task, found),
    )
    return [rejected]


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
    message = failed_criteria(task, failing)
    return ev.AcceptanceRejected(update_id=f"{task.id}-u{task.counts.updates + 1}", gaps=gaps, message=message)
