"""The size of MCP messages: the tools of a profile, small schemas, and results without
repetition.
"""

import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import aiohttp
import jsonschema_rs
import mcp_types as wire
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from scripts.weight import MCP, weight_of_profile

from remit.adapters.clock import SystemClock
from remit.app.agents.registry import Agent, AgentRegistry
from remit.app.context import AppContext, Caller
from remit.bootstrap import open_store
from remit.catalog import FOR_EVERYONE, PROFILES, tools_of
from remit.surfaces.mcp.server import mcp_http, mcp_server
from tests.agents.schemas import NOISE, RESULT, keys
from tests.agents.stage import Gate, calls, results, says, stage
from tests.patience import patient
from tests.people import ANN
from tests.surfaces.mcp_http import HELLO, JSON, MODERN, MODES, served
from tests.surfaces.shell import Shell
from tests.surfaces.shell import served as served_by_command

CALLER = Caller(actor=ANN)
NAMED_BY_SOURCES = {
    *(
        "create_task",
        "update_task",
        "get_task",
        "list_tasks",
        "assign_task",
        "mark_task_complete",
        "attach_tsg",
    ),
    *(
        "complete_task",
        "cancel_task",
        "list_history",
        "update_steps",
        "update_step",
        "create_subtask",
    ),
    *("add_resource", "remove_resource", "task", "task_parallel", "Task"),
}
WITH_THEM = {"respond", "list_interactions", "task_output", "send_message"}
CHANGE_FIELDS = {"id", "state", "version"}


@pytest.fixture
async def core() -> AsyncIterator[AppContext]:
    async with open_store("memory:") as store:
        yield AppContext(store, SystemClock(), AgentRegistry())


async def listed(core: AppContext, tools: str = "standard", mode: str = MODERN) -> list[wire.Tool]:
    async with Client(mcp_server(core, CALLER, "1", tools), mode=mode) as client:
        return (await client.list_tools()).tools


async def told(client: Client, tool: str, **fields: Any) -> dict[str, Any]:
    """What a tool returns; its text says the same."""
    result = await client.call_tool(tool, fields)
    (text,) = result.content
    assert isinstance(text, wire.TextContent)
    if not result.is_error:
        assert json.loads(text.text) == result.structured_content
    return cast("dict[str, Any]", result.structured_content)


@pytest.mark.parametrize("profile", list(PROFILES))
async def test_a_profile_is_within_its_bounds(profile: str) -> None:
    weight = await weight_of_profile(profile)
    assert weight.within(MCP[profile]), weight


@pytest.mark.parametrize("mode", MODES)
async def test_the_standard_profile_has_what_the_sources_name(core: AppContext, mode: str) -> None:
    names = {tool.name for tool in await listed(core, mode=mode)}
    assert names >= NAMED_BY_SOURCES | WITH_THEM
    assert names >= set(PROFILES["core"])


async def test_tools_can_be_named_one_by_one(core: AppContext) -> None:
    assert [tool.name for tool in await listed(core, "get_events, task")] == ["get_events", "task"]
    assert [tool.name for tool in await listed(core, "core,respond")] == [
        *PROFILES["core"],
        "respond",
    ]
    assert [tool.name for tool in await listed(core, "all")] == list(FOR_EVERYONE)


async def test_no_schema_has_noise(core: AppContext) -> None:
    for tool in await listed(core, "all"):
        assert not NOISE & set(keys(tool.input_schema)), tool.name
        assert "description" not in tool.input_schema
        assert "format" not in tool.input_schema["properties"], tool.name
        assert tool.output_schema is not None
        jsonschema_rs.Draft202012Validator(tool.input_schema)
        jsonschema_rs.Draft202012Validator(tool.output_schema)
    task = next(tool for tool in await listed(core) if tool.name == "task")
    assert task.input_schema["required"] == ["objective"]
    assert "prompt" not in task.input_schema["properties"], "another name for objective"


