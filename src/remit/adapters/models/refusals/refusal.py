"""The meaning of a refusal, by its status and its words."""

import re
from collections.abc import Mapping, Sequence
from json import JSONDecoder, dumps
from typing import Any, NamedTuple, TypeGuard

from remit.adapters.models.refusals.refused_key import refuses_key
from remit.domain.llm.failures import NO_STREAM, NO_TOOLS, FailureKind, ModelFailed

_decode = JSONDecoder().raw_decode
MAX_SAID = 2_000
"""The number of characters of a refusal that are examined."""

_OVERFLOW = re.compile(r"""(?ix)
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
    | (?:prompt|input|query|context) (?:_|\s) (?:len|length|tokens?) \b
      (?! [^;]{0,80} \b per \W minute )
      [^;]{0,60}? \b (?:exceeds? | (?:not|cannot) \s exceed | (?:greater|longer|less) \s than) \s
    | exceed \s max \s message \s tokens
    | (?:prompt|tokens?) (?:_|\s) too (?:_|\s) long
    | (?: > | less \s than \s or \s equal \s to) \s max_seq_len
    | max_tokens \s \(-\d+\) \s should \s be \s greater
    | (?:prompt|输入|上下文|提示词) [^\uff0c\u3002,.;]{0,12} 超 [长出过限]
    | too \s many \s (?:input \s)? tokens
    | (?:input|prompt) \s token \s count [^.;]{0,60} (?:exceeds|only \s supports)
    | inputs?`? \s must \s have \s less \s than \s \d+ \s tokens
    | number \s of \s (?:input \s)? tokens \s exceeds
    | expected \s maxLength: \s \d+, \s actual: \s \d+
    | request \s payload \s size \s exceeds
    | text \s fields \s that \s are \s too \s large
    | inputs?`? \s tokens \s \+ \s `?max_new_tokens
    | range \s of \s input \s length
    | exceeded \s model \s token \s limit
    | reduce \s the \s length \s of \s (?:the|your) \s (?:messages|prompt|input)
    | tokens \s must \s be \s reduced
    | request \s (?:body \s)? too \s large
    | greater \s than \s the \s context \s length
    | with \s context \s length \s of \s only
    | reached \s context \s length
    | context_length_exceeded | exceed_context_size | out_?of_?context | request_too_large
    | max_tokens \s must \s be \s at \s least \s 1, \s got \s -
    """)
"""The words of endpoints for a request or an answer that exceeds the context of the model."""
_QUOTA = re.compile(
    r"insufficient.?(?:quota|funds|balance|credit)|credit balance"
    r"|exceeded your current quota|billing|arrearage|account is in good standing",
    re.IGNORECASE,
)
_SLOTS = re.compile(
    r"\b(?:no|all|available|idle|busy|free) slots?\b|slots? (?:is|are|unavailable)"
    r"|too many (?:concurrent|parallel)|parallel (?:requests|sequences)|concurrency",
    re.IGNORECASE,
)
_TEMPLATE = re.compile(r"jinja|chat template|roles must alternate", re.IGNORECASE)
"""The words of servers, even with status 500, if the template of a model refuses a conversation."""
_NO_INPUT = re.compile(r"no endpoints found that support \w+ input", re.IGNORECASE)
"""The words of OpenRouter, with status 404, if a model takes no images or files."""
_ADVICE = (
    (
        re.compile(r"""(?ix)
            \b support \s tool \s (?:use|calls?|calling)
            | does \s not \s support \s (?:tools|functions) \b
            | tool \s choice \s requires \s --enable-auto-tool-choice
            | \b requires? \s (?:the \s)? --jinja
            """),
        NO_TOOLS,
    ),
    (re.compile(r"(?i)verified to stream\b|\bstream(?:ing)? (?:is )?not supported"), NO_STREAM),
)
"""The words of endpoints that cannot call tools, or cannot stream, and what to set."""
_ERROR_STATUS = re.compile("[45][0-9]{2}")
_NUMBER = re.compile("[0-9]{1,9}")
_SAYING = (
    "error",
    "message",
    "faultstring",
    "errormessage",
    "error_message",
    "error_description",
    "status_msg",
    "msg",
    "errmsg",
    "error_msg",
    "detail",
    "errors",
    "fault",
    "base_resp",
)
"""The fields of error documents with the message, or with an object that has it."""
_CODES = ("code", "status", "errcode", "errorcode", "error_code", "status_code")
_SUCCESSES = frozenset({0, *range(200, 300)})
"""The codes of documents that report no error."""
_NAMING = ("type", "__type", *_CODES, "reason")
"""The fields of error documents that name an error."""
UNNAMED = 500
"""The status of an error inside an answer that does not name one."""
NOT_ABOUT_SIZE = frozenset({401, 402, 403, 404})


