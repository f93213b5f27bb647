"""Every error remit raises on purpose.

RemitError
├── InvalidParam       INVALID_PARAM     422   exit 2
├── NotFound           NOT_FOUND         404   exit 3
├── Conflict           CONFLICT          409   exit 4
│   └── StaleRun
├── Unauthenticated    UNAUTHENTICATED   401   exit 5
├── Forbidden          FORBIDDEN         403   exit 5
├── LimitExceeded      LIMIT_EXCEEDED    429   exit 6
├── Unavailable        UNAVAILABLE       503   exit 7
│   ├── Unacknowledged
│   ├── Busy
│   └── RolledBack     CONFLICT          409   exit 4
├── TimedOut           TIMEOUT           504   exit 124
└── Internal           INTERNAL_ERROR    500   exit 1
    ├── Corrupt
    ├── UnknownEvent
    └── NewerSchema
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple


class RemitError(Exception):
    """An error with a wire code, an HTTP status, an exit code, and a hint of what to do next."""

    code: ClassVar[str] = "INTERNAL_ERROR"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "", details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = dict(details or {})
        self.around: Mapping[str, Any] = {}
        """What an answer holds beside the error, where its operation promises a shape also for what it refuses."""
        self.for_agent = ""
        """What a running agent is told instead of the message, where that says more."""

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()

    def wire(self) -> dict[str, Any]:
        """The one error shape of every surface."""
        error: dict[str, Any] = {"code": self.code, "message": str(self)}
        if self.details:
            error["details"] = self.details
        return {**self.around, "error": error}


_ADVICE = ("Did you mean ", "Available: ", "Add ", "Check ")
"""How advice begins that is a sentence of its own."""


class Problem(NamedTuple):
    """What is wrong with one field, and what would be right."""

    field: str
    problem: str
    expected: str

    def __str__(self) -> str:
        if self.expected.startswith(_ADVICE):
            return f"{self.field}: {self.problem}. {self.expected}"
        return f"{self.field}: {self.problem}; expected {self.expected}."


class InvalidParam(RemitError):
    """A field is missing, unknown, or has a value that cannot be used."""

    code, status, exit_code = "INVALID_PARAM", 422, 2

    def __init__(self, problems: Sequence[Problem], *, hint: str = "", details: Mapping[str, Any] | None = None) -> None:
        fields = [problem._asdict() for problem in problems]
        super().__init__(" ".join(map(str, problems)), hint=hint, details={"fields": fields, **(details or {})})


def invalid(field: str, problem: str, expected: str, **details: Any) -> InvalidParam:
    """An InvalidParam about one field."""
    return InvalidParam([Problem(field, problem, expected)], details=details)


def unknown(field: str, what: str, value: str, known: Iterable[str]) -> InvalidParam:
    """An InvalidParam about a name that is not among the known ones: `owner: unknown agent 'bild'. Did you mean build? Available: …`."""
    return invalid(field, f"unknown {what} {value!r}", advice(value, known))


def advice(value: str, known: Iterable[str]) -> str:
    """The known name that a wrong one is closest to, and all of them."""
    from difflib import get_close_matches

    names = sorted(known)
    close = get_close_matches(value.lower(), {name.lower(): name for name in names}, n=1)
    meant = [f"Did you mean {next(name for name in names if name.lower() == close[0])}?"] if close else []
    return " ".join([*meant, f"Available: {', '.join(names)}."])


class NotFound(RemitError):
    """What was asked for does not exist."""

    code, status, exit_code = "NOT_FOUND", 404, 3


def no_task(ref: str, field: str = "task_id") -> NotFound:
    """A NotFound about a task."""
    return _missing("task", ref, field, "list_tasks and list_history show what there is.")


def no_guide(guide_id: str) -> NotFound:
    """A NotFound about a guide."""
    return _missing("guide", guide_id, "guide_id", "list_guides shows what there is.")


def _missing(what: str, ref: str, field: str, hint: str) -> NotFound:
    """A NotFound whose hint agents are not told: they may not have the tools that it names."""
    found = NotFound(f"There is no {what} {ref}.", hint=hint, details={field: ref})
    found.for_agent = found.message
    return found


class Conflict(RemitError):
    """The request is well formed but does not fit the present state."""

    code, status, exit_code = "CONFLICT", 409, 4


class StaleRun(Conflict):
    """A run that lost its lease tried to write."""


class Unauthenticated(RemitError):
    """Nobody knows who is calling."""

    code, status, exit_code = "UNAUTHENTICATED", 401, 5


class Forbidden(RemitError):
    """The caller is known and may not do this."""

    code, status, exit_code = "FORBIDDEN", 403, 5


class LimitExceeded(RemitError):
    """A limit on depth, children, budget or rate holds the request back."""

    code, status, exit_code = "LIMIT_EXCEEDED", 429, 6


class Unavailable(RemitError):
    """The store cannot be reached or cannot write now; whether the last write happened may be unknown."""

    code, status, exit_code = "UNAVAILABLE", 503, 7


class Unacknowledged(Unavailable):
    """A commit was sent and no answer came: it may or may not have happened, and the same unit can safely be sent again."""


class Busy(Unavailable):
    """Another process held the database longer than we were willing to wait."""


class RolledBack(Unavailable):
    """The store went back in time, or its file was replaced under a live process; nothing is written until somebody decides."""

    code, status, exit_code = "CONFLICT", 409, 4


class TimedOut(RemitError):
    """The time allowed for the call is over."""

    code, status, exit_code = "TIMEOUT", 504, 124


class Internal(RemitError):
    """Something that should be impossible happened."""


class Corrupt(Internal):
    """Stored data does not hold together."""


class UnknownEvent(Internal):
    """A stored event is of a type or shape that this version does not know."""


class NewerSchema(Internal):
    """The database was made by a newer remit."""
