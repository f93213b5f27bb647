"""Acceptance checks that code can decide: their kinds, the files they need, and their verdicts.

Checks of other kinds are kept for the user and stay unverified.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, cast

from remit.domain.outputs.required_outputs import FileFinding, FileQuery, Files
from remit.domain.outputs.schema_check import faults
from remit.domain.records.pick import among
from remit.domain.records.record import Text, record
from remit.domain.records.serialize import dumps
from remit.domain.records.validate import check as read
from remit.domain.task.task import CriterionStatus, Json, Task
from remit.domain.text.truncation import shortened, written_out
from remit.errors import InvalidParam, invalid

Needle = Annotated[str, Text(1, 10_000, "characters")]


IN_JSON = ' (anywhere in its JSON, written like {"a": [1, 2]})'
"""The texts that are searched in an output of kind json."""
MAX_QUOTED = 2_000
"""The most characters of an expected value that an agent sees."""
MAX_EVIDENCE = 60
"""The most characters of a value in evidence."""


class Verdict(NamedTuple):
    """The status of a criterion, and why."""

    status: CriterionStatus
    evidence: str


@record
class FileCheck:
    """A file exists in the workspace, with a text in it if one is given."""

    file: Annotated[str, Text(1, 4096, "characters")]
    contains: Needle | None = None

    @property
    def files(self) -> tuple[FileQuery, ...]:
        """The files that must be looked at."""
        return (FileQuery(self.file, self.contains),)

    @property
    def output_name(self) -> str:
        """The output that the check looks at; empty if it looks at none."""
        return ""

    def judge(self, _: Task, files: Files) -> Verdict:
        """Decide the check by the content of the file."""
        seen = files.get(FileQuery(self.file, self.contains), _NO_WORKSPACE)
        if not seen.found:
            status: CriterionStatus = "unverified" if seen.found is None else "fail"
            return Verdict(status, f"{self.file}: {seen.why}")
        if self.contains is None:
            return Verdict("pass", f"{self.file}: is there")
        return Verdict("pass", f"{self.file}: contains {_short(self.contains)}")

    def requirement(self, task: Task) -> str:
        """Describe for an agent what the check requires."""
        if self.contains is None:
            return f"the file {self.file} exists"
        return f"the file {self.file} contains {_exactly(self.contains, task)}"


@record
class OutputCheck:
    """An output was provided, and equals or contains a value if one is given."""

    output: Annotated[str, Text(1, 128, "characters")]
    equals: Json = None
    contains: Needle | None = None

    @property
    def files(self) -> tuple[FileQuery, ...]:
        """The files that must be looked at."""
        return ()

    @property
    def output_name(self) -> str:
        """The output that the check looks at; empty if it looks at none."""
        return self.output

    def judge(self, task: Task, _: Files) -> Verdict:
        """Decide the check by the value of the output."""
        name, value = f"output {self.output}", task.provided.get(self.output)
        if value is None:
            return Verdict("fail", f"{name}: is missing")
        if self.equals is not None:
            if faults({"const": self.equals}, value, name):
                return Verdict("fail", f"{name}: is {_short(value)}, not {_short(self.equals)}")
            return Verdict("pass", f"{name}: is {_short(value)}")
        if self.contains is None:
            return Verdict("pass", f"{name}: is there")
        return _judge_content(name, value, self.contains)

    def requirement(self, task: Task) -> str:
        """Describe for an agent what the check requires."""
        name = self.output
        if self.equals is not None:
            return f"the output {name} is {_exactly(self.equals, task)}"
        if self.contains is None:
            return f"the output {name} was provided"
        where = IN_JSON if _is_json(name, task) else ""
        return f"the output {name} contains {_exactly(self.contains, task)}{where}"


class OtherCheck(NamedTuple):
    """A check that code cannot decide, and why."""

    problem: str
    files: tuple[FileQuery, ...] = ()
    output_name: str = ""

    def judge(self, _: Task, __: Files) -> Verdict:
        """Leave the criterion to people."""
        return Verdict("unverified", self.problem)

    def requirement(self, _: Task) -> str:
        """Return an empty text: an agent is told nothing about the check."""
        return ""


Check = FileCheck | OutputCheck
KINDS: Mapping[str, type[Check]] = {"file": FileCheck, "output": OutputCheck}
_NO_WORKSPACE = FileFinding(None, "there was no workspace to check it in")


def parse_check(check: Json, field: str) -> Check | None:
    """Parse a check that code can decide; None for a check of another kind.

    Raise `InvalidParam` for an invalid check.
    """
    if not isinstance(check, Mapping):
        return None
    given = cast("Mapping[str, Any]", check)
    kinds = among(KINDS, given)
    if not kinds:
        return None
    if len(kinds) > 1:
        both = f"has both {' and '.join(kinds)}"
        raise invalid(field, both, "one of them; use another criterion for the other")
    if given.get("equals", "") is None:
        raise invalid(
            f"{field}.equals", "is null", "another value; an output of null counts as missing"
        )
    found: Check = read(KINDS[kinds[0]], given, field)
    if isinstance(found, OutputCheck) and None not in (found.equals, found.contains):
        raise invalid(field, "has both equals and contains", "one of them")
    return found


def files_to_check(task: Task) -> tuple[FileQuery, ...]:
    """Return the files to look at before the open criteria of a task can be decided."""
    checks = [_parse_stored(item.check) for item in task.acceptance if not item.decided]
    return tuple(dict.fromkeys(query for check in checks for query in check.files))


def judge(check: Json, task: Task, files: Files) -> Verdict:
    """Decide a criterion with this check, given the files."""
    return _parse_stored(check).judge(task, files)


def checked_output(check: Json) -> str:
    """Return the name of the output that a check looks at; empty for any other check."""
    return _parse_stored(check).output_name


def requirement(check: Json, task: Task) -> str:
    """Describe what a check requires for an agent; empty if there is no check that code decides."""
    return _parse_stored(check).requirement(task)


def _is_json(name: str, task: Task) -> bool:
    """Return True if a task has an output of kind json with a name."""
    return any((output.name, output.kind) == (name, "json") for output in task.outputs)


def _exactly(value: Json, task: Task) -> str:
    """Return a value as JSON that an agent can reproduce, or the call that shows a long one."""
    whole = dumps(value)
    if len(whole) <= MAX_QUOTED:
        return whole
    return f"{_truncate(whole)} ({written_out('get_task', task_id=task.id)} shows it whole)"


def _short(value: Json) -> str:
    """Return a value as JSON, truncated."""
    return _truncate(dumps(value))


def _truncate(text: str) -> str:
    return shortened(text, MAX_EVIDENCE, "...")


def _parse_stored(check: Json) -> Check | OtherCheck:
    """Return the check, or why code cannot decide it.

    Checks stored by earlier versions may have any shape.
    """
    try:
        found = parse_check(check, "check")
    except InvalidParam as error:
        return OtherCheck(str(error))
    return found or OtherCheck(f"Code cannot decide a check of this kind: {_short(check)}.")


def _judge_content(name: str, value: Json, text: str) -> Verdict:
    """Decide whether an output contains a text."""
    if any(text in found for found in _texts(value)):
        return Verdict("pass", f"{name}: contains {_short(text)}")
    evidence = f"{name}: does not contain {_short(text)}"
    if not isinstance(value, str):
        evidence += f", its JSON text is {_truncate(_json_text(value))}"
    return Verdict("fail", evidence)


def _texts(value: Json) -> Iterator[str]:
    """Return the texts to search: a text itself, or the JSON text of a value and each
    string in it.
    """
    if not isinstance(value, str):
        yield _json_text(value)
    rest: list[Any] = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            fields = cast("Mapping[str, Any]", item)
            rest += [*fields, *fields.values()]
        elif isinstance(item, list | tuple):
            rest += cast("Sequence[Any]", item)


def _json_text(value: Json) -> str:
    """Return a value as one line of JSON with a space after each comma and colon."""
    return json.dumps(value, ensure_ascii=False)
