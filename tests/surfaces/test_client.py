"""The HTTP client: the same results and the same errors as in the server's own process."""

import asyncio
import inspect
import json
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from remit import Remit, RemitClient, Schedule
from remit.catalog import FOR_EVERYONE
from remit.catalog.method_parameters import HIDDEN, TYPED
from remit.errors import (
    Conflict,
    InvalidParam,
    NotFound,
    RemitError,
    TimedOut,
    Unauthenticated,
    Unavailable,
)
from remit.ports import Store, WorkerRow
from tests.patience import patient
from tests.surfaces.http import TOKEN, Silent, Site, house, site


@pytest.fixture
async def served() -> AsyncIterator[Site]:
    async with asyncio.timeout(patient(30)), house() as home, site(home.store) as found:
        yield found


@pytest.fixture
async def client(served: Site) -> AsyncIterator[RemitClient]:
    async with RemitClient(served.url, TOKEN) as opened:
        yield opened


async def test_a_created_task_reads_the_same(client: RemitClient, served: Site) -> None:
    made = await client.create_task(
        "Écrire le rapport 😀", owner="general", acceptance=["One page"], limits={"max_cost": 1.5}
    )
    direct = await served.call("get_task", task_id=made.task_id)
    assert made.task.to_dict() == direct
    assert await client.get_task(made.task_id) == made.task
    assert await client.call("get_task", task_id=f"#{made.task_id}") == direct
    assert await client.get_task(task_id=made.task.uid.upper()) == made.task


async def test_a_moment_can_be_given_as_one(client: RemitClient) -> None:
    made = await client.create_task(
        "Later", schedule={"not_before": datetime(2030, 1, 1, tzinfo=UTC)}
    )
    assert made.task.to_dict()["schedule"] == {"not_before": "2030-01-01T00:00:00.000000Z"}
    assert made.task.schedule == Schedule(not_before=datetime(2030, 1, 1, tzinfo=UTC))


READS: list[tuple[str, dict[str, Any]]] = [
    ("list_tasks", {}),
    ("list_tasks", {"limit": 2, "status": "active", "owner": "general", "label": "a b&c=d/é"}),
    ("list_tasks", {"limit": 2.0, "owner": None}),
    ("list_history", {"limit": 1}),
    ("list_ready", {}),
    ("get_task", {"task_id": 1}),
    ("get_events", {"task_id": "1", "after": 0, "limit": 1}),
    ("list_updates", {"task_id": "1"}),
    ("list_interactions", {"status": "open"}),
    ("list_notifications", {}),
    ("list_guides", {}),
    ("get_guide", {"guide_id": "a.b-c"}),
    ("list_agents", {}),
    ("get_agent", {"agent_id": "general"}),
]


@pytest.mark.parametrize(("name", "fields"), READS)
async def test_every_read_gives_what_the_catalogue_gives(
    name: str, fields: dict[str, Any], client: RemitClient, served: Site
) -> None:
    await served.create(owner="general", labels=["a b&c=d/é"])
    await served.create()
    await served.call("fail_task", task_id="2", message="It rained.")
    await served.call("create_guide", title="A", body="B", id="a.b-c")
    assert await client.call(name, **fields) == await served.call(name, **fields)


WRITES: list[tuple[str, dict[str, Any]]] = [
    ("update_task", {"task_id": "1", "instructions": "Other", "priority": "low"}),
    ("complete_task", {"task_id": "1", "summary": "Done", "outputs": {"n": [1, 2.5, None, True]}}),
    ("mark_task_complete", {"task_id": "1"}),
    ("fail_task", {"task_id": "1", "message": "It rained."}),
    ("waive_criterion", {"task_id": "1", "criterion_id": "c1", "reason": "Not needed"}),
    ("cancel_task", {"task_id": "1"}),
    ("pause_task", {"task_id": "1"}),
    ("run_task", {"task_id": "1"}),
    ("assign_task", {"task_id": "1", "subagent_session_id": "s/1"}),
    ("update_steps", {"task_id": "1", "steps": ["One", {"title": "Two", "done": True}]}),
    ("update_step", {"task_id": "1", "index": 0, "done": True}),
    ("create_subtask", {"task_id": "1", "title": "Part", "owner": "explore", "step_index": 0}),
    ("add_resource", {"task_id": "1", "type": "url", "value": "https://example.com"}),
    ("remove_resource", {"task_id": "1", "index": 0}),
    ("send_message", {"task_id": "1", "message": "Hello"}),
    ("create_guide", {"title": "Flaky tests", "body": "Run them alone."}),
]


