"""Maps errors of pydantic-ai, and of the libraries below it, to failures of a model call."""

import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, get_args

from remit.adapters.models.refusals.refusal import (
    UNNAMED,
    ErrorDocument,
    Refusal,
    failure_kind,
    named_status,
    read_error,
    read_error_text,
)
from remit.adapters.models.wires.http_stream import retry_after
from remit.domain.llm.failures import FailureKind, ModelFailed, excerpt
from remit.domain.text.redaction import MIN_SECRET

_KINDS: tuple[tuple[str, FailureKind], ...] = (
    ("ModelRateLimitError", "rate_limited"),
    ("ModelQuotaExceededError", "quota"),
    ("ModelAuthenticationError", "authentication"),
    ("ModelContextWindowExceededError", "context_overflow"),
    ("ModelRequestRejectedError", "rejected_request"),
    ("ModelUnavailableError", "overloaded"),
    ("ModelServerError", "overloaded"),
    ("UserError", "rejected_request"),
    ("UnexpectedModelBehavior", "bad_response"),
)
"""The errors of the library with a clear meaning, the special before the general."""
_KEY_ENDINGS = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
BY_CODE: frozenset[FailureKind] = frozenset({"authentication", "quota"})
"""The kinds that the library also recognizes by codes of providers, without words."""
REJECTED = 400
"""The status of a refusal that came without one."""


def failure_of(
    error: Exception, provider: str, *, has_heard: bool, has_started: bool
) -> ModelFailed:
    """Return an error of the library as a failure.

    `has_heard` is True once the provider sent anything, `has_started` once it was part of an
    answer.
    """
    said, status = _read_library_error(error), _http_status(error)
    kind = _failure_kind(error, said, has_heard=has_heard)
    wait = _retry_after(error)
    text = _describe(provider, said, status, error)
    if status is None and kind != "rejected_request":
        return ModelFailed(kind, text, retry_after=wait, started=has_started)
    return Refusal(status or REJECTED, said, text, retry_after=wait, started=has_started, kind=kind)


def unknown_provider(provider: str) -> ModelFailed:
    """Return the failure of a model whose provider the library does not know."""
    text = f"{provider} is not a provider. {_possible_names()}"
    return ModelFailed("misconfigured", text)


def setup_failure(provider: str, error: Exception) -> ModelFailed:
    """Return the failure of a model that the library cannot create, such as for a missing key."""
    kind: FailureKind = "misconfigured"
    if "API_KEY" in str(error):
        kind = "authentication"
    return ModelFailed(kind, f"{provider}: {excerpt(str(error), _environment_keys())}")


def silence_kind(*, has_heard: bool) -> FailureKind:
    """Return how a silence is called: before the first byte, or after it."""
    if has_heard:
        return "stalled"
    return "no_first_byte"


def _describe(provider: str, said: ErrorDocument, status: int | None, error: Exception) -> str:
    """Return the text of a failure, without keys."""
    shown = excerpt(said.message, _environment_keys())
    if status is None:
        return f"{provider}: {shown or type(error).__name__}"
    if shown:
        return f"{provider} answered {status}: {shown}"
    return f"{provider} answered {status}"


def _retry_after(error: Exception) -> float | None:
    """Return how many seconds the provider asks to wait, by its headers or by the library."""
    headers: Mapping[str, str] = getattr(error, "headers", None) or {}
    wait = retry_after(headers)
    if wait is None:
        wait = getattr(error, "retry_after", None)
    return wait


def _environment_keys() -> list[str]:
    """Return the keys in the environment, where the library reads those of its providers."""
    keys = [value for name, value in os.environ.items() if name.endswith(_KEY_ENDINGS)]
    return [key for key in keys if len(key) >= MIN_SECRET]


def _possible_names() -> str:
    """Describe how a model can be named, with the providers that the library lists."""
    models = import_module("pydantic_ai.models")
    names: list[str] = [*get_args(models.KnownModelName.__value__), "ollama:", "openrouter:"]
    providers = {name.partition(":")[0] for name in names if ":" in name}
    listed = {provider for provider in providers if "/" not in provider}
    others = ", ".join(sorted(listed - {"openai", "anthropic"}))
    return (
        "Use main, light, openai:NAME, anthropic:NAME, or PROVIDER:NAME with a provider of"
        f" pydantic-ai, such as {others}."
    )


def _http_status(error: Exception) -> int | None:
    """Return the HTTP status of an error of the library, or of the error behind it."""
    statuses = (getattr(each, "status_code", None) for each in (error, error.__cause__))
    return next((status for status in statuses if isinstance(status, int)), None)


def _read_library_error(error: Exception) -> ErrorDocument:
    """Return the error of a provider; without a body, the text of the library."""
    body = getattr(error, "body", None)
    if isinstance(body, bytes):
        body = body.decode("utf-8", "replace")
    if not body:
        return _error_without_body(error)
    if isinstance(body, str):
        return read_error_text(body)
    return read_error(body)


def _error_without_body(error: Exception) -> ErrorDocument:
    """Return the text of the library, unless it only repeats the status."""
    if isinstance(getattr(error, "status_code", None), int):
        return ErrorDocument("", "")
    return ErrorDocument("", str(error))


def _failure_kind(error: Exception, said: ErrorDocument, *, has_heard: bool) -> FailureKind:
    """Return the kind of an error of the library: by status and words as over HTTP, else by
    type.
    """
    library = import_module("pydantic_ai.exceptions")
    if isinstance(error, library.ModelConnectionError):
        return _connection_failure_kind(library, error, has_heard=has_heard)
    status, typed = _http_status(error), _kind_of_type(library, error)
    if status is not None:
        return _kind_of_status(status, said, typed)
    if isinstance(error, library.ModelAPIError):
        return _api_error_kind(error, said, typed)
    if typed is not None:
        return typed
    if isinstance(error, ImportError):
        return "misconfigured"
    return "bad_response"


def _kind_of_status(status: int, said: ErrorDocument, typed: FailureKind | None) -> FailureKind:
    """Return the kind for a status and words; if they are vague, the type of the error decides."""
    meant = failure_kind(status, said)
    if meant in ("rejected_request", "rate_limited") and typed in BY_CODE:
        return typed
    return meant


def _api_error_kind(
    error: Exception, said: ErrorDocument, typed: FailureKind | None
) -> FailureKind:
    """Return the kind of an error of a provider without a status."""
    meant = failure_kind(named_status(said) or UNNAMED, said)
    if meant in ("context_overflow", "authentication"):
        return meant
    if typed is not None:
        return typed
    if getattr(error, "in_stream", False):
        return "overloaded"
    return "bad_response"


def _kind_of_type(library: Any, error: Exception) -> FailureKind | None:
    """Return the kind of failure that the type of an error stands for."""
    kinds: Iterator[FailureKind] = (
        kind for name, kind in _KINDS if isinstance(error, getattr(library, name))
    )
    return next(kinds, None)


def _connection_failure_kind(library: Any, error: Any, *, has_heard: bool) -> FailureKind:
    """Return the kind of a lost connection: refused, too slow, or broken."""
    is_timeout = isinstance(error, library.ModelTimeoutError)
    if error.phase in ("read", "write"):
        if is_timeout:
            return silence_kind(has_heard=has_heard)
        return "bad_response"
    if is_timeout and error.phase is None:
        return "no_first_byte"
    return "refused"
