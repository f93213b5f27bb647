"""Fixtures of the surface tests."""

from pathlib import Path

import pytest

from remit.surfaces.text.printed_commands import repeat_options
from tests.surfaces.copied_place import CopiedPlace
from tests.surfaces.repository import Repository
from tests.surfaces.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    assert made.remit("init").code == 0
    return made


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    folder = tmp_path / "project"
    folder.mkdir()
    made = Repository(folder)
    (folder / "code.py").write_text("print(1)\n")
    made.git("add", "-A")
    made.git("commit", "--quiet", "-m", "Begin")
    return made


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> CopiedPlace:
    return CopiedPlace(
        tmp_path, request.getfixturevalue("postgres") if request.param == "postgres" else None
    )


@pytest.fixture
def lone(tmp_path: Path) -> CopiedPlace:
    made = CopiedPlace(tmp_path, None)
    made.create("First")
    made.keep_copy()
    made.create("Second")
    return made


@pytest.fixture(autouse=True)
def plain_commands() -> None:
    """Printed commands do not repeat the options of a command of an earlier test."""
    repeat_options({})
