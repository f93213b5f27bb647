"""Remove known secrets, and text that looks like a key, from text that is shown or stored."""

import html
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, compress, filterfalse, groupby
from json import dumps
from string import ascii_lowercase, ascii_uppercase
from urllib.parse import quote, unquote_plus

REDACTED = "[redacted]"
MIN_SECRET = 8
"""A shorter key, such as EMPTY for a local server, is removed only as a whole word."""
MIN_SHOWN = 4
"""The number of characters around a mask such as `***` that identify a known secret."""

_SIZES = range(2 * MIN_SECRET, 0, -1)
"""The lengths of a piece of a secret next to a mask; longer pieces are known runs."""
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
"""Lowercase without changing the length (`str.lower` can change it)."""
_MASK = re.compile(r"[*•●…·]+|\.{2,}|x{4,}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HASH = re.compile(r"(?i)(?:\b(?:sha-?\d{1,3}|md5)[:=-]|\b(?:commit|digest|revision):?\s)\s?\Z")
"""The label before a hash."""
_WORD = re.compile(
    r"[A-Z]{0,6}[a-z]{2,20}(?:[A-Z]{1,6}[a-z]{2,20})*\d{0,4}|[A-Z]{1,20}|[a-z]|\d{1,14}"
)
"""One piece of a name: a word, words in camel case, or a number."""
_PLAIN = re.compile(r"[A-Z]?[a-z]{1,20}|[A-Z]{1,20}|\d{1,9}")
_STATE = re.compile(
    r"(?i)none|null|true|false|undefined|missing|required|invalid|incorrect|expired|revoked|unset"
    r"|empty|not"
)
"""Words that describe the state of a key but are not a key."""
_SCHEME_WORD = re.compile(r"""(?ix)
    (?:auth\w*|tokens?|credentials?|schemes?|headers?|keys?|access|realm|error|scope|prefix
      |format|type|is|was|not|missing|required|invalid|expired|must|should|with|from|and) (?:=.*)?
    """)
"""A word after `Bearer` that is not a token."""
_VALUE = r"""[^\s"',;}]"""
_NAME_START = r"(?: (?<![A-Za-z0-9]) | (?-i:(?<=[a-z])(?=[A-Z])) )"

_AUTHORITY = re.compile(r"(?P<kept>\A[^:/]*://)[^/]*@")
"""The user info of a URL."""
_USER_INFO = re.compile(r"(?P<kept>://[^/\s:@]*:)(?P<value>[^/\s@]+)(?=@)")
_ISSUED = re.compile(r"""(?x)
    (?<![A-Za-z0-9]) (?:
      (?i:sk|xai|gsk|gh[oprsu]|github_pat|glpat|xox[abeoprs]) [-_] [\w-]{16,}
      | AIza [\w-]{16,}
      | A[KS]IA [A-Z0-9]{12,}
      | eyJ [\w-]{8,} \. [\w-]{4,} (?:\.[\w-]*)?
    )
    """)
"""Keys and tokens with the prefixes of their issuers."""
_PREFIXED = re.compile(
    r"(?i)(?<![a-z0-9])(?:sk|pk|rk|xai|gsk|key|ghp|gho|glpat|hf)[-_]?(?P<value>[\w-]{16,})"
)
"""Prefixes that ordinary names also have."""
_SCHEME = re.compile(
    rf"""(?ix) (?P<kept> \b(?P<scheme>bearer|basic) [\s:]+ ["']? ) (?P<value> {_VALUE}{{4,}} )"""
)
_NAMED = re.compile(rf"""(?ix)
    (?P<kept> {_NAME_START}
      (?P<name> x-api-key | api[-_\s]?key | access[-_]?key | token | secret | password | passwd ) \b
      (?:\s (?:provided|supplied|given) )?
      (?P<sign> ["'\\\s]{{0,4}} [:=] >? [\\\s:=]{{0,4}} ) )
    (?: (?P<mark>["']) (?P<inner> (?: \\. | (?!(?P=mark))[^\\\n] )+ ) (?= (?P=mark) )
      | (?P<value> ["'\\\s:=]{{0,4}} {_VALUE}{{4,}} ) )
    """)
"""A named value: `api_key=…`, `"password": "…"`, `API key provided: …`."""
_NEXT = re.compile(rf"""(?ix)
    (?P<kept> {_NAME_START} (?:api[-_\s]?key|token|secret|password) \b ["'\s]{{1,5}} )
    (?P<value>
      (?={_VALUE}*\d) (?={_VALUE}*[a-z]) {_VALUE}{{6,}}
      | (?-i:(?={_VALUE}*[a-z][A-Z])) {_VALUE}{{10,}}
    )
    """)
"""The next word after a name, unless it is an ordinary one."""
_QUERY = re.compile(r"(?P<kept>[?&](?:key|sig|signature|auth|code)=)(?P<value>[^\s\"'&]{6,})")
_LONG = re.compile(r"\b[A-Za-z0-9_-]{40,}(?![A-Za-z0-9_-])")
_BASE64 = re.compile(r"(?<![\w/.:+~-])[A-Za-z0-9+][A-Za-z0-9+/]{39,}={0,2}")


def shown_url(url: str) -> str:
    """Return a URL without its user info and the values of its query, which may be secrets."""
    address, mark, query = url.partition("?")
    address = _AUTHORITY.sub(rf"\g<kept>{REDACTED}@", address)
    if not mark:
        return address
    fields = [field.partition("=") for field in query.split("&")]
    names = [f"{name}=" if sign else "" for name, sign, _ in fields]
    return f"{address}?{'&'.join(f'{name}{REDACTED}' for name in names)}"


def url_secrets(url: str) -> tuple[str, ...]:
    """Return the values in a URL that `shown_url` removes, as sent and decoded."""
    query = url.partition("?")[2]
    values = [field.rpartition("=")[2] for field in query.split("&")]
    return tuple(dict.fromkeys(filter(None, (*values, *map(unquote_plus, values)))))


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a text without known secrets, in any usual form, and without anything that looks like
    a key.
    """
    text = _without_known(text, secrets)
    text = _USER_INFO.sub(rf"\g<kept>{REDACTED}", text)
    text = _ISSUED.sub(REDACTED, text)
    text = _QUERY.sub(rf"\g<kept>{REDACTED}", text)
    for pattern, is_key in _PATTERNS:
        text = pattern.sub(partial(_replace_match, is_key), text)
    return text


def _replace_match(is_key: Callable[[re.Match[str]], bool], found: re.Match[str]) -> str:
    """Return a match with its value redacted; unchanged if the value is not a key."""
    groups = found.groupdict("")
    value = groups.get("inner") or groups.get("value", "")
    if re.fullmatch(rf"\W*{re.escape(REDACTED)}\W*", value) or not is_key(found):
        return found[0]
    return f"{groups.get('kept', '')}{groups.get('mark', '')}{REDACTED}"


def _is_issued(found: re.Match[str]) -> bool:
    """Return True if a value after the prefix of an issuer is not an ordinary name."""
    value = found["value"]
    if not _is_name(value):
        return True
    return not re.search("[-_]", value) and not value.isalpha()


def _is_sent(found: re.Match[str]) -> bool:
    """Return True if a value after `Bearer` or `Basic` is a credential."""
    value = found["value"].strip(".:()[]`")
    if found["scheme"].lower() == "bearer":
        return not _SCHEME_WORD.fullmatch(value)
    before = _before(found).lower().rstrip("\"' \t:=")
    return before.endswith("authorization") or not _PLAIN.fullmatch(value)


def _is_value(found: re.Match[str]) -> bool:
    """Return True if a named value is a secret.

    A plain word after `token:` usually comes from a parser error.
    """
    value = (found["inner"] or found["value"]).strip("\"'\\ .:=()`")
    if not re.search(r"\w{3}", value) or _STATE.fullmatch(value):
        return False
    has_sign = found["sign"].startswith(("'", '"', "\\")) or "=" in found["sign"]
    is_precise = found["name"].lower() not in ("token", "api key")
    return is_precise or has_sign or not _PLAIN.fullmatch(value)


def _is_random(found: re.Match[str]) -> bool:
    """Return True if a long run of characters is neither a name nor a labeled hash."""
    run = found[0]
    rest = _UUID.sub("", run)
    is_hash = re.fullmatch("[0-9a-fA-F]+", run) and _HASH.search(_before(found))
    return bool(rest) and not is_hash and not _is_name(rest)


def _is_base64(found: re.Match[str]) -> bool:
    """Return True if a run with slashes is a key and not a path."""
    run = found[0]
    if not all(re.search(letters, run) for letters in ("[a-z]", "[A-Z]", r"\d")):
        return False
    names = filter(_is_name, run.split("/"))
    return 2 * sum(map(len, names)) < len(run)


def _is_name(text: str) -> bool:
    """Return True if a text consists of words and numbers, with only a few short other pieces."""
    pieces = list(filter(None, re.split("[-_]+", text)))
    odd = list(filterfalse(_WORD.fullmatch, pieces))
    longest = max(map(len, odd), default=0)
    return longest <= 6 and 2 * len(odd) <= len(pieces)


_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], bool]], ...] = (
    (_PREFIXED, _is_issued),
    (_SCHEME, _is_sent),
    (_NAMED, _is_value),
    (_NEXT, lambda _found: True),
    (_LONG, _is_random),
    (_BASE64, _is_base64),
)
"""Patterns that may contain a key, and the functions that decide whether they do."""


def _without_known(text: str, secrets: Iterable[str]) -> str:
    """Return a text without known secrets, whole or in part."""
    known = list(filter(None, secrets))
    short = [secret for secret in known if len(secret) < MIN_SECRET]
    long = [secret for secret in known if len(secret) >= MIN_SECRET]
    hidden = bytearray(len(text))
    if long:
        lowered = text.translate(_LOWER)
        _hide_runs(hidden, lowered, long)
        _hide_masked(hidden, lowered, long)
    for secret in short:
        _hide_word(hidden, text, secret)
    return _mask_ranges(text, hidden)


def _hide_runs(hidden: bytearray, lowered: str, secrets: list[str]) -> None:
    """Hide every run of characters that a form of a secret has."""
    forms = chain.from_iterable(map(_forms, secrets))
    runs = set(chain.from_iterable(map(_runs, forms)))
    for at in range(len(lowered) - MIN_SECRET + 1):
        if lowered[at : at + MIN_SECRET] in runs:
            _hide(hidden, at, at + MIN_SECRET)


def _hide_masked(hidden: bytearray, lowered: str, secrets: list[str]) -> None:
    """Hide masks such as `***` together with the start and the end of a secret beside them."""
    heads: set[str] = set()
    tails: set[str] = set()
    for secret in secrets:
        lower = secret.translate(_LOWER)
        heads.update(lower[:size] for size in _SIZES)
        tails.update(lower[-size:] for size in _SIZES)
    for mask in _MASK.finditer(lowered):
        start, end = mask.span()
        before = _longest(lowered[max(0, start - size) : start] in heads for size in _SIZES)
        after = _longest(lowered[end : end + size] in tails for size in _SIZES)
        if min(before, start) + after >= MIN_SHOWN:
            _hide(hidden, max(0, start - before), min(end + after, len(lowered)))


def _longest(matches: Iterable[bool]) -> int:
    """Return the first size that matches, of the sizes in `_SIZES`; 0 if none does."""
    return next(compress(_SIZES, matches), 0)


def _hide_word(hidden: bytearray, text: str, secret: str) -> None:
    """Hide a short secret where it is a whole word."""
    for found in re.finditer(rf"(?<!\w){re.escape(secret)}(?!\w)", text):
        _hide(hidden, *found.span())


def _forms(secret: str) -> Iterator[str]:
    """Yield the forms of a secret in texts: plain, or encoded for a URL, JSON, HTML or in
    Base64.
    """
    escaped = dumps(secret)[1:-1]
    yield from (secret, quote(secret, safe=""), quote(secret))
    yield from (escaped, escaped.replace("/", "\\/"), dumps(escaped)[1:-1])
    yield dumps(secret, ensure_ascii=False)[1:-1]
    yield html.escape(secret)
    for before in range(3):  # Base64 depends on how many bytes come before, such as `user:`
        data = bytes(before) + secret.encode("utf-8", "replace")
        whole = b64encode(data[: len(data) // 3 * 3]).decode()[(0, 2, 3)[before] :]
        yield from (whole, whole.replace("+", "-").replace("/", "_"))


def _runs(form: str) -> Iterator[str]:
    form = form.translate(_LOWER)
    for at in range(len(form) - MIN_SECRET + 1):
        yield form[at : at + MIN_SECRET]


def _before(found: re.Match[str]) -> str:
    """Return the characters before a match that can matter."""
    return found.string[max(0, found.start() - 32) : found.start()]


def _hide(hidden: bytearray, start: int, end: int) -> None:
    hidden[start:end] = b"\1" * (end - start)


def _mask_ranges(text: str, hidden: bytearray) -> str:
    """Replace each hidden range together with the word that it is part of."""
    if not any(hidden):
        return text
    for word in re.finditer(r"[A-Za-z0-9]+", text):
        if any(hidden[word.start() : word.end()]):
            _hide(hidden, *word.span())
    pieces: list[str] = []
    start = 0
    for is_hidden, group in groupby(hidden):
        end = start + len(list(group))
        pieces.append(REDACTED if is_hidden else text[start:end])
        start = end
    return "".join(pieces)
