"""Times and durations for people."""

from typing import Any

_MINUTE, _HOUR, _DAY, _WEEK = 60, 3600, 86400, 604800


def span(seconds: float) -> str:
    """Return a duration in its largest unit."""
    for size, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {name}"
    return f"{max(int(seconds), 0)} s"


def since(at: str | None, now: Any) -> str:
    """Return how long ago a time was."""
    if not at:
        return ""
    return span((now - _instant(at)).total_seconds())


def ago(at: str | None, now: Any) -> str:
    """Return how long ago a time was, as a phrase; empty for None."""
    if not at:
        return ""
    seconds = (now - _instant(at)).total_seconds()
    if seconds < 0:
        return f"in {span(-seconds)}"
    if seconds < _MINUTE:
        return "just now"
    return f"{span(seconds)} ago"


def is_ahead(at: str, now: Any) -> bool:
    """True for an instant to come."""
    return bool(_instant(at) > now)


def upcoming(at: str, now: Any) -> str:
    """Return a future time, and how far away it is if that is at most a week."""
    is_near = (_instant(at) - now).total_seconds() <= _WEEK
    if not is_near:
        return moment(at)
    return f"{moment(at)} ({ago(at, now)})"


def moment(at: str, zone: str | None = None) -> str:
    """Return a time in the local time zone or in another."""
    from zoneinfo import ZoneInfo

    place = ZoneInfo(zone) if zone else None
    return str(_instant(at).astimezone(place).strftime("%Y-%m-%d %H:%M:%S"))


def _instant(at: str) -> Any:
    from datetime import datetime

    return datetime.fromisoformat(at)
