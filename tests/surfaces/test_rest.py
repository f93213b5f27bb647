"""Every operation at its path, and nothing else: REST says what the catalogue says."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.routing import Route

from remit.catalog import FOR_EVERYONE
from remit.domain.projection.follow_up_jobs import Job
from remit.errors import Corrupt, InvalidParam, Unavailable
from remit.ports import Unit, WorkerRow
from remit.surfaces.http.openapi import REQUESTS
from remit.surfaces.http.rest import _CONVERT, rest_routes
from tests.patience import patient
from tests.surfaces.http import CALLER, House, Silent, house

CONTRACT = {
    ("POST", "/api/tasks"): "create_task",
    ("GET", "/api/tasks"): "list_tasks",
    ("GET", "/api/tasks/history"): "list_history",
    ("GET", "/api/tasks/ready"): "list_ready",
    ("GET", "/api/tasks/{task_id}"): "get_task",
    ("PATCH", "/api/tasks/{task_id}"): "update_task",
    ("POST", "/api/tasks/{task_id}/complete"): "complete_task",
    ("POST", "/api/tasks/{task_id}/cancel"): "cancel_task",
    ("POST", "/api/tasks/{task_id}/run"): "run_task",
    ("POST", "/api/tasks/{task_id}/pause"): "pause_task",
    ("POST", "/api/tasks/{task_id}/resume"): "resume_task",
    ("POST", "/api/tasks/{task_id}/subtasks"): "create_subtask",
    ("POST", "/api/tasks/{task_id}/assign"): "assign_task",
    ("POST", "/api/tasks/{task_id}/guides"): "attach_tsg",
    ("POST", "/api/tasks/{task_id}/messages"): "send_message",
    ("POST", "/api/tasks/{task_id}/fail"): "fail_task",
    ("POST", "/api/tasks/{task_id}/rerun"): "rerun_task",
    ("POST", "/api/tasks/{task_id}/criteria/{criterion_id}/waive"): "waive_criterion",
    ("PUT", "/api/tasks/{task_id}/steps"): "update_steps",
    ("PATCH", "/api/tasks/{task_id}/steps/{index}"): "update_step",
    ("POST", "/api/tasks/{task_id}/resources"): "add_resource",
    ("DELETE", "/api/tasks/{task_id}/resources/{index}"): "remove_resource",
    ("GET", "/api/tasks/{task_id}/events"): "get_events",
    ("GET", "/api/tasks/{task_id}/updates"): "list_updates",
    ("GET", "/api/interactions"): "list_interactions",
    ("POST", "/api/interactions/{interaction_id}/respond"): "respond",
    ("GET", "/api/notifications"): "list_notifications",
    ("GET", "/api/guides"): "list_guides",
    ("POST", "/api/guides"): "create_guide",
    ("GET", "/api/guides/{guide_id}"): "get_guide",
    ("GET", "/api/agents"): "list_agents",
    ("GET", "/api/agents/{agent_id}"): "get_agent",
    ("GET", "/api/tasks/{task_id}/transcript"): "get_transcript",
    ("GET", "/api/tasks/{task_id}/result"): "task_output",
    ("POST", "/api/delegate"): "task",
    ("POST", "/api/delegate/parallel"): "task_parallel",
    ("GET", "/api/sessions/{session_id}/tasks"): "list_session_tasks",
    ("POST", "/api/sessions/{session_id}/pre-request"): "pre_request",
    ("POST", "/api/sessions/{session_id}/cancel"): "cancel_all",
    ("GET", "/api/events"): "api/events",
    ("GET", "/healthz"): "healthz",
    ("GET", "/readyz"): "readyz",
    ("GET", "/metrics"): "metrics",
    ("GET", "/openapi.json"): "openapi.json",
}
"""Section 10 of the contract: everything that is at a path."""
WITHOUT_WAITING: dict[str, dict[str, Any]] = {
    "task": {"wait": False},
    "task_parallel": {"tasks": [{"objective": ""}]},
}
BY_NAME = {name: place for place, name in CONTRACT.items() if name in FOR_EVERYONE}


@pytest.fixture
async def home() -> AsyncIterator[House]:
    async with house() as opened:
        yield opened


def _routes(home: House) -> list[Route]:
    return rest_routes(home.core, CALLER)


async def test_each_path_of_the_contract_is_served(home: House) -> None:
    made = {
        (next(iter((route.methods or set()) - {"HEAD"})), route.path): route.name
        for route in _routes(home)
    }
    assert {place: made.get(place) for place in CONTRACT} == CONTRACT


async def test_every_operation_has_one_route_and_an_alias_has_none(home: House) -> None:
    names = sorted(route.name for route in _routes(home))
    originals = [
        name
        for name, operation in FOR_EVERYONE.items()
        if operation.path and not operation.alias_of
    ]
    assert names == sorted(
        [*originals, "api/events", "healthz", "metrics", "readyz", "openapi.json"]
    )


async def _prepared(home: House, name: str) -> dict[str, Any]:
    """Path fields for an operation, in a store where its example makes sense."""
    await home.call(
        "create_guide",
        **REQUESTS["create_guide"]
        | {"id": "seen-before" if name == "create_guide" else "flaky-tests"},
    )
    fields = {
        **REQUESTS["create_task"],
        "resources": [{"type": "url", "value": "https://example.com"}],
    }
    if "session" in BY_NAME[name][1]:
        fields |= {"session_id": "s1", "parent_session": "s1"}
    task_id = await home.create(**fields)
    if name == "resume_task":
        await home.call("pause_task", task_id=task_id)
    if name == "rerun_task":
        await home.call("fail_task", task_id=task_id, message="It rained.")
    if name == "respond":
        await _asked(home, task_id)
    places = {
        "task_id": task_id,
        "criterion_id": "c1",
        "index": 0,
        "interaction_id": f"{task_id}-q1",
        "guide_id": "flaky-tests",
    }
    return places | {"agent_id": "general", "session_id": "s1"}


async def _asked(home: House, task_id: str) -> None:
    from remit.domain.task import commands as cmd

    started = await home.core.service.do(
        cmd.StartRun, {"task_id": task_id, "worker": "w1"}, "system:engine"
    )
    assert started.task is not None
    assert started.task.run is not None
    await home.core.service.do(
        cmd.AskUser,
        {"task_id": task_id, "question": "Really?"},
        "agent:general",
        started.task.run.id,
    )


@pytest.mark.parametrize("name", BY_NAME)
async def test_each_operation_does_over_rest_what_it_does_directly(name: str, home: House) -> None:
    method, path = BY_NAME[name]
    places = await _prepared(home, name)
    in_path = {field: places[field] for field in re.findall(r"{(\w+)}", path)}
    body = REQUESTS.get(name, {}) | WITHOUT_WAITING.get(name, {})
    if name == "update_task":
        body = {"instructions": body["instructions"]}
    target = path.format(**in_path)
    over_rest = await home.ask(method, target, body if method not in ("GET", "DELETE") else None)
    assert over_rest.status == 200, over_rest.body
    assert over_rest.headers["content-type"] == "application/json"
    async with house() as other:
        await _prepared(other, name)
        direct = await other.call(name, **in_path, **body)
    assert _timeless(over_rest.json) == _timeless(direct)


def _timeless(value: Any) -> Any:
    text = json.dumps(value)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "<instant>", text)
    return json.loads(re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<uid>", text))


async def test_the_wait_for_a_result_has_a_shorter_name_too(home: House) -> None:
    task_id = await home.create()
    results = [
        (await home.ask("GET", f"/api/tasks/{task_id}/result{query}")).json
        for query in ("?wait=0.01", "?wait_seconds=0.01")
    ]
    assert results[0] == results[1]
    assert results[0]["context"]["params_input"]["wait_seconds"] == 0.01
    await home.call("fail_task", task_id=task_id, message="It rained.")
    assert (await home.ask("GET", f"/api/tasks/{task_id}/result?wait=60")).json["data"][
        "status"
    ] == "failed"
    for query in ("wait=long", "wait=1&wait_seconds=1", "wait=-1"):
        assert (
            await home.ask("GET", f"/api/tasks/{task_id}/result?{query}")
        ).code == "INVALID_PARAM"
    assert (await home.ask("GET", f"/api/tasks/{task_id}?wait=1")).code == "INVALID_PARAM"


# Fields.


@pytest.mark.parametrize("ref", ["{id}", "%23{id}", "{uid}"])
async def test_a_task_is_found_by_each_of_its_names(ref: str, home: House) -> None:
    task = await home.call("get_task", task_id=await home.create())
    assert (await home.ask("GET", f"/api/tasks/{ref.format(**task)}")).json["id"] == task["id"]


async def test_numbers_in_a_query_are_read_as_the_schema_says(home: House) -> None:
    for _ in range(3):
        await home.create()
    assert len((await home.ask("GET", "/api/tasks?limit=2")).json["tasks"]) == 2


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=two", "limit"),
        ("limit=1_0", "limit"),
        ("limit=%D9%A1", "limit"),
        ("limit=", "limit"),
        ("limit=99999999999999999999999999", "limit"),
        ("limit=0", "limit"),
        ("limit=NaN", "limit"),
        ("owner=", "owner"),
        ("nobody=1", "nobody"),
        ("limit=1&limit=1", "query"),
        ("owner=%FF", "query"),
        ("label=%00", "label"),
        ("&".join(f"f{n}=1" for n in range(65)), "query"),
    ],
)
async def test_a_query_that_cannot_be_used_names_its_field(
    query: str, field: str, home: House
) -> None:
    answer = await home.ask("GET", f"/api/tasks?{query}")
    assert (answer.status, answer.code) == (422, "INVALID_PARAM")
    assert answer.json["error"]["details"]["fields"][0]["field"] == field


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("integer", "-7", -7),
        ("number", "1.5", 1.5),
        ("number", "-2", -2.0),
        ("boolean", "true", True),
        ("boolean", "false", False),
    ],
)
def test_text_is_read_as_its_type(kind: str, text: str, value: object) -> None:
    assert _CONVERT[kind]("field", text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("number", "inf"),
        ("number", "1e9"),
        ("number", ""),
        ("boolean", "True"),
        ("boolean", "1"),
        ("integer", "1.0"),
    ],
)
def test_text_of_another_type_is_refused(kind: str, text: str) -> None:
    with pytest.raises(InvalidParam, match="field"):
        _CONVERT[kind]("field", text)


async def test_path_and_body_must_not_disagree(home: House) -> None:
    task_id = await home.create(steps=["One"])
    other = await home.create()
    assert (
        await home.ask("POST", f"/api/tasks/{task_id}/pause", {"task_id": other})
    ).code == "INVALID_PARAM"
    assert (
        await home.ask("PATCH", f"/api/tasks/{task_id}/steps/0", {"index": 1, "done": True})
    ).code == "INVALID_PARAM"
    assert (await home.ask("GET", f"/api/tasks/{task_id}?task_id={other}")).code == "INVALID_PARAM"
    assert (
        await home.ask(
            "PATCH",
            f"/api/tasks/{task_id}/steps/0",
            {"index": 0, "task_id": int(task_id), "done": True},
        )
    ).status == 200
    assert (await home.call("get_task", task_id=other))["state"] == "pending"


async def test_a_field_of_the_body_in_the_query_is_refused(home: House) -> None:
    answer = await home.ask("POST", "/api/tasks?title=x", {"title": "x"})
    assert (answer.code, answer.json["error"]["details"]["fields"][0]["field"]) == (
        "INVALID_PARAM",
        "title",
    )


async def test_a_body_where_none_is_read_is_refused(home: House) -> None:
    task_id = await home.create()
    assert (
        await home.ask("GET", f"/api/tasks/{task_id}", {"task_id": task_id})
    ).code == "INVALID_PARAM"


async def test_an_index_that_is_not_a_number_is_refused(home: House) -> None:
    answer = await home.ask(
        "PATCH", f"/api/tasks/{await home.create()}/steps/first", {"done": True}
    )
    assert (answer.status, answer.code) == (422, "INVALID_PARAM")


# Hostile bodies.

HOSTILE = {
    "NaN": b'{"title": "x", "limits": {"max_cost": NaN}}',
    "infinity": b'{"title": "x", "metadata": {"a": -Infinity}}',
    "overflow": b'{"title": "x", "metadata": {"a": 1e999}}',
    "lone surrogate": b'{"title": "\\ud800"}',
    "lone surrogate as key": b'{"title": "x", "metadata": {"\\udfff": 1}}',
    "NUL": b'{"title": "a\\u0000b"}',
    "raw control": b'{"title": "a\nb"}',
    "900 levels": b'{"title": "x", "metadata": {"a": ' + b"[" * 900 + b"]" * 900 + b"}}",
    "100,000 levels": b'{"title": "x", "metadata": ' + b'{"a":' * 100_000,
    "duplicate keys": b'{"title": "x", "title": "y"}',
    "duplicate keys inside": b'{"title": "x", "metadata": {"a": 1, "a": 1}}',
    "a list": b'[{"title": "x"}]',
    "text": b'"title"',
    "null": b"null",
    "nothing but space": b" ",
    "not UTF-8": b'{"title": "\xff"}',
    "UTF-16": '{"title": "x"}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"title": "x"}',
    "cut off": b'{"title": "x"',
    "two values": b'{"title": "x"}{"title": "y"}',
    "a huge number": b'{"title": "x", "priority": ' + b"9" * 5000 + b"}",
    "beyond 64 bits": b'{"title": "x", "metadata": {"a": 9223372036854775808}}',
    "unknown field": b'{"title": "x", "__class__": "y"}',
    "a form": b"title=x",
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_body_is_refused_and_stores_nothing(name: str, home: House) -> None:
    task_id = await home.create()
    before = await home.store.tail()
    for method, path in (
        ("POST", "/api/tasks"),
        ("PATCH", f"/api/tasks/{task_id}"),
        ("POST", f"/api/tasks/{task_id}/complete"),
    ):
        answer = await home.ask(method, path, raw=HOSTILE[name])
        assert (answer.status, answer.code) == (422, "INVALID_PARAM"), answer.body
    assert await home.store.tail() == before


async def test_any_text_comes_back_as_it_was(home: House) -> None:
    title = "é \u2028 \U0001f600 \u202e </script> \x1b[31m"
    answer = await home.ask("POST", "/api/tasks", {"title": title})
    assert answer.json["task"]["title"] == title
    assert "\U0001f600".encode() in answer.body
    assert b'": ' not in answer.body


# Errors, and what only HTTP has.


async def test_errors_have_the_status_and_the_words_of_the_catalogue(home: House) -> None:
    missing = await home.ask("GET", "/api/tasks/999")
    assert (missing.status, missing.code) == (404, "NOT_FOUND")
    done = await home.create()
    await home.call("complete_task", task_id=done)
    again = await home.ask("POST", f"/api/tasks/{done}/complete", {})
    assert (again.status, again.code) == (409, "CONFLICT")
    unknown = await home.ask("POST", "/api/tasks", {"title": "x", "owner": "nobody"})
    assert (unknown.status, unknown.code) == (422, "INVALID_PARAM")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/api",
        "/api/nothing",
        "/api/tasks/",
        "/api/tasks/1/nothing",
        "/api/tasks/1%2F2",
        "//api/tasks",
        "/API/tasks",
    ],
)
async def test_an_unknown_path_is_not_found_in_our_shape(path: str, home: House) -> None:
    answer = await home.ask("GET", path)
    assert (answer.status, answer.code) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/api/tasks", "GET, HEAD, POST"),
        ("POST", "/api/tasks/1", "GET, HEAD, PATCH"),
        ("GET", "/api/tasks/1/pause", "POST"),
        ("OPTIONS", "/api/guides", "GET, HEAD, POST"),
        ("TRACE", "/healthz", "GET, HEAD"),
    ],
)
async def test_a_wrong_method_is_refused_with_the_right_ones(
    method: str, path: str, allowed: str, home: House
) -> None:
    answer = await home.ask(method, path)
    assert (answer.status, answer.code, answer.headers["allow"]) == (405, "INVALID_PARAM", allowed)


async def test_health_and_readiness(home: House) -> None:
    assert (await home.ask("GET", "/healthz")).json == {"status": "ok"}
    assert (await home.ask("GET", "/readyz")).json == {"status": "ok", "workers": [], "queues": []}


async def test_readiness_and_metrics_show_workers_and_queues(home: House) -> None:
    trouble = {"endpoint": "http://model/v1", "agent": None, "circuit": "open", "failures": 10}
    row = WorkerRow(
        "w1",
        "host",
        7,
        "0.1",
        "general,plan",
        8,
        "2026-01-01T06:00:00.000000Z",
        2,
        models=json.dumps([trouble]),
    )
    home.core.lease_seconds = patient(60)
    await home.store.beat(row, [])
    await home.store.commit(Unit((), (), jobs=(Job("run/1", "agent/general"), Job("tell/2"))))
    ready = (await home.ask("GET", "/readyz")).json
    (worker,) = ready["workers"]
    assert worker.pop("heartbeat_seconds_ago") < patient(30)
    assert worker == {
        "worker": "w1",
        "host": "host",
        "pid": 7,
        "version": "0.1",
        "agents": ["general", "plan"],
        "concurrency": 8,
        "since": "2026-01-01T06:00:00.000000Z",
        "running": 2,
        "alive": True,
        "scope": None,
        "models": [trouble],
    }
    assert ready["queues"] == [
        {"queue": "agent/general", "queued": 1, "claimed": 0},
        {"queue": "signals", "queued": 1, "claimed": 0},
    ]
    told = (await home.ask("GET", "/metrics")).body.decode()
    assert 'remit_jobs{queue="agent/general",state="queued"} 1' in told
    assert "remit_workers 1" in told
    assert (
        'remit_model_trouble{worker="w1",endpoint="http://model/v1",agent="",circuit="open"} 1'
        in told
    )
    home.core.lease_seconds = 0.0
    assert [worker["alive"] for worker in (await home.ask("GET", "/readyz")).json["workers"]] == [
        False
    ], "silent for longer than a lease"
    assert "remit_workers 0" in (await home.ask("GET", "/metrics")).body.decode()


async def test_a_lost_store_is_unavailable_and_says_when_to_retry(
    home: House, caplog: pytest.LogCaptureFixture
) -> None:
    home.core.store = Silent(Unavailable("The database is gone."))
    for path in ("/readyz", "/api/tasks"):
        answer = await home.ask("GET", path)
        assert (answer.status, answer.code, answer.headers["retry-after"]) == (
            503,
            "UNAVAILABLE",
            "1",
        )
        assert "The database is gone." in answer.json["error"]["message"]
    assert (await home.ask("GET", "/healthz")).status == 200
    assert caplog.text.count("\n") == 2, "one line for each request that failed"
    assert caplog.text.count("The database is gone.") == 2
    home.core.store = Silent(RuntimeError("a fault"))
    assert (await home.ask("GET", "/readyz")).status == 503
    assert "Traceback" in caplog.text


async def test_an_unexpected_error_reveals_nothing_and_is_logged(
    home: House, caplog: pytest.LogCaptureFixture
) -> None:
    home.core.store = Silent(RuntimeError("the secret is 12345"))
    answer = await home.ask("GET", "/api/tasks")
    assert (answer.status, answer.code) == (500, "INTERNAL_ERROR")
    assert b"12345" not in answer.body
    assert "12345" in caplog.text


async def test_an_inconsistent_store_is_reported_and_logged(
    home: House, caplog: pytest.LogCaptureFixture
) -> None:
    home.core.store = Silent(Corrupt("Event 7 of task 1 is broken."))
    answer = await home.ask("GET", "/api/tasks")
    assert (answer.status, answer.code) == (500, "INTERNAL_ERROR")
    assert "Event 7" in caplog.text


async def test_many_at_once_each_get_their_own_answer(home: House) -> None:
    answers = await asyncio.gather(
        *(home.ask("POST", "/api/tasks", {"title": f"Task {n}"}) for n in range(50))
    )
    assert sorted(answer.json["task"]["title"] for answer in answers) == sorted(
        f"Task {n}" for n in range(50)
    )


async def test_a_prometheus_server_can_read_the_figures() -> None:
    async with house() as at:
        await at.create()
        answer = await at.ask("GET", "/metrics")
        assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (
            200,
            "text/plain",
        )
        assert 'remit_tasks{state="pending"} 1' in answer.body.decode().splitlines()
