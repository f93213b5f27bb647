"""A git repository in which commands are typed."""

import os
import subprocess
from pathlib import Path

from tests.surfaces.shell import Shell


class Repository(Shell):
    """A git repository in which commands are typed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, GIT_CONFIG_GLOBAL=os.devnull, GIT_CONFIG_NOSYSTEM="1")
        self.git("init", "--quiet")
        self.git("config", "user.email", "ann@example.org")
        self.git("config", "user.name", "Ann")

    def git(self, *arguments: str) -> str:
        command = ["git", *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=self.env, check=True, capture_output=True, text=True
        ).stdout


def titles(shell: Shell) -> list[str]:
    return [task["title"] for task in shell.remit("task", "list", "--json").json["tasks"]]
