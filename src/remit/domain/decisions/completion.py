"""Completion of a task: claims, acceptance criteria and their verification."""

import re
from collections.abc import Mapping, Sequence

from remit.domain.decisions.context import Context, Events
from remit.domain.decisions.evolve import fold
from remit.domain.outputs.required_outputs import Gap, gaps, provided_outputs, refusal
from remit.domain.prompts.rejections import failed_criteria, missing_outputs, unmet
from remit.domain.records.record import replace
from remit.domain.task import events as ev
from remit.domain.task.policy import MAX_OUTPUT_ASKS, MAX_ROUNDS, must_own_or_create
from remit.domain.task.task import (
    ClaimedFrom,
    Criterion,
    Json,
    State,
    Task,
    ToolCount,
    Usage,
    Verification,
)

LONG = 40
"""Texts of at least this many characters are not repeated by chance."""
_CLAIMED_FROM: Mapping[State, ClaimedFrom] = {State.DRAFT: "draft", State.PAUSED: "paused"}
_SENTENCE_ENDS = (".", "!", "?", ":", ";")


def claim(
    task: Task,
    context: Context,
    *,
    run_id: str | None = None,
    authorized: bool = False,
    by: str | None = None,
    outputs: Mapping[str, Json] | None = None,
    summary: str | None = None,
    final_message: str | None = None,
    tool_summary: tuple[ToolCount, ...] = (),
) -> Events:
    """Claim completion, and conclude at once if no criterion has to be checked by code.

    `authorized` is true for a run whose task has authority over this one. Any other agent must
    own the task or have created it. `by` is who claims instead of the task's own agent or session.
    """
    if found := gaps(task, outputs, context.files):
        raise refusal(found)
    if not authorized:
        must_own_or_create(context.actor, task, "complete it")
    if outputs is not None:
        collected = provided_outputs(task, outputs)
        outputs = {name: collected[name] for name in outputs}
    claimed = ev.CompletionClaimed(
        run_id=run_id,
        outputs=outputs,
        summary=summary,
        final_message=final_message,
        tool_summary=tool_summary,
        by=by,
        claimed_from=_CLAIMED_FROM.get(task.state),
    )
    after = fold(task, [claimed], context)
    # Attest now: the events that conclude the checks can have a different actor.
    attested = [
        _attest(item, after)
        for item in after.acceptance
        if item.check is None and item.status == "unchecked"
    ]
    return [claimed, *attested, *conclude(fold(after, attested, context))]


def join_texts(*texts: str | None) -> str:
    """Join texts as paragraphs. Drop each text that a later one repeats or an earlier one ends
    with.
    """
    parts: list[str] = []
    for text in filter(None, texts):
        parts = [part for part in parts if not _repeats(text, part)]
        if parts and _ends_with(parts[-1], text):
            continue
        parts.append(text)
    return "\n\n".join(parts)


def _repeats(text: str, part: str) -> bool:
    """Return whether `text` contains `part`; a short part must be a whole sentence or line."""
    whole, sought = _collapse_spaces(text), _collapse_spaces(part)
    if len(sought) >= LONG:
        return sought in whole
    if sought in map(_collapse_spaces, text.splitlines()):
        return True
    end = "" if sought.endswith(_SENTENCE_ENDS) else r"(?=$|[.!?:;])"
    return re.search(rf"(?:^|[.!?:;] ){re.escape(sought)}{end}", whole) is not None


def _ends_with(text: str, end: str) -> bool:
    """Return whether the last sentences or the last line of `text` equal `end`."""
    whole, last = _collapse_spaces(text), _collapse_spaces(end)
    if not whole.endswith(last):
        return False
    before = whole.removesuffix(last).rstrip()
    if not before or before[-1] in ".!?:;":
        return True
    last_line = text.rstrip().rpartition("\n")[2]
    return _collapse_spaces(last_line) == last


def _collapse_spaces(text: str) -> str:
    return " ".join(text.split())


def report_gaps(
    task: Task,
    found: Sequence[Gap],
    *,
    outputs: Mapping[str, Json] | None = None,
    told: bool = False,
    final_message: str | None = None,
    tool_summary: tuple[ToolCount, ...] = (),
) -> Events:
    """Give a running agent one more turn to close gaps in its outputs.

    The task fails after `MAX_OUTPUT_ASKS` such turns, with the tools that its run has used.
    """
    if task.output_asks >= MAX_OUTPUT_ASKS:
        failed = ev.TaskFailed(reason="acceptance", message=_gaps_message(found))
        if not tool_summary or task.run is None:
            return [failed]
        used = ev.BudgetSettled(run_id=task.run.id, usage=Usage(), tool_summary=tool_summary)
        return [used, failed]
    asked = replace(task, output_asks=task.output_asks + 1)
    rejected = ev.AcceptanceRejected(
        update_id=task.update_id(),
        gaps=tuple(gap.text for gap in found),
        missing_outputs=True,
        told=told,
        message=missing_outputs(asked, found, outputs),
        final_message=final_message or None,
    )
    return [rejected]


def _gaps_message(found: Sequence[Gap]) -> str:
    missing: list[str] = []
    sentences: list[str] = []
    for gap in found:
        if gap.problems:
            sentences.append(gap.text)
        else:
            missing.append(gap.name)
    if missing:
        sentences.insert(0, f"Required outputs are missing: {', '.join(missing)}.")
    return " ".join(sentences)


def withdraw_claim(task: Task) -> Events:
    """Withdraw a claim that is being checked because the terms changed.

    This does not count as an acceptance round.
    """
    if State.VERIFYING not in (task.state, task.paused_from):
        return []
    return [ev.AcceptanceRejected(update_id="", gaps=(), outdated=True)]


def conclude(task: Task) -> Events:
    """Complete or reject a claimed task; return no events while a criterion is undecided."""
    if task.state is not State.VERIFYING:
        return []
    if not all(criterion.decided for criterion in task.acceptance):
        return []
    attested = [_attest(item, task) for item in task.acceptance if item.status == "unchecked"]
    failing = unmet(task)
    if failing:
        return [*attested, _reject(task, failing)]
    return [*attested, ev.TaskCompleted(verification=_verification(task.acceptance))]


def _attest(criterion: Criterion, task: Task) -> ev.CriterionChecked:
    """Record the claimer's own statement as evidence for a criterion that code cannot check."""
    if statement := task.summary or task.final_message:
        return ev.CriterionChecked(criterion_id=criterion.id, status="attested", evidence=statement)
    return ev.CriterionChecked(criterion_id=criterion.id, status="unverified")


def _verification(acceptance: Sequence[Criterion]) -> Verification:
    """Return whether code or a person has verified every criterion that was not waived."""
    if not acceptance:
        return "none"
    statuses = {criterion.status for criterion in acceptance}
    if statuses - {"waived"} == {"pass"}:
        return "verified"
    return "unverified"


def _gap_text(criterion: Criterion) -> str:
    return f"{criterion.text} ({criterion.evidence})" if criterion.evidence else criterion.text


def _reject(task: Task, failing: list[Criterion]) -> ev.Event:
    gaps = tuple(map(_gap_text, failing))
    if task.rounds >= MAX_ROUNDS:
        return ev.TaskFailed(
            reason="acceptance",
            message=f"Not accepted after {MAX_ROUNDS + 1} claims: {'; '.join(gaps)}",
        )
    message = failed_criteria(replace(task, rounds=task.rounds + 1), failing)
    return ev.AcceptanceRejected(update_id=task.update_id(), gaps=gaps, message=message)
