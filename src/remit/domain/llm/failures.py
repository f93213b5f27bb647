"""Failures of model calls: their kinds, causes, costs and explanations."""

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from remit.domain.task.task import FailCause
from remit.domain.text.redaction import redacted
from remit.domain.text.truncation import shortened

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
    "misconfigured",
    "context_overflow",
    "tool_calls_as_text",
    "cut_off",
    "quota",
]
PERMANENT: frozenset[FailureKind] = frozenset(
    {
        "authentication",
        "forbidden",
        "not_found",
        "rejected_request",
        "misconfigured",
        "context_overflow",
        "tool_calls_as_text",
        "cut_off",
        "quota",
    }
)
"""Failures that a retry cannot fix; a shorter request can fix `context_overflow`."""
UNHEALTHY: frozenset[FailureKind] = frozenset(
    {"overloaded", "refused", "no_first_byte", "stalled", "bad_response"}
)
"""Failures that indicate an unhealthy endpoint, unlike a full quota or an invalid request."""
UNBILLED: frozenset[FailureKind] = frozenset(
    {*(PERMANENT - {"tool_calls_as_text", "cut_off"}), "rate_limited", "refused", "circuit_open"}
)
"""Failures that cost nothing: the endpoint did not accept the request."""

CAUSES: dict[FailureKind, FailCause] = {
    "authentication": "model_authentication",
    "forbidden": "model_forbidden",
    "not_found": "model_not_found",
    "quota": "model_quota",
    "context_overflow": "model_context",
    "refused": "model_unreachable",
}
"""Failures that the operator fixes by changing a setting or an account."""

MAX_EXCERPT = 200
MAX_READ = 65_536
"""The number of characters that are searched for secrets; the rest is not shown."""

OVERFLOW_ADVICE = (
    "The conversation does not fit into the context of the model. Use a model with a larger"
    " context. For your own server, raise its context size (llama.cpp: --ctx-size, which --parallel"
    " divides among its slots; vLLM: --max-model-len; Ollama: num_ctx)."
)
USE_TOOL_CALLS = (
    "Use a model that does (LLM_MODEL_ID, or model in [models.main]). For your own server, turn"
    " tool calls on (llama.cpp: --jinja; vLLM: --enable-auto-tool-choice and --tool-call-parser;"
    " Ollama: a model that lists tools)."
)
NO_TOOL_CALLS = (
    "it wrote a call of {tool} as text twice, and made no real tool call. The model or its endpoint"
    " may not support tool calls. " + USE_TOOL_CALLS
)
NO_TOOLS = f"The model or its endpoint does not support tool calls. {USE_TOOL_CALLS}"
NO_STREAM = "Set stream = false in [models.main] (LLM_STREAM=false) to get answers in one piece."
CALLS_NO_MORE = (
    "it wrote a call of {tool} as text twice, although it has called tools before. Use another"
    " model (LLM_MODEL_ID, or model in [models.main]). For your own server, check how it parses"
    " tool calls (llama.cpp: --jinja; vLLM: --tool-call-parser)."
)
NOT_A_TOOL_HERE = (
    "it wrote a call of {tool} as text, was told that this task does not have that tool, and wrote"
    " another call as text. The task has {tools}."
)
LACKS_TOOL = " If the work needs {tool}, use an agent that may have it, and grant it (tools)."
MAX_CUT_OFF = 3
"""The maximum number of consecutive answers that may be cut off."""
CUT_OFF = (
    f"its last {MAX_CUT_OFF} answers ended at its limit of output tokens or of context, before they"
    " were complete. Use a model with a larger limit (LLM_MODEL_ID, or model in [models.main]), or"
    " ask for less. For your own server, raise its limits (llama.cpp: --ctx-size and --predict;"
    " vLLM: --max-model-len; Ollama: num_ctx and num_predict)."
)
MAX_CONTEXT_FULL = 5
"""How many consecutive answers may end because the context is full; each is followed by a
compaction.
"""
CONTEXT_FULL = "its context was full before its answer was complete"
CROWD_ADVICE = (
    "If it serves fewer at once, set concurrency of the tier ([models.main] concurrency = N or"
    " LLM_CONCURRENCY) to what it serves (llama.cpp: --parallel)."
)


class ModelFailed(Exception):
    """A model call failed: why, and whether and when a retry can help."""

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
        """True once part of the answer was received: a retry would show it twice."""
        self.cause: FailureKind = cause or kind
        """The original failure, if the model was not asked because of it."""
        self.lasting = lasting
        """True if every recent request failed in this way."""

    @property
    def permanent(self) -> bool:
        """True if a retry cannot help."""
        return self.kind in PERMANENT

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class Retry(NamedTuple):
    """A request that is sent again because it failed."""

    failed: ModelFailed
    seconds: float
    """How long to wait before it is sent again."""
    attempt: int
    """The number of the next attempt, from 2."""

    def __str__(self) -> str:
        why = self.failed.text.rstrip(".")
        return f"{why}; trying again in {self.seconds:.1f} s (attempt {self.attempt})"


