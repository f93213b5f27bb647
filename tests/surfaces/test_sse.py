"""The event stream: no gap, no duplicate, gone at once when it should be."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from typing import Any

import pytest

from remit.ports import Store
from remit.surfaces.http.sse import EventStream, event_blocks
from tests.patience import patient
from tests.surfaces.http import BEARER, House, Site, house, site
from tests.surfaces.sse import Block, listening


async def _events(blocks: AsyncGenerator[Block, None]) -> AsyncGenerator[Block, None]:
    async for block in blocks:
        if block.data:
            yield block


@pytest.fixture
async def served(store: Store) -> AsyncIterator[Site]:
    async with asyncio.timeout(patient(30)), site(store) as found:
        yield found


@pytest.fixture
async def quick() -> AsyncIterator[Site]:
    """On a store in memory, with a heartbeat that tests can wait for."""
    async with (
        asyncio.timeout(patient(30)),
        house() as home,
        site(home.store, heartbeat=0.05) as found,
    ):
        yield found


async def test_an_event_comes_with_its_position_its_type_and_itself(served: Site) -> None:
    async with listening(served, "/api/events?after=0") as blocks:
        task_id = await served.create("Write the report")
        block = await anext(_events(blocks))
    stored = (await served.call("get_events", task_id=task_id))["events"][0]
    assert (block.id, block.event, block.json) == (stored["position"], "TaskCreated", stored)


async def test_without_a_position_it_begins_now(served: Site) -> None:
    await served.create("Before")
    async with listening(served, "/api/events") as blocks:
        after = await served.create("After")
        assert (await anext(_events(blocks))).json["task_id"] == after


async def test_a_listener_without_events_resumes_from_its_start(served: Site) -> None:
    async with listening(served, "/api/events") as blocks:
        began = (await anext(blocks)).id
    assert began
    missed = await served.create("While nobody listened")
    async with listening(served, "/api/events", began) as blocks:
        assert (await anext(_events(blocks))).json["task_id"] == missed


async def test_last_event_id_overrides_the_url(served: Site) -> None:
    await served.create("One")
    async with listening(served, "/api/events?after=0") as blocks:
        last = (await anext(_events(blocks))).id
    second = await served.create("Two")
    async with listening(served, "/api/events?after=0", last) as blocks:
        assert (await anext(_events(blocks))).json["task_id"] == second


async def test_no_gap_and_no_duplicate_over_reconnects_while_others_write(served: Site) -> None:
    async def write() -> None:
        for _ in range(20):
            await served.call("pause_task", task_id=await served.create())

    heard: list[tuple[str, int]] = []
    last = "0"
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(write())
        while len(heard) < 3 * 20 * 2:
            async with (
                listening(served, "/api/events", last) as blocks,
                aclosing(_events(blocks)) as events,
            ):
                while len(heard) % 7 < 6 and len(heard) < 3 * 20 * 2 - 1:
                    block = await anext(events)
                    heard.append((block.json["task_id"], block.json["version"]))
                    last = block.id
                block = await anext(events)
                heard.append((block.json["task_id"], block.json["version"]))
                last = block.id
    tasks = [task["id"] for task in (await served.call("list_tasks", limit=1000))["tasks"]]
    assert sorted(heard) == sorted((task_id, version) for task_id in tasks for version in (1, 2))


async def test_the_stream_of_a_task_has_its_events_alone(served: Site) -> None:
    task_id, other = await served.create(), await served.create()
    async with (
        listening(served, f"/api/tasks/{task_id}/events?after=0") as blocks,
        aclosing(_events(blocks)) as events,
    ):
        await served.call("pause_task", task_id=other)
        await served.call("pause_task", task_id=task_id)
        seen = [await anext(events), await anext(events)]
    assert [(block.json["task_id"], block.event) for block in seen] == [
        (task_id, "TaskCreated"),
        (task_id, "TaskPaused"),
    ]
    async with listening(served, f"/api/tasks/{task_id}/events", seen[0].id) as blocks:
        assert (await anext(_events(blocks))).id == seen[1].id


async def test_on_a_task_after_is_a_version(served: Site) -> None:
    await served.create("Another, so that versions and positions differ")
    task_id = await served.create()
    for operation in ("pause_task", "resume_task"):
        await served.call(operation, task_id=task_id)
    for after, expected in (("0", 1), ("1", 2), ("2", 3)):
        async with listening(served, f"/api/tasks/{task_id}/events?after={after}") as blocks:
            assert (await anext(_events(blocks))).json["version"] == expected
    async with listening(served, f"/api/tasks/{task_id}/events?after=99") as blocks:
        await served.call("pause_task", task_id=task_id)
        assert (await anext(_events(blocks))).json["version"] == 4


async def test_a_bad_position_is_refused_before_the_stream_begins(store: Store) -> None:
    home = House(store)
    task_id = await home.create()
    bad = [
        "x",
        "-1",
        "1.",
        ".1",
        "1.2.3",
        "9" * 19,
        "1e3",
        "%00",
        "1%0A2",
        "%D9%A1",
        "0&after=0",
        "0&before=1",
    ]
    for target in ("/api/events", f"/api/tasks/{task_id}/events"):
        for after in bad:
            answer = await home.ask("GET", f"{target}?after={after}", Accept="text/event-stream")
            assert (answer.status, answer.code) == (422, "INVALID_PARAM"), f"{target} {after}"


async def test_positions_of_another_kind_of_store_are_refused(store: Store) -> None:
    home = House(store)
    await home.create()
    foreign = "1" if "." in await store.tail() else "1.1"
    for last in (foreign, "x"):
        assert (await home.ask("GET", "/api/events", Last_Event_ID=last)).code == "INVALID_PARAM"


async def test_a_task_that_is_not_there_has_no_stream() -> None:
    async with house() as home:
        for target, status in (("/api/tasks/99/events", 404), ("/api/tasks/x/events", 422)):
            assert (await home.ask("GET", target, Accept="text/event-stream")).status == status


@pytest.mark.parametrize("accept", ["application/json", "*/*", ""])
async def test_a_request_without_a_stream_gets_the_plain_result(accept: str) -> None:
    async with house() as home:
        task_id = await home.create()
        assert (
            await home.ask("GET", f"/api/tasks/{task_id}/events", Accept=accept)
        ).json == await home.call("get_events", task_id=task_id)


async def test_asking_for_the_head_alone_opens_no_stream() -> None:
    async with house() as home, asyncio.timeout(patient(30)):
        answer = await home.ask("HEAD", "/api/events")
        assert (answer.status, answer.body) == (200, b"")


async def test_an_idle_stream_has_a_heartbeat(quick: Site) -> None:
    async with listening(quick, "/api/events") as blocks:
        assert [(await anext(blocks)).comment for _ in range(3)] == [False, True, True]


async def test_an_idle_stream_does_not_hold_up_the_end_of_the_server(served: Site) -> None:
    async with (
        listening(served, "/api/events") as blocks,
        listening(served, "/api/events?after=0") as others,
    ):
        await anext(blocks)
        await anext(others)
        await served.stop()
        assert [block async for block in blocks] == []


async def test_a_listener_who_leaves_leaves_nothing_behind(quick: Site) -> None:
    async with listening(quick, "/api/events") as blocks:
        await anext(blocks)
        assert len(quick.server.server_state.tasks) == 1
    await asyncio.gather(*quick.server.server_state.tasks)
    assert (await quick.ask("GET", "/healthz")).status == 200


async def test_a_listener_that_does_not_read_blocks_no_other(quick: Site) -> None:
    name, _, port = quick.host.partition(":")
    _, writer = await asyncio.open_connection(name, int(port), limit=1024)
    for _ in range(40):
        await quick.create(instructions="x" * 500_000)
    writer.write(
        f"GET /api/events?after=0 HTTP/1.1\r\nHost: {quick.host}\r\nAuthorization:"
        f" {BEARER['Authorization']}\r\n\r\n".encode()
    )
    async with listening(quick, "/api/events") as blocks:
        created = await quick.create()
        assert (await anext(_events(blocks))).json["task_id"] == created
    writer.transport.abort()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def test_a_store_that_fails_ends_the_stream_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with house() as home, asyncio.timeout(patient(30)):
        home.core.store = None  # type: ignore[assignment]
        sent: list[Any] = []

        async def receive() -> Any:
            await asyncio.Event().wait()

        async def collect(message: Any) -> None:
            sent.append(message)

        await EventStream(event_blocks(home.core, "1", None), stopping=asyncio.Event())(
            {"type": "http", "method": "GET"}, receive, collect
        )
        assert not sent[-1].get("more_body", False)
        assert "ended early" in caplog.text
