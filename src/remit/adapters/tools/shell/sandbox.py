"""Sandbox for a command: a fresh root, the workspace, and no network unless granted."""

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

TMPFS_BYTES = 256 << 20
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store")
SETTINGS = (
    "/etc/alternatives",
    "/etc/group",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/ssl/certs",
)
NETWORK = ("/etc/resolv.conf", "/etc/hosts", "/etc/ca-certificates", "/etc/pki")
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
    "HOME": "/tmp",  # noqa: S108 - fresh in the sandbox
    "LANG": "C.UTF-8",
    "TERM": "dumb",
}


class Shown(NamedTuple):
    """The user's paths that a command sees read-only."""

    readable: Sequence[str] = ()
    masked: Sequence[str] = ()
    """Paths inside the readable ones that are hidden."""
    links: Sequence[tuple[str, str]] = ()
    """Readable paths, each with another place where it is found."""


NOTHING = Shown()


def sandbox_command(
    bwrap: str,
    workspace: Path,
    argv: Sequence[str],
    env: Mapping[str, str] = ENVIRONMENT,
    *,
    writable: bool = True,
    nested: bool = False,
    tools: Mapping[str, str] | None = None,
    shown: Shown = NOTHING,
    network: bool = False,
) -> list[str]:
    """Return the command line that runs `argv` with access to the workspace only.

    `tools` maps paths inside the sandbox to programs.
    """
    namespaces = ["--unshare-all"]
    if network:
        namespaces += ["--share-net"]
    if not nested:
        namespaces += ["--unshare-user", "--disable-userns"]
    return [
        bwrap,
        *namespaces,
        "--die-with-parent",
        "--new-session",
        *("--cap-drop", "ALL"),
        "--clearenv",
        *_repeat("--setenv", env.items()),
        *_mount_system(),
        *("--proc", "/proc", "--dev", "/dev"),
        *("--size", str(TMPFS_BYTES), "--tmpfs", "/tmp"),  # noqa: S108 - fresh in the sandbox
        *("--size", str(TMPFS_BYTES), "--tmpfs", "/dev/shm"),  # noqa: S108 - fresh in the sandbox
        *_repeat("--ro-bind", _swap(tools or {})),
        *_mount(shown.readable),
        *chain.from_iterable(map(_mask, shown.masked)),
        # A second mount would show what is masked in the first.
        *_repeat("--symlink", shown.links),
        *_mount_existing(NETWORK if network else ()),
        *_mount_workspace(workspace, writable=writable),
        *("--remount-ro", "/dev", "--remount-ro", "/"),
        *("--chdir", str(workspace)),
        "--",
        *argv,
    ]


def _repeat(option: str, pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return an option with two values for each pair."""
    words: list[str] = []
    for first, second in pairs:
        words += [option, first, second]
    return words


def _swap(names: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(value, name) for name, value in names.items()]


def _mount(paths: Iterable[str]) -> list[str]:
    """Mount paths read-only."""
    return _repeat("--ro-bind", ((path, path) for path in paths))


def _mount_system() -> list[str]:
    """Mount the programs and settings of the machine read-only."""
    words: list[str] = []
    for path in SYSTEM:
        if os.path.islink(path):  # noqa: PTH114 - see below
            # A Path would drop a trailing dot or slash.
            words += ["--symlink", os.readlink(path), path]  # noqa: PTH115
        elif Path(path).is_dir():
            words += ["--ro-bind", path, path]
    return words + _mount_existing(SETTINGS)


def _mount_existing(paths: Sequence[str]) -> list[str]:
    """Mount the paths that exist read-only."""
    return _mount(path for path in paths if Path(path).exists())


def _mask(path: str) -> tuple[str, ...]:
    """Mount an empty file or folder over a path."""
    if Path(path).is_dir():
        return _mask_folder(path)
    return ("--ro-bind", "/dev/null", path)


def _mask_folder(path: str) -> tuple[str, ...]:
    return ("--perms", "0555", "--size", "4096", "--tmpfs", path, "--remount-ro", path)


def _mount_workspace(workspace: Path, *, writable: bool) -> list[str]:
    """Mount the workspace, with `.git` read-only and `.remit` hidden."""
    root = str(workspace)
    words = ["--bind" if writable else "--ro-bind", root, root]
    if _kind(workspace / ".git") in (stat.S_IFDIR, stat.S_IFREG):
        words += ["--ro-bind", f"{root}/.git", f"{root}/.git"]
    if _kind(workspace / ".remit") == stat.S_IFDIR:
        words += _mask_folder(f"{root}/.remit")
    return words


def _kind(path: Path) -> int:
    """Return the file type without following links: a mount over a link would cover its target."""
    try:
        return stat.S_IFMT(path.lstat().st_mode)
    except OSError:
        return 0
