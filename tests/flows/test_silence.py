"""A call that waits is never silent for long, on every transport and on both stores, also while
other tasks ring the store.
"""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest
from mcp import Client, StdioServerParameters

from remit.adapters.stores.sqlite.driver import connect
from remit.bootstrap.library import Remit
from remit.catalog import Caller
from remit.client import RemitClient
from remit.domain.llm.messages import Request
from remit.errors import Unavailable
from remit.surfaces.mcp.server import mcp_http, mcp_server
from tests.agents.stage import Gate, Stage, calls, reached, results, says, stage
from tests.crash.process import environment
from tests.engine.fleet import ANN
from tests.patience import patient
from tests.postgres import PostgresForTests
from tests.surfaces.http import BEARER, TOKEN, Site, site
from tests.surfaces.mcp_http import MODES, served
from tests.surfaces.sse import Block, listening

SILENCE_SECONDS = 0.1
REPEATS = 4
WORK = "Be slow"


class Play(Stage):
    """A stage with a server.

    Its model lists the folder once and then stands at a gate, or asks a person.
    """

    url: str
    site: Site
    gate: Gate


class Heard:
    """The output that a caller has read so far."""

    def __init__(self) -> None:
        self.words: list[Any] = []
        self._more = asyncio.Event()
        self.connected, self.may_call = asyncio.Event(), asyncio.Event()
        """Set by a client of MCP once it is connected; it makes its call when it may."""
        self.may_call.set()

    def hear(self, word: Any) -> None:
        """Take in a word."""
        self.words.append(word)
        self._more.set()

    async def more(self, count: int) -> None:
        """Wait for this many more items."""
        wanted = len(self.words) + count
        while len(self.words) < wanted:
            self._more.clear()
            await self._more.wait()

    async def until(self, true: Callable[[Any], bool]) -> Any:
        """Wait for a word about which something is true."""
        while not (found := [word for word in self.words if true(word)]):
            self._more.clear()
            await self._more.wait()
        return found[-1]


@asynccontextmanager
async def play(url: str, folder: Path, workers: int = 1) -> AsyncIterator[Play]:
    gate = Gate()

    def rule(request: Request) -> Any:
        if "Ask" in request.messages[0].text:
            asked = calls(("ask_user", {"question": "Which one?"}))
            return says("Slow.") if results(request) else asked
        looked = results(request)
        return gate.then(says("Slow.")) if looked else calls(("LS", {"path": str(folder)}))

    async with (
        asyncio.timeout(patient(20)),
        stage(url, folder, rule, workers=workers, concurrency=1) as at,
        site(at.team.core.store) as found,
    ):
        at.team.core.progress_seconds = found.core.progress_seconds = SILENCE_SECONDS
        opened = Play(at.team, at.folder, at.script)
        opened.url, opened.site, opened.gate = url, found, gate
        yield opened


@asynccontextmanager
async def rings(at: Stage) -> AsyncIterator[None]:
    """Commits of other tasks, each of which rings everyone who watches the store."""

    async def commit() -> None:
        while True:
            await at.create(title="Noise", owner=None)
            await asyncio.sleep(SILENCE_SECONDS / 4)

    noise = asyncio.create_task(commit())
    try:
        yield
        assert not noise.done(), "the store was rung all the time"
    finally:
        noise.cancel()
        await asyncio.wait({noise})


# How a caller waits on each transport; each tells every word that it hears and returns the result.

Wait = Callable[[Play, Heard], Any]


async def _drained(items: AsyncGenerator[dict[str, Any], None], heard: Heard) -> str:
    answer: dict[str, Any] = {}
    async with aclosing(items) as rest:
        async for item in rest:
            heard.hear(item)
            answer = item.get("answer", answer)
    return str(answer)


async def _library(at: Play, heard: Heard) -> str:
    remit = Remit(at.team.core, Caller(actor=ANN))
    return await _drained(remit.attend("task", objective=WORK), heard)


async def _http_client(at: Play, heard: Heard) -> str:
    async with RemitClient(at.site.url, TOKEN) as client:
        return await _drained(client.attend("task", objective=WORK), heard)


async def _rest(at: Play, heard: Heard, path: str, body: Any) -> str:
    async with listening(at.site, path, body=body) as blocks:
        await _listened(blocks, heard)
    return str(heard.words[-1]["answer"])


async def _listened(blocks: AsyncGenerator[Block, None], heard: Heard) -> None:
    async for block in blocks:
        if block.data:
            heard.hear(block.json)


async def _rest_one(at: Play, heard: Heard) -> str:
    return await _rest(at, heard, "/api/delegate", {"objective": WORK})


