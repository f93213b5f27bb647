"""Files of remit outside of workspaces, in the state folder of the user."""

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from remit.home import home_folder


def state_folder() -> Path:
    """Return the state folder of remit: `$XDG_STATE_HOME/remit`, or below `~/.local/state`."""
    state = Path(os.environ.get("XDG_STATE_HOME") or "")
    if not state.is_absolute():  # relative paths are to be ignored
        state = home_folder(os.environ) / ".local" / "state"
    return state / "remit"


def replace_json(path: Path, content: object) -> None:
    """Replace a file by a JSON document, as a whole; only the user may read it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.parent / f".{os.getpid()}-{os.urandom(4).hex()}"
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump(content, file)
    new.replace(path)


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Keep other processes from changing the files of a folder at the same time."""
    import fcntl

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    handle = os.open(folder / ".lock", flags, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
