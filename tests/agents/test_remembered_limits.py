"""What endpoints refuse is learned once for all processes of a user, for a day."""

import json
import threading
from functools import partial
from pathlib import Path

import pytest

from remit import Remit
from remit.adapters.models.refusals.remembered_limits import (
    KEEP_SECONDS,
    Limits,
    RememberedLimits,
    limits_file,
)
from tests.agents.endpoint import Body, RuledServer, write_config
from tests.modelserver import Reply, Say, Status

HERE = ("http://127.0.0.1:1/v1", "m")
LEARNED = Limits(frozenset({"reasoning_effort", "a system message"}), 4096)
REFUSED = Status(400, {"error": {"message": "Unsupported value.", "param": "reasoning_effort"}})


async def has_no_effort(body: Body) -> Reply:
    return REFUSED if "reasoning_effort" in body else Say(("Done.",))


def configure(
    server: RuledServer, home: Path, monkeypatch: pytest.MonkeyPatch, query: str = ""
) -> None:
    lines = ['model = "m"', f'base_url = "{server.url}/v1{query}"', 'api_key = "the-secret-key"']
    write_config(lines, home / "home", monkeypatch)
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))


async def test_a_refusal_is_learned_once_for_all_processes(
    durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RuledServer(has_no_effort).running() as server:
        assert isinstance(server, RuledServer)
        configure(server, tmp_path, monkeypatch)
        for _ in range(3):
            async with Remit.open(tmp_path, durable_url) as remit:
                assert (await remit.task("Look")).text == "Done."
        assert len(server.asked) == 4
        stored = limits_file().read_text()
        assert limits_file().stat().st_mode & 0o777 == 0o600
        assert not any(secret in stored for secret in ("the-secret-key", server.url))
        limits_file().write_text(json.dumps({key: {"model": 1.0} for key in json.loads(stored)}))
        async with Remit.open(tmp_path, durable_url) as remit:
            assert (await remit.task("Look again")).text == "Done."
        assert len(server.asked) == 6


async def test_addresses_that_differ_in_their_query_learn_apart(
    durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RuledServer(has_no_effort).running() as server:
        assert isinstance(server, RuledServer)
        efforts: dict[str, list[bool]] = {}
        for backend in ("first", "other", "first"):
            query = f"?backend={backend}"
            configure(server, tmp_path / backend / str(len(efforts)), monkeypatch, query)
            monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
            before = len(server.asked)
            async with Remit.open(tmp_path, durable_url) as remit:
                assert (await remit.task("Look")).text == "Done."
            sent = ["reasoning_effort" in asked.body for asked in server.asked[before:]]
            efforts.setdefault(backend, []).extend(sent)
    assert efforts == {"first": [True, False, False], "other": [True, False]}
    assert not any(name in limits_file().read_text() for name in ("first", "other", "backend"))


async def test_what_no_accepted_request_confirmed_is_not_stored(
    durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_body: Body) -> Reply:
        return REFUSED

    async with RuledServer(never).running() as server:
        assert isinstance(server, RuledServer)
        configure(server, tmp_path, monkeypatch)
        async with Remit.open(tmp_path, durable_url) as remit:
            assert (await remit.task("Look")).status == "failed"
    assert not limits_file().exists()


async def test_names_that_are_not_limits_are_ignored(
    durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RuledServer(has_no_effort).running() as server:
        assert isinstance(server, RuledServer)
        configure(server, tmp_path, monkeypatch)
        hostile = Limits(frozenset({"stream", "messages", "model"}))
        RememberedLimits(limits_file()).add(f"{server.url}/v1", "m", hostile)
        async with Remit.open(tmp_path, durable_url) as remit:
            assert (await remit.task("Look")).text == "Done."
    assert all(asked.body["stream"] for asked in server.asked)
    assert len(server.asked) == 2


async def test_work_goes_on_without_a_folder_for_the_file(
    durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RuledServer(has_no_effort).running() as server:
        assert isinstance(server, RuledServer)
        configure(server, tmp_path, monkeypatch)
        (tmp_path / "state").write_text("not a folder")
        async with Remit.open(tmp_path, durable_url) as remit:
            assert (await remit.task("Look")).text == "Done."
    assert len(server.asked) == 2


def test_an_entry_lasts_a_day(tmp_path: Path) -> None:
    time = 1_000_000.0
    memory = RememberedLimits(tmp_path / "limits.json", lambda: time)
    memory.add(*HERE, LEARNED)
    time += KEEP_SECONDS / 2
    memory.add(*HERE, Limits(frozenset({"images"}), 2048))
    assert memory.read(*HERE) == Limits(LEARNED.refused | {"images"}, 2048)
    time += KEEP_SECONDS / 2
    assert memory.read(*HERE) == Limits(frozenset({"images"}), 2048)
    time -= KEEP_SECONDS * 2
    assert memory.read(*HERE) == Limits()
    assert memory.read(HERE[0], "other") == Limits()


BROKEN = (
    b"",
    b"{",
    b"[1, 2]",
    b"null",
    b"\xff\xfe",
    b"[" * 200_000,
    b'{"a": ' + b" " * 2_000_000 + b"{}}",
    b'{"KEY": []}',
    b'{"KEY": {"images": "now", "PDFs": null, "x": NaN, "y": [1]}}',
    b'{"KEY": {"most output tokens: -1": 999999.0, "most output tokens: x": 999999.0}}',
    b'{"KEY": {"most output tokens: 0": 999999.0}}',
)


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_broken_content_is_ignored_and_replaced(tmp_path: Path, number: int) -> None:
    path = tmp_path / "limits.json"
    memory = RememberedLimits(path, lambda: 1_000_000.0)
    memory.add(*HERE, LEARNED)
    (key,) = json.loads(path.read_bytes())
    path.write_bytes(BROKEN[number].replace(b"KEY", key.encode()))
    assert memory.read(*HERE) == Limits()
    memory.add(*HERE, LEARNED)
    assert memory.read(*HERE) == LEARNED


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    memories = [RememberedLimits(tmp_path / "limits.json") for _ in range(8)]

    def learn(number: int) -> None:
        for name in ("images", "PDFs"):
            memories[number].add(HERE[0], f"m{number % 4}", Limits(frozenset({f"{name}{number}"})))

    threads = [threading.Thread(target=partial(learn, number)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(8):
        found = memories[0].read(HERE[0], f"m{number % 4}").refused
        assert {f"images{number}", f"PDFs{number}"} <= found
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "limits.json"]
