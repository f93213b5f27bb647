"""How to claim completion: the call of complete_task, and the outputs that it must contain."""

from collections.abc import Iterable, Mapping

from remit.domain.outputs.criteria import checked_output, judge
from remit.domain.outputs.required_outputs import gaps
from remit.domain.records.record import replace
from remit.domain.records.serialize import dumps
from remit.domain.task.task import Criterion, Output, OutputKind, Task

_PLACEHOLDERS: Mapping[OutputKind, str] = {
    "text": '"<the text>"',
    "json": "<a JSON value>",
    "file": '"<the path of a file in the workspace>"',
    "url": '"<an absolute URL>"',
}


_NEW: Mapping[OutputKind, str] = {
    "text": '"<the new text>"',
    "json": "<the new JSON value>",
    "file": '"<the path of the new file>"',
    "url": '"<the new URL>"',
}


def claim_again(task: Task) -> str:
    """Return the call of complete_task that hands over the outstanding outputs."""
    values = outstanding(task)
    if task.session_id is None:
        return claim_with(values)
    outputs = f", outputs={_json_object(values)}" if values else ""
    return f'complete_task(task_id="{task.id}"{outputs})'


def claim_with(values: Mapping[str, str]) -> str:
    """Return the call with which a running agent hands over outputs, with their placeholders."""
    if not values:
        return "complete_task"
    return f'complete_task with {{"outputs": {_json_object(values)}}}'


def _json_object(values: Mapping[str, str]) -> str:
    """Return a JSON object with a placeholder for each value."""
    fields = [f"{dumps(name)}: {value}" for name, value in values.items()]
    return "{" + ", ".join(fields) + "}"


def next_claim(task: Task) -> str:
    """Return how to claim completion after a rejected claim."""
    # A final message with open steps only ends the run of a task that was not delegated.
    must_call = (
        task.completion == "explicit"
        or task.session_id is not None
        or task.is_kept_open
        or bool(outstanding(task))
    )
    call = f"call {claim_again(task)}{_repeats_result(task)}"
    return call if must_call else f"{call}, or end with one message that holds the whole result"


def _repeats_result(task: Task) -> str:
    """Explain what a claim without a summary does, if it hands over the refused result again."""
    if not task.refused_summary or outstanding(task):
        return ""
    return " (without a summary, it hands over your last result again)"


def outstanding(task: Task) -> dict[str, str]:
    """Return a placeholder for each output that the next claim must contain.

    A check can need an output that is optional, or that the task does not declare.
    """
    missing = {gap.name for gap in gaps(task, None, {})}
    failing = failing_outputs(task)
    wanted = missing.union(failing)
    values = placeholders(output for output in task.outputs if output.name in wanted)
    for name in failing:
        values.setdefault(name, "<the value>")
    return values | _replacements(task, failing)


def _replacements(task: Task, failing: Iterable[str]) -> dict[str, str]:
    """Return a placeholder for each output that was handed over with a value that fails a check."""
    declared = {output.name: output for output in task.outputs}
    replaced = [name for name in failing if task.provided.get(name) is not None]
    return {name: _new_value(declared.get(name)) for name in replaced}


def _new_value(output: Output | None) -> str:
    if output is None:
        return "<the new value>"
    return _placeholder(output, _NEW)


def placeholders(outputs: Iterable[Output]) -> dict[str, str]:
    """Return a placeholder for the value of each output, by its name."""
    return {output.name: _placeholder(output) for output in outputs}


def _placeholder(output: Output, by_kind: Mapping[OutputKind, str] = _PLACEHOLDERS) -> str:
    if output.schema is not None:
        return "<a JSON value that follows the schema>"
    return by_kind[output.kind]


def in_force(task: Task) -> list[Criterion]:
    """Return the criteria that were not waived."""
    return [item for item in task.acceptance if item.status != "waived"]


def failing_checks(task: Task) -> list[Criterion]:
    """Return the criteria whose check of an output would fail now, each with the evidence."""
    checked = [item for item in in_force(task) if checked_output(item.check)]
    verdicts = [judge(item.check, task, {}) for item in checked]
    return [
        replace(item, evidence=verdict.evidence)
        for item, verdict in zip(checked, verdicts, strict=True)
        if verdict.status == "fail"
    ]


def failing_outputs(task: Task) -> list[str]:
    """Return the outputs for which a check would fail now."""
    return [checked_output(item.check) for item in failing_checks(task)]


def needed_outputs(task: Task) -> set[str]:
    """Return the names of the outputs that the task or one of its checks requires."""
    checked = {checked_output(item.check) for item in in_force(task)}
    return required_outputs(task).union(filter(None, checked))


def required_outputs(task: Task) -> set[str]:
    """Return the names of the outputs that the task requires."""
    return {output.name for output in task.outputs if output.required}
