"""SQL files: named statements, and fragments that they share."""

import re
from pathlib import Path

import pytest

from remit.adapters.stores import sqlite
from remit.adapters.stores.sql_file import SqlFile, beside

STORES = Path(sqlite.__file__).parent.parent


def written(folder: Path, text: str) -> SqlFile:
    (folder / "some.sql").write_text(text)
    (file,) = beside(str(folder / "module.py"), "some")
    return file


def test_a_statement_has_its_fragments_and_no_comments(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "-- About this file.\n\n"
        "-- fragment: free\nworker IS NULL\n    AND later = 0\n\n"
        "-- name: jobs\n-- Every job that is free.\nSELECT id\nFROM job\nWHERE <free>;\n\n"
        "-- name: free\nSELECT 1 < 2;\n",
    )
    assert file["jobs"] == "SELECT id\nFROM job\nWHERE worker IS NULL\n    AND later = 0"
    assert file["free"] == "SELECT 1 < 2"
    assert list(file.names) == ["jobs", "free"]


def test_a_name_that_is_not_in_the_file_is_an_error(tmp_path: Path) -> None:
    file = written(tmp_path, "-- name: jobs\nSELECT id FROM job;\n")
    with pytest.raises(KeyError):
        file["job"]


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_every_statement_of_a_store_is_used(dialect: str) -> None:
    code = "".join(path.read_text() for path in (STORES / dialect).rglob("*.py"))
    used = set(re.findall(r'(?:EVENTS|JOBS|STATE)\[\s*"(\w+)"|_statement\("(\w+)"\)', code))
    names = {name for pair in used for name in pair if name}
    for file in beside(
        str(STORES / dialect / "statements.py"), "events", "job_queue", "store_state"
    ):
        assert {name.removesuffix("_of") for name in file.names} - names == set()
        assert all(file[name] for name in file.names)
