"""Checks that code decides: which there are, what must be looked at for them, and what is said of a criterion then.

A check of another kind may be somebody's own. It is kept, and called unverified.
"""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, cast

from remit.domain.conform import faults
from remit.domain.output import Files, Sought
from remit.domain.record import Text, record
from remit.domain.shape import check as read
from remit.domain.shape import describe
from remit.domain.value import CriterionStatus, Json, Task
from remit.domain.wire import dumps
from remit.errors import InvalidParam, invalid

Needle = Annotated[str, Text(1, 10_000, "characters")]


@record
class FileCheck:
    """A file is in the workspace, with a text in it if one is named."""

    file: Annotated[str, Text(1, 4096, "characters")]
    contains: Needle | None = None


@record
class OutputCheck:
    """An output was handed over, and is or contains something if that is named."""

    output: Annotated[str, Text(1, 128, "characters")]
    equals: Json = None
    contains: Needle | None = None


MOST_QUOTED = 2_000
"""How many characters of an expected value an agent is shown."""
MOST_FOUND = 60
"""How many characters of a value stand in evidence."""
Check = FileCheck | OutputCheck
KINDS: Mapping[str, type[Check]] = {"file": FileCheck, "output": OutputCheck}


class Verdict(NamedTuple):
    """What is said of a criterion, and why."""

    status: CriterionStatus
    evidence: str


def known(check: Json, field: str) -> Check | None:
    """A check that code can decide, or nothing for one of another kind; InvalidParam names what is wrong with it."""
    if not isinstance(check, Mapping):
        return None
    given = cast("Mapping[str, Any]", check)
    kinds = [name for name in KINDS if name in given]
    if not kinds:
        return None
    if len(kinds) > 1:
        raise invalid(field, f"has both {' and '.join(kinds)}", "one of them; another criterion can have the other")
    if "equals" in given and given["equals"] is None:
        raise invalid(f"{field}.equals", "is null", "another value; an output of null counts as missing")
    found: Check = read(KINDS[kinds[0]], given, field)
    if isinstance(found, OutputCheck) and found.equals is not None and found.contains is not None:
        raise invalid(field, "has both equals and contains", "one of them")
    return found


def sought(task: Task) -> tuple[Sought, ...]:
    """The files that must be looked at before the open criteria of a task can be decided."""
    checks = [_readable(item.check) for item in task.acceptance if not item.decided]
    return tuple(dict.fromkeys(Sought(check.file, check.contains) for check in checks if isinstance(check, FileCheck)))


def judge(check: Json, task: Task, files: Files) -> Verdict:
    """What code says of a criterion with this check, now that the files were looked at."""
    match _readable(check):
        case FileCheck(file=path, contains=text):
            return _file(Sought(path, text), files)
        case OutputCheck() as wanted:
            return _output(wanted, (task.completion_outputs or {}).get(wanted.output))
        case str() as problem:
            return Verdict("unverified", problem)


def requirement(check: Json) -> str:
    """What a check asks for, as an agent reads it; empty for no check, or one that nothing here decides."""
    if check is None:
        return ""
    match _readable(check):
        case FileCheck(file=path, contains=None):
            return f"the file {path} exists"
        case FileCheck(file=path, contains=text):
            return f"the file {path} contains {_exactly(text)}"
        case OutputCheck(output=name, equals=None, contains=None):
            return f"the output {name} was handed over"
        case OutputCheck(output=name, equals=None, contains=text):
            return f"the output {name} contains {_exactly(text)}"
        case OutputCheck(output=name, equals=value):
            return f"the output {name} is {_exactly(value)}"
        case str():
            return ""


def _exactly(value: Json) -> str:
    """A value as JSON, so that an agent can produce it; a very long one is only described."""
    whole = dumps(value)
    return whole if len(whole) <= MOST_QUOTED else describe(value)


def _short(value: Json) -> str:
    """A value as JSON, cut where it is long."""
    whole = dumps(value)
    return whole if len(whole) <= MOST_FOUND else f"{whole[: MOST_FOUND - 3]}..."


def _readable(check: Json) -> Check | str:
    """The check, or why nothing here can decide it; what was stored before checks were looked at may be anything."""
    try:
        return known(check, "check") or f"No code here decides a check of this kind: {describe(check)}."
    except InvalidParam as error:
        return str(error)


def _file(wanted: Sought, files: Files) -> Verdict:
    seen = files.get(wanted)
    if seen is None:
        return Verdict("unverified", f"{wanted.path}: there was no workspace to look for it where this was checked")
    if seen.found is None:
        return Verdict("unverified", f"{wanted.path}: {seen.why}")
    if not seen.found:
        return Verdict("fail", f"{wanted.path}: {seen.why}")
    return Verdict("pass", f"{wanted.path}: is there" if wanted.text is None else f"{wanted.path}: contains {_short(wanted.text)}")


def _output(wanted: OutputCheck, value: Json) -> Verdict:
    name = f"output {wanted.output}"
    if value is None:
        return Verdict("fail", f"{name}: is missing")
    if wanted.equals is not None:
        if faults({"const": wanted.equals}, value, name):
            return Verdict("fail", f"{name}: is {_short(value)}, not {_short(wanted.equals)}")
        return Verdict("pass", f"{name}: is {_short(value)}")
    if wanted.contains is None:
        return Verdict("pass", f"{name}: is there")
    if not isinstance(value, str):
        return Verdict("fail", f"{name}: is {_short(value)}, which is no text")
    has = wanted.contains in value
    return Verdict("pass" if has else "fail", f"{name}: {'contains' if has else 'does not contain'} {_short(wanted.contains)}")