@pytest.mark.parametrize(("name", "fields"), WRITES)
async def test_every_write_does_what_the_catalogue_does(
    name: str, fields: dict[str, Any], client: RemitClient, served: Site
) -> None:
    given: dict[str, Any] = {
        "owner": "general",
        "steps": ["One"],
        "acceptance": ["A"],
        "resources": [{"type": "url", "value": "https://example.com"}],
    }
    await served.create(**given)
    async with house() as other:
        await other.create(**given)
        assert _timeless(await client.call(name, **fields)) == _timeless(
            await other.call(name, **fields)
        )


def _timeless(value: Any) -> Any:
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "<instant>", json.dumps(value))
    return json.loads(re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<uid>", text))


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("no_such_operation", {}),
    ("ask_user", {"task_id": "1", "question": "Why?"}),
    ("get_task", {}),
    ("get_task", {"task_id": ""}),
    ("get_task", {"task_id": "../1"}),
    ("get_task", {"task_id": "999"}),
    ("get_task", {"task_id": "1", "extra": 1}),
    ("get_guide", {"guide_id": ".."}),
    ("get_agent", {"agent_id": "nobody"}),
    ("list_tasks", {"limit": "2"}),
    ("list_tasks", {"limit": True}),
    ("list_tasks", {"scope": "mine"}),
    ("list_tasks", {"cursor": "x"}),
    ("create_task", {"title": ""}),
    ("create_task", {"title": "\ud800"}),
    ("create_task", {"title": "x", "metadata": {"a": float("nan")}}),
    ("create_task", {"title": "x", "owner": "nobody"}),
    ("create_task", {"title": "x", "depends_on": ["77"]}),
    ("update_step", {"task_id": "1", "index": 5, "done": True}),
    ("update_task", {"task_id": "1", "priority": 1, "expected_version": 9}),
    ("resume_task", {"task_id": "1"}),
    ("respond", {"interaction_id": "..", "answer": "Yes"}),
    ("respond", {"interaction_id": "1-q1", "answer": "Yes"}),
    ("waive_criterion", {"task_id": "1", "criterion_id": ".", "reason": "Why not"}),
]


@pytest.mark.parametrize(("name", "fields"), WRONG)
async def test_every_error_is_the_one_that_the_catalogue_raises(
    name: str, fields: dict[str, Any], client: RemitClient, served: Site
) -> None:
    await served.create(steps=["One"])
    before = await served.store.tail()
    with pytest.raises(RemitError) as over_http:
        await client.call(name, **fields)
    if name == "ask_user":  # offered to running agents alone
        assert over_http.value.code == "NOT_FOUND"
        return
    with pytest.raises(RemitError) as direct:
        await served.call(name, **fields)
    assert over_http.value.wire() == direct.value.wire()
    assert type(over_http.value) is type(direct.value)
    assert await served.store.tail() == before


async def test_each_error_has_its_own_class(client: RemitClient, served: Site) -> None:
    task_id = await served.create()
    await served.call("complete_task", task_id=task_id)
    with pytest.raises(Conflict):
        await client.complete_task(task_id)
    with pytest.raises(NotFound):
        await client.pause_task("999")
    with pytest.raises(InvalidParam) as error:
        await client.create_task("x", titel="y")  # type: ignore[call-arg]
    assert error.value.details["fields"][0]["field"] == "titel"


