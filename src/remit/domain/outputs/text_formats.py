"""The values of `format` in a JSON Schema that are checked; other values are not.

A text that pydantic reads for the type of a format fits, in each of its forms: an output type may
have asked for it. Each check takes time that is linear in the text.
"""

import re
from collections.abc import Callable, Mapping
from datetime import date
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, NamedTuple


class TextFormat(NamedTuple):
    """A format of texts."""

    fits: Callable[[str], bool]
    expected: str


def _matching(pattern: str) -> Callable[[str], bool]:
    """Return a check that a text matches a pattern as a whole."""
    match = re.compile(pattern, re.ASCII | re.IGNORECASE | re.DOTALL).fullmatch
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


def _either(first: Callable[[str], bool], second: Callable[[str], bool]) -> Callable[[str], bool]:
    return lambda text: first(text) or second(text)


def _uuid(version: str = "[0-9a-f]", variant: str = "[0-9a-f]") -> str:
    """Return the pattern of UUIDs of some versions: with dashes, with braces, or without both."""
    digits = ["[0-9a-f]{8}", "[0-9a-f]{4}", f"{version}[0-9a-f]{{3}}", f"{variant}[0-9a-f]{{3}}"]
    digits.append("[0-9a-f]{12}")
    dashed = "-".join(digits)
    return rf"(urn:uuid:)?{dashed}|\{{{dashed}\}}|{''.join(digits)}"


def _is_whole_days(text: str) -> bool:
    """Return True if a number of seconds or milliseconds is a number of days."""
    return abs(float(text)) // 1 % 86_400 == 0


def _is_uri(text: str) -> bool:
    """Return True for a URI; as in browsers, control characters and spaces around it are
    ignored.
    """
    return _matches_uri(text.strip(_EDGES).translate(_IGNORED))


_DATE = r"\d{4}-\d\d-\d\d"
_OFFSET = r"(Z|[-+\u2212]([01]\d|2[0-3]):?[0-5]\d)?"
_TIME = rf"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d([.,]\d+)?)?{_OFFSET}"
_MIDNIGHT = rf"00:00(:00([.,]0\d*)?)?{_OFFSET}"
_NUMBER = r"[-+]?(\d+(\.\d*)?|\.\d+)(E[-+]?\d+)?"
_ISO_DURATION = r"[-+]?P(?=T?\d)(?>0*\d{1,9}([.,]\d*)?[YMWD])*+(T(?>0*\d{1,10}([.,]\d*)?[HMS])*+)?"
_CLOCK_DURATION = (
    r"[-+]?(?=[\d:])(\d+ *d(ays?)?[ ,]*)?(\d{2,}:\d\d|\d*:\d\d:\d\d([.,](\d+|\d{6}.*))?)?"
)
"""pydantic ignores what follows the sixth decimal place."""
_EMAIL = r"(.*<)?\s*+[^\s@<>]{1,64}@[^\s@.<>]++(\.[^\s@.<>]++)*+\s*+>?\s*+"
_HOST = r"([^/?#]*@)?(\[[0-9a-f:.]+\]|[^\s:/?#\\@\[\]]+)(:0*[0-6]?\d{0,4})?"
_matches_uri = _matching(
    rf"(https?|wss?|ftp):[\\/]*+{_HOST}([/\\?#].*)?"
    r"|file:.*"
    rf"|(?!(https?|wss?|ftp|file):)[a-z][a-z0-9+.-]*:((?!//).*|//({_HOST}|[^/?#]*@)?([/\\?#].*)?)"
)
_EDGES = "".join(map(chr, range(33)))
_IGNORED = dict.fromkeys(map(ord, "\t\n\r"))

_has_real_date = _readable(lambda text: date.fromisoformat(text[:10]))

FORMATS: Mapping[str, TextFormat] = {
    "date-time": TextFormat(
        _either(_both(_matching(f"{_DATE}([T _]{_TIME})?"), _has_real_date), _matching(_NUMBER)),
        "a date and time such as 2026-01-31T10:00:00Z",
    ),
    "date": TextFormat(
        _either(
            _both(_matching(f"{_DATE}([T _]{_MIDNIGHT})?"), _has_real_date),
            _both(_matching(_NUMBER), _is_whole_days),
        ),
        "a date such as 2026-01-31",
    ),
    "time": TextFormat(_matching(_TIME), "a time such as 10:00:00"),
    "duration": TextFormat(
        _either(_matching(_ISO_DURATION), _matching(_CLOCK_DURATION)),
        "an ISO 8601 duration such as P1DT2H30M",
    ),
    "uuid": TextFormat(_matching(_uuid()), "a UUID"),
    **{
        f"uuid{version}": TextFormat(
            _matching(_uuid(str(version), "[89ab]")), f"a UUID of version {version}"
        )
        for version in range(1, 9)
    },
    "uri": TextFormat(_is_uri, "a URI such as https://example.com/a"),
    "email": TextFormat(_matching(_EMAIL), "an email address"),
    "ipv4": TextFormat(_readable(IPv4Address), "an IPv4 address"),
    "ipv6": TextFormat(_readable(IPv6Address), "an IPv6 address"),
    "ipvanyaddress": TextFormat(_readable(ip_address), "an IP address"),
}
