"""Why a result is not accepted yet, and how to claim completion again."""

from collections.abc import Collection, Mapping, Sequence

from remit.domain.outputs.criteria import checked_output, requirement
from remit.domain.outputs.required_outputs import Gap, gaps, provided_outputs
from remit.domain.prompts.claims import (
    claim_with,
    failing_checks,
    failing_outputs,
    next_claim,
    outstanding,
    placeholders,
    required_outputs,
)
from remit.domain.prompts.headings import HEADINGS, without_headings
from remit.domain.prompts.terms import handed_by_others
from remit.domain.records.record import replace
from remit.domain.task.policy import MAX_OUTPUT_ASKS, MAX_ROUNDS
from remit.domain.task.task import Criterion, Json, Task, Update
from remit.domain.text.optional_lines import indented

_INCOMPLETE = "The task is not complete."
"""The start of a rejection that names missing outputs."""
_NO_LONGER_COUNTS = """\
A result was not accepted, but the terms have changed since, so that rejection no longer applies. \
If the work is done, {}."""
"""The text of a rejection whose criteria or outputs were changed or waived."""


def refused_claim(task: Task, found: Sequence[Gap], given: Mapping[str, Json] | None) -> str:
    """Return the answer to complete_task if outputs are missing or wrong."""
    return f"{HEADINGS['rejection']}\n{missing_outputs(task, found, given)}"


def missing_outputs(task: Task, found: Sequence[Gap], given: Mapping[str, Json] | None) -> str:
    """List outputs that are missing or wrong, also by the checks of criteria, and the call that
    hands over all of them.

    `given` are the outputs of the refused claim, which are not kept.
    """
    named = {gap.name for gap in found}
    failing = _other_failing_checks(task, named, given)
    named.update(checked_output(item.check) for item in failing)
    required = required_outputs(task)
    values = outstanding(task)
    wanted = [output for output in task.outputs if output.name in named.union(values)]
    values |= placeholders(wanted)
    what = "outputs are not accepted"
    if named <= required:
        what = "required outputs are missing or wrong"
    kept = required.union(task.provided, failing_outputs(task))
    omittable = [output.name for output in wanted if output.name not in kept]
    repeated = [name for name in values if name in (given or {}) and name not in named]
    own_values = ", replacing each <…> with your own value" if values else ""
    return "\n".join(
        [
            f"{_INCOMPLETE} These {what}:",
            *[f"- {gap.text}" for gap in found],
            *_criteria_with_checks(task, failing),
            f"Call {claim_with(values)}{own_values}.{_named(' You can leave out: ', omittable)}"
            f"{_named(' The refused call is not kept, so send again: ', repeated)}"
            " A message alone does not hand over an output.",
            *_last_chance(task.output_asks, MAX_OUTPUT_ASKS),
        ]
    )


def _named(label: str, names: Sequence[str]) -> str:
    """Return a sentence with names, or an empty text without any."""
    return f"{label}{', '.join(names)}." if names else ""


def _other_failing_checks(
    task: Task, named: Collection[str], given: Mapping[str, Json] | None
) -> list[Criterion]:
    """Return the criteria that fail because of an output that is not among the named ones."""
    claimed = replace(task, completion_outputs=provided_outputs(task, given))
    return [item for item in failing_checks(claimed) if checked_output(item.check) not in named]


def _criteria_with_checks(task: Task, failing: Sequence[Criterion]) -> list[str]:
    """Return criteria as list items, each with its check and what the check found."""
    lines: list[str] = []
    for item in failing:
        check = requirement(item.check, task) or "by remit"
        lines += [f"- {item.id}: {indented(item.text)}", f"  Check: {check}."]
        if item.evidence:
            lines.append(f"  Found: {item.evidence}.")
    return lines


def failed_criteria(task: Task, failing: Sequence[Criterion]) -> str:
    """List the criteria that a result fails, and how to claim completion again."""
    lines = [f"The result that {_claimer(task)} does not meet these criteria:"]
    lines += _criteria_with_checks(task, failing)
    lines += handed_by_others(task) if task.claimed_by else []
    lines.append(f"Close these gaps. Then {next_claim(task)}.")
    return "\n".join([*lines, *_last_chance(task.rounds, MAX_ROUNDS)])


def _claimer(task: Task) -> str:
    """Say who handed over the last result; a session may not be the one that reads this."""
    if task.session_id is not None:
        return "was handed over"
    return f"{task.claimed_by or 'you'} handed over"


def _last_chance(refusals: int, most: int) -> list[str]:
    """Return a warning if the next rejection would fail the task."""
    if refusals < most:
        return []
    return ["If the next result is not accepted either, the task fails."]


def unmet(task: Task) -> list[Criterion]:
    """Return the criteria that the last result failed and that still apply."""
    return [criterion for criterion in task.acceptance if criterion.status == "fail"]


def unmet_now(task: Task) -> str:
    """Return why the last result failed its criteria; empty if that no longer applies."""
    failing = unmet(task)
    return failed_criteria(task, failing) if failing else ""


def _missing_now(task: Task) -> str:
    """Return which outputs are missing or wrong; empty if that no longer applies."""
    found = gaps(task, None, {})
    return missing_outputs(task, found, None) if found else ""


def standing_rejection(task: Task) -> str:
    """Return why the last result was not accepted; empty if that no longer applies."""
    reason = unmet_now(task)
    return f"{HEADINGS['rejection']}\n{without_headings(reason)}" if reason else ""


def rejection_text(task: Task, update: Update, *, is_newest: bool) -> str:
    """Return why a result was not accepted, by the current terms."""
    if not is_newest:
        return "Replaced by a later rejection."
    names_outputs = update.content.startswith(_INCOMPLETE)
    reason = _missing_now(task) if names_outputs else unmet_now(task)
    return reason or _NO_LONGER_COUNTS.format(next_claim(task))


def is_rejection(text: str) -> bool:
    """Return True for the text of a rejection."""
    return text.startswith(f"{HEADINGS['rejection']}\n")
