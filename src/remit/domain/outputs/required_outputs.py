"""Required outputs: which schemas are accepted, and which provided outputs are missing or wrong."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from remit.domain.outputs.accepted_schemas import schema_problem
from remit.domain.outputs.schema_check import faults
from remit.domain.records.validate import check, describe
from remit.domain.task.task import Json, Output, Task
from remit.domain.text.counting import plural
from remit.errors import InvalidParam, Problem, invalid


class FileQuery(NamedTuple):
    """A file to look for, and a text to find in it."""

    path: str
    text: str | None = None


class FileFinding(NamedTuple):
    """True if it was found, None if unknown; and the reason if not."""

    found: bool | None
    why: str = ""


_UNSEEN = FileFinding(found=True)
"""A file that could not be checked is not refused."""
Files = Mapping[FileQuery, FileFinding]
"""The files that were checked, with the results; missing entries could not be checked."""

EXPECTED = {
    "text": "text",
    "json": "a JSON value",
    "file": "the path of a file in the workspace",
    "url": "an absolute URL",
}


class Gap(NamedTuple):
    """A required output that is missing or wrong."""

    name: str
    problems: tuple[Problem, ...] = ()

    @property
    def text(self) -> str:
        """Return the gap as text for an agent."""
        return " ".join(map(str, self.problems)) or f"The required output {self.name} is missing."


def validate_outputs(outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """Return the outputs if their names are unique and every schema can be checked."""
    names = Counter(output.name for output in outputs)
    for name, count in names.items():
        if count > 1:
            raise invalid("outputs", f"names {name!r} twice", "each name once")
    for index, output in enumerate(outputs):
        _validate_schema(output, f"outputs[{index}].schema")
    return outputs


def _validate_schema(output: Output, field: str) -> None:
    """Refuse a schema of an output that is not JSON, or one that cannot be checked."""
    if output.schema is None:
        return
    if output.kind != "json":
        raise invalid(field, f"is given for an output of kind {output.kind}", "kind json")
    problem = schema_problem(output.schema, field)
    if problem is not None:
        raise InvalidParam([problem])


def provided_outputs(task: Task, given: Mapping[str, Json] | None) -> dict[str, Json]:
    """Return all outputs provided so far; JSON outputs given as text are parsed."""
    given = given or {}
    read = {
        output.name: _read(output, given[output.name])
        for output in task.outputs
        if output.name in given
    }
    return {**task.provided, **given, **read}


def gaps(task: Task, given: Mapping[str, Json] | None, files: Files) -> list[Gap]:
    """Return the required outputs that are missing or wrong."""
    provided = provided_outputs(task, given)
    missing: list[Gap] = []
    wrong: list[Gap] = []
    for output in task.outputs:
        value = provided.get(output.name)
        if value is not None:
            wrong.append(Gap(output.name, _wrong(output, value, files)))
        elif output.required:
            missing.append(Gap(output.name))
    return missing + [gap for gap in wrong if gap.problems]


def refusal(found: Sequence[Gap]) -> InvalidParam:
    """Return the gaps as an error, missing outputs first."""
    missing: list[str] = []
    wrong: list[str] = []
    problems: list[Problem] = []
    for gap in found:
        problems += gap.problems
        if gap.problems:
            wrong.append(gap.name)
        else:
            missing.append(gap.name)
    if missing:
        problems.insert(0, _report_missing(missing))
    return InvalidParam(problems, details={"missing": missing, "wrong": wrong})


def _report_missing(missing: list[str]) -> Problem:
    """Return one problem for all missing outputs."""
    noun = plural(len(missing), "output")
    names = ", ".join(missing)
    return Problem("outputs", f"missing required {noun}: {names}", f"Add {names} to outputs.")


def output_files(task: Task, given: Mapping[str, Json] | None) -> tuple[FileQuery, ...]:
    """Return the files to look for before the outputs can be checked."""
    provided = provided_outputs(task, given)
    files = [provided.get(output.name) for output in task.outputs if output.kind == "file"]
    return tuple(FileQuery(path) for path in files if isinstance(path, str))


def _wrong(output: Output, value: Json, files: Files) -> tuple[Problem, ...]:
    """Return the problem of a provided output."""
    field = f"outputs.{output.name}"
    if output.kind == "json":
        return _wrong_json(output, value, field)
    expected = EXPECTED[output.kind]
    if not isinstance(value, str):
        return (Problem(field, "is not text", f"{expected}, since its kind is {output.kind}"),)
    if output.kind == "url" and not _is_url(value):
        return (Problem(field, f"is {describe(value)}", expected),)
    seen = files.get(FileQuery(value), _UNSEEN)
    if output.kind != "file" or seen.found:
        return ()
    return (Problem(field, f"is {describe(value)}: {seen.why}", expected),)


def _wrong_json(output: Output, value: Json, field: str) -> tuple[Problem, ...]:
    """Return the problem of a JSON output, by its schema if it has one."""
    if output.schema is None:
        return _wrong_json_text(value, field)
    if schema_problem(output.schema, field):  # stored before schemas were checked
        return ()
    return tuple(Problem(*fault) for fault in faults(output.schema, value, field))


def _wrong_json_text(value: Json, field: str) -> tuple[Problem, ...]:
    """Return the problem of a text that should be JSON."""
    if not isinstance(value, str) or _parse_json(value, None) is not None:
        return ()
    problem = f"is not valid JSON text: {describe(value)}"
    return (Problem(field, problem, EXPECTED["json"]),)


def _read(output: Output, value: Json) -> Json:
    """Parse JSON that a model provided as text, unless the text itself is valid."""
    if output.kind != "json" or not isinstance(value, str):
        return value
    if output.schema is not None and _is_valid(output.schema, value):
        return value
    parsed = _parse_json(value, value)
    return value if isinstance(parsed, str) else parsed


def _is_valid(schema: Json, value: Json) -> bool:
    """Return True if a value is valid under a schema that can be checked."""
    if schema_problem(schema, "schema"):
        return False
    return not faults(schema, value, "")


def _parse_json(text: str, otherwise: Json) -> Json:
    """Parse a text as JSON by the rules for outside input."""
    try:
        return check(Any, json.loads(text, parse_constant=_refuse_number), "json")
    except (ValueError, RecursionError, InvalidParam):
        return otherwise


def _refuse_number(word: str) -> Any:
    raise ValueError(word)


def _is_url(value: str) -> bool:
    """Return True for a URL with a scheme and a host."""
    try:
        return all(urlsplit(value)[:2])
    except ValueError:
        return False