class ModelOrigin(NamedTuple):
    """The names of the settings that chose a model; never their values."""

    model: str = ""
    """The setting that names the model."""
    key: str = ""
    """The setting with the key; empty if no key is set."""
    set_key: str = ""
    """The setting to use if there is no key."""


def explain(failed: ModelFailed, shown: str, origin: ModelOrigin) -> str:
    """Explain why a model call failed, and which setting to change."""
    if failed.cause == "context_overflow":
        return (
            f"The context of the model {shown} is full: {failed.text.rstrip('.')}."
            f" {OVERFLOW_ADVICE}"
        )
    if failed.cause in _PROBLEMS:
        problem, advice = _PROBLEMS[failed.cause]
        if failed.cause == "bad_response" and failed.started:
            advice = _AFTER_AN_ANSWER
        text = f"The model {shown} {problem}: {failed.text}"
        if advice:
            return f"{text.rstrip('.')}. {advice}"
        return text
    problem, advice = _ADVICE[failed.cause](origin)
    return f"The model {shown} cannot be used: it {problem}. {failed.text.rstrip('.')}. {advice}"


_AFTER_AN_ANSWER = "Try again, or use another model."
"""The advice if the endpoint has begun an answer, so its address is right."""
_PROBLEMS: dict[FailureKind, tuple[str, str]] = {
    "rate_limited": (
        "accepts no more requests for now",
        "Wait, or send fewer at once ([models.main] concurrency = N or LLM_CONCURRENCY).",
    ),
    "overloaded": (
        "is overloaded or has an internal error",
        "Try again later. If it stays like this, look at the log or the status page of the server.",
    ),
    "no_first_byte": (
        "did not start to answer in time",
        "Check that the server is up and not busy with other requests.",
    ),
    "stalled": (
        "stopped in the middle of its answer",
        "Try again. If it stays like this, check the server and the network.",
    ),
    "timed_out": (
        "did not finish its answer in time",
        "Give the task more time, or make it smaller.",
    ),
    "bad_response": (
        "sent an unusable answer",
        "Check that the address and the name of the model are right, or use another model.",
    ),
    "circuit_open": ("is paused after repeated failures", "Try again later."),
    "rejected_request": (
        "rejected the request",
        "Check the settings of the model, change the task, or use another model.",
    ),
    "misconfigured": ("cannot be used", ""),
    "tool_calls_as_text": ("did not make its tool call", ""),
    "cut_off": ("did not complete its answer", ""),
}
"""The problem, and what to do; without advice, the text of the failure says it."""


def _authentication(origin: ModelOrigin) -> tuple[str, str]:
    if origin.key:
        return (
            "did not accept the API key",
            f"The key comes from {origin.key}; set a valid one there.",
        )
    if origin.set_key:
        return (
            "did not accept a request without an API key",
            f"No API key is set. Set {origin.set_key} in the environment.",
        )
    return (
        "did not accept the API key, or none is set",
        "Check the variable that holds the key of its provider.",
    )


def _named(what: str, setting: str, otherwise: str) -> str:
    """Return a phrase with the name of a setting, or another one if it is not known."""
    return f"{what} {setting}" if setting else otherwise


def _forbidden(origin: ModelOrigin) -> tuple[str, str]:
    key = _named("the key from", origin.key, "the key")
    return "refused access", f"Check that {key} may use this model and that the address is right."


def _not_found(origin: ModelOrigin) -> tuple[str, str]:
    name = _named("the name in", origin.model, "the name of the model")
    return "did not find the model", f"Check {name} and the address of the endpoint."


def _quota(origin: ModelOrigin) -> tuple[str, str]:
    key = _named("the account of the key from", origin.key, "the account")
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
    """US dollars per million tokens; cached input costs as much as other input by default."""

    input: float
    output: float
    cached: float | None = None

    def of(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> float:
        """Return the cost of a call."""
        cached = self.input if self.cached is None else self.cached
        return (
            (input_tokens - cached_tokens) * self.input
            + cached_tokens * cached
            + output_tokens * self.output
        ) / 1_000_000


_SPACE = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
_MARKUP = re.compile(r"<[^>]{0,500}>?")


def excerpt(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a short excerpt of an endpoint's text without markup, control characters and keys."""
    text = redacted(text[:MAX_READ], secrets)
    text = text[
        : 20 * MAX_EXCERPT
    ]  # after redaction: a cut through a secret would leave a part of it
    text = _SPACE.sub(" ", _MARKUP.sub(" ", text)).strip()
    return shortened(text, MAX_EXCERPT, "...")


def storable(text: str) -> str:
    """Replace NUL and unpaired surrogates, which stores cannot keep."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
