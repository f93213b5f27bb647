"""How a call of a model can fail, what it cost, and what a text says once it is safe to show."""

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from remit.domain.value import FailCause

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
    "forbidden",
    "not_found",
    "rejected_request",
    "context_overflow",
    "tool_calls_as_text",
    "quota",
]
PERMANENT: frozenset[FailureKind] = frozenset(
    {
        "authentication",
        "forbidden",
        "not_found",
        "rejected_request",
        "context_overflow",
        "tool_calls_as_text",
        "quota",
    }
)
"""What no further try can mend; a shorter request can mend `context_overflow`."""
UNHEALTHY: frozenset[FailureKind] = frozenset({"overloaded", "refused", "no_first_byte", "stalled", "bad_response"})
"""What says that an endpoint is not well; a full quota or a wrong request says nothing about it."""
UNBILLED: frozenset[FailureKind] = frozenset({*(PERMANENT - {"tool_calls_as_text"}), "rate_limited", "refused", "circuit_open"})
"""What costs nothing: the request was not taken."""

CAUSES: dict[FailureKind, FailCause] = {
    "authentication": "model_authentication",
    "forbidden": "model_forbidden",
    "not_found": "model_not_found",
    "quota": "model_quota",
    "context_overflow": "model_context",
    "refused": "model_unreachable",
}
"""The failures that the operator ends by changing a setting or an account."""

MAX_EXCERPT = 200
MIN_SECRET = 8
"""A shorter key, such as EMPTY for a local server, is removed only where it stands alone, not inside other words."""

OVERFLOW_ADVICE = (
    "The conversation does not fit into the context of the model. Use a model with a larger"
    " context. For your own server, raise its context size (llama.cpp: --ctx-size, which --parallel"
    " divides among its slots; vLLM: --max-model-len; Ollama: num_ctx)."
)
NO_TOOL_CALLS = (
    "it wrote a call of {tool} as text twice and made none: this model or its endpoint does not"
    " make tool calls. Use a model that does (LLM_MODEL_ID, or model in [models.main]). For your"
    " own server, turn tool calls on (llama.cpp: --jinja; vLLM: --enable-auto-tool-choice and"
    " --tool-call-parser; Ollama: a model that lists tools)."
)
CROWD_ADVICE = (
    "If it serves fewer at once, set concurrency of the tier ([models.main] concurrency = N or"
    " LLM_CONCURRENCY) to what it serves (llama.cpp: --parallel)."
)


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


class ModelOrigin(NamedTuple):
    """The names of the settings that chose a model, as a person finds them; never their values."""

    model: str = ""
    """What names the model."""
    key: str = ""
    """What holds the key that is used; empty if no key is set."""
    set_key: str = ""
    """What to set where there is no key."""


def explain(failed: ModelFailed, shown: str, origin: ModelOrigin) -> str:
    """Why a model gave no answer, and which setting to change where one can help."""
    if failed.cause == "context_overflow":
        return f"The context of the model {shown} is full: {failed.text.rstrip('.')}. {OVERFLOW_ADVICE}"
    if failed.cause not in CAUSES:
        return f"The model {shown} gave no answer: {failed.cause}: {failed.text}"
    problem, advice = _ADVICE[failed.cause](origin)
    return f"The model {shown} cannot be used: it {problem}. {failed.text.rstrip('.')}. {advice}"


def _authentication(origin: ModelOrigin) -> tuple[str, str]:
    if origin.key:
        return "did not accept the API key", f"The key comes from {origin.key}; set a valid one there."
    if origin.set_key:
        return "did not accept a request without an API key", f"No API key is set. Set {origin.set_key} in the environment."
    return "did not accept the API key, or none is set", "Check the variable that holds the key of its provider."


def _forbidden(origin: ModelOrigin) -> tuple[str, str]:
    key = f"the key from {origin.key}" if origin.key else "the key"
    return "refused access", f"Check that {key} may use this model and that the address is right."


def _not_found(origin: ModelOrigin) -> tuple[str, str]:
    name = f"the name in {origin.model}" if origin.model else "the name of the model"
    return "did not find the model", f"Check {name} and the address of the endpoint."


def _quota(origin: ModelOrigin) -> tuple[str, str]:
    key = f"the account of the key from {origin.key}" if origin.key else "the account"
    return "has no quota left", f"Check the balance and the limits of {key}."


def _refused(origin: ModelOrigin) -> tuple[str, str]:
    setting = " (LLM_BASE_URL, or base_url in the config file)" if origin.model else ""
    address = f"Check that the address is right{setting}"
    advice = f"{address}, that a server listens there, and that this machine can reach it."
    return "cannot be reached", advice


_ADVICE = {
    "authentication": _authentication,
    "forbidden": _forbidden,
    "not_found": _not_found,
    "quota": _quota,
    "refused": _refused,
}


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
        if len(secret) >= MIN_SECRET:
            text = text.replace(secret, "[redacted]")
        elif secret:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "[redacted]", text)
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