@pytest.mark.parametrize("mode", MODES)
async def test_unlisted_tools_can_be_called(core: AppContext, mode: str) -> None:
    async with Client(mcp_server(core, CALLER, "1", "core"), mode=mode) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == set(PROFILES["core"])
        made = await told(client, "create_task", title="Write", owner="general")
        assert (await told(client, "get_events", task_id=made["task_id"]))["events"][0][
            "type"
        ] == "TaskCreated"
        assert (await told(client, "pause_task", task_id=made["task_id"]))["task"][
            "state"
        ] == "paused"


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_over_http_chooses_by_its_address(core: AppContext, mode: str) -> None:
    app = mcp_http(mcp_server(core, CALLER, "1"))
    async with app.run(), served(app) as url:
        for tools, expected in (
            ("", PROFILES["standard"]),
            ("?tools=core", PROFILES["core"]),
            ("?tools=task,respond", ("task", "respond")),
        ):
            async with Client(f"{url}{tools}", mode=mode) as client:
                assert [tool.name for tool in (await client.list_tools()).tools] == list(expected)
                assert "tasks" in await told(client, "list_ready")


def named_in(text: str | None) -> set[str]:
    """The tools that a text names; `task` and `Task` are words as well."""
    words = set(re.findall(r"\w+", text or ""))
    return words & (set(FOR_EVERYONE) - {"task", "Task"})


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("tools", ["core", "standard", "all", "task,respond", "get_task"])
async def test_instructions_name_only_listed_tools(core: AppContext, mode: str, tools: str) -> None:
    shown = set(tools_of(tools))
    async with Client(mcp_server(core, CALLER, "1", tools), mode=mode) as client:
        said = client.instructions or ""
    advised = {"task_parallel", "create_task", "get_events", "respond", "list_interactions"}
    assert advised & shown <= named_in(said) <= shown
    assert ("`remit mcp --tools all`" in said) is (tools != "all")
    app = mcp_http(mcp_server(core, CALLER, "1"))
    async with app.run(), served(app) as url, Client(f"{url}?tools={tools}", mode=mode) as client:
        said = client.instructions or ""
    assert advised & shown <= named_in(said) <= shown
    assert "remit mcp" not in said
    assert ("`/mcp?tools=all`" in said) is (tools != "all")
    assert ("`remit serve --mcp-tools all`" in said) is (tools != "all")


async def test_an_unknown_name_is_refused_with_suggestions(core: AppContext) -> None:
    app = mcp_http(mcp_server(core, CALLER, "1"))
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    async with app.run(), served(app) as url, aiohttp.ClientSession(headers=JSON) as http:
        for wrong, meant in (("cor", "core"), ("task,get_tusk", "get_task")):
            async with http.post(f"{url}?tools={wrong}", json=listing) as answer:
                error = (await answer.json())["error"]
            assert (answer.status, error["code"]) == (422, "INVALID_PARAM")
            assert f"Did you mean {meant}?" in error["message"]


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("profile=core", "profile: unknown query parameter 'profile'. Available: tools."),
        ("tools=core&x=1", "x: unknown query parameter 'x'"),
        ("x", "x: unknown query parameter 'x'"),
        ("tools=", "tools: is empty"),
        ("tools=core&tools=all", "tools: is given twice"),
    ],
)
async def test_an_address_with_another_query_is_refused(
    core: AppContext, query: str, problem: str
) -> None:
    app = mcp_http(mcp_server(core, CALLER, "1"))
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    async with app.run(), served(app) as url, aiohttp.ClientSession(headers=JSON) as http:
        async with http.post(f"{url}?{query}", json=listing) as answer:
            error = (await answer.json())["error"]
        assert (answer.status, error["code"]) == (422, "INVALID_PARAM")
        assert error["message"].startswith(problem)


async def test_a_change_says_what_changed_and_not_the_whole_task(core: AppContext) -> None:
    async with Client(mcp_server(core, CALLER, "1"), mode=MODERN) as client:
        made = await told(
            client, "create_task", title="Write", instructions="Long. " * 1000, owner="general"
        )
        changes = [
            await told(client, "update_task", task_id="1", instructions="Longer. " * 1000),
            await told(client, "update_steps", task_id="1", steps=["Read", "Write"]),
            await told(client, "update_step", task_id="1", index=0, done=True),
            await told(
                client, "add_resource", task_id="1", type="url", value="https://example.org/"
            ),
            await told(client, "complete_task", task_id="1", summary="Written."),
        ]
        whole = await told(client, "get_task", task_id="1")
    assert set(made) == {"task_id", "task"}
    assert set(changes[0]) == {"success", "update_id", "update_ids", "task"}
    assert all(set(change["task"]) == CHANGE_FIELDS for change in (made, *changes))
    assert changes[-1]["task"] == {name: whole[name] for name in CHANGE_FIELDS}
    assert {"instructions", "steps", "resources", "usage", "uid"} <= set(whole), "a read is whole"


