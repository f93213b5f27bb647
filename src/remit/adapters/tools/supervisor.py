"""Runs commands for a worker and sees to it that nothing of them is left, however the worker ends.

This file is run as a program of its own, with nothing but the standard library. It waits for commands on a socket and forks
a keeper for each. A keeper adopts every process that its command leaves behind (Linux gives orphans to the nearest
"subreaper"), so it can end them all by ending its own children until it has none. It does so when the command has ended, when
its time is up, when the worker says so, and when the worker is gone.
"""

import json
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from select import select
from typing import Any, NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38
COOKIE = "REMIT_COMMAND"
MAX_REQUEST = 200_000
TICK_SECONDS = 0.02


def serve(link: socket.socket) -> None:
    """Fork a keeper for each command that comes in, until the worker is gone."""
    worker = os.getppid()
    prctl = _prctl()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    sweep(_is_left_over)
    while os.getppid() == worker:
        body, fds, *_ = socket.recv_fds(link, MAX_REQUEST, 3)
        if not body:
            return
        for fd in fds:
            os.set_inheritable(fd, False)  # no command may hold what watches over it
        me = os.getpid()
        with suppress(BlockingIOError):  # too many processes: the worker sees that nobody took its command
            if os.fork() == 0:
                link.close()
                _keep(json.loads(body), fds, prctl, me)
        for fd in fds:
            os.close(fd)


def _keep(request: dict[str, Any], fds: list[int], prctl: Callable[[int, int], int], parent: int) -> NoReturn:
    """Run one command and end with it."""
    try:
        _run(request, fds, prctl, parent)
    finally:
        os._exit(0)


def _run(request: dict[str, Any], fds: list[int], prctl: Callable[[int, int], int], parent: int) -> None:
    folder, output, control = fds
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, _noted)
    before = _tasks_of_machine()
    command = os.fork()
    if command == 0:
        _become(request, folder, output, prctl)
    os.close(folder)
    os.close(output)
    with suppress(OSError):  # among thousands of processes of a command we must still get our turn
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    why = _wait(request, command, control, woken, before) if os.getppid() == parent else "stopped"
    code = _end_all(command)
    with suppress(OSError):
        os.write(control, json.dumps({"why": why, "code": code}).encode())


def _noted(_number: int, _frame: object) -> None:
    """It is read from the pipe that wakes us."""


def _wait(request: dict[str, Any], command: int, control: int, woken: int, before: int) -> str:
    """Until the command has ended, or must be; which of the two, and why."""
    end = time.monotonic() + request["seconds"]
    while (left := end - time.monotonic()) > 0:
        ready, _, _ = select([control, woken], [], [], min(left, TICK_SECONDS))
        if control in ready or (woken in ready and signal.SIGTERM in os.read(woken, 64)):
            return "stopped"
        if _has_ended(command):
            return "ended"
        # The limit of the kernel does not hold for root, so they are counted; and only when the machine has many more than before.
        if _tasks_of_machine() - before > request["processes"] and _has_more_than(request["processes"]):
            return "processes"
    return "timeout"


def _become(request: dict[str, Any], folder: int, output: int, prctl: Callable[[int, int], int]) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.nice(5)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.fchdir(folder)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.umask(0o022)
        for name, limit in request["limits"].items():
            _limit(getattr(resource, name), limit)
        _limit(resource.RLIMIT_NPROC, _tasks_of_machine() + request["processes"])
        if request["no_new_privileges"]:
            prctl(PR_SET_NO_NEW_PRIVS, 1)
        os.execve(request["argv"][0], request["argv"], request["env"])  # noqa: S606 - no shell is wanted
    except OSError as error:
        os.write(2, f"{request['argv'][0]} cannot be run: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _limit(kind: int, limit: int) -> None:
    _, hard = resource.getrlimit(kind)
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(kind, (limit, limit))


def _end_all(command: int) -> int | None:
    """Kill children until there are none: the children of each that dies become ours. The exit code of the command.

    Whole groups are killed, since that is one step for the kernel, in which nobody can fork. A group of a child has only its kin:
    nobody joins one from another session, and each command began its own.
    """
    code = None
    while True:
        groups: set[int] = set()
        for pid in _children(os.getpid()):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                groups.add(os.getpgid(pid))
        for group in groups - {os.getpgrp()}:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                code = os.waitstatus_to_exitcode(ended[1]) if ended[0] == command else code
        except ChildProcessError:
            return code


def _has_ended(command: int) -> bool:
    """Whether the command has; orphans that have are put away, but not itself, so that its number and its group stay its own."""
    while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        if ended.si_pid == command:
            return True
        os.waitpid(ended.si_pid, 0)
    return False


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_bytes().split()]
    except OSError:
        return [child for child, parent in _parents().items() if parent == pid]


def _has_more_than(count: int) -> bool:
    """Whether more than so many processes descend from us; none is looked at beyond that."""
    found = [os.getpid()]
    for pid in found:
        found += _children(pid)
        if len(found) > count:
            return True
    return False


def _parents() -> dict[int, int]:
    return {pid: int(fields[1]) for pid in _pids() if (fields := _stat(pid))}


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names are all that is needed


def _stat(pid: int) -> list[bytes]:
    """What the kernel says of a process after its name: state, parent, …; nothing once it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def _tasks_of_machine() -> int:
    return int(Path("/proc/loadavg").read_bytes().split()[3].partition(b"/")[2])


# The last resort: every command carries a mark in its environment that says whose it is.


def cookie(pid: int, nonce: str) -> str:
    """The mark of a command of this worker."""
    return f"{_pid_namespace()}.{pid}.{_started(pid)}.{nonce}"


def sweep(chosen: Callable[[str], bool]) -> int:
    """Kill every process whose mark is chosen; how many there were."""
    killed: set[int] = set()
    while found := {pid for pid in _pids() if (mark := _mark(pid)) and chosen(mark)} - killed - {os.getpid()}:
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= found  # once more: one of them may have forked meanwhile
    return len(killed)


def left_over() -> list[int]:
    """Processes of commands whose worker is gone."""
    return sorted(pid for pid in _pids() if (mark := _mark(pid)) and _is_left_over(mark))


def sweep_left_over() -> int:
    """Kill what the dead have left; how many there were."""
    return sweep(_is_left_over)


def _mark(pid: int) -> str | None:
    with suppress(OSError):
        for item in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if item.startswith(f"{COOKIE}=".encode()):
                return item.partition(b"=")[2].decode(errors="replace")
    return None


def _is_left_over(mark: str) -> bool:
    """It is of a worker that is gone, and was of our own numbering of processes: that of another container means nothing here."""
    match mark.split("."):
        case [namespace, pid, started, _] if namespace == _pid_namespace() and pid.isdigit():
            return _started(int(pid)) != started
        case _:
            return False


def _pid_namespace() -> str:
    return Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")


def _started(pid: int) -> str:
    fields = _stat(pid)
    return fields[19].decode() if fields and fields[0] != b"Z" else ""


def _prctl() -> Callable[[int, int], int]:
    import ctypes  # only the program needs it

    call = ctypes.CDLL(None, use_errno=True).prctl
    call.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)

    def prctl(option: int, value: int) -> int:
        return int(call(option, value, 0, 0, 0))

    return prctl


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
