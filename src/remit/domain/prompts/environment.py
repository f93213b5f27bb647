"""The environment and the limits of an agent, as it reads them."""

import re
from typing import NamedTuple

from remit.domain.text.counting import counted, dollars, in_seconds
from remit.domain.text.optional_lines import labeled

GIT_NAME_CHARACTERS = 80


class Environment(NamedTuple):
    """The workspace and the machine at the start of a task; unknown values are empty."""

    workspace: str = ""
    date: str = ""
    platform: str = ""
    branch: str = ""
    commit: str = ""
    """The commit that is checked out if there is no branch."""
    changed_files: int | None = None
    """The number of files that differ from the last commit; None if unknown."""


class Allowance(NamedTuple):
    """The limits of a task, or what is left of them; None for what is not limited."""

    turns: int
    seconds: float | None = None
    tokens: int | None = None
    cost: float | None = None

    def __str__(self) -> str:
        parts = [counted(self.turns, "turn")]
        if self.seconds is not None:
            parts += [in_seconds(round(self.seconds, 1))]
        if self.tokens is not None:
            parts += [counted(self.tokens, "token")]
        if self.cost is not None:
            parts += [dollars(self.cost)]
        return ", ".join(parts)

    def ends_after(self, turn: "Allowance") -> bool:
        """Return True if a turn like this one leaves too little for another."""
        if self.turns <= 1:
            return True
        amounts = (
            (self.seconds, turn.seconds),
            (self.tokens, turn.tokens),
            (self.cost, turn.cost),
        )
        return any(left is not None and used and left < 2 * used for left, used in amounts)


def environment_section(found: Environment, limits: Allowance) -> str:
    """Return the section of the system prompt about the environment.

    It is written once for each task, so that later requests can reuse a provider's prompt cache.
    """
    lines = ["# Environment at the start of this task"]
    if found.workspace:
        lines.append(f"Workspace: {found.workspace} (relative paths start here)")
    lines += labeled("Date", found.date)
    lines += labeled("Platform", found.platform)
    lines += labeled("Git", _git(found))
    lines += labeled("Limits", str(limits))
    return "\n".join(lines)


def _git(found: Environment) -> str:
    """Return the branch and its state; empty without a repository."""
    branch = _branch(found)
    if not branch or found.changed_files is None:
        return branch
    if found.changed_files == 0:
        return f"{branch}, no changed files"
    return f"{branch}, {counted(found.changed_files, 'changed file')}"


def _branch(found: Environment) -> str:
    """Return the branch, or the commit that is checked out instead.

    A branch name is untrusted text, so only plain characters are shown.
    """
    if found.commit:
        return f"no branch (HEAD is at {found.commit})"
    if not found.branch:
        return ""
    name = re.sub(r"[^\w./-]", "", found.branch)
    return f"branch {name[:GIT_NAME_CHARACTERS]}"
