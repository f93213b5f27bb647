"""No surface can do what another refuses: the same calls give the same data and the same errors
on all of them.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from remit import Remit, TaskResult
from remit.api.methods import Operations
from remit.bootstrap import open_core, open_store
from remit.bootstrap.library import operator
from remit.bootstrap.local_host import WorkspaceHost
from remit.catalog import FOR_EVERYONE, OPERATIONS, Caller, call, lean_answer, lean_refusal
from remit.client import RemitClient
from remit.errors import RemitError
from remit.surfaces.http.rest import rest_routes
from remit.surfaces.mcp.server import mcp_server
from tests.surfaces.http import TOKEN, site
from tests.surfaces.story import STORY, TASK, Story

Call = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
REFUSED: Story = [
    ("create_task", {}),
    ("create_task", {"title": ""}),
    ("create_task", {"title": "x" * 257, "priority": 9, "steps": [{"title": "y" * 61}]}),
    ("create_task", {"title": "x", "owner": "nobody"}),
    ("create_task", {"title": "x", "titel": "y"}),
    ("create_task", {"title": "x", "metadata": json.loads("[" * 40 + "]" * 40)}),
    ("create_task", {"title": "nul\0"}),
    ("create_task", {"title": "x", "resources": [{"type": "file", "value": "relative"}]}),
    ("create_task", {"title": "x", "depends_on": ["99"]}),
    ("get_task", {"task_id": "99"}),
    ("update_task", {"task_id": "1", "expected_version": 99, "title": "y"}),
    ("complete_task", {"task_id": "1"}),
    ("update_step", {"task_id": "1", "index": 9, "done": True}),
    ("create_subtask", {"task_id": "1", "title": "x", "owner": "explore", "step_index": 7}),
    ("resume_task", {"task_id": "1"}),
    ("rerun_task", {"task_id": "1"}),
    ("respond", {"interaction_id": "1-q1", "answer": "x"}),
    ("get_guide", {"guide_id": "nope"}),
    ("get_agent", {"agent_id": "nope"}),
    ("list_tasks", {"cursor": "nonsense"}),
    ("list_tasks", {"scope": "mine"}),
    ("list_tasks", {"limit": 0}),
    ("list_tasks", {"status": "doing"}),
    ("task", {}),
    ("task", {"objective": "x", "subagent_type": "nobody"}),
    ("task_parallel", {"tasks": "x"}),
    ("task_parallel", {"tasks": {"objective": "x"}}),
    ("task_parallel", {"tasks": []}),
    ("Task", {"description": "x", "prompt": "x", "subagent_type": "general", "model": "huge"}),
    ("task_output", {"task_id": "99"}),
    ("task_output", {"task_id": "1", "offset": -1}),
    ("get_transcript", {"task_id": "99"}),
    ("cancel_all", {}),
    ("list_session_tasks", {"session_id": "s1", "role": "watching"}),
    ("list_session_tasks", {"session_id": "s1", "limit": 0}),
    ("list_session_tasks", {"session_id": "s1", "cursor": "nonsense"}),
    ("pre_request", {"session_id": ""}),
    ("pre_request", {"session": "s1"}),
]


@asynccontextmanager
async def catalogue(_: Path) -> AsyncIterator[Call]:
    async with open_core("memory:") as core:
        yield lambda name, sent: call(core, name, sent, Caller(actor=operator()))


@asynccontextmanager
async def for_models(_: Path) -> AsyncIterator[Call]:
    """The same answers as MCP clients read them."""
    async with open_core("memory:") as core:

        async def through(name: str, sent: dict[str, Any]) -> dict[str, Any]:
            try:
                return lean_answer(
                    OPERATIONS[name], sent, await call(core, name, sent, Caller(actor=operator()))
                )
            except RemitError as error:
                return lean_refusal(OPERATIONS[name], error.wire())

        yield through


async def _through_method(remit: Operations, name: str, sent: dict[str, Any]) -> dict[str, Any]:
    """Call an operation by its method, or by its name if it names a format.

    The JSON of its result.
    """
    if '"format"' in json.dumps(sent, default=str):
        return await remit.call(name, **sent)
    answer = await getattr(remit, name)(**sent)
    return dict(answer.envelope() if isinstance(answer, TaskResult) else answer.to_dict())


@asynccontextmanager
async def library(_: Path) -> AsyncIterator[Call]:
    async with Remit.open(database_url="memory:", worker=False) as remit:
        yield lambda name, sent: _through_method(remit, name, sent)


@asynccontextmanager
async def http(_: Path) -> AsyncIterator[Call]:
    async with (
        open_store("memory:") as store,
        site(store) as served,
        RemitClient(served.url, TOKEN) as client,
    ):
        yield lambda name, sent: _through_method(client, name, sent)


@asynccontextmanager
async def mcp(_: Path) -> AsyncIterator[Call]:
    async with (
        open_core("memory:") as core,
        Client(mcp_server(core, Caller(actor=operator()), "1")) as client,
    ):

        async def through(name: str, sent: dict[str, Any]) -> dict[str, Any]:
            result = await client.call_tool(name, sent)
            found: Any = result.structured_content
            return dict(found)

        yield through


@asynccontextmanager
async def command_line(folder: Path) -> AsyncIterator[Call]:
    """What `remit` stands on: reads that are answered at once, everything else through the
    catalogue.
    """
    host = WorkspaceHost({"workspace": str(folder)})
    host.init()
    yield lambda name, sent: asyncio.to_thread(host.call, name, sent)


SURFACES = {"library": library, "http": http, "mcp": mcp, "command line": command_line}


async def told(surface: Callable[[Path], Any], folder: Path, story: Story) -> list[Any]:
    """What each call of a story gives: its result, or its error as it goes over the wire.

    What differs by nature is masked.
    """
    answers: list[Any] = []
    async with surface(folder) as through:
        for name, sent in story:
            try:
                answers.append(masked(await through(name, sent)))
            except RemitError as error:
                answers.append(masked(error.wire()))
    return answers


def masked(value: Any) -> Any:
    text = json.dumps(value, sort_keys=True)
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", "UID", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", "NOW", text)
    text = text.replace(operator(), "user:ann").replace("user:ann", "USER")
    text = re.sub(r'"cwd": "[^"]*"', '"cwd": "CWD"', text)
    text = re.sub(r'"duration": [0-9.e-]+', '"duration": "SECONDS"', text)
    return json.loads(re.sub(r'"position": "\d+"', '"position": "P"', text))


def test_the_story_calls_every_operation() -> None:
    assert {name for name, _ in STORY + REFUSED} | {"complete_task", "respond"} == set(FOR_EVERYONE)


@pytest.mark.parametrize("surface", SURFACES.values(), ids=SURFACES.keys())
async def test_the_same_calls_give_the_same_data(
    surface: Callable[[Path], Any], tmp_path: Path
) -> None:
    expected = await told(for_models if surface is mcp else catalogue, tmp_path, STORY)
    assert not any(answer.get("error") for answer in expected)
    for (name, _), right, given in zip(
        STORY, expected, await told(surface, tmp_path, STORY), strict=True
    ):
        assert given == right, name
    notice = "Not granted: Edit (explore can never have it)."
    delegated = expected[-1].get("data", expected[-1])  # models read a lean form
    assert (expected[-2]["notice"], delegated["notice"]) == (notice, notice)


@pytest.mark.parametrize("surface", SURFACES.values(), ids=SURFACES.keys())
async def test_the_same_mistakes_give_the_same_errors(
    surface: Callable[[Path], Any], tmp_path: Path
) -> None:
    story: Story = [("create_task", dict(TASK)), *REFUSED, ("list_tasks", {})]
    expected = await told(for_models if surface is mcp else catalogue, tmp_path, story)
    assert all("error" in answer for answer in expected[1:-1])
    for (name, sent), right, given in zip(
        story, expected, await told(surface, tmp_path, story), strict=True
    ):
        assert given == right, (name, sent)


async def test_every_surface_offers_exactly_the_table() -> None:
    own = {name for name, operation in FOR_EVERYONE.items() if not operation.alias_of}
    async with open_core("memory:") as core:
        routes = {route.name for route in rest_routes(core, Caller(actor="user:ann"))}
        async with Client(mcp_server(core, Caller(actor="user:ann"), "1", "all")) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
    assert {name for name in routes if name in OPERATIONS} == own
    assert tools == set(FOR_EVERYONE)
    assert all(hasattr(surface, name) for surface in (Remit, RemitClient) for name in FOR_EVERYONE)
    assert not any(
        hasattr(surface, name)
        for surface in (Remit, RemitClient)
        for name in OPERATIONS.keys() - FOR_EVERYONE.keys()
    )


def test_every_operation_has_a_command() -> None:
    source = "\n".join(path.read_text() for path in Path("src/remit/surfaces/cli").rglob("*.py"))
    named = {name for name in FOR_EVERYONE if f'"{name}"' in source}
    # `remit task run` waits as well, so its host calls run_task after it has recorded that.
    assert named | {"mark_task_complete", "Task", "run_task"} == set(FOR_EVERYONE)
