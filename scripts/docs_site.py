"""mkdocs hooks: pages from the top folder, the list of decisions, and links to other files.

The files under docs/ have links that work in the repository. On the site, a link to a page of the
site points to that page, and a link to any other file points to the repository on the web. A link
to a missing file is not changed and fails the build.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
ADDED = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md"}
"""Files of the top folder, and their pages on the site."""
_LINK = re.compile(r"(?P<before>\]\()(?P<target>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """List every decision in the navigation."""
    for section in config["nav"]:
        if section.get("Decisions") == "decisions/":
            pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
            section["Decisions"] = [f"decisions/{page.name}" for page in pages]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the top folder."""
    for source, page in ADDED.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point links to pages of the site, or to the repository on the web."""
    sources = {page_name: source for source, page_name in ADDED.items()}
    at = sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def link(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(at), found["target"]))
        name = ADDED.get(path) or path.removeprefix("docs/")
        anchor = found["anchor"] or ""
        if (path in ADDED or path.startswith("docs/")) and files.get_file_from_path(name):
            relative = posixpath.relpath(name, posixpath.dirname(page.file.src_uri) or ".")
            return f"]({relative}{anchor})"
        if not (ROOT / path).exists():
            return found[0]
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"]({config['repo_url']}/{kind}/main/{path}{anchor})"

    return _LINK.sub(link, markdown)
