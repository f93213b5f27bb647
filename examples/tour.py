"""The main job, seen from the command line: sub-agents look at remit's own sources, offline, and what happened is in a store.

Every command is real; nothing is kept, nothing leaves this machine, and no setting of yours is used.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import get_terminal_size

SOURCES = Path(__file__).resolve().parents[1] / "src"
OURS = ("REMIT_", "LLM_", "LIGHT_LLM_")

WORK = [
    {"objective": "Where is `LeaseLost` used?", "subagent_type": "explore"},
    {"objective": "Condense remit/errors.py", "subagent_type": "summary"},
    {"objective": "Plan how to add one more like `create_guide`", "subagent_type": "plan"},
    {"objective": "Find out what `ModelDesk` is for", "subagent_type": "general"},
]


class Terminal:
    """A terminal with `remit` in it, on a store of its own."""

    def __init__(self, folder: Path) -> None:
        self._options = ["--workspace", str(SOURCES), "--database-url", f"sqlite:///{folder / 'remit.db'}"]
        clean = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        self._env = clean | {"XDG_CONFIG_HOME": str(folder)}
        self._width = get_terminal_size().columns - 2

    def type(self, *command: str, stdin: str = "") -> list[str]:
        """The lines of a command's answer; what goes on meanwhile is shown on standard error by itself."""
        print(f"\n$ remit {' '.join(command)}{' < work.json' if stdin else ''}", flush=True)
        whole = [sys.executable, "-m", "remit", *command, *self._options]
        said = subprocess.run(whole, env=self._env, input=stdin, stdout=subprocess.PIPE, text=True, check=True).stdout
        return [line for line in said.splitlines() if line.strip()]

    def show(self, lines: list[str], first: int = 0, last: int = 0) -> None:
        """The first or the last lines of an answer."""
        kept = lines[:first] or lines[-last:]
        print("\n".join(f"  {line}"[: self._width] for line in kept))
        if first and len(lines) > first:
            print(f"  … and {len(lines) - first} more lines")


def main() -> None:
    """Hand out four pieces of work at once, look at what came of them, and prove the store."""
    with tempfile.TemporaryDirectory() as folder:
        terminal = Terminal(Path(folder))
        print("Four sub-agents at once on the sources of remit. No language model is set, so they search by rule, and say so.")
        results = terminal.type("parallel", "-", stdin=json.dumps(WORK))
        starts = [number for number, line in enumerate(results) if re.match(r"\[\d+\] #\d+ ", line)]
        for start, end in zip(starts, [*starts[1:], len(results)], strict=True):
            terminal.show(results[start:end], first=6)

        print("\nIt is all on record: who was given what, what each was told, called and found, and every event with who caused it.")
        history = terminal.type("task", "history")
        terminal.show(history, first=9)
        terminal.show(terminal.type("task", "transcript", "2"), first=9)
        terminal.show(terminal.type("task", "events", "2"), first=9)

        print("\nAnd the record is proved: every event as it was written, every row equal to a replay.")
        proof = terminal.type("doctor", "--verify")
        terminal.show(proof, last=3)
    assert len(starts) == len(WORK), results
    assert sum(" done " in line for line in history) == len(WORK), history
    assert proof[-1].strip() == "Everything holds together.", proof


if __name__ == "__main__":
    main()
