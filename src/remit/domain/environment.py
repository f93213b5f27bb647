"""Where a sub-agent works and what it may use up, as it reads them."""

from typing import NamedTuple

from remit.domain.counting import counted, dollars, in_seconds

GIT_NAME_CHARACTERS = 80


class Environment(NamedTuple):
    """The workspace and the machine at the start of a task; what is unknown is empty."""

    workspace: str = ""
    date: str = ""
    platform: str = ""
    branch: str = ""
    commit: str = ""
    """The commit that is checked out, if no branch is."""
    changed_files: int | None = None
    """How many files differ from the last commit; None if that is unknown."""


class Allowance(NamedTuple):
    """What a task may use up, or has left; None for what is not limited."""

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


def environment_section(found: Environment, limits: Allowance) -> str:
    """The part of the system prompt that says where the agent works.

    It is written once for each task, so that later requests can reuse a provider's prompt cache.
    """
    lines = ["# Environment at the start of this task"]
    if found.workspace:
        lines += [f"Workspace: {found.workspace} (relative paths start here)"]
    lines += [f"Date: {found.date}"] if found.date else []
    lines += [f"Platform: {found.platform}"] if found.platform else []
    lines += [f"Git: {_git(found)}"] if found.branch or found.commit else []
    return "\n".join([*lines, f"Limits: {limits}"])


def _git(found: Environment) -> str:
    """The branch and its state; a branch name is text of the workspace, so only plain characters are shown."""
    name = "".join(letter for letter in found.branch if letter.isalnum() or letter in "-_./")
    branch = f"branch {name[:GIT_NAME_CHARACTERS]}"
    if found.commit:
        branch = f"no branch (HEAD is at {found.commit})"
    if found.changed_files is None:
        return branch
    if found.changed_files == 0:
        return f"{branch}, no changed files"
    return f"{branch}, {counted(found.changed_files, 'changed file')}"