async def test_a_result_says_each_thing_once(any_url: str, tmp_path: Path) -> None:
    def rule(request: Any) -> Any:
        if "fail" in request.messages[0].text:
            return calls(("LS", {"path": "."}))
        return says("Found it.")

    async with (
        stage(any_url, tmp_path, rule) as at,
        Client(mcp_server(at.team.core, CALLER, "1"), mode=MODERN) as client,
    ):
        found = await told(client, "task", objective="Look", subagent_type="explore")
        several = await told(
            client,
            "task_parallel",
            tasks=["Look", {"objective": "fail", "limits": {"max_turns": 1}}, {}],
        )
        again = await told(client, "task_output", task_id="1")
        exact = await told(
            client, "Task", description="A look", prompt="Look", subagent_type="explore"
        )
        envelope = await told(client, "task", objective="Look", format="envelope")
        flat = await told(client, "task", objective="Look", format="flat")
        refused = await told(client, "task", objective="Look", subagent_type="nobody")
    assert list(found) == RESULT
    assert (found["task_id"], found["status"], found["result"]) == ("1", "completed", "Found it.")
    assert found["model_used"] == "light (scripted)"
    assert json.dumps(found).count("Found it.") == 1
    assert again == found
    done, failed, wrong = several["results"]
    assert list(done) == RESULT
    assert (failed["status"], failed["error"]["code"], failed["result"]) == (
        "failed",
        "LIMIT_EXCEEDED",
        "",
    )
    assert (list(wrong), list(wrong["error"])) == (["status", "error"], ["code", "message"])
    assert (wrong["status"], wrong["error"]["code"]) == ("failed", "INVALID_PARAM")
    assert list(exact) == list(envelope) == ["status", "data", "text", "stats", "context"]
    assert exact["text"] == "Subagent (explore, light) completed.\n\nFound it."
    assert exact["data"]["model_used"] == exact["stats"]["model"] == "light (scripted)"
    assert set(flat) == {
        "task_id",
        "objective",
        "agent_type",
        "status",
        "result",
        "error",
        "duration",
        "started_at",
        "completed_at",
    }
    assert (refused["status"], refused["error"]["code"]) == ("failed", "INVALID_PARAM")
    assert not {"data", "text", "stats", "context"} & set(refused)


async def test_a_receipt_says_how_to_get_the_result(any_url: str, tmp_path: Path) -> None:
    gate = Gate()
    async with (
        stage(any_url, tmp_path, lambda _: gate.then(says("Found it."))) as at,
        Client(mcp_server(at.team.core, CALLER, "1"), mode=MODERN) as client,
    ):
        one = await told(client, "task", objective="Look", wait=False)
        items = [{"objective": "Look", "wait": False}]
        (two,) = (await told(client, "task_parallel", tasks=items))["results"]
        for receipt in (one, two):
            assert list(receipt) == ["task_id", "status", "note"]
            assert receipt["note"].startswith("Get its result with task_output")
        gate.open.set()
        found = await told(client, "task_output", task_id=one["task_id"], wait_seconds=patient(20))
        assert list(found) == RESULT


OPTIONS = {"question": "Red or blue?", "options": ["Red", "Blue"]}


async def test_a_task_that_waits_for_a_person_shows_its_question(
    any_url: str, tmp_path: Path
) -> None:
    def rule(request: Any) -> Any:
        if request.agent == "explore":
            return says("Blue it is.") if results(request) else calls(("ask_user", OPTIONS))
        work = {"objective": "Look", "subagent_type": "explore"}
        return says("Done.") if results(request) else calls(("task", work))

    async with (
        stage(any_url, tmp_path, rule) as at,
        Client(mcp_server(at.team.core, CALLER, "1"), mode=MODERN) as client,
    ):
        own = await told(client, "task", objective="Ask", subagent_type="explore", wait=False)
        below = await told(client, "task", objective="Lead", subagent_type="build", wait=False)
        for asking, asked_by in ((own["task_id"], own["task_id"]), (below["task_id"], "3")):
            await at.waiting(asking)
            await at.waiting(asked_by)
            found = await told(client, "task_output", task_id=asking)
            (question,) = found["questions"]
            assert question == OPTIONS | {"interaction_id": f"{asked_by}-q1", "task_id": asked_by}
            assert found["status"] == "running"
            assert "respond" in found["note"]
            answer = {"interaction_id": question["interaction_id"], "answer": "Blue"}
            await told(client, "respond", **answer)
            await at.team.ended(asking)
            assert "questions" not in await told(client, "task_output", task_id=asking)


