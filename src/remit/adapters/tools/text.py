"""Names and bytes of files as text that a model can read."""

BINARY_SAMPLE = 8192


def shown(name: str) -> str:
    """A name on one line: control characters and what is not Unicode are written as escapes, so that no name can forge a line."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def is_binary(data: bytes) -> bool:
    """Whether a file is not text, by its beginning."""
    return b"\0" in data[:BINARY_SAMPLE]


def decoded(data: bytes) -> str:
    """Bytes as valid Unicode, whatever they are."""
    return data.decode("utf-8", "replace").replace("\0", "\ufffd")
