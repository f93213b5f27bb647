"""remit as a library: every operation is a method that says what it takes."""

import inspect
from pathlib import Path

import pytest

from remit import Remit
from remit.catalog import FOR_EVERYONE
from remit.domain.record import fields
from remit.errors import InvalidParam, NotFound


async def test_a_workspace_is_made_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REMIT_DATABASE_URL", raising=False)
    async with Remit.open() as remit:
        made = await remit.create_task(title="Write it", owner="general")
    assert (tmp_path / ".remit" / "remit.db").exists()
    async with Remit.open(workspace=tmp_path) as remit:
        assert (await remit.get_task(task_id=made["task_id"]))["title"] == "Write it"


async def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path, durable_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REMIT_DATABASE_URL", raising=False)
    for url in (None, durable_url):
        with pytest.raises(NotFound, match="There is no folder"):
            async with Remit.open(tmp_path / "projcet", url):
                pass
    assert not (tmp_path / "projcet").exists()


async def test_events_are_followed_from_a_position() -> None:
    async with Remit.open(database_url="memory:", actor="user:ann") as remit:
        await remit.create_task(title="One")
        await remit.create_task(title="Two")
        seen = []
        async for event in remit.events(after="0"):
            seen.append((event["task_id"], event["type"], event["actor"]))
            if len(seen) == 2:
                break
        assert seen == [("1", "TaskCreated", "user:ann"), ("2", "TaskCreated", "user:ann")]


async def test_work_is_handed_out_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("REMIT_DATABASE_URL", "LLM_MODEL_ID", "LIGHT_LLM_MODEL_ID"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "kiln.py").write_text("def fire(kiln): ...\n")
    async with Remit.open() as remit:
        found = await remit.task("Where is the `kiln` fired?", subagent_type="explore")
        assert (found["status"], found["data"]["subagent_type"], "kiln.py:1" in found["data"]["result"]) == ("success", "explore", True)
        assert [item["data"]["status"] for item in (await remit.task_parallel(["Find `fire`"]))["results"]] == ["completed"]
        assert (await remit.get_task("1"))["instructions"] == "Where is the `kiln` fired?"
        with pytest.raises(TypeError, match="task takes objective in order, and each field once"):
            await remit.task("Once", objective="Twice")


async def test_errors_are_raised_as_they_are() -> None:
    async with Remit.open(database_url="memory:") as remit:
        with pytest.raises(NotFound, match="no task 9"):
            await remit.get_task(task_id=9)
        with pytest.raises(InvalidParam, match=r"titel: is not a field here\. Did you mean title\?"):
            await remit.create_task(titel="x")


@pytest.mark.parametrize("name", FOR_EVERYONE)
def test_each_operation_is_a_method_with_its_fields_and_its_words(name: str) -> None:
    method = getattr(Remit, name)
    assert set(inspect.signature(method).parameters) == {"self", *fields(FOR_EVERYONE[name].input)}
    assert method.__doc__ == FOR_EVERYONE[name].input.__doc__


def test_there_are_no_other_operations() -> None:
    own = {"open", "call", "events", "stream", "stream_parallel"}
    assert {name for name in vars(Remit) if not name.startswith("_")} - own == set(FOR_EVERYONE)
