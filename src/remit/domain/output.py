"""What a task must hand over: which schemas are taken, and what of that which was handed over is missing or wrong."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from remit.domain.conform import faults, unusable
from remit.domain.shape import check, describe
from remit.domain.value import Json, Output, Task
from remit.errors import InvalidParam, Problem, invalid


class Sought(NamedTuple):
    """A file that is looked for, and a text that is looked for in it."""

    path: str
    text: str | None = None


class Seen(NamedTuple):
    """Whether it was found, or nothing where that cannot be told; if not, why."""

    found: bool | None
    why: str = ""


Files = Mapping[Sought, Seen]
"""What somebody has looked for, and what was seen of it; what is not there could not be looked for."""

EXPECTED = {"text": "text", "json": "a JSON value", "file": "the path of a file in the workspace", "url": "an absolute URL"}


class Gap(NamedTuple):
    """An output that is missing, or wrong."""

    name: str
    problems: tuple[Problem, ...] = ()

    @property
    def told(self) -> str:
        """The gap as an agent reads it."""
        return " ".join(map(str, self.problems)) or f"The required output {self.name} is missing."


def usable(outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """The outputs, if no two have the same name and every schema can be checked."""
    names = [output.name for output in outputs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise invalid("outputs", f"names {twice!r} twice", "each name once")
    for index, output in enumerate(outputs):
        field = f"outputs[{index}].schema"
        if output.schema is not None and output.kind != "json":
            raise invalid(field, f"is given for an output of kind {output.kind}", "kind json")
        if output.schema is not None and (problem := unusable(output.schema, field)):
            raise InvalidParam([problem])
    return outputs


def handed(task: Task, given: Mapping[str, Json] | None) -> dict[str, Json]:
    """All that was handed over, now or before; the text of a JSON output as what it says."""
    kinds = {output.name: output for output in task.outputs}
    fresh = {name: _read(kinds[name], value) if name in kinds else value for name, value in (given or {}).items()}
    return {**(task.completion_outputs or {}), **fresh}


def gaps(task: Task, given: Mapping[str, Json] | None, files: Files) -> list[Gap]:
    """What is missing of what a task must hand over, and what is wrong with the rest."""
    there = handed(task, given)
    missing = [Gap(output.name) for output in task.outputs if output.required and there.get(output.name) is None]
    wrong = [Gap(output.name, _wrong(output, there[output.name], files)) for output in task.outputs if there.get(output.name) is not None]
    return missing + [gap for gap in wrong if gap.problems]


def refusal(found: Sequence[Gap]) -> InvalidParam:
    """The gaps as an error, what is missing first."""
    missing = [gap.name for gap in found if not gap.problems]
    noun = "output" if len(missing) == 1 else "outputs"
    names = ", ".join(missing)
    problems = [Problem("outputs", f"missing required {noun}: {names}", f"Add {names} to outputs.")] if missing else []
    wrong = [gap.name for gap in found if gap.problems]
    return InvalidParam([*problems, *(problem for gap in found for problem in gap.problems)], details={"missing": missing, "wrong": wrong})


def handed_files(task: Task, given: Mapping[str, Json] | None) -> tuple[Sought, ...]:
    """The files that must be looked for before it can be said what is wrong."""
    there = handed(task, given)
    return tuple(Sought(there[output.name]) for output in task.outputs if output.kind == "file" and isinstance(there.get(output.name), str))


def _wrong(output: Output, value: Json, files: Files) -> tuple[Problem, ...]:
    field = f"outputs.{output.name}"
    if output.kind == "json":
        return _wrong_json(output, value, field)
    if not isinstance(value, str):
        return (Problem(field, "is not text", f"{EXPECTED[output.kind]}, since its kind is {output.kind}"),)
    if output.kind == "url" and not _is_url(value):
        return (Problem(field, f"is {describe(value)}", EXPECTED["url"]),)
    if output.kind == "file" and (seen := files.get(Sought(value))) is not None and not seen.found:
        return (Problem(field, f"is {describe(value)}: {seen.why}", EXPECTED["file"]),)
    return ()


def _wrong_json(output: Output, value: Json, field: str) -> tuple[Problem, ...]:
    if output.schema is None:
        no_json = isinstance(value, str) and _said(value, None) is None
        return (Problem(field, f"is text that is no JSON: {describe(value)}", EXPECTED["json"]),) if no_json else ()
    if unusable(output.schema, field):  # from before schemas were looked at
        return ()
    return tuple(Problem(*fault) for fault in faults(output.schema, value, field))


def _read(output: Output, value: Json) -> Json:
    """Models hand JSON over as text: what it says counts, unless the text itself is what is asked for."""
    if output.kind != "json" or not isinstance(value, str):
        return value
    if output.schema is not None and not unusable(output.schema, "schema") and not faults(output.schema, value, ""):
        return value
    said = _said(value, value)
    return value if isinstance(said, str) else said


def _said(text: str, otherwise: Json) -> Json:
    """What a text says as JSON, by the rules for all that comes from outside."""
    try:
        return check(Any, json.loads(text, parse_constant=_no_number), "json")
    except (ValueError, RecursionError, InvalidParam):
        return otherwise


def _no_number(word: str) -> Any:
    raise ValueError(word)


def _is_url(value: str) -> bool:
    try:
        return all(urlsplit(value)[:2])
    except ValueError:
        return False
