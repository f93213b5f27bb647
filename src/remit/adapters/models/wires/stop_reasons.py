"""Why an answer ended, in the words of many endpoints."""

from remit.adapters.models.wires.response import short_text
from remit.domain.llm.failures import ModelFailed, excerpt
from remit.domain.llm.messages import Stop

_WORDS: dict[Stop, str] = {
    "end": "stop end end_turn stop_sequence eos eos_token complete completed",
    "tool_calls": "tool_calls tool_call tool_use function_call",
    "length": "length max_tokens max_output_tokens max_length token_limit time_limit",
    "context_full": (
        "model_context_window_exceeded context_window_exceeded context_length_exceeded"
        " model_length error_limit"
    ),
    "paused": "pause_turn",
    "refusal": (
        "refusal content_filter content_filtered sensitive safety image_safety blocklist spii"
        " prohibited_content image_prohibited_content recitation image_recitation language"
        " guardrail_intervened error_toxic"
    ),
}
_STOPS: dict[str, Stop] = {word: stop for stop, words in _WORDS.items() for word in words.split()}
_BROKEN_OFF = frozenset(
    {
        "error",
        "abort",
        "aborted",
        "cancel",
        "cancelled",
        "canceled",
        "user_cancel",
        "failed",
        "timeout",
        "network_error",
        "insufficient_system_resource",
        "malformed_function_call",
        "malformed_tool_use",
        "malformed_model_output",
        "unexpected_tool_call",
        "missing_thought_signature",
    }
)
"""The reasons for half an answer: the same request may succeed later."""
_KNOWN = _BROKEN_OFF.union(_STOPS)


def knows(reason: str) -> bool:
    """Return True for a reason with a known meaning."""
    return _word(reason) in _KNOWN


def read_stop(reason: str, endpoint: str, *, started: bool, is_complete: bool = True) -> Stop:
    """Return why an answer ended; raise if it was broken off.

    An unknown reason ends an answer, unless the answer is empty or said to be incomplete.
    """
    word = _word(reason)
    if word in _STOPS:
        return _STOPS[word]
    shown = excerpt(short_text(reason))
    if word in _BROKEN_OFF or not is_complete:
        text = f"{endpoint} broke off its answer (reason: {shown})"
        raise ModelFailed("overloaded", text, started=started)
    if word and not started:
        raise ModelFailed("overloaded", f"{endpoint} gave no answer (reason: {shown})")
    return "end"


def _word(reason: str) -> str:
    """Return a reason in lower case, without the filter that Gemini names before it."""
    return reason.rpartition(":")[2].strip().lower()