_KINDS: dict[int, FailureKind] = {
    402: "quota",
    403: "forbidden",
    404: "not_found",
    429: "rate_limited",
}


class ErrorDocument(NamedTuple):
    """The type and code, the message, and the parameter of an error document."""

    kind: str
    message: str
    param: str = ""
    generation: str = ""
    """What the model wrote, if the endpoint could not use it."""


class Refusal(ModelFailed):
    """The response of an endpoint that refused a request, in its own words."""

    def __init__(
        self,
        status: int,
        said: ErrorDocument,
        text: str,
        *,
        retry_after: float | None,
        started: bool,
        kind: FailureKind | None = None,
    ) -> None:
        kind = kind or failure_kind(status, said)
        super().__init__(kind, text, retry_after=retry_after, started=started)
        self.said = f"{said.kind} {said.message}"[:MAX_SAID]
        self.param, self.generation = said.param, said.generation


class TooManyCalls(ModelFailed):
    """An answer with more tool calls than are allowed."""

    def __init__(self, endpoint: str, most: int, name: str) -> None:
        text = (
            f"{endpoint} asked for more than {most} tools at once, which the setting tool_calls"
            " (REMIT_TOOL_CALLS) allows"
        )
        super().__init__("bad_response", text, started=True)
        self.name = name or "unnamed"
        """The name of the tool that one of the calls names."""


class CutOff(ModelFailed):
    """An answer that ended before the endpoint said that it was complete."""

    def __init__(self, text: str, *, started: bool) -> None:
        super().__init__("bad_response", text, started=started)


def read_error(document: Any) -> ErrorDocument:
    """Return the content of an error document in any of the usual shapes."""
    error: Any = document
    said = ErrorDocument("", "")
    while not isinstance(error, str):
        if error and _is_list(error) and not _validation_errors(error):
            error = error[0]
            continue
        fields = _lower_names(error)
        said = _add_level(said, fields)
        error = _validation_errors(error) or _inner_error(fields) or as_json(error)
    return said._replace(message=f"{error}{said.message}")


def read_error_text(text: str) -> ErrorDocument:
    """Return the content of the text of a refusal, which may be JSON."""
    try:
        return read_error(_decode(text.strip())[0])
    except (ValueError, RecursionError):
        return ErrorDocument("", text)


def named_status(said: ErrorDocument) -> int | None:
    """Return the HTTP status that an error inside an answer names as its code."""
    statuses = filter(_ERROR_STATUS.fullmatch, said.kind.split())
    return next(map(int, statuses), None)


def reports_failure(document: Any) -> bool | None:
    """Return True if the code of a document is that of an error, False if of a success, None
    without one.

    Some gateways answer 200 to a request that they refuse, and put the status into the document.
    """
    fields = _lower_names(document)
    if fields.get("error"):
        return True
    code = _numeric_code(fields)
    if code is None:
        return None
    if code in _SUCCESSES:
        return False
    if 400 <= code < 600 or _has_message(fields):
        return True
    return None


def as_json(document: Any) -> str:
    """Return a document as the endpoint wrote it, more or less."""
    return dumps(document, ensure_ascii=False, default=str)


def overflows(status: int, said: str) -> bool:
    """Return True if a refusal says that the request or the answer does not fit into the model's
    context.

    The words decide at every status that is not about the key, the account or the address: some
    servers answer 400 or 413, others 429 or 500, and an error inside a stream has any status.
    """
    if status == 413:
        return True
    return status not in NOT_ABOUT_SIZE and _OVERFLOW.search(said) is not None


def failure_kind(status: int, said: ErrorDocument) -> FailureKind:
    """Return the kind of failure that a refusal means."""
    message = said.message[:MAX_SAID]
    words = f"{said.kind} {message}"
    if overflows(status, words):
        return "context_overflow"
    if status in (400, 403, 429) and _QUOTA.search(words):
        return "quota"
    if refuses_key(status, said.kind, message, said.param):
        return "authentication"
    if advice_for(words) or _NO_INPUT.search(words):
        return "rejected_request"
    if status in _KINDS:
        return _KINDS[status]
    if _TEMPLATE.search(words):
        return "rejected_request"
    if _is_temporary(status):
        return "overloaded"
    return "rejected_request"


