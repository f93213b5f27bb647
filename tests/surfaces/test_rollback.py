"""A store that went back in time, on both databases, as a user meets it."""

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from remit import Remit
from remit.adapters.stores.postgres import server_clock
from remit.bootstrap import open_store
from remit.errors import RolledBack
from tests.patience import patient
from tests.people import desk
from tests.postgres import PostgresForTests
from tests.surfaces.copied_place import (
    CopiedPlace,
    asked,
)
from tests.surfaces.repository import titles
from tests.surfaces.shell import Shell, interruptible, served, until


def test_commands_refuse_a_store_that_went_back_until_it_is_accepted(place: CopiedPlace) -> None:
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


def test_ids_and_positions_are_not_reused_after_several_rollbacks(place: CopiedPlace) -> None:
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
    place = CopiedPlace(tmp_path, postgres)
    place.create("First")
    place.keep_copy()
    place.create("Second")
    place.go_back()
    for spelled in (f"{place.url}/", f"{place.url}/.", f"{place.url}&port=5432"):
        said = Shell(tmp_path, REMIT_DATABASE_URL=spelled).remit("task", "list")
        assert (said.code, "went back in time" in said.err) == (4, True), spelled


def test_an_interrupted_wait_says_that_its_task_may_be_lost(tmp_path: Path) -> None:
    place = CopiedPlace(tmp_path, None)
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


async def newest_position(place: CopiedPlace) -> str:
    async with open_store(place.url) as store:
        return (await store.feed("", 1000))[-1].position


def as_numbers(position: str) -> list[int]:
    return [int(part) for part in position.split(".")]


def test_doctor_does_not_praise_a_store_that_went_back(place: CopiedPlace) -> None:
    place.create("First")
    place.keep_copy()
    place.create("Second")
    place.go_back()
    said = place.shell.remit("doctor", "--verify")
    assert said.code == 1
    assert "Everything is consistent" not in said.out
    assert "internally consistent, but it went back in time" in said.out


def test_an_event_that_differs_at_the_same_position_is_named(tmp_path: Path) -> None:
    here = CopiedPlace(tmp_path, None)
    here.create("First")
    here.keep_copy()
    here.create("Second")
    here.go_back()
    elsewhere = Shell(tmp_path, HOME=str(tmp_path / "other"), REMIT_DATABASE_URL=here.url)
    elsewhere.env["XDG_STATE_HOME"] = str(tmp_path / "other")
    assert elsewhere.remit("task", "create", "Other").code == 0
    said = here.shell.remit("task", "list")
    assert said.code == 4
    assert "its newest event is not the one at position " in said.err
    assert elsewhere.remit("task", "create", "One more").code == 0
    said = here.shell.remit("task", "list")
    assert said.code == 4
    assert "went back in time and diverged: it has events up to 3 and tasks up to 3" in said.err
    assert "but not the event at 2 that was seen here" in said.err
    assert "what was written here after that copy was made is not in it" in said.err


def test_followers_neither_miss_nor_repeat_events_after_a_rollback(place: CopiedPlace) -> None:
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
    place = CopiedPlace(tmp_path, postgres)
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


async def test_the_library_refuses_a_store_that_went_back(place: CopiedPlace) -> None:
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


def test_a_live_server_refuses_a_rollback_and_continues_once_it_is_accepted(
    place: CopiedPlace,
) -> None:
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


def test_a_live_server_says_that_another_store_took_the_place_of_its_own(
    place: CopiedPlace,
) -> None:
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


@pytest.mark.parametrize("harm", [CopiedPlace.drop, CopiedPlace.empty])
def test_a_live_server_says_plainly_that_its_database_was_removed(
    harm: Callable[[CopiedPlace], None],
    tmp_path: Path,
    postgres: PostgresForTests,
) -> None:
    place = CopiedPlace(tmp_path, postgres)
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


def test_a_worker_stops_claiming_and_says_so_once(place: CopiedPlace) -> None:
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
    place: CopiedPlace, monkeypatch: pytest.MonkeyPatch
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


@pytest.mark.parametrize("first", [["task", "list"], ["task", "create", "Next"], ["doctor"]])
def test_a_store_swapped_while_nothing_ran_is_reported_once(
    place: CopiedPlace, tmp_path: Path, first: list[str]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    other = CopiedPlace(tmp_path / "elsewhere", place.server)
    place.create("Here")
    for title in ("One", "Two"):
        other.create(title)
    place.swap(other)
    said = place.shell.remit(*first)
    assert said.code == 0, said.err
    assert said.err.count(" was replaced: it is now ") == 1
    assert " with 2 tasks. Until " in said.err
    assert " with 1 task. If you did not replace it, put the earlier one back." in said.err
    assert "Another store" not in place.shell.remit("task", "list").err
    assert "another store with tasks up to 1 was used until" in place.shell.remit("doctor").out
    place.swap(other)
    said = place.shell.remit("task", "list")
    assert " was replaced: it is now " in said.err, "it was swapped again"
    assert titles(place.shell) == ["Here"]
