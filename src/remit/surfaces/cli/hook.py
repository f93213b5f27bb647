"""`remit hook`: what another agent program adds to its next request. It never stands in that program's way."""

import sys
from typing import Any, cast

from remit.surfaces.cli.command import Session
from remit.surfaces.cli.host import Result
from remit.surfaces.display import display, display_line

_AS_TEXT = ("", "UserPromptSubmit", "SessionStart")
"""Events whose hooks add to the request whatever they print; programs that name no event do so too."""
_AS_JSON = ("PreToolUse", "PostToolUse")
"""Events whose hooks must say in JSON what is to be added."""


class _Unusable(Exception):
    """What came in is not what a hook gets."""


def hook(session: Session, _fields: dict[str, Any]) -> Result:
    """Print what the session named on standard input must be told; whatever goes wrong is said on standard error alone."""
    try:
        sys.stdout.write(_answer(session))
    except Exception as error:  # noqa: BLE001 - an error of ours must not become one of the agent that calls
        sys.stderr.write(f"remit hook adds nothing. {display_line(str(error))}\n")
    return {}


def _answer(session: Session) -> str:
    session_id, event = _read(sys.stdin.read())
    if event not in _AS_TEXT + _AS_JSON:
        raise _Unusable(f"What is printed for {event} reaches no request; use it for one of {', '.join((*_AS_TEXT[1:], *_AS_JSON))}.")
    # Looking is much cheaper than writing, and most requests of most sessions have nothing to be told.
    if not session.call("list_session_tasks", session_id=session_id, limit=1)["tasks"]:
        return ""
    context = str(session.call("pre_request", session_id=session_id)["context"])
    if not context:
        return ""
    return f"{display(context)}\n" if event in _AS_TEXT else _as_json(event, context)


def _as_json(event: str, context: str) -> str:
    from json import dumps

    return dumps({"hookSpecificOutput": {"hookEventName": event, "additionalContext": context}}) + "\n"


def _read(text: str) -> tuple[str, str]:
    from json import loads

    try:
        given = loads(text)
    except (ValueError, RecursionError) as error:
        raise _Unusable("Standard input is no JSON object with a session_id.") from error
    found = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    session_id, event = found.get("session_id"), found.get("hook_event_name", "")
    if not isinstance(session_id, str) or not session_id or not isinstance(event, str):
        raise _Unusable("Standard input is no JSON object with a session_id.")
    return session_id, event
