"""A SQLite file that is replaced, overwritten or deleted under a live process."""

import asyncio
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from remit.adapters.stores.sqlite.database_file import DatabaseFile
from remit.adapters.stores.sqlite.reader import SqliteReader, StoreReader
from remit.adapters.stores.sqlite.rollback_check import read_state
from remit.adapters.stores.sqlite.writing import opened_file
from remit.errors import RolledBack
from tests.crash.process import environment
from tests.patience import patient
from tests.people import desk
from tests.surfaces.copied_place import (
    CopiedPlace,
    accepted_rollback,
    asked,
    delete,
    fill,
    marked,
    overwrite,
    refusal,
    replace,
    stored_titles,
)
from tests.surfaces.repository import titles
from tests.surfaces.shell import served, until


@pytest.mark.parametrize("how", ["into the file", "in its place"])
def test_another_store_is_not_mixed_with_the_log_of_a_live_server(tmp_path: Path, how: str) -> None:
    places = [tmp_path / name for name in ("own", "other")]
    for place in places:
        place.mkdir()
    own, other = (CopiedPlace(place, None) for place in places)
    for number in range(30):  # its generation is higher, so that it does not look older
        other.create(f"Other {number}")
    own.create("First")
    with served(own.shell) as server:
        assert asked(server, "/api/tasks", title="Second")[0] in (200, 201)
        until(lambda: own.file.with_name("remit.db-wal").stat().st_size > 0)
        if how == "into the file":
            shutil.copyfile(other.file, own.file)
        else:
            shutil.copyfile(other.file, own.file.with_name("new")).replace(own.file)
        status, answer = asked(server, "/api/tasks", title="Lost")
        assert (status, "Another store was put " in answer["error"]["message"]) == (409, True)
        assert "with: `remit doctor --accept-rollback`" in answer["error"]["message"]
    said = own.shell.remit("task", "list")
    assert (said.code, "was replaced by another store" in said.err, "Traceback" in said.err) == (
        4,
        True,
        False,
    )
    assert own.shell.remit("doctor", "--accept-rollback").code == 0
    assert len(titles(own.shell)) == 30
    assert own.shell.remit("doctor", "--verify").code == 0


@pytest.mark.parametrize("harm", [replace, overwrite, delete])
async def test_no_write_to_a_deleted_file_is_acknowledged(
    harm: Callable[[CopiedPlace], None], lone: CopiedPlace
) -> None:
    async with desk(lone.url) as at:
        await at.create("Third")
        await asyncio.to_thread(harm, lone)
        for _ in range(2):
            with pytest.raises(RolledBack):
                await at.create("Lost")
            with pytest.raises(RolledBack):
                await at.get("1")
            with pytest.raises(RolledBack):
                await at.store.tail()
    if harm is delete:
        assert not lone.file.exists()
    else:
        assert lone.shell.remit("task", "list").code == 4
        assert lone.shell.remit("doctor", "--accept-rollback").code == 0
        assert lone.create("Fourth") == "4"


@pytest.mark.parametrize(
    ("harm", "text", "left"),
    [
        (replace, "was replaced by an older copy", ["First"]),
        (overwrite, "was replaced by an older copy", ["First"]),
        (delete, "was deleted", []),
    ],
)
def test_a_copy_beside_the_log_of_a_killed_process_is_refused(
    harm: Callable[[CopiedPlace], None],
    text: str,
    left: list[str],
    lone: CopiedPlace,
) -> None:
    with served(lone.shell, "--no-worker") as server:
        assert asked(server, "/api/tasks", title="Third")[0] in (200, 201)
        until(lambda: marked(lone) == 3)
        server.process.kill()
        server.process.wait()
    assert lone.file.with_name("remit.db-wal").stat().st_size
    harm(lone)
    for words in (["task", "list"], ["task", "create", "Lost"], ["doctor"]):
        said = lone.shell.remit(*words)
        assert (said.code, text in said.err, "write-ahead log" in said.err) == (
            4,
            True,
            True,
        ), words
    assert lone.shell.remit("doctor", "--accept-rollback").code == 0
    assert lone.create("Fourth") == "4"
    assert titles(lone.shell) == ["Fourth", *left]
    assert lone.shell.remit("doctor", "--verify").code == 0


