"""Tool calls that cannot be used at all, returned as an answer: the model is told what is wrong."""

import re
from itertools import takewhile

from remit.adapters.models.refusals.refusal import Refusal, TooManyCalls
from remit.adapters.models.wires.response import PartialToolCall, count_tokens, tool_calls
from remit.domain.llm.failures import ModelFailed, storable
from remit.domain.llm.messages import Message, Request, Response, ToolCall

MOST_IN_A_ROW = 3
"""After how many such answers in a row the next one fails the call of the model."""
_UNUSABLE = "No call was made: "
_REFUSED_CALL = re.compile(
    r"(?i)\btool_use_failed\b|failed to call a function|tool call validation failed"
)
"""The words of endpoints that refuse what the model wrote, such as Groq."""
_TOOL = re.compile(r"\btool '([^']{1,64})'")


def mistaken_call(failed: ModelFailed, request: Request) -> Response | None:
    """Return an answer with a call that says why it cannot be used; None if a failure is not about
    calls of the model, or if the model has made such mistakes several times in a row.
    """
    name, raw = _find_call(failed, request)
    if not name or _mistakes_in_a_row(request) >= MOST_IN_A_ROW:
        return None
    pieces = PartialToolCall()
    pieces.identify("", name)
    (call,) = tool_calls([pieces], request.messages)
    told = f"{_UNUSABLE}{failed.text.rstrip('.')}. Make a valid call, or answer without one."
    call = call._replace(arguments={}, raw=storable(raw), error=storable(told))
    used = count_tokens(None, None, None, _size(request), len(raw))
    return Response((call,), "tool_calls", used, request.model)


def _find_call(failed: ModelFailed, request: Request) -> tuple[str, str]:
    """Return the name and the text of the call that a failure is about; no name if of none."""
    if isinstance(failed, TooManyCalls):
        return failed.name, ""
    if not isinstance(failed, Refusal) or not _REFUSED_CALL.search(failed.said):
        return "", ""
    said = f"{failed.generation} {failed.said}"
    offered = [tool.name for tool in request.tools]
    named = (name for name in offered if re.search(rf"\b{re.escape(name)}\b", said))
    tool = _TOOL.search(said)
    name = next(named, tool[1] if tool else "unnamed")
    return name, failed.generation


def _mistakes_in_a_row(request: Request) -> int:
    """Return how many of the last answers were mistaken calls."""
    answers = [message for message in request.messages if message.role == "assistant"]
    return len(list(takewhile(_is_mistaken, reversed(answers))))


def _is_mistaken(message: Message) -> bool:
    calls = [part for part in message.parts if type(part) is ToolCall]
    return any(call.error.startswith(_UNUSABLE) for call in calls)


def _size(request: Request) -> int:
    """Return about how many characters were sent."""
    return sum(map(len, map(str, (request.system, *request.messages, *request.tools))))
