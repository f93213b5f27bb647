"""Record `remit parallel` at a terminal and draw its last screen as docs/assets/terminal.svg.

Run it with `python -m scripts.terminal_picture`. The session is real: the command runs in a
pseudo-terminal in a small workspace, with the offline model. Only the process environment and the
workspace are prepared; the text is what the command printed.
"""

import json
import os
import pty
import re
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

TARGET = Path(__file__).parents[1] / "docs" / "assets" / "terminal.svg"
COLUMNS, ROWS = 92, 40
FILES = {
    "retry.py": (
        "LIMIT = 3\n\n\ndef retry_policy(attempt: int) -> float:\n    return min(2**attempt, 60)\n"
    ),
    "api.py": (
        "from retry import retry_policy\n\n\ndef fetch(url: str) -> str: ...\n\n\ndef"
        " publish(report: str) -> None: ...\n"
    ),
    "CHANGELOG.md": "# Changelog\n\n## 1.1\n\nThe retry policy has an upper limit.\n",
}
WORK = [
    {"objective": "Where is `retry_policy` used?", "subagent_type": "explore"},
    {"objective": "Where is `publish` defined?", "subagent_type": "explore"},
    {"objective": "Sum up CHANGELOG.md", "subagent_type": "summary"},
]
TYPED = "remit parallel ../work.json"
LINES_PER_RESULT = 5
CELL, LINE, MARGIN, BAR = 8.43, 21, 20, 40
COLORS = {"✓": "#7ee787", "▸": "#79c0ff", "[": "#d2a8ff", "$": "#7ee787"}
_ESCAPE = re.compile(r"\x1b\[(?P<count>\d*)(?P<kind>[A-Za-z])|\x1b\[\?\d+[hl]")


def main() -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        lines = shorten(screen_of(record(Path(folder))))
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(draw([f"$ {TYPED}", *lines]))
    print(f"Wrote {TARGET.name}: {len(lines)} lines")


def record(folder: Path) -> str:
    """The output of the command at a terminal of this size."""
    workspace = folder / "shop"
    workspace.mkdir()
    for name, text in FILES.items():
        (workspace / name).write_text(text)
    (folder / "work.json").write_text(json.dumps(WORK))
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder / "state"),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "COLUMNS": str(COLUMNS),
        "LINES": str(ROWS),
    }
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        ["bash", "-c", f"remit init > /dev/null 2>&1 < /dev/null; {TYPED}"],
        cwd=workspace,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ):
        os.close(theirs)
        said = b""
        while chunk := _read(ours):
            said += chunk
    os.close(ours)
    return said.decode()


def screen_of(said: str) -> list[str]:
    """The lines on the screen after all cursor movements."""
    rows, row, column = [""], 0, 0
    position = 0
    while position < len(said):
        moved = _ESCAPE.match(said, position)
        if moved:
            count = int(moved["count"] or 1) if moved["kind"] else 0
            match moved["kind"]:
                case "A" | "F":
                    row = max(0, row - count)
                    column = 0 if moved["kind"] == "F" else column
                case "J":
                    rows[row:] = [rows[row][:column]]
                case "K":
                    rows[row] = rows[row][:column]
            position = moved.end()
            continue
        character = said[position]
        position += 1
        if character == "\r":
            column = 0
        elif character == "\n":
            row += 1
            rows.extend([""] * (row + 1 - len(rows)))
        else:
            rows[row] = rows[row][:column].ljust(column) + character + rows[row][column + 1 :]
            column += 1
    return [line.rstrip() for line in rows]


def shorten(lines: list[str]) -> list[str]:
    """The whole progress, and the first lines of each result, without blank lines."""
    kept: list[str] = []
    room = ROWS
    for line in lines:
        if line.startswith("["):
            room = LINES_PER_RESULT
        if line and room > 0:
            kept.append(line)
        elif line and room == 0:
            kept.append("  …")
        room -= bool(line)
    return [line if len(line) <= COLUMNS else line[: COLUMNS - 1] + "…" for line in kept]


def draw(lines: list[str]) -> str:
    """The lines in a window, as SVG without external assets."""
    width = COLUMNS * CELL + 2 * MARGIN
    height = BAR + len(lines) * LINE + 2 * MARGIN
    dots = "".join(
        _dot(number, color) for number, color in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    texts = "\n".join(
        _text(line, BAR + MARGIN + number * LINE) for number, line in enumerate(lines)
    )
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}" role="img">
<title>{escape(TYPED)}: three sub-agents at once, their progress and their results</title>
<style>text {{ font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre; }}</style>
<rect width="100%" height="100%" rx="10" fill="#0d1117"/>
<rect width="100%" height="{BAR}" rx="10" fill="#161b22"/>
<rect y="{BAR - 10}" width="100%" height="10" fill="#161b22"/>
{dots}
<text x="{width / 2:.0f}" y="{BAR / 2 + 5}" text-anchor="middle" fill="#8b949e">shop</text>
{texts}
</svg>
"""


def _dot(number: int, color: str) -> str:
    return f'<circle cx="{MARGIN + number * 20}" cy="{BAR / 2}" r="6" fill="{color}"/>'


def _text(line: str, top: int) -> str:
    color = COLORS.get(line.lstrip()[:1], "#8b949e" if line.startswith("  ") else "#e6edf3")
    cells = len(line) * CELL
    space = ' xml:space="preserve"'
    return (
        f'<text x="{MARGIN}" y="{top + 10}" textLength="{cells:.0f}"'
        f' fill="{color}"{space}>{escape(line)}</text>'
    )


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux reports the end of a pseudo-terminal as an error
        return b""


if __name__ == "__main__":
    main()