@pytest.mark.parametrize("is_newer", [False, True], ids=["older", "newer"])
@pytest.mark.parametrize("overwrites", [False, True], ids=["replaced", "overwritten"])
def test_a_live_server_continues_when_another_store_is_removed_again(
    overwrites: bool,
    is_newer: bool,
    lone: CopiedPlace,
    tmp_path: Path,
) -> None:
    (tmp_path / "second").mkdir()
    other = CopiedPlace(tmp_path / "second", None)
    asyncio.run(fill(other.url, "Other", 100 if is_newer else 1))
    kept = tmp_path / "kept.db"
    with served(lone.shell, "--no-worker") as server:
        assert asked(server, "/api/tasks", title="Third")[0] in (200, 201)
        shutil.copyfile(lone.file, kept) if overwrites else lone.file.rename(kept)
        shutil.copyfile(other.file, lone.file)
        until(lambda: asked(server, "/api/tasks")[0] == 409)
        # The server looks once a second, so it can still report that the file was missing.
        until(lambda: "Another store was put " in refusal(server))
        assert "Put the file back" in refusal(server)
        shutil.copyfile(kept, lone.file) if overwrites else kept.replace(lone.file)
        until(lambda: asked(server, "/api/tasks")[0] == 200)
    assert titles(lone.shell) == ["Third", "Second", "First"]
    assert lone.shell.remit("doctor", "--verify").code == 0


def test_a_read_in_progress_ends_before_its_connection_is_closed(lone: CopiedPlace) -> None:
    file = DatabaseFile(lone.file)
    known = SqliteReader(lone.file).look(read_state).mark
    reader = StoreReader(lone.file, file, lambda: known, bool)
    closing = threading.Thread(target=reader.let_go)

    def slow(connection: Any) -> int:
        closing.start()
        closing.join(0.5)  # the driver crashes the process if the connection is closed now
        return int(connection.execute("SELECT count(*) FROM event").fetchone()[0])

    assert reader.look(slow) > 0
    closing.join(patient(10))
    assert not closing.is_alive()
    with pytest.raises(RolledBack, match="is being opened again"):
        reader.tail()
    file.close()


def test_a_live_server_continues_after_a_vacuum(lone: CopiedPlace) -> None:
    with served(lone.shell, "--no-worker") as server:
        assert asked(server, "/api/tasks", title="Third")[0] in (200, 201)
        vacuum = (
            "c = sqlite3.connect(sys.argv[1]); c.execute('VACUUM'); c.execute('PRAGMA"
            " wal_checkpoint')"
        )
        subprocess.run(
            [sys.executable, "-c", f"import sqlite3, sys; {vacuum}", lone.file], check=True
        )
        assert asked(server, "/api/tasks", title="Fourth")[0] in (200, 201)
        assert lone.create("Fifth") == "5"
        assert asked(server, "/api/tasks")[0] == 200
    assert titles(lone.shell) == ["Fifth", "Fourth", "Third", "Second", "First"]
    assert lone.shell.remit("doctor", "--verify").code == 0


