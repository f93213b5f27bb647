"""Refuses a database file that is in use under another name (hard link).

SQLite keeps the write-ahead log beside the name under which a file was opened. Two hard links have
two logs, so their processes do not see each other's writes, and overwrite them. SQLite resolves
symbolic links, so these share a log.
"""

import os
from pathlib import Path
from shlex import quote

from remit.adapters.stores.high_water_mark import places_of
from remit.adapters.stores.sqlite.database_file import (
    DatabaseFile,
    identity,
    is_in_use,
    log_identity,
)
from remit.errors import RolledBack


def must_have_one_log(file: DatabaseFile) -> None:
    """Raise RolledBack if the file is in use, or has a log, by another name that was seen on
    this machine.
    """
    if not file.has_several_names:
        return
    here = Path(os.path.realpath(file.path))
    with file.places_in_this_process() as own_places:
        for place in sorted({*places_of(file.identity), *own_places}):
            other = Path(place)
            if _is_other_link(other, here, file.identity):
                _must_be_unused(other, here, is_open_here=place in own_places)


def _is_other_link(other: Path, here: Path, file: str) -> bool:
    """Return True if a path leads to the same file under another name, which has another log."""
    try:
        is_same_file = identity(other.stat()) == file
        is_same_name = other.name == here.name and other.parent.samefile(here.parent)
    except OSError:
        return False
    return is_same_file and not is_same_name


def _must_be_unused(other: Path, here: Path, *, is_open_here: bool) -> None:
    """Raise RolledBack if another name of the file is in use or has a log."""
    message = f"{here} and {other} are the same file (hard links), and {other}"
    risk = "SQLite would lose tasks, because each name has its own log."
    hint = f"Open it by one name: {other}"
    # Opening the shared memory would drop the locks that this process has on it.
    if is_open_here or is_in_use(other):
        raise RolledBack(f"{message} is in use. {risk}", hint=hint)
    if log_identity(other):
        url = quote(f"sqlite:///{other}")
        follows = (
            f"Write the log into the file with: `remit doctor --database-url {url}`."
            " After that the other name can be opened."
        )
        raise RolledBack(f"{message} has a write-ahead log. {risk}", hint=f"{hint}. {follows}")
