"""Instants as people say them."""

from typing import Any

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def span(seconds: float) -> str:
    """How long something takes or took."""
    for size, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {name}"
    return f"{max(int(seconds), 0)} s"


def since(at: str | None, now: Any) -> str:
    """How long ago an instant was."""
    return span((now - _instant(at)).total_seconds()) if at else ""


def ago(at: str | None, now: Any) -> str:
    """How long ago, as a phrase; nothing for no instant."""
    if not at:
        return ""
    seconds = (now - _instant(at)).total_seconds()
    if seconds < 0:
        return f"in {span(-seconds)}"
    return f"{span(seconds)} ago" if seconds >= _MINUTE else "just now"


def moment(at: str, zone: str | None = None) -> str:
    """An instant in local time, or in a time zone."""
    from zoneinfo import ZoneInfo

    return str(_instant(at).astimezone(ZoneInfo(zone) if zone else None).strftime("%Y-%m-%d %H:%M:%S"))


def _instant(at: str) -> Any:
    from datetime import datetime

    return datetime.fromisoformat(at)