def advice_for(said: str) -> str:
    """Return what to set if a refusal says that an endpoint cannot do what every request needs;
    empty for another one.
    """
    return next((advice for words, advice in _ADVICE if words.search(said)), "")


def is_about_slots(said: str) -> bool:
    """Return True if an endpoint says that it cannot serve so many concurrent calls."""
    return _SLOTS.search(said) is not None


def _numeric_code(fields: Mapping[str, Any]) -> int | None:
    """Return the first code of a document that is a number."""
    texts = map(str, map(fields.get, _CODES))
    return next(map(int, filter(_NUMBER.fullmatch, texts)), None)


def _has_message(fields: Mapping[str, Any]) -> bool:
    """Return True if an error document says something in words."""
    return any(isinstance(fields.get(name), str) for name in _SAYING)


def _lower_names(document: Any) -> dict[str, Any]:
    """Return the fields of a document by names in lower case: Amazon's begin with a capital.

    There are none if the document is not an object.
    """
    if not _is_object(document):
        return {}
    return {str(name).lower(): value for name, value in document.items()}


def _add_level(said: ErrorDocument, fields: Mapping[str, Any]) -> ErrorDocument:
    """Add the error names of an object inside an error document, and of the upstream error in
    it.
    """
    kind = f"{said.kind} {_error_names(fields)}".strip()
    param = said.param or str(fields.get("param") or "")
    generation = said.generation or str(fields.get("failed_generation") or "")
    return _add_upstream(ErrorDocument(kind, "", param, generation), fields)


def _add_upstream(said: ErrorDocument, fields: Mapping[str, Any]) -> ErrorDocument:
    """Add the error of a provider that a router such as OpenRouter passes on."""
    metadata = fields.get("metadata")
    if not _is_object(metadata):
        return said
    raw = metadata.get("raw")
    if not isinstance(raw, str) or not raw:
        return said
    upstream = read_error_text(raw)
    kind, message = f"{said.kind} {upstream.kind}", f"{said.message}: {upstream.message}"
    param = said.param or upstream.param
    return ErrorDocument(kind, message, param, said.generation or upstream.generation)


def _inner_error(fields: Mapping[str, Any]) -> Any:
    """Return the message in an object of an error document, or the object inside it that has
    one.
    """
    error, message = fields.get("error"), fields.get("message")
    if isinstance(error, str) and isinstance(message, str) and message:
        return message  # the error is a title, such as "Bad Request"
    return next(filter(None, map(fields.get, _SAYING)), None)


def _validation_errors(error: Any) -> str:
    """Return the problems that validators of FastAPI servers found, each with its place.

    They may echo the request, which is not part of the problem.
    """
    if _is_object(error):
        error = error.get("detail")
    if not _is_list(error) or not all(map(_is_validation_error, error)):
        return ""
    return "; ".join(map(_validation_error, error))


def _is_validation_error(item: Any) -> bool:
    return _is_object(item) and "loc" in item


def _validation_error(item: Mapping[str, Any]) -> str:
    """Return the place and the problem that a validator names."""
    place = item["loc"]
    if _is_list(place):
        place = ".".join(map(str, place))
    return f"{place}: {item.get('msg') or item.get('type') or 'is refused'}"


def _is_object(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """Return True for an object of a JSON document."""
    return isinstance(value, Mapping)


def _is_list(value: Any) -> bool:
    """Return True for a list or a tuple of values."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _error_names(fields: Mapping[str, Any]) -> str:
    """Return the names that an object of an error document gives to an error."""
    found = list(map(fields.get, _NAMING))
    details: Any = fields.get("details")
    if _is_list(details):
        found += [_lower_names(item).get("reason") for item in details]
    if isinstance(fields.get("message"), str):
        found.append(fields.get("error"))
    return " ".join(str(name) for name in found if isinstance(name, str | int) and name)


def _is_temporary(status: int) -> bool:
    """Return True for a status after which the same request may succeed."""
    return status in (408, 409, 425) or not 300 <= status < 500
