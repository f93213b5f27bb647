"""The local host behind the command line: a workspace, its maintenance, and its work."""

from pathlib import Path

import pytest

from remit.bootstrap.local_host import WorkspaceHost
from remit.errors import Conflict, InvalidParam, NotFound
from remit.surfaces.cli.command import WrongUse
from remit.surfaces.text.printed_commands import without_password


@pytest.fixture
def host(tmp_path: Path) -> WorkspaceHost:
    made = WorkspaceHost({"workspace": str(tmp_path)})
    assert made.init() == {
        "workspace": str(tmp_path),
        "created": True,
        "allow_edits": None,
        "granted": [],
    }
    return made


def test_a_workspace_is_examined_and_proved(host: WorkspaceHost) -> None:
    host.call("create_task", {"title": "One"})
    found = host.doctor(verify=True, fix=False)
    assert (found["store"]["kind"], found["store"]["tasks"]["pending"]) == ("sqlite", 1)
    assert found["verified"] == {"streams": 1, "events": 1, "rows": 1, "faults": []}
    assert "verified" not in host.doctor(verify=False, fix=False)
    assert len(host.token()) >= 32


def test_events_and_tasks_leave_and_come_back(host: WorkspaceHost, tmp_path: Path) -> None:
    host.call("create_task", {"title": "One"})
    host.call("create_guide", {"title": "Disk is full", "body": "Delete the caches."})
    dump, folder = tmp_path / "all.jsonl", tmp_path / "files"
    assert host.export("events", dump)["count"] == 2
    assert host.export("tasks", folder)["count"] == 1
    for source in (dump, folder, folder / "tasks.json"):
        other = WorkspaceHost(
            {"workspace": str(tmp_path), "database_url": f"sqlite:///{tmp_path / source.name}.db"}
        )
        assert other.import_(source)["count"] >= 1
        assert other.call("get_task", {"task_id": "1"})["title"] == "One"
        with pytest.raises(Conflict, match="already has events"):
            other.import_(source)
    with pytest.raises(NotFound, match="no file or folder"):
        host.import_(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound, match=r"no tasks\.json"):
        host.import_(tmp_path / "empty")


def unsaid(_number: int) -> None:
    """Nobody presses Ctrl-C."""


@pytest.mark.parametrize(
    "fields", [{}, {"owner": "general"}, {"owner": "general", "status": "draft"}]
)
@pytest.mark.parametrize(
    ("cron", "problem"),
    [
        ("0 0 31 2 *", "'0 0 31 2 *' never occurs; expected five fields"),
        ("0 0 29 2 MON#7", "is not a cron expression: bad day-of-week; expected five fields"),
        ("99 * * * *", "is not a cron expression: bad minute; expected five fields"),
    ],
)
def test_a_schedule_that_never_fires_is_refused_and_uses_no_id(
    host: WorkspaceHost, cron: str, problem: str, fields: dict[str, str]
) -> None:
    with pytest.raises(InvalidParam) as refused:
        host.call("create_task", {"title": "One", "schedule": {"cron": cron}, **fields})
    assert problem in refused.value.message
    assert host.call("create_task", {"title": "Two"})["task_id"] == "1"


def test_the_count_of_a_dump_is_that_of_its_events(host: WorkspaceHost, tmp_path: Path) -> None:
    assert [
        item["type"]
        for item in host.delegate("task", {"objective": "Look", "subagent_type": "explore"}, unsaid)
    ][-1] == "end"
    dump = tmp_path / "all.jsonl"
    other = WorkspaceHost(
        {"workspace": str(tmp_path), "database_url": f"sqlite:///{tmp_path / 'other.db'}"}
    )
    wanted = len(host.call("get_events", {"task_id": "1"})["events"])
    assert (host.export("events", dump)["count"], other.import_(dump)["count"]) == (wanted, wanted)


def test_without_a_model_the_doctor_names_the_offline_one(host: WorkspaceHost) -> None:
    found = {
        item["name"]: item["value"] for item in host.doctor(verify=False, fix=False)["settings"]
    }
    assert [found[f"models.{tier}"] for tier in ("main", "light")] == [
        "offline: no language model is set"
    ] * 2


def test_a_worker_for_one_task_does_not_serve_the_workspace(host: WorkspaceHost) -> None:
    other = host.call("create_task", {"title": "Left alone", "owner": "explore"})["task_id"]
    works = host.delegate("task", {"objective": "Look", "subagent_type": "explore"}, unsaid)
    assert next(works) == {"type": "opened"}
    assert next(works) == {"type": "left_alone", "task_ids": [other]}
    mine = next(works)["task_id"]
    assert host.unattended(other)
    assert host.schedule()["workers"] == 0, "it carries out no ticks"
    list(works)
    assert host.unattended(mine)


def test_a_workspace_is_attended_by_a_worker_for_everything(host: WorkspaceHost) -> None:
    works = host.delegate(
        "task", {"objective": "Look", "subagent_type": "explore"}, unsaid, everything=True
    )
    assert next(works) == {"type": "opened"}
    mine = next(works)["task_id"]
    assert (host.unattended(mine), host.schedule()["workers"]) == (False, 1)
    list(works)
    assert (host.unattended(mine), host.schedule()["workers"]) == (True, 0)


def test_commands_that_need_a_database_do_not_use_another_store_with_a_server(
    host: WorkspaceHost, tmp_path: Path
) -> None:
    host.call("create_task", {"title": "One"})
    through = {"workspace": str(tmp_path), "url": "http://127.0.0.1:1"}
    astray = WorkspaceHost(through)
    for command in (
        astray.schedule,
        astray.tick,
        astray.migrate,
        lambda: astray.export("events", tmp_path / "x"),
        lambda: astray.import_(tmp_path),
    ):
        with pytest.raises(WrongUse, match="opens the database itself"):
            command()
    assert not (tmp_path / "x").exists()
    named = WorkspaceHost(through | {"database_url": f"sqlite:///{tmp_path}/.remit/remit.db"})
    assert named.export("events", tmp_path / "x")["count"] == 1


def test_events_are_followed_from_the_beginning(host: WorkspaceHost) -> None:
    host.call("create_task", {"title": "One"})
    pages = host.follow("1", "0", unsaid)
    assert [event["type"] for event in next(pages)] == ["TaskCreated"]
    host.call("send_message", {"task_id": "1", "message": "Hello."})
    assert [event["type"] for event in next(pages)] == ["MessageSent"]
    pages.close()


def test_a_closed_stream_gets_no_more_events(
    host: WorkspaceHost, caplog: pytest.LogCaptureFixture
) -> None:
    host.call("create_task", {"title": "One"})
    for _ in range(20):  # in which order what was left open is closed is a matter of chance
        pages = host.follow("1", "0", unsaid)
        next(pages)
        pages.close()
    assert not caplog.records


def test_a_password_in_a_url_is_not_shown() -> None:
    assert without_password("postgresql://ann:hunter2@db/x", "***") == "postgresql://ann:***@db/x"
    assert without_password("postgresql://ann@db/x", "***") == "postgresql://ann@db/x"