async def test_a_subtask_that_was_waited_for_comes_with_its_result(
    any_url: str, tmp_path: Path
) -> None:
    async with (
        stage(any_url, tmp_path, lambda _: says("Found it.")) as at,
        Client(mcp_server(at.team.core, CALLER, "1"), mode=MODERN) as client,
    ):
        parent = await told(client, "create_task", title="Lead", status="draft")
        part = await told(
            client,
            "create_subtask",
            task_id=parent["task_id"],
            title="Look",
            owner="explore",
            wait="block",
        )
    assert (part["task"]["state"], part["result"]) == ("done", "Found it.")
    assert set(part["task"]) == CHANGE_FIELDS


def on_streams(shell: Shell, *arguments: str, **variables: str) -> Client:
    """A client of a `remit mcp` process."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "remit", "mcp", *arguments],
        cwd=str(shell.folder),
        env=shell.env | variables,
    )
    return Client(stdio_client(server), mode=MODERN)


async def test_the_command_chooses_the_tools(shell: Shell) -> None:
    wanted = [
        (on_streams(shell), PROFILES["standard"]),
        (on_streams(shell, "--tools", "core"), PROFILES["core"]),
        (on_streams(shell, "--tools", "task,get_events"), ("task", "get_events")),
        (on_streams(shell, REMIT_MCP_TOOLS="core"), PROFILES["core"]),
    ]
    for opened, expected in wanted:
        async with opened as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == list(expected)
    ran = shell.remit("mcp", "--tools", "standart")
    assert ran.code == 2
    assert "unknown tool or profile 'standart'. Did you mean standard?" in ran.err


async def test_a_server_has_a_default_and_its_clients_choose(shell: Shell) -> None:
    token = shell.remit("token", "show").out.strip()
    headers = {**JSON, "authorization": f"Bearer {token}"}
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    with served_by_command(shell, "--mcp-tools", "core", "--no-worker") as server:
        async with aiohttp.ClientSession(headers=headers) as http:
            async with http.post(f"{server.url}/mcp", json=HELLO) as answer:
                session = {"mcp-session-id": answer.headers["mcp-session-id"]}
            for query, expected in (("", "core"), ("?tools=all", "all")):
                async with http.post(
                    f"{server.url}/mcp{query}", json=listing, headers=session
                ) as answer:
                    tools = (await answer.json())["result"]["tools"]
                assert [tool["name"] for tool in tools] == list(PROFILES[expected])
            async with http.post(f"{server.url}/mcp?tools=cor", json=HELLO) as answer:
                assert (answer.status, (await answer.json())["error"]["code"]) == (
                    422,
                    "INVALID_PARAM",
                )


async def test_a_list_of_agents_is_a_page_with_one_line_for_each() -> None:
    crowd = tuple(
        Agent(id=f"reviewer-{number:03}", description="Reviews everything.\n" * 40)
        for number in range(150)
    )
    async with open_store("memory:") as store:
        core = AppContext(store, SystemClock(), AgentRegistry(crowd))
        async with Client(mcp_server(core, CALLER, "1"), mode=MODERN) as client:
            first = await told(client, "list_agents")
            assert len(json.dumps(first)) < 20_000
            rest = await told(client, "list_agents", cursor=first["next_cursor"])
            few = await told(client, "list_agents", limit=3)
    assert [agent["id"] for agent in first["agents"] + rest["agents"]] == [
        agent.id for agent in crowd
    ]
    assert (len(first["agents"]), rest["next_cursor"], len(few["agents"])) == (100, None, 3)
    assert all(set(agent) == {"id", "description"} for agent in first["agents"])
