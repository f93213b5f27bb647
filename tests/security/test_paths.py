"""Nothing outside the workspace is opened, for any input of a model and any concurrent rename."""

import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from remit.adapters.tools.openat import Opener, best_opener, open_by_kernel, open_by_steps
from remit.adapters.tools.workspace_paths import Stamp, Workspace
from remit.errors import InvalidParam

OPENERS = [open_by_steps, *([open_by_kernel] if best_opener() is open_by_kernel else [])]
TRIES = 10_000

SWAP = """
import os, sys
name, target, kept = sys.argv[1:]
print("swapping", flush=True)
while True:
    os.rename(name, kept)
    os.symlink(target, name)
    os.unlink(name)
    os.rename(kept, name)
    for _ in range(10):
        os.stat(name)  # for a while it is what it should be
"""


def nothing() -> None:
    """No reason to stop."""


@pytest.fixture(params=OPENERS, ids=lambda opener: opener.__name__)
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workspace]:
    opener: Opener = request.param
    root = tmp_path / "ws"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.txt").write_text("inside")
    (root / ".remit").mkdir()
    (root / ".remit" / "a.txt").write_text("SECRET of remit")
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("[core]")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.txt").write_text("SECRET outside")
    (tmp_path / "ws-evil").mkdir()
    (tmp_path / "ws-evil" / "a.txt").write_text("SECRET beside")
    with closing(Workspace(root, opener)) as opened:
        yield opened


@contextmanager
def attacker(name: Path, target: str) -> Iterator[None]:
    """Another process that swaps something for a link and back, as fast as it can."""
    with subprocess.Popen(
        [sys.executable, "-c", SWAP, str(name), target, f"{name}.kept"], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


def tried(workspace: Workspace, path: str) -> str:
    """What a path gives: the bytes, or that it was refused."""
    try:
        return workspace.read(path, "file_path").data.decode()
    except InvalidParam:
        return "refused"


@pytest.mark.parametrize(
    ("swapped", "target"),
    [
        ("src", "../out"),
        ("src", ".remit"),
        ("src/a.txt", "../../out/a.txt"),
        ("src/a.txt", "../.remit/a.txt"),
    ],
    ids=["folder outside", "folder of remit", "file outside", "file of remit"],
)
def test_no_swap_lets_a_read_escape(workspace: Workspace, swapped: str, target: str) -> None:
    with attacker(workspace.root / swapped, target):
        seen = Counter(tried(workspace, "src/a.txt") for _ in range(TRIES))
        while not seen["inside"]:
            seen[tried(workspace, "src/a.txt")] += 1
        naive = any("SECRET" in _naive(workspace.root / "src" / "a.txt") for _ in range(TRIES * 10))
    assert set(seen) <= {"inside", "refused"}
    assert naive, "the attack itself did not work, so nothing was proved"


def test_no_swap_lets_a_write_escape(workspace: Workspace, tmp_path: Path) -> None:
    done = 0
    with attacker(workspace.root / "src", "../out"):
        for number in range(1000):
            with suppress(InvalidParam):
                workspace.write("src/new.txt", f"{number}".encode(), "file_path", nothing)
                done += 1
    assert done > 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.txt"]


def test_no_swap_lets_a_walk_escape(workspace: Workspace) -> None:
    with attacker(workspace.root / "src", "../out"):
        for _ in range(500):
            for path, entry in workspace.walk(".", lambda _: True, nothing):
                assert path.startswith(("src", ".git"))
                assert entry.name != ".remit"


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../out/a.txt",
        "src/../../out/a.txt",
        "src/../../../../../../../../etc/passwd",
        "./.././out/a.txt",
        "/etc/passwd",
        "//etc/passwd",
        "/",
        "/proc/self/root/etc/passwd",
        "/dev/stdin",
        "/proc/self/environ",
    ],
)
def test_a_path_to_the_outside_is_refused(workspace: Workspace, path: str) -> None:
    with pytest.raises(InvalidParam, match="outside the workspace"):
        workspace.read(path, "file_path")
    with pytest.raises(InvalidParam, match=r"outside the workspace|workspace itself"):
        workspace.write(path, b"", "file_path", nothing)


