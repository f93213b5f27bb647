"""What a refusal of an endpoint means, by its status and its words."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from remit.domain.model import FailureKind, ModelFailed

MAX_SAID = 2_000
"""How many characters of a refusal are looked at."""

_OVERFLOW = re.compile(
    r"""(?ix)
    context[\s_-]?(?:length|window|size|limit) [\s_-]* (?:has\s been\s)? (?:is\s)? exceed
    | exceed\w* [^.;]{0,60} context [\s_-]? (?:length|window|size|limit)
    | (?:maximum|max|model'?s) \s context \s? length
    | maximum \s (?:prompt|model) \s length
    | longer \s than \s the \s (?:model'?s \s context|maximum \s model)
    | (?:prompt|input|inputs|request|conversation|messages?) \b [^.;]{0,40}?
      \b (?:is|are|was) \s too \s (?:long|big)
    | input \s is \s too \s large
    | prompt \s (?:contains|has) \s [\d,]+ \s tokens
    | prompt \s exceeds
    | too \s many \s (?:input \s)? tokens
    | input \s token \s count [^.;]{0,60} exceeds
    | inputs?`? \s tokens \s \+ \s `?max_new_tokens
    | range \s of \s input \s length
    | exceeded \s model \s token \s limit
    | reduce \s the \s length \s of \s (?:the|your) \s (?:messages|prompt|input)
    | tokens \s must \s be \s reduced
    | request \s (?:body \s)? too \s large
    | greater \s than \s the \s context \s length
    | with \s context \s length \s of \s only
    | reached \s context \s length
    | context_length_exceeded | exceed_context_size | request_too_large
    | max_tokens \s must \s be \s at \s least \s 1, \s got \s -
    """
)
"""How endpoints say that a request or an answer does not fit into the context of the model."""
_QUOTA = re.compile(
    r"insufficient.?(?:quota|funds|balance|credit)|credit balance"
    r"|exceeded your current quota|billing",
    re.IGNORECASE,
)
_WRONG_KEY = re.compile(
    r"(?:invalid|incorrect|wrong|no|missing)[\s_]api[\s_-]?key"
    r"|api[\s_-]?key[\s_](?:is[\s_])?(?:not[\s_](?:valid|found)|invalid|incorrect|expired|missing)"
    r"|(?:missing|invalid) authorization header",
    re.IGNORECASE,
)
"""How endpoints say, with status 400, that they do not accept the key."""
_SLOTS = re.compile(
    r"\b(?:no|all|available|idle|busy|free) slots?\b|slots? (?:is|are|unavailable)"
    r"|too many (?:concurrent|parallel)|parallel (?:requests|sequences)|concurrency",
    re.IGNORECASE,
)
_TEMPLATE = re.compile(r"jinja|chat template|roles must alternate", re.IGNORECASE)
"""How servers say, even with status 500, that the template of a model refuses a conversation."""
NOT_ABOUT_SIZE = frozenset({401, 402, 403, 404})


class Told(NamedTuple):
    """The type and code, the message, and the parameter of an error document."""

    kind: str
    message: str
    param: str = ""


class Refusal(ModelFailed):
    """What an endpoint said instead of an answer, as it was said."""

    def __init__(
        self,
        status: int,
        said: Told,
        text: str,
        *,
        retry_after: float | None,
        started: bool,
        kind: FailureKind | None = None,
    ) -> None:
        kind = kind or failure_kind(status, f"{said.kind} {said.message[:MAX_SAID]}")
        super().__init__(kind, text, retry_after=retry_after, started=started)
        self.said = f"{said.kind} {said.message}"[:MAX_SAID]
        self.param = said.param


class CutOff(ModelFailed):
    """An answer that ended before the endpoint said that it was complete."""

    def __init__(self, text: str, *, started: bool) -> None:
        super().__init__("bad_response", text, started=started)


def told(document: Any) -> Told:
    """What an error document says, in whichever of the usual shapes it is."""
    error: Any = document
    if _is_list(error) and error:
        error = error[0]
    if isinstance(error, Mapping):
        fields = cast("Mapping[str, Any]", error)
        error = fields.get("error") or fields.get("message") or fields.get("detail") or fields
        error = _faults(error) or error
        if not isinstance(error, Mapping):
            return Told(_kind(fields), str(error), str(fields.get("param") or ""))
    if isinstance(error, Mapping):
        fields = cast("Mapping[str, Any]", error)
        message = str(fields.get("message") or fields)
        return Told(_kind(fields), message, str(fields.get("param") or ""))
    return Told("", str(error))


def _faults(error: Any) -> str:
    """What validators of FastAPI servers found, each as place and problem.

    They may echo the request, which says nothing about what they refuse.
    """
    if isinstance(error, Mapping):
        error = cast("Mapping[str, Any]", error).get("detail")
    if not _is_list(error):
        return ""
    if not all(isinstance(item, Mapping) and "loc" in item for item in error):
        return ""
    return "; ".join(_fault(cast("Mapping[str, Any]", item)) for item in error)


def _fault(item: Mapping[str, Any]) -> str:
    loc = item["loc"]
    place = ".".join(str(step) for step in loc) if _is_list(loc) else str(loc)
    return f"{place}: {item.get('msg') or item.get('type') or 'is refused'}"


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _kind(fields: Mapping[str, Any]) -> str:
    return f"{fields.get('type') or ''} {fields.get('code') or ''}"


def overflows(status: int, said: str) -> bool:
    """True if a refusal says that the request or the answer does not fit into the model's context.

    The words decide at every status that is not about the key, the account or the address: some
    servers answer 400 or 413, others 429 or 500, and an error inside a stream has any status.
    """
    return status == 413 or (status not in NOT_ABOUT_SIZE and bool(_OVERFLOW.search(said)))


def failure_kind(status: int, said: str) -> FailureKind:
    """What a refusal means."""
    if overflows(status, said):
        return "context_overflow"
    if status in (401, 403):
        return "authentication" if status == 401 else "forbidden"
    if status == 400 and _WRONG_KEY.search(said):
        return "authentication"
    if status == 402 or (status in (400, 429) and _QUOTA.search(said)):
        return "quota"
    if status == 429:
        return "rate_limited"
    if status == 404:
        return "not_found"
    if _TEMPLATE.search(said):
        return "rejected_request"
    is_temporary = status in (408, 409, 425) or not 300 <= status < 500
    return "overloaded" if is_temporary else "rejected_request"


def is_about_slots(said: str) -> bool:
    """True if an endpoint says that it cannot answer so many at once."""
    return bool(_SLOTS.search(said))
