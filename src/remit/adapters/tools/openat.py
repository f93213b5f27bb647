"""Open paths beneath a folder without following links, even if another process renames folders."""

import ctypes
import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache

Opener = Callable[[int, Sequence[str], int], int]

OPENAT2 = 437  # the same on every architecture
RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH = 0x02, 0x04, 0x08
PASS_THROUGH: int = (
    getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_by_kernel(root: int, parts: Sequence[str], flags: int) -> int:
    """Open a path with one `openat2` call; the kernel keeps it beneath `root`."""
    how = _How(
        flags | os.O_CLOEXEC, 0, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS
    )
    path = os.fsencode("/".join(parts) or ".")
    while True:
        fd: int = _libc().syscall(OPENAT2, root, path, ctypes.byref(how), ctypes.sizeof(how))
        if fd >= 0:
            return fd
        number = ctypes.get_errno()
        if number not in (errno.EINTR, errno.EAGAIN):
            raise OSError(number, os.strerror(number))


def open_by_steps(root: int, parts: Sequence[str], flags: int) -> int:
    """Open a path folder by folder, for kernels without `openat2`."""
    if not parts:
        return os.open(".", flags | os.O_CLOEXEC, dir_fd=root)
    at = root
    try:
        for part in parts[:-1]:
            below = os.open(part, PASS_THROUGH, dir_fd=at)
            if at != root:
                os.close(at)
            at = below
        return os.open(parts[-1], flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    finally:
        if at != root:
            os.close(at)


@cache
def best_opener() -> Opener:
    """Return `open_by_kernel` if the kernel supports it and no container forbids it."""
    with suppress(OSError, AttributeError):
        root = os.open("/", PASS_THROUGH)
        try:
            os.close(open_by_kernel(root, (), PASS_THROUGH))
        finally:
            os.close(root)
        return open_by_kernel
    return open_by_steps


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.argtypes = (
        ctypes.c_long,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_void_p,
        ctypes.c_size_t,
    )
    libc.syscall.restype = ctypes.c_long
    return libc
