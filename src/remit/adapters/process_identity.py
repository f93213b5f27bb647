"""The identity of this process, precise enough for others to tell whether it is dead.

A host name is not enough: containers may share one, and process ids are reused. A process is
identified by the boot id of its kernel, the namespaces of its process id and start time, its
process id, and its start time. If any of these is unknown (another operating system, `/proc` of
another namespace), no process is considered dead and leases simply expire.
"""

import os
import socket
from pathlib import Path
from typing import NamedTuple

from remit.ports import WorkerRow

PROC = Path("/proc")


class _Stat(NamedTuple):
    state: str
    threads: int
    start: str


def process_identity() -> str:
    """Return the identity of this process; empty if it is unknown."""
    try:
        if (PROC / "self").readlink() != Path(str(os.getpid())):
            return ""
        return f"{_environment()}/{_stat(os.getpid()).start}"
    except (OSError, ValueError):
        return ""


def is_dead(row: WorkerRow) -> bool:
    """Return True only if the worker ran in this environment and its process is gone or its id was
    reused.
    """
    mine = process_identity().rpartition("/")[0]
    environment, _, start = row.place.rpartition("/")
    if not mine or environment != mine:
        return False
    try:
        os.kill(row.pid, 0)
        found = _stat(row.pid)
    except ProcessLookupError:
        return True
    except (OSError, ValueError):  # owned by another user or hidden: it exists
        return False
    is_zombie = found.state in "ZX" and found.threads <= 1
    return is_zombie or found.start != start


def _environment() -> str:
    """Return what makes process ids and start times comparable: the machine, its boot and both
    namespaces.
    """
    boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
    spaces = map((PROC / "self/ns").joinpath, ("pid", "time"))
    namespaces = [str(space.readlink()) for space in spaces if space.is_symlink()]
    return "/".join([socket.gethostname(), boot, *namespaces])


def _stat(pid: int) -> _Stat:
    """Return the fields of `/proc/<pid>/stat` after the name, which may contain any character."""
    fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return _Stat(fields[0], int(fields[17]), fields[19])
