"""A store that went back in time, or whose file was replaced under a live process, as a user
meets it.
"""

import asyncio
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from remit import Remit
from remit.adapters.stores.high_water_mark import marks_folder
from remit.adapters.stores.postgres import server_clock
from remit.adapters.stores.sqlite.database_file import DatabaseFile
from remit.adapters.stores.sqlite.reader import SqliteReader, StoreReader
from remit.adapters.stores.sqlite.rollback_check import read_state
from remit.adapters.stores.sqlite.store import open_sqlite
from remit.adapters.stores.sqlite.writing import opened_file
from remit.bootstrap import open_store
from remit.errors import RolledBack
from tests.crash.process import environment
from tests.patience import patient
from tests.people import desk
from tests.postgres import PostgresForTests
from tests.surfaces.cli_host import Said
from tests.surfaces.repository import Repository, titles
from tests.surfaces.shell import Served, Shell, interruptible, served


class Place:
    """A workspace whose store can be copied, and put back to an older copy behind the back of
    remit.
    """

    def __init__(self, folder: Path, server: PostgresForTests | None) -> None:
        self.server = server
        folder.mkdir(exist_ok=True)
        self.url = (
            server.new_database() if server else f"sqlite:///{folder / '.remit' / 'remit.db'}"
        )
        self.shell = Shell(folder, REMIT_DATABASE_URL=self.url)
        assert self.shell.remit("init").code == 0
        self.file, self.copy = folder / ".remit" / "remit.db", folder / "copy.db"

    def create(self, title: str) -> str:
        said = self.shell.remit("task", "create", title, "--json")
        assert said.code == 0, said.err
        return str(said.json["task_id"])

    def keep_copy(self) -> None:
        """Copy the store as it is now; nobody else must have it open."""
        if self.server is None:
            shutil.copy(self.file, self.copy)
        else:
            self._sql(f"CREATE DATABASE {self.name}_copy TEMPLATE {self.name}")

    def go_back(self) -> None:
        """Put the copy in the place of the store."""
        if self.server is None:
            shutil.copyfile(self.copy, self.file.with_name("older"))
            self.file.with_name("older").replace(self.file)
        else:
            self._sql(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")
            self._sql(f"CREATE DATABASE {self.name} TEMPLATE {self.name}_copy")

    def put_another_store(self) -> None:
        """Put another store in the place of this one."""
        if self.server is None:
            for suffix in ("", "-wal", "-shm"):
                self.file.with_name(f"remit.db{suffix}").unlink()
        else:
            self._sql(f"DROP DATABASE {self.name} WITH (FORCE)")
            self._sql(f"CREATE DATABASE {self.name}")
        self.create("Other")

    def swap(self, other: "Place") -> None:
        """Put each of two stores in the place of the other one; nobody must have them open."""
        if self.server is None:
            aside = self.file.with_name("aside")
            self.file.rename(aside)
            other.file.rename(self.file)
            aside.rename(other.file)
        else:
            self._sql(f"ALTER DATABASE {self.name} RENAME TO {self.name}_aside")
            self._sql(f"ALTER DATABASE {other.name} RENAME TO {self.name}")
            self._sql(f"ALTER DATABASE {self.name}_aside RENAME TO {other.name}")

    def drop(self) -> None:
        """Remove the database from the server."""
        self._sql(f"DROP DATABASE {self.name} WITH (FORCE)")

    def empty(self) -> None:
        """Put a database without tables in the place of the store."""
        self.drop()
        self._sql(f"CREATE DATABASE {self.name}")

    @property
    def name(self) -> str:
        return self.url.partition("?")[0].rpartition("/")[2]

    def _sql(self, statement: str) -> None:
        async def execute() -> None:
            connection = await asyncpg.connect(self.url.replace(f"/{self.name}?", "/postgres?"))
            try:
                await connection.execute(statement)
            finally:
                await connection.close()

        asyncio.run(execute())


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(
        tmp_path, request.getfixturevalue("postgres") if request.param == "postgres" else None
    )


def test_commands_refuse_a_store_that_went_back_until_it_is_accepted(place: Place) -> None:
    place.create("First")
    place.keep_copy()
    assert [place.create("Second"), place.create("Third")] == ["2", "3"]
    place.go_back()
    for words in (
        ["task", "list"],
        ["task", "create", "Fourth"],
        ["task", "show", "1"],
        ["doctor", "--fix"],
    ):
        said = place.shell.remit(*words)
        assert said.code == 4, words
        assert "went back in time" in said.err
        assert "remit doctor --accept-rollback" in said.err
        is_file = "postgresql:" not in said.err
        assert ("git stash" in said.err, "a dump or a snapshot" in said.err) == (
            is_file,
            not is_file,
        )
    examined = place.shell.remit("doctor", "--json")
    assert (examined.code, examined.json["rollback"]["accepted"]) == (1, False)
    assert "tasks up to 1" in examined.json["rollback"]["message"]
    assert "tasks up to 3" in examined.json["rollback"]["message"]
    accepted = place.shell.remit("doctor", "--accept-rollback", "--json")
    assert (accepted.code, accepted.json["rollback"]["accepted"]) == (0, True)
    assert place.create("Fourth") == "4", "ids are never used again"
    assert titles(place.shell) == ["Fourth", "First"]
    assert place.shell.remit("doctor", "--verify").code == 0
    again = place.shell.remit("doctor", "--accept-rollback")
    assert (again.code, "nothing to accept" in again.err) == (4, True)
    place.go_back()
    said = place.shell.remit("task", "list")
    assert said.code == 4, "the copy of the epoch before is older as well"
    assert "is a copy from before a rollback was accepted: its epoch is 1" in said.err
    assert "Put the copy of epoch 2 back" in said.err
    assert place.shell.remit("doctor", "--accept-rollback").code == 0
    assert place.create("Fifth") == "5"


def test_ids_and_positions_are_not_reused_after_several_rollbacks(place: Place) -> None:
    place.create("First")
    place.keep_copy()
    assert [place.create(title) for title in ("Second", "Third", "Fourth")] == ["2", "3", "4"]
    seen = asyncio.run(newest_position(place))
    for _ in range(2):
        place.go_back()
        assert place.shell.remit("doctor", "--accept-rollback").code == 0
    assert int(place.create("Fifth")) > 4
    after = asyncio.run(newest_position(place))
    assert as_numbers(after) > as_numbers(seen)


def test_another_spelling_of_the_url_does_not_open_a_database_that_went_back(
    tmp_path: Path, postgres: PostgresForTests
) -> None:
    place = Place(tmp_path, postgres)
    place.create("First")
    place.keep_copy()
    place.create("Second")
    place.go_back()
    for spelled in (f"{place.url}/", f"{place.url}/.", f"{place.url}&port=5432"):
        said = Shell(tmp_path, REMIT_DATABASE_URL=spelled).remit("task", "list")
        assert (said.code, "went back in time" in said.err) == (4, True), spelled


def test_an_interrupted_wait_says_that_its_task_may_be_lost(tmp_path: Path) -> None:
    place = Place(tmp_path, None)
    place.create("First")
    place.keep_copy()
    assert place.create("Lost") == "2"
    with interruptible():
        waiting = place.shell.started("task", "result", "2", "--wait", "600")
    assert waiting.stderr is not None
    try:
        while "#2 Lost" not in (line := waiting.stderr.readline()):
            assert line, "the command ended"
        place.go_back()
        waiting.send_signal(signal.SIGINT)
        _, said = waiting.communicate(timeout=patient(30))
    finally:
        waiting.kill()
    assert "#2 continues only if it is in the store that is used from now on" in said
    assert "remit task show 2" not in said


async def newest_position(place: Place) -> str:
    async with open_store(place.url) as store:
        return (await store.feed("", 1000))[-1].position


def as_numbers(position: str) -> list[int]:
    return [int(part) for part in position.split(".")]


def test_doctor_does_not_praise_a_store_that_went_back(place: Place) -> None:
    place.create("First")
    place.keep_copy()
    place.create("Second")
    place.go_back()
    said = place.shell.remit("doctor", "--verify")
    assert said.code == 1
    assert "Everything is consistent" not in said.out
    assert "consistent in itself, but it went back in time" in said.out


def test_an_event_that_differs_at_the_same_position_is_named(tmp_path: Path) -> None:
    here = Place(tmp_path, None)
    here.create("First")
    here.keep_copy()
    here.create("Second")
    here.go_back()
    elsewhere = Shell(tmp_path, HOME=str(tmp_path / "other"), REMIT_DATABASE_URL=here.url)
    elsewhere.env["XDG_STATE_HOME"] = str(tmp_path / "other")
    assert elsewhere.remit("task", "create", "Other").code == 0
    said = here.shell.remit("task", "list")
    assert said.code == 4
    assert "its newest event is not the one that was seen here" in said.err
    assert elsewhere.remit("task", "create", "One more").code == 0
    said = here.shell.remit("task", "list")
    assert said.code == 4
    assert "went back in time and diverged: it has events up to 3 and tasks up to 3" in said.err
    assert "but not the event at 2 that was seen here" in said.err
    assert "what was written here after that copy was made is not in it" in said.err


def test_followers_neither_miss_nor_repeat_events_after_a_rollback(place: Place) -> None:
    place.create("First")
    place.keep_copy()
    place.create("Second")

    async def positions(after: str) -> list[tuple[str, str]]:
        async with open_store(place.url, "report") as store:
            return [(item.position, item.event.stream) for item in await store.feed(after, 100)]

    cursor = asyncio.run(positions(""))[-1][0]
    place.go_back()
    assert place.shell.remit("doctor", "--accept-rollback").code == 0
    made = place.create("Third")
    assert [stream for _, stream in asyncio.run(positions(cursor))] == [made]
    assert len(asyncio.run(positions(""))) == 2


def test_a_database_that_the_environment_names_is_the_same_place(
    postgres: PostgresForTests, tmp_path: Path
) -> None:
    place = Place(tmp_path, postgres)
    place.create("First")
    place.keep_copy()
    place.create("Second")
    place.go_back()
    short = f"postgresql:///{place.name}"
    shell = Shell(
        tmp_path, REMIT_DATABASE_URL=short, PGHOST=str(postgres.folder), PGUSER="postgres"
    )
    said = shell.remit("task", "list")
    assert (said.code, "went back" in said.err) == (4, True)


async def test_the_library_refuses_a_store_that_went_back(place: Place) -> None:
    await asyncio.to_thread(place.create, "First")
    await asyncio.to_thread(place.keep_copy)
    await asyncio.to_thread(place.create, "Second")
    await asyncio.to_thread(place.go_back)
    with pytest.raises(RolledBack) as refused:
        async with Remit.open(database_url=place.url, worker=False):
            pass
    assert (refused.value.code, refused.value.status, refused.value.exit_code) == (
        "CONFLICT",
        409,
        4,
    )


def asked(server: Served, path: str, **body: Any) -> tuple[int, Any]:
    """The status and the answer of a request."""
    data = json.dumps(body).encode() if body else None
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(server.url + path, data, headers), timeout=patient(20)
        ) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def refusal(server: Served) -> str:
    """Why a server refuses a request."""
    return str(asked(server, "/api/tasks")[1]["error"]["message"])


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + patient(30)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_live_server_refuses_a_rollback_and_continues_once_it_is_accepted(place: Place) -> None:
    place.create("First")
    place.keep_copy()
    place.create("Second")
    with served(place.shell) as server:
        assert asked(server, "/api/tasks", title="Third")[0] in (200, 201)
        place.go_back()
        status, answer = asked(server, "/api/tasks", title="Lost")
        assert (status, answer["error"]["code"]) == (409, "CONFLICT")
        until(lambda: asked(server, "/api/tasks")[0] == 409)
        status, answer = asked(server, "/readyz")
        assert (status, "--accept-rollback` The" in answer["error"]["message"]) == (
            503,
            False,
        ), answer
        examined = place.shell.remit("doctor")
        assert "Start one with" not in examined.out + examined.err
        until(lambda: place.shell.remit("doctor", "--accept-rollback").code == 0)
        until(lambda: asked(server, "/readyz")[0] == 200)
        status, answer = asked(server, "/api/tasks", title="Fourth")
        assert (status in (200, 201), answer["task_id"]) == (True, "4")
    assert titles(place.shell) == ["Fourth", "First"]


