"""What an agent said last; the parts of an answer that was cut off are joined."""

import re

from remit.app.conversations.stored_message import History
from remit.domain.llm.messages import Message, TextPart
from remit.domain.llm.text_calls import is_statement
from remit.domain.prompts import agent_prompts, update_messages

COMPARED, LEAST_COMPARED = 40, 12
"""How many characters are compared to see whether a cut-off answer starts over."""
OVERLAP, LEAST_WORDS = 400, 3
"""The maximum overlap of a continuation in characters, and its minimum of different words."""
_WORD = re.compile(r"[^\W\d_]+")


def last_answer(history: History) -> str:
    """Return the text of the last answer of the model; empty if it called a tool."""
    for place in reversed(range(len(history))):
        item = history[place]
        if item.calls:
            return ""
        if item.is_answer:
            return completed(history[:place], item.message.text)
    return ""


def last_text(history: History) -> str:
    """Return the last text of the model, including text beside a tool call."""
    for place in reversed(range(len(history))):
        item = history[place]
        if item.is_answer and item.message.text.strip():
            return completed(history[:place], item.message.text).strip()
    return ""


def last_statement(history: History) -> str:
    """Return the last text that does more than announce the agent's next action.

    Text beside a tool call counts. Texts from before new instructions or a rejection do not.
    """
    for place in reversed(range(len(history))):
        message = history[place].message
        if _outdates_statements(message):
            return ""
        if message.role == "assistant" and is_statement(message.text):
            return completed(history[:place], message.text).strip()
    return ""


def _outdates_statements(message: Message) -> bool:
    """True for a message with new instructions, or a rejection."""
    return message.role == "user" and update_messages.outdates_statements(message.text)


def text_beside_calls(history: History) -> str:
    """Return the text of the message whose calls are being made."""
    return completed(history[:-1], history[-1].message.text).strip()


def completed(before: History, text: str) -> str:
    """Return an answer joined with the parts before it that were cut off.

    `before` are the messages before the answer. A part that starts over replaces the parts before
    it, and a repeated passage is left out.
    """
    later_parts: list[str] = []
    while len(before) > 1 and asks_to_continue(before[-1].message):
        later_parts.append(text)
        text = before[-2].message.text
        before = before[:-2]
    for part in reversed(later_parts):
        text = _continued(text, part)
    return text


def asks_to_continue(message: Message) -> bool:
    """True for a message that ends by telling the model that its answer was cut off."""
    if message.role != "user":
        return False
    return message.parts[-1:] == (TextPart(agent_prompts.CUT_OFF),)


def _continued(text: str, part: str) -> str:
    """Return a text with a later part, which may start over or repeat its end."""
    if _restarts(text, part):
        return part
    return text + part[_overlap(text, part) :]


def _restarts(text: str, later: str) -> bool:
    """True if a text starts over from the beginning of another one instead of continuing it."""
    beginning = text.strip()[:COMPARED]
    if len(beginning) < LEAST_COMPARED or text.count(beginning) > 1:  # log lines start alike
        return False
    return later.strip().startswith(beginning)


def _overlap(text: str, later: str) -> int:
    """Return how many characters at the end of a text its continuation repeats.

    Fewer than three different words may be repeated on purpose, such as rows of zeros.
    """
    longest = min(len(text), len(later), OVERLAP)
    for length in range(longest, LEAST_COMPARED - 1, -1):
        passage = later[:length]
        if not text.endswith(passage):
            continue
        words = set(_WORD.findall(passage))
        if len(words) < LEAST_WORDS:
            return 0
        return length
    return 0
