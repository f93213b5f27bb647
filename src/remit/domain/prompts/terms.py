"""The criteria and outputs of a task, as its agent or session reads them."""

from collections.abc import Callable

from remit.domain.outputs.criteria import requirement
from remit.domain.prompts.claims import in_force, needed_outputs, outstanding
from remit.domain.prompts.headings import without_headings
from remit.domain.records.serialize import dumps
from remit.domain.task.policy import outline
from remit.domain.task.task import Criterion, Output, Task
from remit.domain.text.optional_lines import indented, labeled
from remit.domain.text.truncation import beginning_marked

SHORT = 1_500
"""The number of characters of instructions or of a description that the task block repeats.

Longer ones are referred to, or cut.
"""

CRITERIA_IN_FULL = "Acceptance criteria, which the result must meet:"
"""The first line of the criteria in a first message."""

VALUE = 200
"""The number of characters of an output that is shown to an agent that did not hand it over."""

ALL_WAIVED = "(all of them are waived)"
"""The list of criteria if all of them were waived."""


def listed_criteria(task: Task) -> list[str]:
    """Return a line for each criterion that was not waived, with its check, as sessions read it."""
    return _listed(task, _unnumbered_line)


def numbered_criteria(task: Task) -> list[str]:
    """Return a line for each criterion that was not waived, with its id and its check."""
    return _listed(task, criterion_line)


def _listed(task: Task, line_of: Callable[[Criterion, str], str]) -> list[str]:
    """Return a line for each criterion that was not waived, or that all of them were."""
    lines = [line_of(item, criterion_text(task, item)) for item in in_force(task)]
    if task.acceptance and not lines:
        return [ALL_WAIVED]
    return lines


def _unnumbered_line(_: Criterion, text: str) -> str:
    return f"- [ ] {text}"


def criterion_line(item: Criterion, text: str) -> str:
    """Return the line of a criterion in a list, with its id."""
    box = "[x]" if item.status == "pass" else "[ ]"
    return f"- {box} {item.id}: {text}"


def criteria_in_full(task: Task) -> list[str]:
    """Return the criteria under a heading if the task block only refers to them."""
    if not has_long_criteria(task):
        return []
    lines = [f"- {item.id}: {criterion_text(task, item)}" for item in in_force(task)]
    return [without_headings("\n".join([CRITERIA_IN_FULL, *lines]))]


def has_long_criteria(task: Task) -> bool:
    """Return True if the criteria are too long to be repeated in each request."""
    return sum(len(item.text) for item in in_force(task)) > SHORT


def criterion_text(task: Task, item: Criterion) -> str:
    """Return a criterion as a list item, with its check."""
    text = indented(item.text)
    check = requirement(item.check, task)
    return f"{text} (check: {check})" if check else text


def listed_outputs(task: Task) -> list[str]:
    """Return the required outputs, the optional ones, and their schemas."""
    required, optional = output_outlines(task)
    return [
        *labeled("Required Outputs", required),
        *labeled("Optional Outputs", optional),
        *output_schemas(task),
    ]


def output_outlines(task: Task) -> tuple[str, str]:
    """Return the needed outputs as one line, and the optional ones as another."""
    needed = needed_outputs(task)
    declared = {output.name for output in task.outputs}
    required = [output for output in task.outputs if output.name in needed]
    required += [Output(name=name) for name in sorted(needed - declared)]
    optional = outline(output for output in task.outputs if output.name not in needed)
    return outline(required), optional


def output_schemas(task: Task) -> list[str]:
    """Return a line for each output with a JSON Schema."""
    return [
        f"Output `{output.name}` must match this JSON Schema: {dumps(output.schema)}"
        for output in task.outputs
        if output.schema is not None
    ]


def handed_over(task: Task, *, has_values: bool = False) -> list[str]:
    """Return a line with the outputs that need not be handed over again, if there are any.

    With `has_values`, it contains the values, which a new session has not seen.
    """
    kept = set(task.provided).difference(outstanding(task))
    kept -= set(task.handed_by or {})
    names = [output.name for output in task.outputs if output.name in kept]
    if has_values:
        names = [f"{name}: {_beginning_of(task.provided[name])}" for name in names]
    return labeled(
        "Handed over already (send one again only to replace it)",
        ", ".join(names),
    )


def handed_by_others(task: Task) -> list[str]:
    """Return a line with each output that the agent did not hand over itself, and its value."""
    values = [
        f"{name}: {_beginning_of(task.provided.get(name))} ({by})"
        for name, by in (task.handed_by or {}).items()
    ]
    return labeled(
        "Handed over by others (part of the result unless you replace it)", ", ".join(values)
    )


def _beginning_of(value: object) -> str:
    """Return the beginning of a value as JSON."""
    return beginning_marked(dumps(value), VALUE, " […]")
