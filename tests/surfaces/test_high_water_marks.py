"""The marks of how far a store was, which are kept outside of the workspace."""

import json
import shutil
from pathlib import Path

import pytest

from remit.adapters.stores.high_water_mark import marks_folder
from tests.surfaces.copied_place import (
    CopiedPlace,
)
from tests.surfaces.repository import Repository, titles
from tests.surfaces.shell import Shell


def test_git_checkout_of_a_committed_database_is_recognized(repository: Repository) -> None:
    repository.remit("init")
    (repository.folder / ".remit" / ".gitignore").write_text("!remit.db\nremit.db-*\ntoken\n")
    repository.remit("task", "create", "First")
    repository.git("add", "-A")
    repository.git("commit", "--quiet", "-m", "Commit the database")
    repository.remit("task", "create", "Second")
    repository.git("checkout", "--", ".remit/remit.db")
    assert repository.remit("task", "list").code == 4
    accepted = repository.remit("doctor", "--accept-rollback")
    assert (accepted.code, "A new epoch began" in accepted.err) == (1, True), "git shows the file"
    assert repository.remit("task", "create", "Third", "--json").json["task_id"] == "3"
    repository.git("stash")
    assert repository.remit("task", "list").code == 4, "the older epoch"
    repository.git("stash", "pop")
    assert titles(repository) == ["Third", "First"], "the newer copy is back"


def test_a_deleted_database_becomes_a_new_store_with_one_notice(lone: CopiedPlace) -> None:
    lone.file.unlink()
    said = lone.shell.remit("task", "create", "New")
    assert said.code == 0
    assert "is new. Another one with 2 tasks was here until" in said.err
    assert "is new" not in lone.shell.remit("task", "create", "Next").err
    assert titles(lone.shell) == ["Next", "New"]


def test_a_single_task_is_counted_as_one(tmp_path: Path) -> None:
    place = CopiedPlace(tmp_path, None)
    place.create("First")
    place.file.unlink()
    assert "Another one with 1 task was here until" in place.shell.remit("task", "list").err


def test_a_copy_of_a_workspace_is_just_another_store(lone: CopiedPlace, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(tmp_path / ".remit", other / ".remit")
    shutil.copy(lone.copy, other / ".remit" / "remit.db")
    assert Shell(other).remit("task", "create", "Elsewhere").code == 0
    assert lone.shell.remit("task", "list").code == 0


def test_an_unwritable_home_does_not_stop_a_process(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    shell = Shell(tmp_path, XDG_STATE_HOME=str(tmp_path / "file"))
    shell.remit("init")
    assert shell.remit("task", "create", "Work").code == 0
    assert shell.remit("task", "list").code == 0
    said = shell.remit("doctor", "--json").json["store"]["mark"]
    assert said.startswith("none: ")
    assert "cannot be written" in said


def test_marks_are_for_their_owner_alone(lone: CopiedPlace) -> None:
    found = [
        path
        for path in marks_folder().rglob("*.json")
        if json.loads(path.read_text())["place"] == str(lone.file)
    ]
    assert len(found) == 1
    assert found[0].stat().st_mode & 0o777 == 0o600
    assert found[0].parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("content", ["", "{", "[]", '{"store_id": 1}', "null"])
def test_an_unreadable_mark_raises_no_alarm(content: str, lone: CopiedPlace) -> None:
    for path in marks_folder().rglob("*.json"):
        if json.loads(path.read_text() or "{}").get("place") == str(lone.file):
            path.write_text(content)
    assert lone.shell.remit("task", "list").code == 0
    assert lone.create("Third") == "3"
