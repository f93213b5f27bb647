"""File names and file contents as text for a model."""

BINARY_SAMPLE = 8192


def printable(name: str) -> str:
    """Return a name on one line.

    Control characters and invalid Unicode are escaped, so a name cannot forge a line.
    """
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(map(_escape, text))


def _escape(char: str) -> str:
    if char.isprintable():
        return char
    return char.encode("unicode_escape").decode()


def is_binary(data: bytes) -> bool:
    """Return True if the beginning of a file contains a NUL byte."""
    return b"\0" in data[:BINARY_SAMPLE]


def whole_end(data: bytes) -> bytes:
    """Return bytes without an incomplete UTF-8 sequence at their end."""
    for size in range(1, min(4, len(data) + 1)):
        first = data[-size]
        if first >= 0xC0:
            needed = 2 + (first >= 0xE0) + (first >= 0xF0)
            if needed > size:
                return data[:-size]
            return data
        if first < 0x80:
            return data
    return data


def whole_start(data: bytes) -> bytes:
    """Return bytes without an incomplete UTF-8 sequence at their start."""
    starts = (place for place, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80)
    return data[next(starts, 0) :]


def decode(data: bytes) -> str:
    """Decode bytes to valid Unicode; invalid bytes are replaced."""
    return data.decode("utf-8", "replace").replace("\0", "\ufffd")
