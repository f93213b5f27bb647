"""Where this process lives, so precisely that others can tell whether it is dead.

A name of a machine is not enough: containers share one, and numbers of processes are used again. A process is known by the boot
of its kernel, the namespaces in which its number and its start are counted, its number and its start. Where any of that
cannot be told (another system, `/proc` of another namespace) nobody is ever called dead, and leases run out as always.
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


def place() -> str:
    """This process among all there ever were; nothing where that cannot be told."""
    try:
        own = (PROC / "self").readlink() == Path(str(os.getpid()))
        return f"{_world()}/{_stat(os.getpid()).start}" if own else ""
    except (OSError, ValueError):
        return ""


def is_dead(row: WorkerRow) -> bool:
    """True only for a worker of this very world whose process is gone, or whose number is another's by now."""
    mine = place().rpartition("/")[0]
    world, _, start = row.place.rpartition("/")
    if not mine or world != mine:
        return False
    try:
        os.kill(row.pid, 0)
        found = _stat(row.pid)
    except ProcessLookupError:
        return True
    except (OSError, ValueError):  # somebody else's, or hidden: it is there
        return False
    return found.start != start or (found.state in "ZX" and found.threads <= 1)


def _world() -> str:
    """What makes numbers and starts of processes comparable: the machine, its boot, and the namespaces of both."""
    boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
    spaces = [PROC / "self/ns" / name for name in ("pid", "time")]
    return "/".join([socket.gethostname(), boot, *(str(space.readlink()) for space in spaces if space.is_symlink())])


def _stat(pid: int) -> _Stat:
    """What the kernel says of a process; its name, which may hold anything, stands before the last bracket."""
    fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return _Stat(fields[0], int(fields[17]), fields[19])