@pytest.mark.parametrize(
    "path",
    [
        "~/.ssh/id_rsa",
        "$HOME/x",
        "%2e%2e/out/a.txt",
        "..\\out\\a.txt",
        "-rf",
        "src/a.txt/../../../out",
        "x" * 300,
        "a/" * 3000,
    ],
)
def test_a_name_that_only_looks_like_an_escape_is_accepted(workspace: Workspace, path: str) -> None:
    with pytest.raises(InvalidParam, match=r"does not exist|too long|goes through a file|outside"):
        workspace.read(path, "file_path")


def test_a_folder_that_only_begins_like_the_workspace_is_outside(workspace: Workspace) -> None:
    with pytest.raises(InvalidParam, match="outside the workspace"):
        workspace.read(f"{workspace.root}-evil/a.txt", "file_path")


@pytest.mark.parametrize(
    "path",
    [
        "src/a.txt",
        "./src//a.txt",
        "src/../src/a.txt",
        "{root}/src/a.txt",
        "{root}//src/./a.txt",
        "link/a.txt",
        "absolute/a.txt",
        "file",
    ],
)
def test_every_spelling_of_an_inside_path_is_the_same_file(workspace: Workspace, path: str) -> None:
    (workspace.root / "link").symlink_to("src")
    (workspace.root / "absolute").symlink_to(workspace.root / "src")
    (workspace.root / "file").symlink_to("link/a.txt")
    content = workspace.read(path.format(root=workspace.root), "file_path")
    assert (content.path, content.data) == ("src/a.txt", b"inside")


def test_a_workspace_may_be_named_by_a_link(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "named").symlink_to(workspace.root)
    with closing(Workspace(tmp_path / "named")) as named:
        assert named.read(f"{tmp_path}/named/src/a.txt", "file_path").data == b"inside"
        assert named.read(f"{workspace.root}/src/a.txt", "file_path").data == b"inside"


@pytest.mark.parametrize(
    "target",
    [
        "/etc/passwd",
        "../out/a.txt",
        "/proc/self/root/etc/passwd",
        "/proc/self/cwd",
        "/proc/self/fd/0",
        "/dev/zero",
        "link",
        "{root}/../out/a.txt",
    ],
)
def test_a_link_to_the_outside_is_refused(workspace: Workspace, target: str) -> None:
    (workspace.root / "link").symlink_to(target.format(root=workspace.root))
    for path in ("link", "src/../link"):
        with pytest.raises(InvalidParam, match="outside the workspace"):
            workspace.read(path, "file_path")
        with pytest.raises(InvalidParam, match="outside the workspace"):
            workspace.write(path, b"", "file_path", nothing)


@pytest.mark.parametrize(
    "path",
    [
        ".remit",
        ".remit/a.txt",
        "src/../.remit/a.txt",
        ".REMIT/a.txt",
        "own/a.txt",
        "src/.remit/x",
        "{root}/.remit/a.txt",
    ],
)
def test_files_of_remit_are_neither_read_nor_written(workspace: Workspace, path: str) -> None:
    (workspace.root / "own").symlink_to(".remit")
    path = path.format(root=workspace.root)
    with pytest.raises(InvalidParam, match="is reserved for remit"):
        workspace.read(path, "file_path")
    with pytest.raises(InvalidParam, match="is reserved for remit"):
        workspace.write(path, b"", "file_path", nothing)


def test_files_of_remit_are_not_listed(workspace: Workspace) -> None:
    assert [entry.name for entry in workspace.entries(".", "path")] == [".git", "src"]
    assert not [
        path for path, _ in workspace.walk(".", lambda _: True, nothing) if ".remit" in path
    ]


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".git/hooks/pre-commit",
        "history/config",
        "src/.git/config",
        ".GIT/config",
        ".git",
    ],
)
def test_history_is_read_and_never_written(workspace: Workspace, path: str) -> None:
    (workspace.root / "history").symlink_to(".git")
    with pytest.raises(InvalidParam, match=r"inside \.git or \.remit"):
        workspace.write(path, b"", "file_path", nothing)
    assert workspace.read(".git/config", "file_path").data == b"[core]"