async def _rest_parallel(at: Play, heard: Heard) -> str:
    return await _rest(at, heard, "/api/delegate/parallel", {"tasks": [WORK]})


async def _rest_result(at: Play, heard: Heard) -> str:
    task = (await at.call("task", objective=WORK, wait=False))["data"]["task_id"]
    return await _rest(at, heard, f"/api/tasks/{task}/result?wait=60", None)


async def _over_mcp(client: AbstractAsyncContextManager[Client], heard: Heard) -> str:
    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.hear((progress, message))

    async with client as opened:
        heard.connected.set()
        await heard.may_call.wait()
        answer = await opened.call_tool("task", {"objective": WORK}, progress_callback=hear)
    numbers = [number for number, _ in heard.words]
    assert numbers == sorted(set(numbers)), "progress grows with every notification"
    return str(answer.structured_content)


async def _mcp_http(at: Play, heard: Heard) -> str:
    app = mcp_http(mcp_server(at.team.core, Caller(actor=ANN), "1"))
    async with app.run(), served(app) as address:
        return await _over_mcp(Client(address, mode=MODES[0]), heard)


async def _mcp_stdio(at: Play, heard: Heard) -> str:
    own = {"REMIT_DATABASE_URL": at.url, "REMIT_PROGRESS_SECONDS": str(SILENCE_SECONDS)}
    return await _over_mcp(_remit_mcp(at, own), heard)


async def _relay(at: Play, heard: Heard) -> str:
    return await _over_mcp(_remit_mcp(at, {"REMIT_URL": at.site.url, "REMIT_TOKEN": TOKEN}), heard)


def _remit_mcp(at: Play, env: dict[str, str]) -> Client:
    arguments = ["-m", "remit", "--workspace", str(at.folder), "mcp"]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=environment() | env)
    return Client(server, mode=MODES[0])


OVER_MCP: list[Wait] = [_mcp_http, _mcp_stdio, _relay]
WAITS: list[Wait] = [
    _library,
    _http_client,
    _rest_one,
    _rest_parallel,
    _rest_result,
    _mcp_http,
    _mcp_stdio,
    _relay,
]


@pytest.mark.parametrize("wait", WAITS)
async def test_a_call_keeps_talking_while_other_tasks_ring_the_store(
    wait: Wait, durable_url: str, tmp_path: Path
) -> None:
    heard = Heard()
    async with play(durable_url, tmp_path) as at, rings(at):
        waiting = asyncio.create_task(wait(at, heard))
        await reached(at.gate)
        await heard.until(lambda word: "LS" in str(word))
        await heard.more(REPEATS)
        at.gate.open.set()
        assert "Slow." in await waiting


@asynccontextmanager
async def hearing(at: Play, objective: str) -> AsyncIterator[Heard]:
    """A caller of the library that waits for one piece of work."""
    remit, heard = Remit(at.team.core, Caller(actor=ANN)), Heard()
    waiting = asyncio.create_task(_drained(remit.attend("task", objective=objective), heard))
    try:
        yield heard
    finally:
        waiting.cancel()
        await asyncio.wait({waiting})


def repeated(word: dict[str, Any]) -> bool:
    """True for an item that says how a task stands for the second time."""
    return word["type"] == "task_progress" and float(word["seconds"]) > 0


async def test_a_repeat_tells_what_a_task_does_and_for_how_long(
    durable_url: str, tmp_path: Path
) -> None:
    async with play(durable_url, tmp_path) as at, hearing(at, WORK) as heard:
        first = await heard.until(lambda word: repeated(word) and word["tool"] == "LS")
        assert (first["state"], first["tool_calls"]) == ("running", 1)
        assert first["waits_for"] is None
        later = await heard.until(
            lambda word: (
                repeated(word) and word["tool"] == "LS" and word["seconds"] > first["seconds"]
            )
        )
        assert later | {"seconds": 0} == first | {"seconds": 0}
        at.gate.open.set()


async def test_a_repeat_tells_what_a_task_waits_for(durable_url: str, tmp_path: Path) -> None:
    async with play(durable_url, tmp_path) as at:
        async with hearing(at, "Ask") as heard:
            asks = await heard.until(lambda word: repeated(word) and word["questions"])
            assert (asks["state"], asks["waits_for"]) == ("waiting", "your answer (`remit inbox`)")
            await at.call("pause_task", task_id="1")
            paused = await heard.until(lambda word: repeated(word) and word["state"] == "paused")
            assert paused["waits_for"] == "someone to resume it (`remit task resume 1`)"
        async with hearing(at, WORK):
            await reached(at.gate)
            async with hearing(at, "The worker is busy") as heard:
                queued = await heard.until(repeated)
                assert (queued["state"], queued["waits_for"]) == ("pending", "a free worker")
            at.gate.open.set()