async def test_a_wrong_token_is_reported_without_its_value(served: Site) -> None:
    async with RemitClient(served.url, "a-wrong-token") as stranger:
        with pytest.raises(Unauthenticated) as error:
            await stranger.list_tasks()
    assert "a-wrong-token" not in str(error.value)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_a_server_that_is_not_there_is_unavailable_with_a_hint() -> None:
    async with RemitClient(f"http://127.0.0.1:{_free_port()}/", TOKEN) as lonely:
        with pytest.raises(Unavailable, match="remit serve"):
            await lonely.list_tasks()
        with pytest.raises(Unavailable, match="remit serve"):
            await anext(lonely.events())


@asynccontextmanager
async def stranger(reply: bytes | None) -> AsyncIterator[str]:
    """The URL of a server that answers every request with the same bytes, or never."""
    writers: list[asyncio.StreamWriter] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        if reply is not None:
            writer.write(reply)
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for writer in writers:
            writer.close()
            await writer.wait_closed()


NOT_REMIT = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
    b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\n[{}]",
    b"",
)


@pytest.mark.parametrize("reply", NOT_REMIT)
async def test_a_server_that_is_not_remit_is_unavailable(reply: bytes) -> None:
    async with stranger(reply) as url, RemitClient(url, TOKEN) as client:
        with pytest.raises(Unavailable):
            await client.list_tasks()


async def test_a_server_that_does_not_answer_times_out() -> None:
    async with stranger(None) as url, RemitClient(url, TOKEN, timeout_seconds=0.05) as client:
        with pytest.raises(TimedOut, match="may have been carried out"):
            await client.create_task("x")


# Methods.


@pytest.mark.parametrize("name", FOR_EVERYONE)
def test_each_operation_is_a_method_that_says_what_it_takes(name: str) -> None:
    method = getattr(RemitClient, name)
    operation = FOR_EVERYONE[name]
    assert (method.__name__, method.__doc__) == (name, operation.description)
    own = {"self", *operation.input.__fields__} - HIDDEN | (
        {"output_type"} if name in TYPED else set()
    )
    assert set(inspect.signature(method).parameters) == own
    assert inspect.iscoroutinefunction(method)


def test_a_method_shows_its_defaults() -> None:
    parameters = inspect.signature(RemitClient.list_tasks).parameters
    assert (
        parameters["limit"].default,
        parameters["limit"].annotation,
        parameters["limit"].kind.name,
    ) == (50, int, "KEYWORD_ONLY")


async def test_a_method_called_in_a_way_that_cannot_work(client: RemitClient) -> None:
    for args, named in ((("1", "2"), {}), (("1",), {"task_id": "1"})):
        with pytest.raises(TypeError, match="pause_task"):
            await client.pause_task(*args, **named)


# Following.


async def test_following_gives_events_as_the_catalogue_has_them(store: Store) -> None:
    async with (
        asyncio.timeout(patient(30)),
        site(store) as served,
        RemitClient(served.url, TOKEN) as client,
    ):
        first, second = await served.create(), await served.create()
        expected = [
            (await served.call("get_events", task_id=one))["events"][0] for one in (first, second)
        ]
        async with aclosing(client.events(after="")) as events:
            assert [(await anext(events)).to_dict(), (await anext(events)).to_dict()] == expected
        async with aclosing(client.events(after=expected[0]["position"])) as events:
            assert (await anext(events)).to_dict() == expected[1]
        async with aclosing(client.events(after="", task_id=second)) as events:
            assert (await anext(events)).to_dict() == expected[1]


async def test_a_large_event_comes_whole(client: RemitClient, served: Site) -> None:
    await served.create(instructions="é" * 400_000)
    async with aclosing(client.events(after="")) as events:
        assert len((await anext(events)).data["instructions"]) == 400_000


