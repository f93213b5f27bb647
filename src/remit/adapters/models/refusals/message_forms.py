"""The messages of a request in the order and the form that an endpoint accepts."""

from collections.abc import Collection, Iterator
from functools import partial

from remit.adapters.models.refusals.endpoint_limits import (
    NO_IMAGES,
    NO_MEDIA,
    NO_PDFS,
    NO_SYSTEM,
    ONE_RESULT,
    SHORT_IDS,
    STRICT_TURNS,
    media_limit,
    media_results,
)
from remit.adapters.models.tool_schemas import call_id, tool_name
from remit.domain.agents.media import Media
from remit.domain.llm.messages import (
    DELIMITER,
    Message,
    Part,
    Request,
    TextPart,
    Thinking,
    ToolResult,
    user,
)

NOT_SHOWN = {
    NO_IMAGES: "[Not shown: images cannot be sent to the endpoint of this model.]",
    NO_PDFS: "[Not shown: PDFs cannot be sent to the endpoint of this model.]",
}
UNREADABLE = "[Not shown: the endpoint of this model did not accept this file.]"
SHOWN_ALONE = (
    "[Not shown: this endpoint takes one file among several results. Read it again, alone.]"
)


def arrange(request: Request, known: Collection[str]) -> tuple[str, tuple[Message, ...]]:
    """Return the system text and the messages of a request in the order that an endpoint
    accepts.
    """
    system, messages = request.system, request.messages
    for limit in sorted(NO_MEDIA.intersection(known)):
        hide = partial(_without_media, limit=limit)
        messages = tuple(map(hide, messages))
    if ONE_RESULT in known:
        join = partial(_join_results, is_short=SHORT_IDS in known)
        messages = tuple(map(join, messages))
    if STRICT_TURNS in known:
        messages = _alternate(messages)
    if NO_SYSTEM in known and system and messages:
        first, *others = messages
        messages = (user(f"{system}\n\n{first.text}"), *others)
        system = ""
    return system, messages


def results_of(message: Message) -> Iterator[tuple[ToolResult, str]]:
    """Yield the results of a message, each with the text of remit that follows its image or PDF:
    the last one has that of the message.
    """
    results = _tool_results(message)
    tails = [""] * (len(results) - 1)
    return zip(results, [*tails, message.text], strict=False)


def hide_media(request: Request, refused: Collection[Media]) -> Request:
    """Return a request with a note in place of the files that were refused."""
    if not refused:
        return request
    hide = partial(_hide_refused, refused=refused)
    return request._replace(messages=tuple(map(hide, request.messages)))


def drop_thoughts(request: Request) -> Request:
    """Return a request without thoughts."""
    return request._replace(messages=tuple(map(_without_thoughts, request.messages)))


def _hide_refused(message: Message, *, refused: Collection[Media]) -> Message:
    """Replace the files of a message that were refused."""
    hidden = [part for part in media_results(message) if part.media in refused]
    return _replace_media(message, hidden, UNREADABLE)


def _without_media(message: Message, *, limit: str) -> Message:
    """Return a message with a note in place of each file of the kind that is not accepted."""
    shown = media_results(message)
    hidden = [part for part in shown if part.media and media_limit(part.media) == limit]
    return _replace_media(message, hidden, NOT_SHOWN[limit])


def _replace_media(message: Message, hidden: Collection[ToolResult], note: str) -> Message:
    """Return a message with a note in place of the images and PDFs of some results."""
    if not hidden:
        return message
    replace = partial(_replace_hidden, hidden=hidden, note=note)
    return message._replace(parts=tuple(map(replace, message.parts)))


def _replace_hidden(part: Part, *, hidden: Collection[ToolResult], note: str) -> Part:
    """Return a part; with a note in place of its media if it is hidden."""
    if not isinstance(part, ToolResult) or part not in hidden:
        return part
    return part._replace(text=f"{part.text}\n{note}", media=None)


def _without_thoughts(message: Message) -> Message:
    parts = tuple(part for part in message.parts if type(part) is not Thinking)
    return message._replace(parts=parts)


def _alternate(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Move each text for the model to the end of the message before it unless that is an answer."""
    found: list[Message] = []
    for message in messages:
        if message.role == "user" and found and found[-1].role != "assistant":
            found[-1] = _extend(found[-1], message.text)
        else:
            found.append(message)
    return tuple(found)


def _extend(message: Message, text: str) -> Message:
    """Return a message with more text, after the line that only remit writes.

    After an image or a PDF, the text is a separate part: no tool result may follow the line.
    """
    *others, last = message.parts
    assert isinstance(last, TextPart | ToolResult)
    added = f"{DELIMITER}\n{text}"
    if isinstance(last, ToolResult) and last.media is not None:
        return message._replace(parts=(*message.parts, TextPart(added)))
    return message._replace(parts=(*others, last._replace(text=f"{last.text}\n\n{added}")))


def _join_results(message: Message, *, is_short: bool) -> Message:
    """Join the results of one answer to a single result with the first image or PDF."""
    results = _tool_results(message)
    if message.role != "tool" or len(results) < 2:
        return message
    shown = next(iter(media_results(message)), None)
    texts = [_label_result(part, shown, is_short=is_short) for part in results]
    media = shown.media if shown else None
    joined = results[0]._replace(text="\n\n".join(texts), media=media)
    return message._replace(parts=(joined,))


def _label_result(part: ToolResult, shown: ToolResult | None, *, is_short: bool) -> str:
    """Return the text of a result under the name and the id of its call, as they are sent."""
    made = call_id(part.call_id, short=is_short)
    text = f"[Result of {tool_name(part.name)}, call {made}]\n{part.text}"
    if part.media is None or part == shown:
        return text
    return f"{text}\n{SHOWN_ALONE}"


def _tool_results(message: Message) -> list[ToolResult]:
    return [part for part in message.parts if isinstance(part, ToolResult)]