async def test_several_tasks_are_reported_in_turn(tmp_path: Path) -> None:
    async with play("memory:", tmp_path) as at:
        await at.hire()
        remit, heard = Remit(at.team.core, Caller(actor=ANN)), Heard()
        works = remit.attend("task_parallel", tasks=[WORK, "Ask", WORK])
        waiting = asyncio.create_task(_drained(works, heard))
        for task_id in ("1", "2", "3"):
            await heard.until(lambda word, it=task_id: repeated(word) and word["task_id"] == it)  # type: ignore[misc]
        waiting.cancel()
        await asyncio.wait({waiting})
        at.gate.open.set()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"owner": None}, "an agent (it has no owner)"),
        ({"status": "draft"}, "its activation"),
        ({"depends_on": ["1"]}, "task 1"),
        (
            {"schedule": {"not_before": "2999-01-01T00:00:00Z"}},
            "its start time, 2999-01-01T00:00:00.000000Z",
        ),
        ({"session_id": "s-1"}, "session s-1, to which it is assigned"),
    ],
)
async def test_a_task_that_cannot_start_tells_why(
    fields: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    async with play("memory:", tmp_path) as at:
        await at.create(owner=None)
        task = (await at.call("create_task", **{"title": "Later", "owner": "general"} | fields))[
            "task_id"
        ]
        remit, heard = Remit(at.team.core, Caller(actor=ANN)), Heard()
        items = remit.attend("task_output", task_id=task, wait_seconds=60)
        waiting = asyncio.create_task(_drained(items, heard))
        assert (await heard.until(repeated))["waits_for"] == expected
        waiting.cancel()
        await asyncio.wait({waiting})


@contextmanager
def _locked_file(url: str) -> Iterator[None]:
    lock = connect(url.removeprefix("sqlite:///"))
    lock.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        lock.close()


@asynccontextmanager
async def slow(url: str) -> AsyncIterator[None]:
    """A store that answers nothing that writes, and on PostgreSQL nothing at all, within the
    block.
    """
    if url.startswith("sqlite"):
        with _locked_file(url):
            yield
        return
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE remit.task IN ACCESS EXCLUSIVE MODE")
            yield
    finally:
        await connection.close()


@pytest.mark.parametrize("wait", [_library, _http_client, _rest_one, _mcp_http, _mcp_stdio, _relay])
async def test_a_call_talks_before_its_task_is_there(
    wait: Wait, durable_url: str, tmp_path: Path
) -> None:
    heard = Heard()
    async with play(durable_url, tmp_path) as at:
        at.gate.open.set()
        heard.may_call.clear()
        connecting = asyncio.create_task(wait(at, heard)) if wait in OVER_MCP else None
        # A process that starts opens the store first; its call comes later.
        if connecting is not None:
            await heard.connected.wait()
        async with slow(durable_url):
            heard.may_call.set()
            waiting = connecting or asyncio.create_task(wait(at, heard))
            await heard.more(REPEATS)
            assert all(
                "waiting" in str(word) or "no news yet" in str(word) for word in heard.words
            ), heard.words
        assert "Slow." in await waiting


async def test_a_call_talks_while_the_store_is_slow(durable_url: str, tmp_path: Path) -> None:
    async with play(durable_url, tmp_path) as at, hearing(at, WORK) as heard:
        await reached(at.gate)
        async with slow(durable_url):
            await heard.more(REPEATS)
        at.gate.open.set()
        await heard.until(lambda word: word["type"] == "end")


async def test_a_call_talks_while_the_store_is_away(tmp_path: Path) -> None:
    server = PostgresForTests()
    try:
        async with play(server.new_database(), tmp_path) as at, hearing(at, WORK) as heard:
            await reached(at.gate)
            await asyncio.to_thread(server.crash)
            await heard.more(REPEATS)
            await asyncio.to_thread(server.start)
            at.gate.open.set()
            await heard.until(lambda word: word["type"] == "end")
    finally:
        server.close()


async def test_a_late_refusal_is_an_item_of_the_stream(durable_url: str, tmp_path: Path) -> None:
    """A call that is refused at once has its own status.

    What is refused after a silence comes as an item.
    """
    heard = Heard()
    async with play(durable_url, tmp_path, workers=0) as at:
        async with slow(durable_url):
            waiting = asyncio.create_task(_streamed(at, heard))
            await heard.more(1)
        await waiting
    assert (heard.words[0]["type"], heard.words[-1]["type"]) == ("waiting", "error")
    assert heard.words[-1]["error"]["code"] == "UNAVAILABLE"


async def _streamed(at: Play, heard: Heard) -> None:
    async with listening(at.site, "/api/delegate", body={"objective": WORK}) as blocks:
        await _listened(blocks, heard)


# Plain JSON answers over REST: line breaks while nothing is ready.


Target = Callable[[Play], Any]


async def _plain_one(_: Play) -> tuple[str, str, Any]:
    return "POST", "/api/delegate", {"objective": WORK}


async def _plain_parallel(_: Play) -> tuple[str, str, Any]:
    return "POST", "/api/delegate/parallel", {"tasks": [WORK]}


async def _plain_launch(_: Play) -> tuple[str, str, Any]:
    return (
        "POST",
        "/api/delegate/launch",
        {"prompt": WORK, "description": WORK, "subagent_type": "general"},
    )


async def _plain_result(at: Play) -> tuple[str, str, Any]:
    task = (await at.call("task", objective=WORK, wait=False))["data"]["task_id"]
    return "GET", f"/api/tasks/{task}/result?wait=60", None


async def _plain_subtask(at: Play) -> tuple[str, str, Any]:
    parent = await at.create(owner=None)
    body = {"title": WORK, "owner": "general", "wait": "block"}
    return "POST", f"/api/tasks/{parent}/subtasks", body


@asynccontextmanager
async def asked(at: Play, target: Target) -> AsyncIterator[aiohttp.ClientResponse]:
    """A plain request, from when its answer begins."""
    method, path, body = await target(at)
    async with (
        aiohttp.ClientSession(headers=BEARER) as session,
        session.request(method, at.site.url + path, json=body) as response,
    ):
        yield response


async def _line_breaks(response: aiohttp.ClientResponse, count: int) -> None:
    assert await response.content.readexactly(count) == b"\n" * count


PLAIN: list[Target] = [_plain_one, _plain_parallel, _plain_launch, _plain_result, _plain_subtask]


@pytest.mark.parametrize("target", PLAIN)
async def test_a_plain_answer_sends_line_breaks_until_it_is_ready(
    target: Target, durable_url: str, tmp_path: Path
) -> None:
    async with play(durable_url, tmp_path) as at, asked(at, target) as response:
        assert (response.status, response.content_type) == (200, "application/json")
        await reached(at.gate)
        await _line_breaks(response, REPEATS)
        at.gate.open.set()
        answer = await response.json()
    assert "Slow." in str(answer)
    assert "error" not in answer or answer["error"] is None


@pytest.mark.parametrize("target", PLAIN)
async def test_a_plain_answer_in_time_is_sent_whole(
    target: Target, durable_url: str, tmp_path: Path
) -> None:
    async with play(durable_url, tmp_path) as at:
        at.site.core.progress_seconds = patient(20)
        at.gate.open.set()
        async with asked(at, target) as response:
            body = await response.read()
    assert response.headers["Content-Length"] == str(len(body))
    assert body.startswith(b"{")


async def test_a_plain_refusal_in_time_keeps_its_status(durable_url: str, tmp_path: Path) -> None:
    async def unknown(_: Play) -> tuple[str, str, Any]:
        return "POST", "/api/delegate", {"objective": WORK, "subagent_type": "nobody"}

    async with play(durable_url, tmp_path) as at:
        at.site.core.progress_seconds = patient(20)
        async with asked(at, unknown) as response:
            answer = await response.json()
    assert (response.status, answer["error"]["code"]) == (422, "INVALID_PARAM")
    assert "Content-Length" in response.headers


@pytest.mark.parametrize("target", [_plain_one, _plain_result])
async def test_an_error_after_the_headers_is_an_envelope_in_the_body(
    target: Target, durable_url: str, tmp_path: Path
) -> None:
    async with play(durable_url, tmp_path) as at, asked(at, target) as response:
        await reached(at.gate)
        await _line_breaks(response, 1)
        at.site.halt()
        answer = await response.json()
        at.gate.open.set()
    assert response.status == 200
    assert (answer["error"]["code"], answer["error"]["details"]["task_id"]) == ("UNAVAILABLE", "1")


@asynccontextmanager
async def taken_away(url: str, folder: Path) -> AsyncIterator[None]:
    """The store is not where it was."""
    if not url.startswith("postgresql"):
        file, aside = folder / "remit.db", folder / "aside.db"
        file.rename(aside)
        yield
        aside.rename(file)
        return
    name = url.partition("?")[0].rpartition("/")[2]
    connection = await asyncpg.connect(url.replace(f"/{name}?", "/postgres?"))
    gone = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1"
    try:
        await connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        await connection.execute(gone, name)
        await connection.execute(f"ALTER DATABASE {name} RENAME TO {name}_aside")
        yield
        await connection.execute(f"ALTER DATABASE {name}_aside RENAME TO {name}")
        await connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    finally:
        await connection.close()


@pytest.mark.parametrize("target", PLAIN)
async def test_a_late_failure_of_the_store_names_the_task(
    target: Target, durable_url: str, tmp_path: Path
) -> None:
    async with play(durable_url, tmp_path) as at, asked(at, target) as response:
        await reached(at.gate)
        await _line_breaks(response, 1)
        async with taken_away(durable_url, tmp_path):
            answer = await response.json()
        at.gate.open.set()
    expected = "2" if target is _plain_subtask else "1"
    assert answer["error"]["code"] in ("CONFLICT", "UNAVAILABLE")
    assert answer["error"]["details"]["task_id"] == expected
    if "data" in answer:
        assert answer["data"]["task_id"] == expected
        assert answer["data"]["status"] == "running"


async def _plain_mixed(_: Play) -> tuple[str, str, Any]:
    tasks = [WORK, {"objective": WORK, "wait": False}, "Ask", {"objective": ""}]
    return "POST", "/api/delegate/parallel", {"tasks": tasks}


async def _until_there(at: Play, task_id: str) -> None:
    async with at.team.core.store.watch() as bell:
        while task_id not in [task["id"] for task in (await at.call("list_tasks"))["tasks"]]:
            await bell.wait()


async def test_a_late_failure_names_every_task_that_the_call_created(
    durable_url: str, tmp_path: Path
) -> None:
    async with play(durable_url, tmp_path) as at, asked(at, _plain_mixed) as response:
        await reached(at.gate)
        await _line_breaks(response, 1)
        await _until_there(at, "3")
        await at.call("cancel_task", task_id="3")
        await _line_breaks(response, 2)
        async with taken_away(durable_url, tmp_path):
            answer = await response.json()
        at.gate.open.set()
    assert answer["error"]["details"]["task_ids"] == ["1", "2", "3"]
    assert answer["data"]["status"] == "running"


async def test_a_server_that_stops_names_every_task_that_the_call_created(
    durable_url: str, tmp_path: Path
) -> None:
    async with play(durable_url, tmp_path) as at, asked(at, _plain_mixed) as response:
        await reached(at.gate)
        await _until_there(at, "3")
        await at.call("cancel_task", task_id="3")
        at.site.halt()
        answer = await response.json()
        at.gate.open.set()
    assert answer["error"]["details"]["task_ids"] == ["1", "2", "3"]


async def test_one_error_of_the_store_reaches_each_call_in_its_own_envelope(
    tmp_path: Path,
) -> None:
    async with play(f"sqlite:///{tmp_path / 'remit.db'}", tmp_path) as at:
        lost = Unavailable("The store is gone.")
        at.site.core.waits.end(lambda **_: lost)
        async with asked(at, _plain_one) as first, asked(at, _plain_launch) as second:
            answers = [await first.json(), await second.json()]
        at.gate.open.set()
    assert [answer["data"]["task_id"] for answer in answers] == ["1", "2"]
    assert (lost.details, lost.around) == ({}, {})


async def test_a_plain_refusal_after_a_silence_is_an_envelope_in_the_body(
    durable_url: str, tmp_path: Path
) -> None:
    async with play(durable_url, tmp_path, workers=0) as at:
        async with slow(durable_url):
            asking = asked(at, _plain_one)
            response = await asking.__aenter__()
            await _line_breaks(response, 1)
        answer = json.loads(await response.read())
        await asking.__aexit__(None, None, None)
    assert (answer["status"], answer["error"]["code"]) == ("error", "UNAVAILABLE")


@pytest.mark.parametrize("target", [_plain_one, _plain_result])
async def test_disconnecting_from_a_plain_answer_cancels_nothing(
    target: Target, durable_url: str, tmp_path: Path
) -> None:
    async with play(durable_url, tmp_path) as at:
        async with asked(at, target) as response:
            await reached(at.gate)
            await _line_breaks(response, 1)
            response.close()
        at.gate.open.set()
        found = await at.call("task_output", task_id="1", wait_seconds=60)
    assert (found["data"]["status"], found["data"]["result"]) == ("completed", "Slow.")
