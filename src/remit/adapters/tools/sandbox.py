"""A namespace of its own for a command: a fresh root, the workspace, no network unless granted."""

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

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
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin", "HOME": "/tmp", "LANG": "C.UTF-8", "TERM": "dumb"}  # noqa: S108 - fresh in the sandbox


def sandboxed(
    bwrap: str,
    workspace: Path,
    argv: Sequence[str],
    env: Mapping[str, str] = ENVIRONMENT,
    *,
    writable: bool = True,
    nested: bool = False,
    tools: Mapping[str, str] | None = None,
    readable: Sequence[str] = (),
    masked: Sequence[str] = (),
    network: bool = False,
) -> list[str]:
    """The command line that runs `argv` in the workspace and nowhere else.

    `tools` are programs to show, by the path they get inside. `readable` is shown read-only, and
    what is `masked` in it is not.
    """
    return [
        bwrap,
        "--unshare-all",
        *(["--share-net"] if network else []),
        *([] if nested else ["--unshare-user", "--disable-userns"]),
        "--die-with-parent",
        "--new-session",
        *("--cap-drop", "ALL"),
        "--clearenv",
        *(word for name, value in env.items() for word in ("--setenv", name, value)),
        *_system(),
        *("--proc", "/proc", "--dev", "/dev"),
        *("--size", str(TMPFS_BYTES), "--tmpfs", "/tmp"),  # noqa: S108 - fresh in the sandbox
        *("--size", str(TMPFS_BYTES), "--tmpfs", "/dev/shm"),  # noqa: S108 - fresh in the sandbox
        *(word for inside, outside in (tools or {}).items() for word in ("--ro-bind", outside, inside)),
        *(word for path in readable for word in ("--ro-bind", path, path)),
        *(word for path in masked for word in _mask(path)),
        *(_bound(NETWORK) if network else []),
        *_workspace(workspace, writable=writable),
        *("--remount-ro", "/dev", "--remount-ro", "/"),
        *("--chdir", str(workspace)),
        "--",
        *argv,
    ]


def _system() -> list[str]:
    words: list[str] = []
    for path in SYSTEM:
        if os.path.islink(path):  # noqa: PTH114 - as below
            words += ["--symlink", os.readlink(path), path]  # noqa: PTH115 - a Path would lose a trailing dot or slash
        elif Path(path).is_dir():
            words += ["--ro-bind", path, path]
    return words + _bound(SETTINGS)


def _bound(paths: Sequence[str]) -> list[str]:
    """What is there of some paths, read-only."""
    return [word for path in paths if Path(path).exists() for word in ("--ro-bind", path, path)]


def _mask(path: str) -> tuple[str, ...]:
    """Nothing in the place of a file or a folder."""
    if Path(path).is_dir():
        return ("--perms", "0555", "--size", "4096", "--tmpfs", path, "--remount-ro", path)
    return ("--ro-bind", "/dev/null", path)


def _workspace(workspace: Path, *, writable: bool) -> list[str]:
    """The workspace as it is; its history cannot be changed, and what belongs to remit is not there at all."""
    root = str(workspace)
    words = ["--bind" if writable else "--ro-bind", root, root]
    if _kind(workspace / ".git") in (stat.S_IFDIR, stat.S_IFREG):
        words += ["--ro-bind", f"{root}/.git", f"{root}/.git"]
    if _kind(workspace / ".remit") == stat.S_IFDIR:
        words += ["--perms", "0555", "--size", "4096", "--tmpfs", f"{root}/.remit", "--remount-ro", f"{root}/.remit"]
    return words


def _kind(path: Path) -> int:
    """What is there, itself: to mount over a link would be to mount over what it points to."""
    try:
        return stat.S_IFMT(path.lstat().st_mode)
    except OSError:
        return 0