def test_pipes_and_sockets_are_refused_without_waiting(workspace: Workspace) -> None:
    os.mkfifo(workspace.root / "pipe")
    here = Path.cwd()
    os.chdir(workspace.root)  # the name of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("socket")
    finally:
        os.chdir(here)
    for name in ("pipe", "socket"):
        for attempt in (
            lambda name=name: workspace.read(name, "file_path"),
            lambda name=name: workspace.write(name, b"", "file_path", nothing),
        ):
            with pytest.raises(InvalidParam, match="device, pipe or socket"):
                attempt()


def test_devices_are_refused() -> None:
    with closing(Workspace(Path("/dev"))) as devices:
        for name in ("zero", "null", "tty"):
            with pytest.raises(InvalidParam, match="device, pipe or socket"):
                devices.read(name, "file_path")
            with pytest.raises(InvalidParam, match="device, pipe or socket"):
                devices.write(name, b"", "file_path", nothing)


def test_magic_links_lead_nowhere() -> None:
    with closing(Workspace(Path("/proc/self"))) as process:
        for path in ("root/etc/passwd", "cwd/pyproject.toml", "fd/0", "exe"):
            with pytest.raises(InvalidParam, match=r"outside the workspace|does not exist"):
                process.read(path, "file_path")


def test_a_file_with_another_name_is_not_written(workspace: Workspace, tmp_path: Path) -> None:
    os.link(tmp_path / "out" / "a.txt", workspace.root / "linked")
    with pytest.raises(InvalidParam, match="2 hard links"):
        workspace.write("linked", b"gone", "file_path", nothing)
    assert (tmp_path / "out" / "a.txt").read_text() == "SECRET outside"


def test_a_huge_file_is_refused_by_its_size(workspace: Workspace) -> None:
    with (workspace.root / "huge").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InvalidParam, match="1,099,511,627,776 bytes"):
        workspace.read("huge", "file_path")


def test_a_folder_is_not_a_file(workspace: Workspace) -> None:
    for attempt in (
        lambda: workspace.read("src", "file_path"),
        lambda: workspace.write("src", b"", "file_path", nothing),
    ):
        with pytest.raises(InvalidParam, match="is a folder"):
            attempt()
    with pytest.raises(InvalidParam, match="is not a folder"):
        workspace.entries("src/a.txt", "path")
    with pytest.raises(InvalidParam, match="workspace itself"):
        workspace.write(".", b"", "file_path", nothing)


def test_a_write_keeps_the_mode_and_leaves_no_temporary_file(workspace: Workspace) -> None:
    script = workspace.root / "src" / "run.sh"
    script.write_text("old")
    script.chmod(0o750)
    assert not workspace.write("src/run.sh", b"new", "file_path", nothing)
    assert workspace.write("deep/er/new.txt", b"new", "file_path", nothing)
    assert (script.read_text(), script.stat().st_mode & 0o7777) == ("new", 0o750)
    assert sorted(path.name for path in (workspace.root / "src").iterdir()) == ["a.txt", "run.sh"]
    assert (workspace.root / "deep" / "er" / "new.txt").read_bytes() == b"new"


def test_a_write_that_is_stopped_changes_nothing(workspace: Workspace) -> None:
    def stop() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        workspace.write("src/a.txt", b"new", "file_path", stop)
    assert [(path.name, path.read_text()) for path in (workspace.root / "src").iterdir()] == [
        ("a.txt", "inside")
    ]


def test_a_file_that_another_process_changed_is_not_overwritten(workspace: Workspace) -> None:
    stamp = workspace.read("src/a.txt", "file_path").stamp
    (workspace.root / "src" / "a.txt").write_text("theirs")
    with pytest.raises(InvalidParam, match="changed by another program"):
        workspace.write("src/a.txt", b"ours", "file_path", nothing, expected=stamp)
    with pytest.raises(InvalidParam, match="changed by another program"):
        workspace.write("src/b.txt", b"ours", "file_path", nothing, expected=Stamp(0, 0, 0, 0))
    assert (workspace.root / "src" / "a.txt").read_text() == "theirs"


def test_nothing_stays_open(workspace: Workspace) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    (workspace.root / "link").symlink_to("src")
    for path in ("src/a.txt", "link/a.txt", "missing/x", "..", "src", ".remit/x"):
        tried(workspace, path)
    workspace.entries("src", "path")
    workspace.write("src/new/b.txt", b"", "file_path", nothing)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def _naive(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
