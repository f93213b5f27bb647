"""The files beside a SQLite database, and its other names: logs, hard links and symbolic links."""

import asyncio
import shutil
from pathlib import Path

import pytest

from remit.adapters.stores.sqlite.store import open_sqlite
from remit.errors import RolledBack
from tests.people import desk
from tests.surfaces.copied_place import (
    CopiedPlace,
    asked,
    marked,
)
from tests.surfaces.repository import titles
from tests.surfaces.shell import served, until


@pytest.mark.parametrize(
    "suffixes", [("-wal",), ("-shm",), ("-wal", "-shm")], ids=["log", "memory", "both"]
)
def test_files_that_are_deleted_beside_a_live_database_cost_nothing(
    suffixes: tuple[str, ...], lone: CopiedPlace
) -> None:
    with served(lone.shell) as server:
        assert asked(server, "/api/tasks", title="Third")[0] in (200, 201)
        for suffix in suffixes:
            lone.file.with_name(f"remit.db{suffix}").unlink()
        until(lambda: asked(server, "/api/tasks", title="Fourth")[0] in (200, 201))
        made = [
            lone.create("Fifth"),
            asked(server, "/api/tasks", title="Sixth")[1]["task_id"],
            lone.create("Seventh"),
        ]
        assert len(set(made)) == 3, "no id is given out twice"
    assert titles(lone.shell)[:3] == ["Seventh", "Sixth", "Fifth"]
    assert {"First", "Second", "Third", "Fourth"} <= set(titles(lone.shell))
    assert lone.shell.remit("doctor", "--verify").code == 0


def test_a_log_that_is_deleted_before_the_first_checkpoint_leaves_a_store_that_is_refused(
    tmp_path: Path,
) -> None:
    place = CopiedPlace(tmp_path, None)
    with served(place.shell, "--no-worker") as server:
        assert asked(server, "/api/tasks", title="First")[0] in (200, 201)
        until(lambda: marked(place) == 1)
        server.process.kill()
        server.process.wait()
    for suffix in ("-wal", "-shm"):
        place.file.with_name(f"remit.db{suffix}").unlink()
    said = place.shell.remit("task", "list")
    assert (said.code, "went back in time" in said.err) == (4, True), said
    assert place.shell.remit("doctor", "--accept-rollback").code == 0
    assert place.create("Second") == "2", "no id is given out twice"


def test_the_same_content_in_another_file_is_not_a_rollback(lone: CopiedPlace) -> None:
    with served(lone.shell, "--no-worker") as server:
        assert asked(server, "/api/tasks", title="Third")[0] in (200, 201)
        until(lambda: marked(lone) == 3)
        server.process.kill()
        server.process.wait()
    assert lone.file.with_name("remit.db-wal").stat().st_size
    shutil.copyfile(lone.file, lone.file.with_name("same"))
    lone.file.with_name("same").replace(lone.file)
    assert titles(lone.shell) == ["Third", "Second", "First"]


@pytest.fixture
def linked(lone: CopiedPlace, tmp_path: Path) -> CopiedPlace:
    """Another workspace, whose database file is a hard link to that of the first."""
    other = tmp_path / "other"
    made = CopiedPlace(other, None)
    made.file.unlink(missing_ok=True)
    made.file.hardlink_to(lone.file)
    return made


def test_a_database_in_use_cannot_be_opened_by_another_hard_link(
    lone: CopiedPlace, linked: CopiedPlace
) -> None:
    with served(lone.shell, "--no-worker") as server:
        for words in (
            ["task", "list"],
            ["task", "create", "Elsewhere"],
            ["run", "Look"],
            ["doctor"],
        ):
            said = linked.shell.remit(*words)
            assert said.code == 4, (words, said)
            assert f"{linked.file} and {lone.file} are the same file" in said.err
            assert f"Open it by one name: {lone.file}" in said.err
        assert asked(server, "/api/tasks", title="Third")[1]["task_id"] == "3"
        until(lambda: marked(lone) == 3)
        server.process.kill()
        server.process.wait()
    left = linked.shell.remit("task", "list")
    assert (left.code, "write-ahead log" in left.err) == (4, True), left
    assert f"remit doctor --database-url sqlite:///{lone.file}" in left.err
    assert lone.shell.remit("doctor").code == 0
    assert titles(lone.shell) == ["Third", "Second", "First"]
    assert titles(linked.shell) == ["Third", "Second", "First"], "the log is in the file now"
    assert linked.create("Fourth") == "4"
    assert lone.create("Fifth") == "5"


async def test_one_process_cannot_open_a_database_by_two_hard_links(
    lone: CopiedPlace, linked: CopiedPlace
) -> None:
    async with desk(lone.url) as at:
        await at.create("Third")
        with pytest.raises(RolledBack, match="are the same file"):
            await open_sqlite(linked.file)
        assert await at.create("Fourth") == "4"
        said = await asyncio.to_thread(linked.shell.remit, "task", "list")
        assert said.code == 4, "the refused opening left the locks as they were"


def test_a_hard_linked_backup_and_a_symbolic_link_do_not_stop_a_store(
    lone: CopiedPlace, tmp_path: Path
) -> None:
    (tmp_path / "backup.db").hardlink_to(lone.file)
    linked = CopiedPlace(tmp_path / "linked", None)
    linked.file.unlink(missing_ok=True)
    linked.file.symlink_to(lone.file)
    with served(lone.shell, "--no-worker") as server:
        assert linked.create("Third") == "3"
        assert asked(server, "/api/tasks", title="Fourth")[1]["task_id"] == "4"
    assert titles(lone.shell) == ["Fourth", "Third", "Second", "First"]


def test_the_last_to_close_leaves_one_file(lone: CopiedPlace) -> None:
    assert not lone.file.with_name("remit.db-wal").exists()
    assert lone.file.stat().st_size > 100_000
