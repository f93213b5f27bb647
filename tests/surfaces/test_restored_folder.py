"""A backup that is copied into `.remit/` under a live process, file by file."""

import asyncio
import hashlib
import os
import subprocess
from pathlib import Path

from tests.people import desk
from tests.surfaces.copied_place import CopiedPlace, asked
from tests.surfaces.shell import served, until


def copy(source: Path, target: Path) -> None:
    """Copy the content of a folder in another process: to close a file drops SQLite's locks."""
    subprocess.run(["cp", "-r", f"{source}/.", str(target)], check=True)


def test_a_live_server_refuses_reads_of_a_folder_that_was_restored(tmp_path: Path) -> None:
    place = CopiedPlace(tmp_path, None)
    folder, backup = place.file.parent, tmp_path / "backup"
    backup.mkdir()
    with served(place.shell, "--no-worker") as server:
        for _ in range(3):
            asked(server, "/api/tasks", title="Old", status="draft")
        copy(folder, backup)
        for _ in range(2):
            asked(server, "/api/tasks", title="New", status="draft")
        assert asked(server, "/api/tasks/5")[0] == 200
        copy(backup, folder)
        for path in ("/api/tasks", "/api/tasks/1", "/api/tasks/5"):
            status, answer = asked(server, path)
            assert (status, "went back in time" in str(answer)) == (409, True), path
        status, answer = asked(server, "/readyz")
        assert (status, "does not respond" in str(answer)) == (503, False)
        assert asked(server, "/api/tasks", title="Lost", status="draft")[0] == 409
        assert asked(server, "/api/tasks")[0] == 409
        until(lambda: place.shell.remit("task", "list").code == 4)
        assert place.shell.remit("doctor", "--accept-rollback").code == 0
        until(lambda: asked(server, "/readyz")[0] == 200)
        status, answer = asked(server, "/api/tasks", title="Next", status="draft")
        assert (status in (200, 201), answer["task_id"]) == (True, "6")
    assert place.shell.remit("doctor", "--verify").code == 0


async def test_each_checkpoint_writes_a_new_generation(tmp_path: Path) -> None:
    """Large tasks reach a checkpoint within a few transactions."""
    path = tmp_path / "remit.db"
    seen: dict[bytes, str] = {}
    async with desk(f"sqlite:///{path}") as at:
        for number in range(12):
            await at.create(f"T{number}", instructions=os.urandom(450_000).hex())
            content = await asyncio.to_thread(read_elsewhere, path)
            digest = hashlib.sha256(content).hexdigest()
            assert seen.setdefault(content[68:72], digest) == digest, number
    assert len(seen) > 2


def read_elsewhere(path: Path) -> bytes:
    return subprocess.run(["cat", str(path)], check=True, capture_output=True).stdout
