"""Reads the code blocks of a documentation page, in the order in which a reader meets them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[a-z]*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL
)
_FILE = re.compile(r"`(?P<path>[\w./~-]+\.(?:json|md|py|toml))`[^`\n]*:$")
_PROMPT = "$ "
_HERE_DOCUMENT = re.compile(r"<<'?(\w+)'?")


class Block(NamedTuple):
    """A code block of a page."""

    page: str
    line: int
    language: str
    text: str
    path: str | None
    """The file that the line before the block names, such as "In `shop/runner.py`:"."""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


class Command(NamedTuple):
    """A command of a console block, and the output that the page shows for it."""

    text: str
    shown: tuple[str, ...]


def page_names() -> list[str]:
    """The pages whose blocks are run: README, the tutorial and every how-to."""
    howtos = sorted((ROOT / "docs" / "howto").glob("*.md"))
    paths = [ROOT / "README.md", ROOT / "docs" / "tutorial.md", *howtos]
    return [path.relative_to(ROOT).as_posix() for path in paths]


def blocks_of(page: str) -> list[Block]:
    """Every fenced block of a page."""
    return list(read_blocks(page, (ROOT / page).read_text()))


def read_blocks(page: str, text: str) -> Iterator[Block]:
    """Every fenced block of a text."""
    for fence in _FENCE.finditer(text):
        before = text[: fence.start()]
        lines = before.rstrip().splitlines()
        named = _FILE.search(lines[-1]) if lines else None
        yield Block(
            page=page,
            line=before.count("\n") + 1,
            language=fence["language"],
            text=fence["text"],
            path=named["path"] if named else None,
        )


def read_commands(text: str) -> Iterator[Command]:
    """The commands of a console block."""
    lines = text.splitlines()
    while lines:
        line = lines.pop(0)
        if not line.startswith(_PROMPT):
            raise ValueError(f"a console block begins with '$ ', not with: {line}")
        typed = [line.removeprefix(_PROMPT)]
        while typed[-1].endswith("\\"):
            typed.append(lines.pop(0))
        ending = _HERE_DOCUMENT.search(typed[0])
        while ending and typed[-1] != ending[1]:
            typed.append(lines.pop(0))
        shown: list[str] = []
        while lines and not lines[0].startswith(_PROMPT):
            shown.append(lines.pop(0))
        yield Command("\n".join(typed), tuple(shown))
