"""Run commands for a worker and leave no process behind, however the worker ends.

This file runs as a separate program with only the standard library. It receives commands on a
socket and forks a reaper for each. A reaper is a Linux "subreaper": it adopts every process that
its command leaves behind, so it can end them all by killing its own children until there are none.
It does so when the command ends, its time is up, the worker asks for it, or the worker is gone.
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
    """Fork a reaper for each command until the worker is gone."""
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
            os.set_inheritable(fd, False)  # commands must not hold the descriptors of their reaper
        me = os.getpid()
        # With too many processes the fork fails: the worker sees that the command was not started.
        with suppress(BlockingIOError):
            if os.fork() == 0:
                link.close()
                _reap(json.loads(body), fds, prctl, me)
        for fd in fds:
            os.close(fd)


def _reap(
    request: dict[str, Any], fds: list[int], prctl: Callable[[int, int], int], parent: int
) -> NoReturn:
    """Run one command and exit."""
    try:
        _run(request, fds, prctl, parent)
    finally:
        os._exit(0)


def _run(
    request: dict[str, Any], fds: list[int], prctl: Callable[[int, int], int], parent: int
) -> None:
    """Start one command, wait for it, end all its processes, and report."""
    folder, output, control = fds
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, _ignore_signal)
    before = _tasks_of_machine()
    command = os.fork()
    if command == 0:
        _exec_command(request, folder, output, prctl)
    os.close(folder)
    os.close(output)
    # Keep the reaper responsive even if the command starts thousands of processes.
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    why = "stopped"
    if os.getppid() == parent:
        why = _wait(request, command, control, woken, before)
    code = _end_all(command)
    with suppress(OSError):
        os.write(control, json.dumps({"why": why, "code": code}).encode())


def _ignore_signal(_number: int, _frame: object) -> None:
    """Do nothing: the wakeup pipe reports the signal."""


def _wait(request: dict[str, Any], command: int, control: int, woken: int, before: int) -> str:
    """Wait until the command ends or must end; return the reason."""
    end = time.monotonic() + request["seconds"]
    while (left := end - time.monotonic()) > 0:
        ready, _, _ = select([control, woken], [], [], min(left, TICK_SECONDS))
        if control in ready or (woken in ready and signal.SIGTERM in os.read(woken, 64)):
            return "stopped"
        if _has_ended(command):
            return "ended"
        # RLIMIT_NPROC does not apply to root, so count the processes, but only if the whole machine
        # has many more than before.
        limit = request["processes"]
        if _tasks_of_machine() - before > limit and _has_more_than(limit):
            return "processes"
    return "timeout"


def _exec_command(
    request: dict[str, Any], folder: int, output: int, prctl: Callable[[int, int], int]
) -> NoReturn:
    """Turn this child into the command, with its limits."""
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
        # Run the program without a shell.
        os.execve(request["argv"][0], request["argv"], request["env"])  # noqa: S606
    except OSError as error:
        os.write(2, f"{request['argv'][0]} cannot be run: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _limit(kind: int, limit: int) -> None:
    """Lower a limit of this process, never above its hard limit."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(kind, (limit, limit))


def _end_all(command: int) -> int | None:
    """Kill children until there are none, and return the exit code of the command.

    Orphans of a killed child become children of this process. Whole process groups are killed,
    which is atomic: no member can fork in between. A group contains only processes of this command,
    because each command starts its own session.
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
                if ended[0] == command:
                    code = os.waitstatus_to_exitcode(ended[1])
        except ChildProcessError:
            return code


def _has_ended(command: int) -> bool:
    """Return whether the command has ended.

    Other ended children are reaped. The command itself is not, so that its process and group ids
    are not reused.
    """
    while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        if ended.si_pid == command:
            return True
        os.waitpid(ended.si_pid, 0)
    return False


def _children(pid: int) -> list[int]:
    """Return the children of a process."""
    try:
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_bytes().split()))
    except OSError:
        return [child for child, parent in _parents().items() if parent == pid]


def _has_more_than(count: int) -> bool:
    """Return whether this process has more than `count` descendants; stop counting there."""
    found = [os.getpid()]
    for pid in found:
        found += _children(pid)
        if len(found) > count:
            return True
    return False


def _parents() -> dict[int, int]:
    """Return the parent of each process."""
    return {pid: int(fields[1]) for pid in _pids() if (fields := _stat(pid))}


def _pids() -> list[int]:
    # Only the names are needed.
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208


def _stat(pid: int) -> list[bytes]:
    """Return the fields of `/proc/<pid>/stat` after the name; empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def _tasks_of_machine() -> int:
    return int(Path("/proc/loadavg").read_bytes().split()[3].partition(b"/")[2])


# Last resort: the environment of every command has a cookie that identifies its worker.


def cookie(pid: int, nonce: str) -> str:
    """Return the cookie of a command of this worker."""
    return f"{_pid_namespace()}.{pid}.{_start_time(pid)}.{nonce}"


def sweep(chosen: Callable[[str], bool]) -> int:
    """Kill every process whose cookie is chosen; return how many there were."""
    killed: set[int] = set()
    while found := set(_find(chosen)) - killed - {os.getpid()}:
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= found  # repeat: one of them may have forked
    return len(killed)


def _find(chosen: Callable[[str], bool]) -> list[int]:
    """Return the processes whose cookie is chosen."""
    return [pid for pid in _pids() if (mark := _cookie_of(pid)) and chosen(mark)]


def find_left_over() -> list[int]:
    """Return the processes of commands whose worker is gone."""
    return sorted(_find(_is_left_over))


def sweep_left_over() -> int:
    """Kill the processes whose worker is gone; return how many there were."""
    return sweep(_is_left_over)


def _cookie_of(pid: int) -> str | None:
    """Return the cookie of a process; None if it has none."""
    prefix = f"{COOKIE}=".encode()
    with suppress(OSError):
        items = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        marks = (item.removeprefix(prefix) for item in items if item.startswith(prefix))
        return next((mark.decode(errors="replace") for mark in marks), None)
    return None


def _is_left_over(mark: str) -> bool:
    """Return whether the worker is gone; False for process ids of another container."""
    match mark.split("."):
        case [namespace, pid, started, _] if namespace == _pid_namespace() and pid.isdigit():
            return _start_time(int(pid)) != started
        case _:
            return False


def _pid_namespace() -> str:
    return Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")


def _start_time(pid: int) -> str:
    """Return when a process started; empty if it is gone."""
    fields = _stat(pid)
    if not fields or fields[0] == b"Z":
        return ""
    return fields[19].decode()


def _prctl() -> Callable[[int, int], int]:
    import ctypes  # only this program needs it

    call = ctypes.CDLL(None, use_errno=True).prctl
    call.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)

    def prctl(option: int, value: int) -> int:
        return int(call(option, value, 0, 0, 0))

    return prctl


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
