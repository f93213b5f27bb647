"""How a call of a model can fail, what it cost, and what a text says once it is safe to show."""

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

FailureKind = Literal[
    "rate_limited",
    "overloaded",
    "refused",
    "no_first_byte",
    "stalled",
    "timed_out",
    "bad_response",
    "circuit_open",
    "authentication",
    "rejected_request",
    "context_too_long",
    "quota",
]
PERMANENT: frozenset[FailureKind] = frozenset({"authentication", "rejected_request", "context_too_long", "quota"})
"""What no further try can mend."""
UNHEALTHY: frozenset[FailureKind] = frozenset({"overloaded", "refused", "no_first_byte", "stalled", "bad_response"})
"""What says that an endpoint is not well; a full quota or a wrong request says nothing about it."""
UNBILLED: frozenset[FailureKind] = frozenset({*PERMANENT, "rate_limited", "refused", "circuit_open"})
"""What costs nothing: the request was not taken."""

MAX_EXCERPT = 200


class ModelFailed(Exception):
    """A model gave no answer that can be used: why, whether trying again can help, and when."""

    def __init__(
        self,
        kind: FailureKind,
        text: str,
        *,
        retry_after: float | None = None,
        started: bool = False,
        cause: FailureKind | None = None,
        lasting: bool = False,
    ) -> None:
        super().__init__(kind, text)
        self.kind: FailureKind = kind
        self.text = text
        self.retry_after = retry_after
        self.started = started
        """True once part of the answer was seen: trying again would show it twice."""
        self.cause: FailureKind = cause or kind
        """What was really wrong, where nobody was asked because of it."""
        self.lasting = lasting
        """True if it was wrong again each time that somebody was asked."""

    @property
    def permanent(self) -> bool:
        """True if no further try can help."""
        return self.kind in PERMANENT

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class Price(NamedTuple):
    """US dollars for a million tokens; cached input costs as much as other input unless it has a price."""

    input: float
    output: float
    cached: float | None = None

    def of(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> float:
        """What a call costs."""
        cached = self.input if self.cached is None else self.cached
        return ((input_tokens - cached_tokens) * self.input + cached_tokens * cached + output_tokens * self.output) / 1_000_000


_KEY = re.compile(
    r"""(?ix)
    \b(?:sk|pk|rk|xai|gsk|key|ghp|gho|glpat|hf|AIza)[-_]?[\w-]{16,}
    | \b(?:bearer|basic|x-api-key|api[-_]?key|token|secret|password)\b ["'\s:=]{1,5} [^\s"',;}]{4,}
    | \b[A-Za-z0-9_-]{40,}\b
    """
)
_SPACE = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
_MARKUP = re.compile(r"<[^>]{0,500}>?")


def excerpt(text: str, secrets: Iterable[str] = ()) -> str:
    """A short piece of what an endpoint said, without markup, control characters and anything that looks like a key."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "[redacted]")
    text = text[: 20 * MAX_EXCERPT]  # only now: a cut through a secret would leave a piece of it
    text = _SPACE.sub(" ", _MARKUP.sub(" ", _KEY.sub("[redacted]", text))).strip()
    return text if len(text) <= MAX_EXCERPT else f"{text[: MAX_EXCERPT - 3]}..."


def storable(text: str) -> str:
    """A text that every store can keep: no NUL, no half of a character."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text
