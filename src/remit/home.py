"""The home folder of the user, which a user without an account does not have."""

import os
from collections.abc import Mapping
from pathlib import Path


def home_folder(env: Mapping[str, str]) -> Path:
    """`$HOME`, or the home of the account; the root of the file system if there is no account."""
    home = env.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 - Path.expanduser() raises
    return Path("/" if home.startswith("~") else home)