@pytest.mark.parametrize("is_large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("how", ["into the file", "in its place"])
def test_a_copy_that_was_changed_elsewhere_is_not_mixed_with_the_log(
    how: str, is_large: bool, lone: CopiedPlace, tmp_path: Path
) -> None:
    if is_large:
        asyncio.run(fill(lone.url, "Common", 120))
    twin, kept = tmp_path / "twin.db", tmp_path / "kept.db"
    shutil.copyfile(lone.file, twin)
    asyncio.run(fill(f"sqlite:///{twin}", "Twin", 100 if is_large else 4))
    expected = stored_titles(twin)

    def put(copy: Path) -> None:
        if how == "into the file":
            shutil.copyfile(copy, lone.file)
        else:
            shutil.copyfile(copy, lone.file.with_name("new")).replace(lone.file)

    with served(lone.shell, "--no-worker") as server:
        first = asked(server, "/api/tasks", title="Own")[1]["task_id"]
        until(lambda: marked(lone) == int(first))
        shutil.copyfile(lone.file, kept)
        for _ in range(2):
            put(twin)
            for body in ({"title": "Lost"}, {}, {"title": "Lost"}, {}):
                status, answer = asked(server, "/api/tasks", **body)
                assert (status, "remit doctor --accept-rollback" in answer["error"]["message"]) == (
                    409,
                    True,
                ), answer
            for words in (["task", "list"], ["task", "create", "Lost"], ["doctor"]):
                said = lone.shell.remit(*words)
                assert (said.code, "was changed elsewhere" in said.err) == (4, True), said
            put(kept)
            until(lambda: asked(server, "/api/tasks", title="Own")[0] in (200, 201))
        put(twin)
        assert asked(server, "/api/tasks", title="Lost")[0] == 409
    assert lone.shell.remit("task", "list").code == 4
    accepted = lone.shell.remit("doctor", "--accept-rollback")
    [aside] = lone.file.parent.glob("remit.db-wal.replaced-*")
    assert (accepted.code, aside.name in accepted.out + accepted.err) == (0, True), accepted
    assert stored_titles(lone.file) == expected
    assert int(lone.create("After")) > int(first)
    assert lone.shell.remit("doctor", "--verify").code == 0


@pytest.mark.parametrize(
    "command", [["run", "Work"], ["task", "run", "3"]], ids=["run", "task run"]
)
def test_a_command_that_waits_creates_no_new_store(command: list[str], lone: CopiedPlace) -> None:
    lone.shell.env |= {
        "REMIT_RUNNER": "tests.surfaces.stubborn:Stubborn",
        "PYTHONPATH": environment()["PYTHONPATH"],
        "REMIT_HEARTBEAT_SECONDS": str(patient(1)),
    }
    if command[0] == "task":
        assert lone.shell.remit("task", "create", "Work", "--owner", "general").code == 0
    waiting = lone.shell.started(*command)
    assert waiting.stderr is not None
    try:
        while "running" not in (line := waiting.stderr.readline()):
            assert line, "the command ended"
        for name in ("remit.db", "remit.db-wal", "remit.db-shm"):
            lone.file.with_name(name).unlink()
        _, said = waiting.communicate(timeout=patient(60))
    finally:
        waiting.kill()
    assert waiting.returncode == 4, said
    assert "was deleted while it was in use" in said
    assert not lone.file.exists()


@pytest.mark.parametrize(
    ("harm", "left"), [(delete, []), (overwrite, ["First"])], ids=["deleted", "overwritten"]
)
def test_a_file_lost_beside_its_log_is_accepted_under_a_live_server(
    harm: Callable[[CopiedPlace], None], left: list[str], lone: CopiedPlace
) -> None:
    with served(lone.shell) as server:
        assert asked(server, "/api/tasks", title="Third")[0] in (200, 201)
        assert lone.file.with_name("remit.db-wal").stat().st_size
        harm(lone)
        until(lambda: asked(server, "/readyz")[0] == 503)
        accepted = accepted_rollback(lone)
        until(lambda: asked(server, "/readyz")[0] == 200)
        status, answer = asked(server, "/api/tasks", title="Fourth")
        assert (status in (200, 201), answer["task_id"]) == (True, "4")
    assert "continue above the old ones" in accepted.err
    assert "Ids begin again" not in accepted.err
    assert titles(lone.shell) == ["Fourth", *left]
    assert lone.shell.remit("doctor", "--verify").code == 0


def test_the_newer_file_can_be_put_back_under_a_live_server(
    lone: CopiedPlace, tmp_path: Path
) -> None:
    with served(lone.shell) as server:
        assert asked(server, "/api/tasks", title="Third")[0] in (200, 201)
        shutil.copyfile(lone.file, tmp_path / "newer.db")
        overwrite(lone)
        until(lambda: asked(server, "/readyz")[0] == 503)
        shutil.copyfile(tmp_path / "newer.db", lone.file)
        until(lambda: asked(server, "/readyz")[0] == 200)
        assert asked(server, "/api/tasks", title="Fourth")[0] in (200, 201)
    assert titles(lone.shell) == ["Fourth", "Third", "Second", "First"]
    assert lone.shell.remit("doctor", "--verify").code == 0


async def test_reads_say_the_truth_until_a_file_that_was_put_back_is_opened(
    lone: CopiedPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk(lone.url) as at:
        await at.create("Third")
        lone.file.rename(lone.copy)
        with pytest.raises(RolledBack):
            await at.create("Lost")
        monkeypatch.setattr(opened_file, "REOPEN_SECONDS", 1000)
        lone.copy.rename(lone.file)
        with pytest.raises(RolledBack, match="is being opened again") as refused:
            await at.store.tail()
        assert "closed database" not in str(refused.value)
        with pytest.raises(RolledBack, match="is being opened again"):
            await at.get("1")
        monkeypatch.setattr(opened_file, "REOPEN_SECONDS", 0)
        async with asyncio.timeout(patient(20)):
            while True:
                with suppress(RolledBack):
                    await at.store.tail()
                    break
                await asyncio.sleep(0.02)
