"""The values of `format` in a JSON Schema that are checked; other values are not.

Each check takes time that is linear in the text. A time may lack its offset, and a duration may
have a sign: pydantic reads and writes both.
"""

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, NamedTuple
from urllib.parse import urlsplit


class TextFormat(NamedTuple):
    """A format of texts."""

    fits: Callable[[str], bool]
    expected: str


def _matching(pattern: str) -> Callable[[str], bool]:
    """Return a check that a text matches a pattern as a whole."""
    match = re.compile(pattern, re.ASCII | re.IGNORECASE).fullmatch
    return lambda text: match(text) is not None


def _readable(read: Callable[[str], Any]) -> Callable[[str], bool]:
    """Return a check that a function reads a text without a ValueError."""

    def fits(text: str) -> bool:
        try:
            read(text)
        except ValueError:
            return False
        return True

    return fits


def _both(first: Callable[[str], bool], second: Callable[[str], bool]) -> Callable[[str], bool]:
    return lambda text: first(text) and second(text)


def _uuid(version: str) -> str:
    """Return the pattern of UUIDs of some versions."""
    return rf"[0-9a-f]{{8}}-[0-9a-f]{{4}}-{version}-[89ab][0-9a-f]{{3}}-[0-9a-f]{{12}}"


_DATE = r"\d{4}-\d\d-\d\d"
_TIME = r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,9})?)?(Z|[-+]([01]\d|2[0-3]):[0-5]\d)?"
_DURATION = (
    r"[-+]?P(?=[\dT])(\d{1,6}Y)?(\d{1,6}M)?(\d{1,6}W)?(\d{1,9}D)?"
    r"(T(?=\d)(\d{1,9}H)?(\d{1,9}M)?(\d{1,9}(\.\d{1,9})?S)?)?"
)
_ANY_UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_URI = r"(file:///|[a-z][a-z0-9+.-]*:(?!//([/?#:]|$)))[^\s\x00-\x1f\x7f]+"
_EMAIL = r"[^\s@]{1,64}@[^\s@.]+(\.[^\s@.]+)*"

FORMATS: Mapping[str, TextFormat] = {
    "date-time": TextFormat(
        _both(
            _matching(f"{_DATE}[T ]{_TIME}"),
            _readable(lambda text: datetime.fromisoformat(text.upper())),
        ),
        "a date and time such as 2026-01-31T10:00:00Z",
    ),
    "date": TextFormat(
        _both(_matching(_DATE), _readable(date.fromisoformat)), "a date such as 2026-01-31"
    ),
    "time": TextFormat(
        _both(_matching(_TIME), _readable(lambda text: time.fromisoformat(text.upper()))),
        "a time such as 10:00:00",
    ),
    "duration": TextFormat(_matching(_DURATION), "an ISO 8601 duration such as P1DT2H30M"),
    "uuid": TextFormat(_matching(_ANY_UUID), "a UUID"),
    **{
        f"uuid{version}": TextFormat(
            _matching(_uuid(f"{version}[0-9a-f]{{3}}")), f"a UUID of version {version}"
        )
        for version in range(1, 9)
    },
    "uri": TextFormat(
        _both(_matching(_URI), _readable(lambda text: urlsplit(text).port)),
        "a URI such as https://example.com/a",
    ),
    "email": TextFormat(_matching(_EMAIL), "an email address"),
    "ipv4": TextFormat(_readable(IPv4Address), "an IPv4 address"),
    "ipv6": TextFormat(_readable(IPv6Address), "an IPv6 address"),
    "ipvanyaddress": TextFormat(_readable(ip_address), "an IP address"),
}
