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
    ├── InvalidOutput
    ├── UnknownEvent
    └── NewerSchema
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self


class RemitError(Exception):
    """An error with a wire code, an HTTP status, an exit code, and a hint about what to do next."""

    code: ClassVar[str] = "INTERNAL_ERROR"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init__(
        self, message: str, *, hint: str = "", details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details: dict[str, Any] = dict(details or {})
        self.around: Mapping[str, Any] = {}
        """Further fields of the answer, for operations that promise a result shape even for
        errors.
        """
        self.for_agent = ""
        """The message for a running agent, if it differs."""

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()

    def for_call(self, **changes: Any) -> Self:
        """Return a copy with other attributes: a store raises the same error in several calls."""
        copy = type(self).__new__(type(self), *self.args)
        vars(copy).update(vars(self), **changes)
        return copy

    def wire(self) -> dict[str, Any]:
        """Return the error shape that every surface uses."""
        error: dict[str, Any] = {"code": self.code, "message": str(self)}
        if self.details:
            error["details"] = self.details
        return {**self.around, "error": error}


_ADVICE = ("Did you mean ", "Available: ", "Add ", "Check ")
"""The first words of advice that is a complete sentence."""


class Problem(NamedTuple):
    """A problem of one field, and the expected value."""

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

    def __init__(
        self,
        problems: Sequence[Problem],
        *,
        hint: str = "",
        details: Mapping[str, Any] | None = None,
    ) -> None:
        fields = list(map(Problem._asdict, problems))
        super().__init__(
            " ".join(map(str, problems)), hint=hint, details={"fields": fields, **(details or {})}
        )

    @property
    def problems(self) -> list[Problem]:
        """Return the problem of each field."""
        return [Problem(**field) for field in self.details["fields"]]


def invalid(field: str, problem: str, expected: str, **details: Any) -> InvalidParam:
    """Create an `InvalidParam` for one field."""
    return InvalidParam([Problem(field, problem, expected)], details=details)


def unknown(field: str, what: str, value: str, known: Iterable[str]) -> InvalidParam:
    """Create an `InvalidParam` for an unknown name: `owner: unknown agent 'bild'. Did you mean
    build? Available: …`.
    """
    return invalid(field, f"unknown {what} {value!r}", advice(value, known))


def advice(value: str, known: Iterable[str]) -> str:
    """Suggest the closest known name, and list all of them."""
    from difflib import get_close_matches

    names = sorted(known)
    by_lower = {name.lower(): name for name in reversed(names)}
    close = get_close_matches(value.lower(), by_lower, n=1)
    available = f"Available: {', '.join(names)}."
    if not close:
        return available
    return f"Did you mean {by_lower[close[0]]}? {available}"


class NotFound(RemitError):
    """The requested resource does not exist."""

    code, status, exit_code = "NOT_FOUND", 404, 3


def no_task(ref: str, field: str = "task_id") -> NotFound:
    """Create a `NotFound` for a task."""
    return _missing("task", ref, field, "Use list_tasks or list_history to find tasks.")


def no_guide(guide_id: str) -> NotFound:
    """Create a `NotFound` for a guide."""
    return _missing("guide", guide_id, "guide_id", "See the guides with list_guides.")


def _missing(what: str, ref: str, field: str, hint: str) -> NotFound:
    """Create a `NotFound`. Agents do not get the hint: they may not have the tools that it
    names.
    """
    found = NotFound(f"There is no {what} {ref}.", hint=hint, details={field: ref})
    found.for_agent = found.message
    return found


class Conflict(RemitError):
    """The request is valid but conflicts with the current state."""

    code, status, exit_code = "CONFLICT", 409, 4


class StaleRun(Conflict):
    """A run that lost its lease tried to write."""


class Unauthenticated(RemitError):
    """The caller is unknown: the token is missing or wrong."""

    code, status, exit_code = "UNAUTHENTICATED", 401, 5


class Forbidden(RemitError):
    """The caller is known but not allowed to do this."""

    code, status, exit_code = "FORBIDDEN", 403, 5


class LimitExceeded(RemitError):
    """A limit on depth, children, budget or rate was reached."""

    code, status, exit_code = "LIMIT_EXCEEDED", 429, 6


class Unavailable(RemitError):
    """The store cannot be reached or written now; it may be unknown whether the last write
    happened.
    """

    code, status, exit_code = "UNAVAILABLE", 503, 7


class Unacknowledged(Unavailable):
    """A commit was sent but not acknowledged: it may have happened. The same unit can be sent again
    safely.
    """


class Busy(Unavailable):
    """Another process held the database longer than the wait limit."""


class RolledBack(Unavailable):
    """The store was rolled back, or its file was replaced under a live process; writes stop until
    an operator decides.
    """

    code, status, exit_code = "CONFLICT", 409, 4


class TimedOut(RemitError):
    """The time limit of the call was reached."""

    code, status, exit_code = "TIMEOUT", 504, 124


class Internal(RemitError):
    """An unexpected internal error."""


class Corrupt(Internal):
    """Stored data is inconsistent."""


class InvalidOutput(Internal):
    """The agent's output is not a valid value of the `output_type`."""


class UnknownEvent(Internal):
    """This version does not know the type or shape of a stored event."""


class NewerSchema(Internal):
    """The database was created by a newer remit."""


_KINDS: tuple[type[RemitError], ...] = (
    InvalidParam,
    NotFound,
    Conflict,
    Unauthenticated,
    Forbidden,
    LimitExceeded,
    Unavailable,
    TimedOut,
)
_BY_CODE = {kind.code: kind for kind in _KINDS}


def error_for(code: str, message: str, details: Mapping[str, Any] | None = None) -> RemitError:
    """Return the error for a wire code, with the message and details from another process."""
    kind = _BY_CODE.get(code, Internal)
    # Skip the constructor of the class: the message and the details are already complete.
    error = kind.__new__(kind)
    RemitError.__init__(error, message, details=details)
    return error
