"""Images and PDFs: which files they are, how results keep them, and which models take them."""

import re
from typing import NamedTuple

MAX_MEDIA = 5_000_000
"""Bytes of a file that a model can be shown."""

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf"})
PDF = "application/pdf"
PDF_NAME = "document.pdf"
"""The name of a PDF where an endpoint wants one."""

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", PDF),
)
_KEPT = re.compile(r"data:(?P<type>[a-z]+/[a-z]+);base64,(?P<data>[A-Za-z0-9+/=]+)\n")
_KNOWN = re.compile(
    r"gpt-4o|gpt-4\.1|gpt-[5-9]|\bo[34]\b|claude|gemini|pixtral|llava|vision|[-_]vl\b"
)


class Media(NamedTuple):
    """An image or a PDF; its bytes are base64."""

    type: str
    data: str

    @property
    def size(self) -> int:
        """The size in bytes."""
        return len(self.data) * 3 // 4 - self.data.count("=", -2)

    @property
    def url(self) -> str:
        """All of it as an address."""
        return f"data:{self.type};base64,{self.data}"


def media_type(data: bytes) -> str | None:
    """Return the media type of a file by its first bytes; None if it is not shown to models."""
    if (data[:4], data[8:12]) == (b"RIFF", b"WEBP"):
        return "image/webp"
    return next((kind for signature, kind in _SIGNATURES if data.startswith(signature)), None)


def kept(text: str, media: Media | None) -> str:
    """Return a result as it is stored: the media before the text."""
    return text if media is None else f"{media.url}\n{text}"


def restored(result: str) -> tuple[str, Media | None]:
    """Return a stored result of Read; text begins with a line number, so it is never taken for
    media.
    """
    found = _KEPT.match(result)
    if found is None:
        return result, None
    return result[found.end() :], Media(found["type"], found["data"])


def takes_media(model: str) -> bool:
    """Return True if a model with this name is known to accept images and PDFs."""
    return _KNOWN.search(model.lower()) is not None