async def test_following_continues_over_a_restart_without_gap_or_duplicate(store: Store) -> None:
    seen: list[str] = []
    async with asyncio.timeout(patient(30)):
        async with site(store) as served:
            port, ids = int(served.host.partition(":")[2]), [await served.create()]
            client = await RemitClient(served.url, TOKEN).__aenter__()
            events = client.events(after="")
            seen.append((await anext(events)).task_id)
            await served.stop()
            ids.append(await served.create())
        async with site(store, port) as again:
            ids.append(await again.create())
            seen += [(await anext(events)).task_id, (await anext(events)).task_id]
            await events.aclose()
            await client.__aexit__(None, None, None)
    assert seen == ids


async def test_a_server_without_its_store_cannot_be_followed(
    client: RemitClient, served: Site
) -> None:
    served.core.store = Silent(Unavailable("The database is gone."))
    with pytest.raises(Unavailable, match="database"):
        await anext(client.events())


@pytest.mark.parametrize(
    ("after", "task_id", "code"),
    [("x", None, "INVALID_PARAM"), (None, "99", "NOT_FOUND"), (None, "x", "INVALID_PARAM")],
)
async def test_a_stream_that_cannot_be_followed_fails_at_once(
    after: str | None, task_id: str | None, code: str, client: RemitClient
) -> None:
    with pytest.raises(RemitError) as error:
        await anext(client.events(after, task_id))
    assert error.value.code == code


async def test_a_client_that_is_not_open_or_was_closed_says_so(served: Site) -> None:
    client = RemitClient(served.url, TOKEN)
    uses: list[Callable[[], Any]] = [
        client.list_tasks,
        lambda: client.task("Find it"),
        client.ready,
        lambda: anext(client.events()),
        lambda: anext(client.stream("task", objective="Find it")),
    ]
    for use in uses:
        with pytest.raises(Conflict, match="This client is not open"):
            await use()
    async with client:
        await client.list_tasks()
    for use in uses:
        with pytest.raises(Unavailable, match="This Remit is closed"):
            await use()


@pytest.mark.parametrize("url", ["127.0.0.1:8420", "localhost", "", "ftp://a", "http://a:x"])
def test_an_address_that_is_not_one_is_refused(url: str) -> None:
    with pytest.raises(InvalidParam, match=r"^url: is ") as refused:
        RemitClient(url, TOKEN)
    assert url == "http://a:x" or "starts with http:// or https://" in str(refused.value)
    with pytest.raises(InvalidParam, match=r"^url: is "):
        RemitClient.open_sync(url, TOKEN)


def test_a_token_with_a_line_break_is_refused(served: Site) -> None:
    with pytest.raises(InvalidParam, match=r"^token: has a line break"):
        RemitClient(served.url, f"{TOKEN}\n")


async def test_an_unknown_operation_is_the_same_error_everywhere(client: RemitClient) -> None:
    unknown: Any = "nope"
    async with Remit.open(database_url="memory:", worker=False) as library:
        for remit in (library, client):
            with pytest.raises(NotFound, match="Unknown operation nope"):
                await anext(remit.stream(unknown))
            with pytest.raises(NotFound, match="Unknown operation nope"):
                await remit.call("nope")
            with pytest.raises(InvalidParam, match="get_task, which does not wait"):
                await anext(remit.attend("get_task", task_id="1"))


async def test_readiness_is_typed(client: RemitClient, served: Site) -> None:
    await served.create(owner="general")
    row = WorkerRow("w", "host", 1, "0", "general", 8, "2026-01-31T08:00:00.000000Z")
    await served.store.beat(row, ())
    found = await client.ready()
    assert (found.status, found.workers[0].agents, found.workers[0].scope) == (
        "ok",
        ("general",),
        None,
    )
    assert found.workers[0].since == datetime(2026, 1, 31, 8, tzinfo=UTC)
    assert [(queue.queue, queue.queued) for queue in found.queues] == [("agent/general", 1)]
    with RemitClient.open_sync(served.url, TOKEN) as blocking:
        assert (await asyncio.to_thread(blocking.ready)).queues == found.queues