def test_a_live_server_says_that_another_store_took_the_place_of_its_own(place: Place) -> None:
    place.create("First")
    with served(place.shell) as server:
        assert asked(server, "/api/tasks", title="Second")[0] in (200, 201)
        place.put_another_store()
        until(lambda: "Another store" in str(asked(server, "/api/tasks")[1]))
        for body in ({}, {"title": "Lost"}):
            status, answer = asked(server, "/api/tasks", **body)
            assert (status, answer["error"]["code"]) == (409, "CONFLICT")
            assert "Another store was put " in answer["error"]["message"]
            assert "estart this process to use it" in answer["error"]["message"]
            assert "--accept-rollback" not in answer["error"]["message"]
        said = place.shell.remit("doctor", "--accept-rollback")
        assert (said.code, "nothing to accept" in said.err, "restart it" in said.err) == (
            4,
            True,
            True,
        )
    assert titles(place.shell) == ["Other"]


@pytest.mark.parametrize("harm", [Place.drop, Place.empty])
def test_a_live_server_says_plainly_that_its_database_was_removed(
    harm: Callable[[Place], None],
    tmp_path: Path,
    postgres: PostgresForTests,
) -> None:
    place = Place(tmp_path, postgres)
    place.create("First")
    place.keep_copy()
    with served(place.shell, "--no-worker") as server:
        assert asked(server, "/api/tasks")[0] == 200
        harm(place)
        until(lambda: asked(server, "/api/tasks")[0] != 200)
        told = [asked(server, "/api/tasks"), asked(server, "/api/tasks", title="Second")]
        place.go_back()
        until(lambda: asked(server, "/api/tasks", title="Third")[0] in (200, 201))
        assert [task["title"] for task in asked(server, "/api/tasks")[1]["tasks"]] == [
            "Third",
            "First",
        ]
    for status, answer in told:
        message = answer["error"]["message"]
        assert (status, answer["error"]["code"]) == (409, "CONFLICT")
        assert message.startswith("The store postgresql:")
        assert (
            f"/{place.name} was removed while it was in use; nothing more is written. " in message
        )
        assert "remit doctor --accept-rollback" in message
        assert "restart them to begin with a new store" in message
        assert "\n" not in message


