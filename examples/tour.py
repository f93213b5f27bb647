"""A tour of the command line: sub-agents search remit's own source code with the offline model.

Every command is real. The tour uses a temporary store, no network and none of your settings.
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
    {"objective": "Plan a new operation like `create_guide`", "subagent_type": "plan"},
    {"objective": "Find out what `JobQueue` is for", "subagent_type": "general"},
]


class Terminal:
    """Runs `remit` commands on a temporary store."""

    def __init__(self, folder: Path) -> None:
        self._options = [
            "--workspace",
            str(SOURCES),
            "--database-url",
            f"sqlite:///{folder / 'remit.db'}",
        ]
        clean = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        self._env = clean | {"XDG_CONFIG_HOME": str(folder)}
        self._width = get_terminal_size().columns - 2

    def type(self, *command: str, stdin: str = "") -> list[str]:
        """Run a command and return the lines of its standard output.

        Its progress goes to standard error, which is not captured.
        """
        print(f"\n$ remit {' '.join(command)}{' < work.json' if stdin else ''}", flush=True)
        whole = [sys.executable, "-m", "remit", *command, *self._options]
        said = subprocess.run(
            whole, env=self._env, input=stdin, stdout=subprocess.PIPE, text=True, check=True
        ).stdout
        return [line for line in said.splitlines() if line.strip()]

    def show(self, lines: list[str], first: int = 0, last: int = 0) -> None:
        """Print the first or the last lines of an output."""
        kept = lines[:first] or lines[-last:]
        print("\n".join(f"  {line}"[: self._width] for line in kept))
        if first and len(lines) > first:
            print(f"  … and {len(lines) - first} more lines")


def main() -> None:
    """Delegate four tasks at once, read their records, and verify the store."""
    with tempfile.TemporaryDirectory() as folder:
        terminal = Terminal(Path(folder))
        print(
            "Four sub-agents search the source code of remit at once. No model is configured, so"
            " they use the offline model."
        )
        results = terminal.type("parallel", "-", stdin=json.dumps(WORK))
        starts = [number for number, line in enumerate(results) if re.match(r"\[\d+\] #\d+ ", line)]
        for start, end in zip(starts, [*starts[1:], len(results)], strict=True):
            terminal.show(results[start:end], first=6)

        print(
            "\nremit stored everything: the tasks, their conversations and tool calls, and every"
            " event with its actor."
        )
        history = terminal.type("task", "history")
        terminal.show(history, first=9)
        terminal.show(terminal.type("task", "transcript", "2"), first=9)
        terminal.show(terminal.type("task", "events", "2"), first=9)

        print(
            "\nThe store can be verified: hash chains protect the events, and all rows equal a"
            " replay."
        )
        proof = terminal.type("doctor", "--verify")
        terminal.show(proof, last=3)
    assert len(starts) == len(WORK), results
    assert sum(" done " in line for line in history) == len(WORK), history
    assert proof[-1].strip() == "Everything is consistent.", proof


if __name__ == "__main__":
    main()
