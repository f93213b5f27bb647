"""The user's home folder, also for a user without an account."""

import os
from collections.abc import Mapping
from pathlib import Path


def home_folder(env: Mapping[str, str]) -> Path:
    """Return `$HOME` or the account's home; the root of the file system if there is no account."""
    home = env.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 - Path.expanduser() raises
    return Path("/" if home.startswith("~") else home)


def in_home(path: str, env: Mapping[str, str]) -> Path:
    """A path as people write it: `~` at its beginning means the home folder."""
    if path == "~" or path.startswith("~/"):
        return home_folder(env) / path[2:]
    return Path(os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser() raises
