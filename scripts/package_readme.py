"""A hatchling hook: the README of the package, with links that work outside the repository."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(
    r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)"
)


class PackageReadme(MetadataHookInterface):
    """Sets `readme` to README.md with absolute links."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Replace relative links by links to the source repository."""
        text = (Path(self.root) / "README.md").read_text()
        absolute = with_absolute_links(text, metadata["urls"]["Source"])
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute}


def with_absolute_links(text: str, repository: str) -> str:
    """Markdown with absolute links into the repository; images point to their raw files."""

    def link(found: re.Match[str]) -> str:
        kind = "raw" if found["image"] else "blob"
        target = f"{repository}/{kind}/main/{found['target']}{found['anchor'] or ''}"
        return f"{found['image']}[{found['text']}]({target})"

    return _LINK.sub(link, text)
