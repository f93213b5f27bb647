"""What an endpoint does not take: learned from its refusals, and left out from then on."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from remit.adapters.models.refusal import Refusal
from remit.domain.media import Media
from remit.domain.message import DELIMITER, Message, Part, Request, TextPart, Thinking, ToolResult, user
from remit.domain.model import ModelFailed

Known = frozenset[str]
"""What a request is built with: all that its endpoint was known not to take at that time."""
Words = Mapping[str, tuple[str, ...]]

STRICT_TURNS = "a user message after tool results or after another user message"
ONE_RESULT = "several tool results in a row"
NO_SYSTEM = "a system message"
SHORT_IDS = "ids of tool calls that are not 9 letters and digits"
BARE_SCHEMAS = "JSON Schema beyond types, properties, items and enums"
NO_THOUGHTS = "thoughts of earlier answers"
NO_MEDIA = "images and PDFs"
NOT_SHOWN = "[Not shown: the endpoint of this model refused an image or a PDF.]"
UNREADABLE = "[Not shown: the endpoint of this model could not read this file.]"
SHOWN_ALONE = "[Not shown: of several results this endpoint takes one file. Read it again, alone.]"
SHAPES = frozenset({NO_MEDIA, STRICT_TURNS, ONE_RESULT, NO_SYSTEM, SHORT_IDS, BARE_SCHEMAS, NO_THOUGHTS})

_ORDER = re.compile(
    r"""(?ix)
    roles \s must \s alternate
    | unexpected \s role \s '?user'? \s after
    | invalid_request_message_order
    | (?:consecutive|successive|two) \s (?:user|assistant) \s (?:messages|turns|roles)
    | (?:user|assistant) \s message \s (?:cannot|must \s not|may \s not) \s follow
    """
)
_RULES = (
    (NO_SYSTEM, re.compile(r"(?i)system (?:role|message|prompt)s?\W* (?:is |are )?not supported")),
    (
        SHORT_IDS,
        re.compile(r"(?i)tool call id \S+ .{0,80}must be|tool call ids? .{0,80}length of 9"),
    ),
    (
        BARE_SCHEMAS,
        re.compile(
            r"(?i)json.?schema|grammar|function_declarations|input_schema"
            r"|invalid schema|unsupported (?:schema|pattern|keyword)|number of repetitions"
        ),
    ),
)
_MEDIA = re.compile(r"(?i)\b(?:images?|image_url|pdfs?|file|input_image|input_file|document|multi-?modal|vision)\b")
_UNREADABLE = re.compile(
    r"""(?ix)
    (?:could \s not|cannot|can't|unable \s to|failed \s to)
      \s (?:process|decode|read|parse|open|load|identify) \b
      [^.;]{0,40} \b (?:images?|pdfs?|documents?|files?)
    | (?:invalid|corrupt\w*|malformed|broken|unsupported) \s (?:image|pdf|document) \b (?!_)
    | (?:image|pdf|document|file) \b [^.;]{0,60}
      \b (?:is \s not \s valid|invalid|corrupt\w*|password)
    | (?:valid|supported) \s image \s format
    | not \s represent \s a \s valid \s image
    | image \s dimensions | too \s many \s pages | maximum \s of \s \d+ \s (?:pdf \s)? pages
    """
)
"""How endpoints refuse one file, although they take images and PDFs."""
LIMITS = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens"})
_LIMIT = re.compile(r"(?i)max_(?:completion_|output_)?tokens\W[^.;]{0,60}\btoo large")
"""How endpoints refuse a limit of the answer that the rest of the context does not hold."""
_MAXIMUM = re.compile(
    r"""(?ix)
    max_(?:completion_|output_)?tokens \b
    (?:
      : \s [\d,]+ \s > \s (?P<bound>[\d,]{1,12}) , \s which \s is \s the \s maximum
      | [^;]{0,80} \b supports \s at \s most \s (?P<most>[\d,]{1,12}) \s (?:completion|output)
      | [^.;]{0,60} \[ \d+ , \s? (?P<end>\d{1,12}) \]
      | \W{1,3} must \s be \s less \s than \s or \s equal \s to \s `?(?P<equal>\d{1,12})\b
    )
    """
)
"""How endpoints name the maximum of output tokens that a model has."""
_SIGNATURE = re.compile(
    r"(?i)signature\W[^.;]{0,40}\bthinking|thinking\W[^.;]{0,60}\bsignature"
    r"|invalid_encrypted_content|encrypted content [^;]{0,80}(?:could not|cannot|invalid)"
)
"""How endpoints say that thoughts were sealed for another account or by another server."""
_BACK = re.compile(r"(?i)must be (?:passed|sent) back")


def learned(
    refusal: Refusal,
    request: Request,
    sent: Iterable[str],
    known: Collection[str],
    words: Words,
) -> set[str]:
    """What a refusal is about, of what was sent: parameters by name, or a shape of the request."""
    if not refusal.started and _LIMIT.search(refusal.said):
        return set(LIMITS) if LIMITS & set(sent) else set()
    if refusal.started or refusal.kind not in ("rejected_request", "overloaded"):
        return set()
    has_media = NO_MEDIA not in known and any(_media_of(item) for item in request.messages)
    if _ORDER.search(refusal.said):
        found = set(_next_order(known))
        return found or ({NO_MEDIA} if has_media else set())
    found = {shape for shape, rule in _RULES if rule.search(refusal.said)} - set(known)
    if not found and has_media and _MEDIA.search(refusal.said):
        found = {NO_MEDIA}
    if found:
        return found
    if refusal.kind != "rejected_request":
        return set()
    if _is_about_thoughts(refusal, request) and NO_THOUGHTS not in known:
        return {NO_THOUGHTS}
    return _parameters(refusal, list(sent), words)


def named_maximum(refusal: Refusal) -> int | None:
    """The maximum of output tokens that a refusal names; None if it is about something else."""
    found = None if refusal.started else _MAXIMUM.search(refusal.said)
    if found is None or found.lastgroup is None:
        return None
    digits = found[found.lastgroup].replace(",", "")
    return int(digits) if digits else None


def _next_order(known: Collection[str]) -> list[str]:
    """The next stricter order of messages that is not in use yet."""
    return [shape for shape in (STRICT_TURNS, ONE_RESULT) if shape not in known][:1]


def _is_about_thoughts(refusal: Refusal, request: Request) -> bool:
    fields = {
        str(part.data.get("field")) for message in request.messages for part in message.parts if type(part) is Thinking and "field" in part.data
    }
    is_named = any(re.search(rf"\b{re.escape(field)}\b", refusal.said) for field in fields)
    return is_named and not _BACK.search(refusal.said)


def refuses_thoughts(failed: ModelFailed, request: Request) -> bool:
    """True if an endpoint cannot read the thoughts in a request: they came from elsewhere.

    That is true of one conversation, not of the endpoint.
    """
    is_refused = isinstance(failed, Refusal) and bool(_SIGNATURE.search(failed.said))
    parts = (part for message in request.messages for part in message.parts)
    return is_refused and any(type(part) is Thinking for part in parts)


def unreadable(failed: ModelFailed, request: Request) -> list[Media]:
    """The files that an endpoint could not read: those of the newest results that show any."""
    if not isinstance(failed, Refusal) or failed.kind != "rejected_request":
        return []
    if not _UNREADABLE.search(failed.said):
        return []
    for message in reversed(request.messages):
        if shown := _media_of(message):
            return [part.media for part in shown if part.media is not None]
    return []


def readable(request: Request, refused: Collection[Media]) -> Request:
    """The same request with words in place of the files that were refused."""
    if not refused:
        return request
    messages = tuple(_readable(message, refused) for message in request.messages)
    return request._replace(messages=messages)


def _readable(message: Message, refused: Collection[Media]) -> Message:
    if not any(part.media in refused for part in _media_of(message)):
        return message
    hidden = [part for part in _media_of(message) if part.media in refused]
    parts = (_in_words(part, UNREADABLE) if part in hidden else part for part in message.parts)
    return message._replace(parts=tuple(parts))


def forgetful(request: Request) -> Request:
    """The same request without thoughts."""
    messages = tuple(_forgetful(message) for message in request.messages)
    return request._replace(messages=messages)


def _forgetful(message: Message) -> Message:
    parts = tuple(part for part in message.parts if type(part) is not Thinking)
    return message._replace(parts=parts)


def _parameters(refusal: Refusal, sent: list[str], words: Words) -> set[str]:
    named = _named(refusal.param, sent, {}) or _named(refusal.param, sent, words)
    return named or _named(refusal.said, sent, words)


def _named(text: str, sent: list[str], words: Words) -> set[str]:
    """The parameters that a text names, each by its own name or by one of its other words."""
    said = _plain(text)
    return {name for name in sent if any(_plain(word) in said for word in words.get(name, (name,)))}


def _plain(name: str) -> str:
    """A name without case and signs: endpoints write reasoning_effort, reasoningEffort or `reasoning effort`."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def arranged(request: Request, known: Collection[str]) -> tuple[str, tuple[Message, ...]]:
    """The system text and the messages of a request, in the order that an endpoint takes."""
    system, messages = request.system, request.messages
    if NO_MEDIA in known:
        messages = tuple(_without_media(message) for message in messages)
    if ONE_RESULT in known:
        messages = tuple(_with_one_result(message) for message in messages)
    if STRICT_TURNS in known:
        messages = _alternating(messages)
    if NO_SYSTEM in known and system and messages:
        first, *others = messages
        messages = (user(f"{system}\n\n{first.text}"), *others)
        system = ""
    return system, messages


def _alternating(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The same, where each text for the model goes to the end of the message before it unless that is an answer."""
    found: list[Message] = []
    for message in messages:
        if message.role == "user" and found and found[-1].role != "assistant":
            found[-1] = _extended(found[-1], message.text)
        else:
            found.append(message)
    return tuple(found)


def _extended(message: Message, text: str) -> Message:
    """A message with more text, behind the line that only remit writes.

    After an image or a PDF the text is a part of its own: nothing that was read may follow the line.
    """
    *others, last = message.parts
    assert isinstance(last, TextPart | ToolResult)
    added = f"{DELIMITER}\n{text}"
    if isinstance(last, ToolResult) and last.media is not None:
        return message._replace(parts=(*message.parts, TextPart(added)))
    return message._replace(parts=(*others, last._replace(text=f"{last.text}\n\n{added}")))


def results_of(message: Message) -> Iterator[tuple[ToolResult, str]]:
    """The results of a message, each with the text of remit that follows its image or PDF."""
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    for part in results:
        yield part, message.text if part is results[-1] else ""


def _with_one_result(message: Message) -> Message:
    """The results of one answer as a single result, each under the name and the id of its call."""
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    if message.role != "tool" or len(results) < 2:
        return message
    shown = _media_of(message)[:1]
    texts = [_under_its_call(part, is_shown=part in shown) for part in results]
    media = shown[0].media if shown else None
    return message._replace(parts=(results[0]._replace(text="\n\n".join(texts), media=media),))


def _under_its_call(part: ToolResult, *, is_shown: bool) -> str:
    note = f"\n{SHOWN_ALONE}" if part.media is not None and not is_shown else ""
    return f"[Result of {part.name}, call {part.call_id}]\n{part.text}{note}"


def _media_of(message: Message) -> list[ToolResult]:
    """The results of a message that show an image or a PDF."""
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    return [part for part in results if part.media is not None]


def _without_media(message: Message) -> Message:
    """The same, with words in place of images and PDFs."""
    shown = _media_of(message)
    if not shown:
        return message
    parts = tuple(_in_words(part) if part in shown else part for part in message.parts)
    return message._replace(parts=parts)


def _in_words(part: Part, why: str = NOT_SHOWN) -> Part:
    assert isinstance(part, ToolResult)
    return part._replace(text=f"{part.text}\n{why}", media=None)
