"""remit as a library: every operation is a method that says what it takes."""

import asyncio
import inspect
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from remit import Remit, RemitClient
from remit.catalog import FOR_EVERYONE
from remit.catalog.method_parameters import HIDDEN, TYPED
from remit.domain.records.record import fields
from remit.errors import InvalidParam, NotFound, Unavailable
from tests.patience import patient


async def test_a_workspace_is_made_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REMIT_DATABASE_URL", raising=False)
    async with Remit.open() as remit:
        made = await remit.create_task(title="Write it", owner="general")
    assert (tmp_path / ".remit" / "remit.db").exists()
    async with Remit.open(workspace=tmp_path) as remit:
        assert (await remit.get_task(task_id=made.task_id)).title == "Write it"


async def test_a_folder_that_does_not_exist_is_refused(
    tmp_path: Path, durable_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REMIT_DATABASE_URL", raising=False)
    for url in (None, durable_url):
        with pytest.raises(NotFound, match=r"The folder .* does not exist\."):
            async with Remit.open(tmp_path / "projcet", url):
                pass
    assert not (tmp_path / "projcet").exists()


async def test_events_are_followed_from_a_position() -> None:
    async with Remit.open(database_url="memory:", actor="user:ann") as remit:
        await remit.create_task(title="One")
        await remit.create_task(title="Two")
        seen = []
        async for event in remit.events(after="0"):
            seen.append((event.task_id, event.type, event.actor))
            if len(seen) == 2:
                break
        assert seen == [("1", "TaskCreated", "user:ann"), ("2", "TaskCreated", "user:ann")]


async def test_one_line_delegates_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("REMIT_DATABASE_URL", "LLM_MODEL_ID", "LIGHT_LLM_MODEL_ID"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "kiln.py").write_text("def fire(kiln): ...\n")
    async with Remit.open() as remit:
        found = await remit.task("Where is the `kiln` fired?", subagent_type="explore")
        assert (found.status, found.agent, "kiln.py:1" in found.text) == (
            "completed",
            "explore",
            True,
        )
        assert [item.status for item in (await remit.task_parallel(["Find `fire`"])).results] == [
            "completed"
        ]
        assert (await remit.get_task("1")).instructions == "Where is the `kiln` fired?"
        with pytest.raises(TypeError, match="task got objective twice"):
            await remit.task("Once", objective="Twice")  # type: ignore[call-overload]


async def test_calls_of_a_closed_remit_are_refused_at_once(
    durable_url: str, tmp_path: Path
) -> None:
    async with Remit.open(tmp_path, durable_url, worker=False) as remit:
        task = await remit.create_task("Wait", owner="general")
        waiting = asyncio.create_task(remit.task_output(task.task_id, wait_seconds=60))
        async for event in remit.events(after="0"):
            if event.type == "TaskAwaited":
                break
    began = time.monotonic()
    for call in (remit.list_tasks(), remit.create_task("Late"), waiting):
        with pytest.raises(Unavailable, match="is closed"):
            await call
    assert time.monotonic() - began < patient(10)


CLOSED = "This Remit is closed. Open a new one."


async def _refusals(remit: Any) -> list[str]:
    """The errors of calls to a closed object, also of wrong ones and of those without a store."""
    calls = [
        remit.list_agents(),
        remit.get_agent("nobody"),
        remit.list_tasks(),
        remit.create_task(titel="x"),
        remit.task("Look", subagent_type="nobody"),
        remit.call("list_agents"),
        remit.call("unknown"),
        remit.ready(),
        anext(remit.stream("task", objective="Look", output_type=3)),
        anext(remit.stream_parallel([])),
        anext(remit.attend("unknown")),
        anext(remit.events(after="wrong")),
    ]
    found = await asyncio.gather(*calls, return_exceptions=True)
    return [f"{type(error).__name__}: {error}" for error in found]


async def test_every_call_of_a_closed_object_is_refused_alike(
    durable_url: str, tmp_path: Path
) -> None:
    async with Remit.open(tmp_path, durable_url, worker=False) as remit:
        pass
    async with RemitClient("http://127.0.0.1:9", "t" * 32) as client:
        pass
    for closed in (remit, client):
        assert set(await _refusals(closed)) == {f"Unavailable: {CLOSED}"}


def test_every_blocking_call_of_a_closed_object_is_refused_alike(
    durable_url: str, tmp_path: Path
) -> None:
    openers: tuple[Callable[[], AbstractContextManager[Any]], ...] = (
        lambda: Remit.open_sync(tmp_path, durable_url, worker=False),
        lambda: RemitClient.open_sync("http://127.0.0.1:9", "t" * 32),
    )
    for opened in openers:
        with opened() as remit:
            closed: Any = remit
        for call in (
            closed.list_agents,
            lambda closed=closed: closed.get_agent("nobody"),
            lambda closed=closed: closed.create_task(titel="x"),
            lambda closed=closed: closed.call("unknown"),
            closed.ready,
            lambda closed=closed: next(closed.stream("task", objective="Look", output_type=3)),
        ):
            with pytest.raises(Unavailable) as refused:
                call()
            assert (type(refused.value), str(refused.value)) == (Unavailable, CLOSED)


async def test_errors_are_raised_as_they_are() -> None:
    async with Remit.open(database_url="memory:") as typed:
        remit: Any = typed
        with pytest.raises(NotFound, match="no task 9"):
            await remit.get_task(task_id=9)
        with pytest.raises(
            InvalidParam, match=r"titel: is not a field here\. Did you mean title\?"
        ):
            await remit.create_task(titel="x")


@pytest.mark.parametrize("name", FOR_EVERYONE)
def test_each_operation_is_a_method_with_its_fields_and_its_words(name: str) -> None:
    method = getattr(Remit, name)
    own = {"self", *fields(FOR_EVERYONE[name].input)} - HIDDEN | (
        {"output_type"} if name in TYPED else set()
    )
    assert set(inspect.signature(method).parameters) == own
    assert method.__doc__ == FOR_EVERYONE[name].description


def test_other_operations_do_not_exist() -> None:
    own = {"open", "open_sync", "call", "attend", "follow", "events", "ready"}
    own |= {"stream", "stream_parallel"}
    assert {name for name in dir(Remit) if not name.startswith("_")} - own == set(FOR_EVERYONE)


class Caller:
    """An object that can be called."""

    def __call__(self, text: str) -> str:
        return text


def read(path: str) -> str:
    """Read it in another way."""
    return path


read.__name__ = "Read"


def list_tasks() -> str:
    """List them in another way."""
    return ""


def count(text: str) -> int:
    """Count characters."""
    return len(text)


@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        ([partial(count, "x")], "which is not a function"),
        ([Caller()], "which is not a function"),
        ([Caller], "which is not a function"),
        ([3], "which is not a function"),
        ([lambda text: text], "which is not a function"),
        ([read], "has Read, which is a tool of remit"),
        ([list_tasks], "has list_tasks, which is a tool of remit"),
        ([count, count], "has two functions named count"),
    ],
)
async def test_an_invalid_tool_function_is_refused(tools: Any, problem: str) -> None:
    with pytest.raises(InvalidParam, match=f"^tools: .*{problem}"):
        async with Remit.open(database_url="memory:", tools=tools):
            pass


async def test_the_workers_of_a_workspace_are_listed() -> None:
    async with Remit.open(database_url="memory:", worker=False) as remit:
        assert (await remit.ready()).to_dict() == {"status": "ok", "workers": [], "queues": []}
