"""Parameters and forms that an endpoint does not accept, learned from its refusals."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from remit.adapters.models.refusals.refusal import Refusal
from remit.domain.agents.media import PDF, Media
from remit.domain.llm.failures import ModelFailed
from remit.domain.llm.messages import Message, Part, Request, Thinking, ToolCall, ToolResult

Known = frozenset[str]
"""Everything that the endpoint was known not to accept when the request was built."""
Words = Mapping[str, tuple[str, ...]]

STRICT_TURNS = "a user message after tool results or after another user message"
ONE_RESULT = "several tool results in a row"
NO_SYSTEM = "a system message"
NO_NULLS = "null as the content of a message with tool calls"
SHORT_IDS = "ids of tool calls that are not 9 letters and digits"
BARE_SCHEMAS = "JSON Schema beyond types, properties, items and enums"
NO_THOUGHTS = "thoughts of earlier answers"
NO_IMAGES = "images"
NO_PDFS = "PDFs"
NO_MEDIA = frozenset({NO_IMAGES, NO_PDFS})
EFFORT_WORDS = ("reasoning effort", "thinking", "think value", "reasoning value")
"""The words of endpoints for the effort of a model; Ollama names its own parameter, `think`."""
SIGNED_CALLS = "tool calls without a thought signature"
SHAPES = NO_MEDIA | {
    STRICT_TURNS,
    ONE_RESULT,
    NO_SYSTEM,
    NO_NULLS,
    SHORT_IDS,
    BARE_SCHEMAS,
    NO_THOUGHTS,
    SIGNED_CALLS,
}
"""Everything that can be learned beside parameters."""

_ORDER = re.compile(r"""(?ix)
    \b (?:roles?|turns?|user|messages?(?:\(s\))?|conversation|requests?) \b [^.;]{0,40}
      \b alternat(?:e|es|ing) \b
    | unexpected \s role \s '?user'? \s after
    | invalid_request_message_order
    | (?:consecutive|successive|two) \s (?:user|assistant) \s (?:or \s \w{1,9} \s)?
      (?:messages|turns|roles)
    | (?:user|assistant) \s message \s (?:cannot|must \s not|may \s not) \s follow
    """)
_RULES = (
    (
        NO_SYSTEM,
        re.compile(
            r"(?i)system (?:role|message|prompt)s?\W* (?:is |are )?not supported"
            r"|\brole\W{1,4}does not support \W?system\b|developer instruction is not enabled"
        ),
    ),
    (
        SHORT_IDS,
        re.compile(r"(?i)tool call id \S+ .{0,80}must be|tool call ids? .{0,80}length of 9"),
    ),
    (SIGNED_CALLS, re.compile(r"(?i)missing an? \W?thought.?signature")),
    (
        BARE_SCHEMAS,
        re.compile(
            r"(?i)json.?schema|grammar|function_?declaration|input_schema"
            r"|(?:invalid|unrecognized) schema|unsupported (?:schema|pattern|keyword)"
            r"|number of repetitions|schema type field|alongside any_of"
        ),
    ),
)
_MEDIA = {
    NO_IMAGES: re.compile(r"(?i)\b(?:images?|image_url|input_image|vision)\b"),
    NO_PDFS: re.compile(r"(?i)\b(?:pdfs?|files?|file_data|input_file|documents?)\b"),
}
"""The words of endpoints for each kind of media."""
_MULTIMODAL = re.compile(r"(?i)\bmulti-?modal\b")
_PLAIN_TEXT = re.compile(r"""(?ix)
    \b content \b [^;]{0,80} \b (?:must|should) \s be \s a \s (?:valid \s)? string \b
    | invalid \s type: \s (?:sequence|array), \s expected \s a \s string
    | \b content\.type [^;]{0,40} \[ ['"] text ['"] \]
    """)
"""The words of endpoints that take text alone; they refuse a message that shows a file."""
_NULL = re.compile(r"""(?ix)
    \b content \b [^;]{0,80} (?: \b null \b | \bnone\b | <nil> | \b string \s or \s an \s array \b)
    | role: \s? assistant \b [^;]{0,160} \b must \s be \s a \s string \b
    | invalid \s type: \s (?:null|unit \s value), \s expected
    """)
"""The words of endpoints that take no null where text is expected."""
_ALLOWED = re.compile(r"""(?ix)
    \b (?:
      (?:supported|allowed|valid|accepted|permitted|expected) \s (?:content \s)?
        (?:values?|types?|tags?|parts?) \b
      | (?:expected|must \s be|should \s be) \s (?:one \s of|either|['"`])
    )
    [^.;]*? (?= \b (?:got|but|found|received) \b | [.;] | $)
    """)
"""The words of endpoints for what they accept instead."""
_UNREADABLE = re.compile(r"""(?ix)
    (?:could \s not|cannot|can't|unable \s to|failed \s to)
      \s (?:process|decode|read|parse|open|load|identify) \b
      [^.;]{0,40} \b (?:images?|pdfs?|documents?|files?)
    | (?:invalid|corrupt\w*|malformed|broken|unsupported) \s (?:image|pdf|document) \b (?!_)
    | (?:image|pdf|document|file) \b [^.;]{0,60}
      \b (?:is \s not \s valid|invalid|corrupt\w*|password)
    | (?:valid|supported) \s image \s format
    | not \s represent \s a \s valid \s image
    | image \s dimensions | too \s many \s pages | maximum \s of \s \d+ \s (?:pdf \s)? pages
    """)
"""The words of endpoints that cannot read one file."""
_REFUSED_KIND = re.compile(r"""(?ix)
    support | at \s most \s 0 \b | multi-?modal | \bvision\b | \bexpected\b | input \s should \s be
    | unknown \s variant | \b invalid \s (?:value|type|content \s type) | unexpected
    | unrecogni[sz]ed | extra \s inputs | \b only \s (?:text|accept) | accepts? \b | \btext-?\s?only
    | not \s (?:be \s)? (?:allowed|permitted|accepted|enabled|available|sent)
    """)
"""The words of endpoints that accept no images, or no PDFs."""
_REFUSED_FILE = re.compile(r"""(?ix)
    \b (?: png | jpe?g | gif | webp ) \b | safety | policy | moderation | guardrail | \bfilter
    | \bsize | dimension | pixel | width | height | resolution | \bbytes\b | \bMB\b | download
    | at \s most \s [1-9] | too \s (?:large|big|small|many|long) | exceed
    """)
"""The words of endpoints that refuse one file, or so many, although they accept this kind."""
LIMITS = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens"})
_LIMIT = re.compile(
    r"(?i)max_(?:completion_|output_)?tokens\W[^.;]{0,60}\btoo large"
    r"|max_(?:total_)?tokens \(\d+\) [^.;]{0,40}max_seq_len"
)
"""The words of endpoints for an output limit that exceeds the rest of the context."""
_WHOLE_CONTEXT = re.compile(
    r"(?i)max_(?:completion_|output_)?tokens\W[^.;]{0,40}greater than max_model_len"
)
"""The words of endpoints for an output limit that exceeds the whole context."""
_MAXIMUM = re.compile(r"""(?ix)
    \b max(?:imum)? [_\s]? (?:completion|output|new)? [_\s]? token (?:s|_?count) \b
    (?:
      : \s [\d,]+ \s > \s (?P<bound>[\d,]{1,12}) , \s which \s is \s the \s maximum
      | \s > \s (?P<unstreamed>\d{1,12}) \s must \s have \s stream
      | [^;]{0,80} \b supports \s at \s most \s (?P<most>[\d,]{1,12}) \s (?:completion|output)
      | [^;]{0,80} \b expected \s a \s value \s <= \s (?P<value>\d{1,12})
      | [^.;]{0,60} \[ \d+ , \s? (?P<end>\d{1,12}) \]
      | [^.;]{0,60} \b from \s \d+ \s \(inclusive\) \s to \s (?P<exclusive>\d{1,12}) \s \(exclusive
      | [^.;]{0,40} \b not \s less \s (?:than \s)? or \s equal \s to \s (?P<schema>\d{1,12})
      | (?:[^.;]|\.(?=\w)){0,80}? \b (?:must|should) \s be \s
        (?:less \s than \s or \s equal \s to | at \s most | no \s more \s than | <=
          | between \s \d+ \s and)
        \s `? (?P<equal>\d{1,12})
      | [^.;]{0,40}? \b exceeds? \s (?:the \s)? (?:model(?:'s)? \s)? (?:limit|maximum)
        (?: \s output \s tokens)? \s (?:of \s)? \(? (?P<limit>\d{1,12})
    )
    """)
"""The words of endpoints that name a model's maximum of output tokens."""
_SIGNATURE = re.compile(
    r"(?i)signature\W[^.;]{0,40}\bthinking|thinking\W[^.;]{0,60}\bsignature"
    r"|invalid_encrypted_content|encrypted content [^;]{0,80}(?:could not|cannot|invalid)"
)
"""The words of endpoints for thoughts that were encrypted for another account or by another
server.
"""
_BACK = re.compile(r"(?i)must be (?:passed|sent) back")


def find_refused(
    refusal: Refusal,
    request: Request,
    sent: Iterable[str],
    known: Collection[str],
    words: Words,
) -> set[str]:
    """Return the parts of a request that a refusal is about: parameters by name, or a shape."""
    if refusal.started:
        return set()
    if _WHOLE_CONTEXT.search(refusal.said):
        return set(LIMITS)
    found: set[str] = set()
    if refusal.kind in ("rejected_request", "overloaded"):
        found = _find_shapes(refusal, request, known)
    if found or refusal.kind != "rejected_request" or _ORDER.search(refusal.said):
        return found
    if NO_THOUGHTS not in known and _is_about_thoughts(refusal, request):
        return {NO_THOUGHTS}
    return _find_parameters(refusal, list(sent), words)


def exceeds_room(failed: ModelFailed, request: Request) -> bool:
    """Return True if the limit of output tokens exceeds the rest of the context.

    That is true of one conversation, not of the endpoint. Without the limit, the rest is the limit.
    """
    limit = request.settings.max_tokens
    if not isinstance(failed, Refusal) or failed.started or limit is None:
        return False
    most = named_maximum(failed)
    if most is not None and most < limit:
        return False
    return _LIMIT.search(failed.said) is not None


def named_maximum(refusal: Refusal) -> int | None:
    """Return the maximum of output tokens that a refusal names; None if it is about something
    else.
    """
    found = _MAXIMUM.search(f"{refusal.said} {refusal.param}")
    if refusal.started or found is None:
        return None
    form = str(found.lastgroup)
    digits = found[form].replace(",", "")
    if not digits:
        return None
    if form == "exclusive":
        return int(digits) - 1
    return int(digits)


def refuses_thoughts(failed: ModelFailed, request: Request) -> bool:
    """Return True if an endpoint cannot read the thoughts in a request: they came from elsewhere.

    That is true of one conversation, not of the endpoint.
    """
    has_thoughts = any(type(part) is Thinking for part in _all_parts(request))
    return has_thoughts and isinstance(failed, Refusal) and bool(_SIGNATURE.search(failed.said))


def unreadable_media(failed: ModelFailed, request: Request) -> list[Media]:
    """Return the files that an endpoint did not accept: of the newest results that show any, those
    of the kind that it names.

    A refusal that does not say that it accepts no such files is about these files alone.
    """
    if not isinstance(failed, Refusal) or failed.kind != "rejected_request":
        return []
    if not _UNREADABLE.search(failed.said) and not _is_about_one_file(failed):
        return []
    kinds = _refused_media(failed, request, ())
    refused = (
        [media for media in _shown_media(message) if media_limit(media) in kinds]
        for message in reversed(request.messages)
    )
    nothing: list[Media] = []
    return next(filter(None, refused), nothing)


def media_limit(media: Media) -> str:
    """Return the limit of endpoints that do not accept a file of this kind."""
    if media.type == PDF:
        return NO_PDFS
    return NO_IMAGES


def media_results(message: Message) -> list[ToolResult]:
    """Return the results of a message that show an image or a PDF."""
    return [
        part for part in message.parts if isinstance(part, ToolResult) and part.media is not None
    ]


def _shown_media(message: Message) -> list[Media]:
    """Return the images and PDFs that a message shows."""
    return [part.media for part in media_results(message) if part.media is not None]


def _stricter_order(request: Request, known: Collection[str]) -> set[str]:
    """Return the next stricter order of messages that is not in use yet; at last, one without
    media.
    """
    for shape in (STRICT_TURNS, ONE_RESULT):
        if shape not in known:
            return {shape}
    return _refused_media(None, request, known)


def _find_shapes(refusal: Refusal, request: Request, known: Collection[str]) -> set[str]:
    """Return the shapes of a request that a refusal is about."""
    if _ORDER.search(refusal.said):
        return _stricter_order(request, known)
    found = {shape for shape, rule in _RULES if rule.search(refusal.said)}
    found.difference_update(known)
    if NO_NULLS not in known and _is_about_nulls(refusal, request, known):
        found.add(NO_NULLS)
    if found or not _is_about_media(refusal):
        return found
    return _refused_media(refusal, request, known)


def _is_about_nulls(refusal: Refusal, request: Request, known: Collection[str]) -> bool:
    """Return True if a refusal may be about messages with tool calls and no text.

    Words for text alone are about images and PDFs where a request shows any.
    """
    answers = [message for message in request.messages if message.role == "assistant"]
    if all(message.text for message in answers):
        return False
    if _NULL.search(refusal.said):
        return True
    shown = _shown_kinds(request).difference(known)
    return not shown and _PLAIN_TEXT.search(refusal.said) is not None


def _is_about_media(refusal: Refusal) -> bool:
    """Return True if a refusal speaks of images, PDFs or files."""
    said = f"{refusal.said} {refusal.param}"
    return any(word.search(said) for word in (_MULTIMODAL, _PLAIN_TEXT, *_MEDIA.values()))


def _is_about_one_file(refusal: Refusal) -> bool:
    """Return True if a refusal speaks of files, and not of all images or PDFs."""
    said = refusal.said
    if _ORDER.search(said) or _PLAIN_TEXT.search(said) or not _is_about_media(refusal):
        return False
    is_about_kind = _REFUSED_KIND.search(said) and not _REFUSED_FILE.search(said)
    return not is_about_kind


def _refused_media(refusal: Refusal | None, request: Request, known: Collection[str]) -> set[str]:
    """Return the kind of media in a request that a refusal is about: the one that it names.

    If that is unclear, PDFs come first: more endpoints accept images.
    """
    shown = _shown_kinds(request).difference(known)
    named = shown & _named_kinds(refusal) if refusal else set[str]()
    found = named if len(named) == 1 else shown
    if len(found) > 1:
        return {NO_PDFS}
    return found


def _shown_kinds(request: Request) -> set[str]:
    """Return the limits for the kinds of media that a request shows."""
    return {media_limit(media) for message in request.messages for media in _shown_media(message)}


def _named_kinds(refusal: Refusal) -> set[str]:
    """Return the limits for the kinds of media that are refused, without those named as accepted
    instead.
    """
    said = f"{_ALLOWED.sub('', refusal.said)} {refusal.param}"
    return {kind for kind, word in _MEDIA.items() if word.search(said)}


def _is_about_thoughts(refusal: Refusal, request: Request) -> bool:
    """Return True if a refusal names the field of a thought that was sent back."""
    if _BACK.search(refusal.said):
        return False
    fields = set(map(re.escape, _thought_fields(request)))
    return any(re.search(rf"\b{field}\b", refusal.said) for field in fields)


def _thought_fields(request: Request) -> Iterator[str]:
    """Yield the fields in which thoughts and signatures of calls are sent back."""
    for part in _all_parts(request):
        if type(part) is Thinking and "field" in part.data:
            yield str(part.data["field"])
        elif type(part) is ToolCall and part.data:
            yield from part.data


def _all_parts(request: Request) -> Iterator[Part]:
    """Yield the parts of all messages."""
    for message in request.messages:
        yield from message.parts


def _find_parameters(refusal: Refusal, sent: list[str], words: Words) -> set[str]:
    """Return the parameters that a refusal names: first by name, then by other words."""
    return (
        _named_in(refusal.param, sent, {})
        or _named_in(refusal.param, sent, words)
        or _named_in(refusal.said, sent, words)
    )


def _named_in(text: str, sent: list[str], words: Words) -> set[str]:
    """Return the parameters that a text names, each by its own name or by one of its other
    words.
    """
    said = _letters(text)
    return {name for name in sent if _has_any(said, words.get(name, (name,)))}


def _has_any(said: str, forms: Iterable[str]) -> bool:
    """Return True if a text in letters has one of these words."""
    return any(form in said for form in map(_letters, forms))


def _letters(name: str) -> str:
    """Return a name without case and signs: endpoints write reasoning_effort, reasoningEffort or
    `reasoning effort`.
    """
    return re.sub(r"[^a-z0-9]", "", name.lower())
