"""`remit hook`: text that another agent program adds to its next request.

It never stops that program.
"""

import sys
from typing import Any, cast

from remit.surfaces.cli.cli_host import Result
from remit.surfaces.cli.command import Session
from remit.surfaces.text.display import display, display_line
from remit.surfaces.text.printed_commands import with_commands_in_line

_AS_TEXT = ("", "UserPromptSubmit", "SessionStart")
"""Events whose hooks add all printed text to the request. Programs that name no event do so too."""
_AS_JSON = ("PreToolUse", "PostToolUse")
"""Events whose hooks must print JSON."""


class _Unusable(Exception):
    """The input is not the input of a hook."""


def hook(session: Session, _fields: dict[str, Any]) -> Result:
    """Print pending assignments and updates for the session on standard input.

    Errors are printed to standard error only.
    """
    try:
        sys.stdout.write(_answer(session))
    except Exception as error:  # noqa: BLE001 - our errors must not stop the calling agent
        reason = display_line(with_commands_in_line(str(error)))
        sys.stderr.write(f"remit hook adds nothing. {reason}\n")
    return {}


def _answer(session: Session) -> str:
    """Return the text for the session on standard input; empty if there is no news."""
    session_id, event = _read(sys.stdin.read())
    if event not in _AS_TEXT + _AS_JSON:
        raise _Unusable(
            f"Output for {event} is not added to requests. Use the hook for one of"
            f" {', '.join((*_AS_TEXT[1:], *_AS_JSON))}."
        )
    # Reading is much cheaper than writing, and most requests have no news.
    if not session.call("list_session_tasks", session_id=session_id, limit=1)["tasks"]:
        return ""
    context = str(session.call("pre_request", session_id=session_id)["context"])
    if not context:
        return ""
    return f"{display(context)}\n" if event in _AS_TEXT else _as_json(event, context)


def _as_json(event: str, context: str) -> str:
    """Return the text in the JSON form that tool hooks must print."""
    from json import dumps

    return (
        dumps({"hookSpecificOutput": {"hookEventName": event, "additionalContext": context}}) + "\n"
    )


def _read(text: str) -> tuple[str, str]:
    """Return the session and the event on standard input."""
    from json import loads

    try:
        given = loads(text)
    except (ValueError, RecursionError) as error:
        raise _Unusable("Standard input is not a JSON object with a session_id.") from error
    found = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    session_id, event = found.get("session_id"), found.get("hook_event_name", "")
    if not isinstance(session_id, str) or not session_id or not isinstance(event, str):
        raise _Unusable("Standard input is not a JSON object with a session_id.")
    return session_id, event