@pytest.mark.parametrize("how", ["into the file", "in its place"])
def test_another_store_is_not_mixed_with_the_log_of_a_live_server(tmp_path: Path, how: str) -> None:
    places = [tmp_path / name for name in ("own", "other")]
    for place in places:
        place.mkdir()
    own, other = (Place(place, None) for place in places)
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


def test_a_worker_stops_claiming_and_says_so_once(place: Place) -> None:
    place.create("First")
    place.keep_copy()
    place.create("Second")
    worker = place.shell.started("worker")
    assert worker.stderr is not None
    try:
        worker.stderr.readline()
        until(lambda: len(place.shell.remit("doctor", "--json").json["workers"]) == 1)
        place.go_back()
        while "Stopped claiming jobs" not in (line := worker.stderr.readline()):
            assert line, "the worker ended"
        assert "remit doctor --accept-rollback" in line
        time.sleep(3)
        worker.send_signal(signal.SIGTERM)
        _, rest = worker.communicate(timeout=patient(20))
        assert "Stopped claiming jobs" not in rest
        assert len(rest.splitlines()) < 10, rest
    finally:
        worker.kill()


async def test_an_open_store_continues_after_a_slow_rollback(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs in the background meanwhile must survive every refusal."""
    monkeypatch.setattr(server_clock, "CLOCK_SECONDS", 0.02)
    await asyncio.to_thread(place.create, "First")
    await asyncio.to_thread(place.keep_copy)
    await asyncio.to_thread(place.create, "Second")
    async with desk(place.url) as at:
        await at.create("Third")
        await asyncio.to_thread(place.go_back)
        with pytest.raises(RolledBack):
            await at.create("Lost")
        await asyncio.sleep(1.5)
        while (await asyncio.to_thread(place.shell.remit, "doctor", "--accept-rollback")).code != 0:
            with pytest.raises(RolledBack):
                await at.store.tail()
        async with asyncio.timeout(patient(20)):
            while True:
                with suppress(RolledBack):
                    made = await at.create("Fourth")
                    break
                await asyncio.sleep(0.05)
    assert int(made) > 3


# SQLite: the file itself.


@pytest.fixture
def lone(tmp_path: Path) -> Place:
    made = Place(tmp_path, None)
    made.create("First")
    made.keep_copy()
    made.create("Second")
    return made


def replace(place: Place) -> None:
    """Another file takes the place of the database, as git does it."""
    shutil.copy(place.copy, place.file.with_name("new"))
    place.file.with_name("new").replace(place.file)


def overwrite(place: Place) -> None:
    """An older copy is written into the database file itself, as `cp` does it."""
    shutil.copyfile(place.copy, place.file)


def delete(place: Place) -> None:
    place.file.unlink()


@pytest.mark.parametrize("harm", [replace, overwrite, delete])
async def test_no_write_to_a_deleted_file_is_acknowledged(
    harm: Callable[[Place], None], lone: Place
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
    harm: Callable[[Place], None],
    text: str,
    left: list[str],
    lone: Place,
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
    lone: Place,
    tmp_path: Path,
) -> None:
    (tmp_path / "second").mkdir()
    other = Place(tmp_path / "second", None)
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


def test_a_read_in_progress_ends_before_its_connection_is_closed(lone: Place) -> None:
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


def test_a_live_server_continues_after_a_vacuum(lone: Place) -> None:
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


async def fill(url: str, title: str, count: int) -> None:
    """Create tasks in a store; each is a transaction of its own."""
    async with desk(url) as at:
        for number in range(count):
            await at.create(f"{title} {number}", description="x" * 800)


@pytest.mark.parametrize("is_large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("how", ["into the file", "in its place"])
def test_a_copy_that_was_changed_elsewhere_is_not_mixed_with_the_log(
    how: str, is_large: bool, lone: Place, tmp_path: Path
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


def stored_titles(file: Path) -> list[str]:
    """The tasks in a database file that is sound."""
    connection = sqlite3.connect(file)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [row[0] for row in connection.execute("SELECT title FROM task ORDER BY id")]
    finally:
        connection.close()


def marked(place: Place) -> int:
    """The highest task in the marks of a place."""
    found = [json.loads(path.read_text()) for path in marks_folder().rglob("*.json")]
    return max((mark["task_id"] for mark in found if mark["place"] == str(place.file)), default=0)


def test_git_checkout_of_a_committed_database_is_recognized(repository: Repository) -> None:
    repository.remit("init")
    (repository.folder / ".remit" / ".gitignore").write_text("!remit.db\nremit.db-*\ntoken\n")
    repository.remit("task", "create", "First")
    repository.git("add", "-A")
    repository.git("commit", "--quiet", "-m", "Commit the database")
    repository.remit("task", "create", "Second")
    repository.git("checkout", "--", ".remit/remit.db")
    assert repository.remit("task", "list").code == 4
    accepted = repository.remit("doctor", "--accept-rollback")
    assert (accepted.code, "A new epoch began" in accepted.err) == (1, True), "git shows the file"
    assert repository.remit("task", "create", "Third", "--json").json["task_id"] == "3"
    repository.git("stash")
    assert repository.remit("task", "list").code == 4, "the older epoch"
    repository.git("stash", "pop")
    assert titles(repository) == ["Third", "First"], "the newer copy is back"


def test_a_deleted_database_becomes_a_new_store_with_one_notice(lone: Place) -> None:
    lone.file.unlink()
    said = lone.shell.remit("task", "create", "New")
    assert said.code == 0
    assert "is new. Another one with 2 tasks was here until" in said.err
    assert "is new" not in lone.shell.remit("task", "create", "Next").err
    assert titles(lone.shell) == ["Next", "New"]


@pytest.mark.parametrize("first", [["task", "list"], ["task", "create", "Next"], ["doctor"]])
def test_a_store_swapped_while_nothing_ran_is_reported_once(
    place: Place, tmp_path: Path, first: list[str]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    other = Place(tmp_path / "elsewhere", place.server)
    place.create("Here")
    for title in ("One", "Two"):
        other.create(title)
    place.swap(other)
    said = place.shell.remit(*first)
    assert said.code == 0, said.err
    assert said.err.count("Another store is at ") == 1
    assert " with 2 tasks. Until " in said.err
    assert " with 1 task. If you did not replace it, put that one back." in said.err
    assert "Another store" not in place.shell.remit("task", "list").err
    assert "another store with tasks up to 1 was used until" in place.shell.remit("doctor").out
    place.swap(other)
    said = place.shell.remit("task", "list")
    assert "Another store is at " in said.err, "it was swapped again"
    assert titles(place.shell) == ["Here"]


@pytest.mark.parametrize(
    "command", [["run", "Work"], ["task", "run", "3"]], ids=["run", "task run"]
)
def test_a_command_that_waits_creates_no_new_store(command: list[str], lone: Place) -> None:
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
    harm: Callable[[Place], None], left: list[str], lone: Place
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


def test_the_newer_file_can_be_put_back_under_a_live_server(lone: Place, tmp_path: Path) -> None:
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
    lone: Place, monkeypatch: pytest.MonkeyPatch
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


@pytest.mark.parametrize(
    "suffixes", [("-wal",), ("-shm",), ("-wal", "-shm")], ids=["log", "memory", "both"]
)
def test_files_that_are_deleted_beside_a_live_database_cost_nothing(
    suffixes: tuple[str, ...], lone: Place
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
    place = Place(tmp_path, None)
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


def test_the_same_content_in_another_file_is_not_a_rollback(lone: Place) -> None:
    with served(lone.shell, "--no-worker") as server:
        assert asked(server, "/api/tasks", title="Third")[0] in (200, 201)
        until(lambda: marked(lone) == 3)
        server.process.kill()
        server.process.wait()
    assert lone.file.with_name("remit.db-wal").stat().st_size
    shutil.copyfile(lone.file, lone.file.with_name("same"))
    lone.file.with_name("same").replace(lone.file)
    assert titles(lone.shell) == ["Third", "Second", "First"]


def accepted_rollback(place: Place) -> Said:
    """What doctor says once no process has the old file open any more."""
    deadline = time.monotonic() + patient(30)
    while (said := place.shell.remit("doctor", "--accept-rollback")).code != 0:
        assert time.monotonic() < deadline, said.err
    return said


def test_a_single_task_is_counted_as_one(tmp_path: Path) -> None:
    place = Place(tmp_path, None)
    place.create("First")
    place.file.unlink()
    assert "Another one with 1 task was here until" in place.shell.remit("task", "list").err


def test_a_copy_of_a_workspace_is_just_another_store(lone: Place, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(tmp_path / ".remit", other / ".remit")
    shutil.copy(lone.copy, other / ".remit" / "remit.db")
    assert Shell(other).remit("task", "create", "Elsewhere").code == 0
    assert lone.shell.remit("task", "list").code == 0


@pytest.fixture
def linked(lone: Place, tmp_path: Path) -> Place:
    """Another workspace, whose database file is a hard link to that of the first."""
    other = tmp_path / "other"
    made = Place(other, None)
    made.file.unlink(missing_ok=True)
    made.file.hardlink_to(lone.file)
    return made


def test_a_database_in_use_cannot_be_opened_by_another_hard_link(
    lone: Place, linked: Place
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
    lone: Place, linked: Place
) -> None:
    async with desk(lone.url) as at:
        await at.create("Third")
        with pytest.raises(RolledBack, match="are the same file"):
            await open_sqlite(linked.file)
        assert await at.create("Fourth") == "4"
        said = await asyncio.to_thread(linked.shell.remit, "task", "list")
        assert said.code == 4, "the refused opening left the locks as they were"


def test_a_hard_linked_backup_and_a_symbolic_link_do_not_stop_a_store(
    lone: Place, tmp_path: Path
) -> None:
    (tmp_path / "backup.db").hardlink_to(lone.file)
    linked = Place(tmp_path / "linked", None)
    linked.file.unlink(missing_ok=True)
    linked.file.symlink_to(lone.file)
    with served(lone.shell, "--no-worker") as server:
        assert linked.create("Third") == "3"
        assert asked(server, "/api/tasks", title="Fourth")[1]["task_id"] == "4"
    assert titles(lone.shell) == ["Fourth", "Third", "Second", "First"]


def test_an_unwritable_home_does_not_stop_a_process(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    shell = Shell(tmp_path, XDG_STATE_HOME=str(tmp_path / "file"))
    shell.remit("init")
    assert shell.remit("task", "create", "Work").code == 0
    assert shell.remit("task", "list").code == 0
    said = shell.remit("doctor", "--json").json["store"]["mark"]
    assert said.startswith("none: ")
    assert "cannot be written" in said


def test_marks_are_for_their_owner_alone(lone: Place) -> None:
    found = [
        path
        for path in marks_folder().rglob("*.json")
        if json.loads(path.read_text())["place"] == str(lone.file)
    ]
    assert len(found) == 1
    assert found[0].stat().st_mode & 0o777 == 0o600
    assert found[0].parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("content", ["", "{", "[]", '{"store_id": 1}', "null"])
def test_an_unreadable_mark_raises_no_alarm(content: str, lone: Place) -> None:
    for path in marks_folder().rglob("*.json"):
        if json.loads(path.read_text() or "{}").get("place") == str(lone.file):
            path.write_text(content)
    assert lone.shell.remit("task", "list").code == 0
    assert lone.create("Third") == "3"


def test_the_last_to_close_leaves_one_file(lone: Place) -> None:
    assert not lone.file.with_name("remit.db-wal").exists()
    assert lone.file.stat().st_size > 100_000
