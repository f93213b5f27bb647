"""No test is left out: each one runs in `make test` or in `make test-long`; helpers stay apart."""

import re
import shlex
import subprocess
from itertools import combinations
from pathlib import Path, PurePath

import pytest
from _pytest.mark.expression import Expression

from tests.selection import markers

ROOT = Path(__file__).resolve().parents[2]
ALL = ("fast", "long", "measured")
SUBSETS = [set(chosen) for size in range(4) for chosen in combinations(ALL, size)]


def test_every_test_runs_in_make_test_or_in_make_test_long() -> None:
    chosen = [*chosen_by("test"), *chosen_by("test-long")]
    assert len(chosen) == 3
    for marked in SUBSETS:
        assert any(is_selected(options, marked) for options in chosen), marked


def test_make_test_runs_no_long_test() -> None:
    (options,) = chosen_by("test")
    assert not any(is_selected(options, marked) for marked in SUBSETS if "long" in marked)


@pytest.mark.parametrize(
    ("module", "name", "parameters", "expected"),
    [
        ("unit/test_patience.py", "test_one", {}, {"fast", "measured"}),
        ("flows/test_life.py", "test_one[memory]", {"any_url": "memory"}, {"fast"}),
        ("flows/test_life.py", "test_one[sqlite]", {"any_url": "sqlite"}, set()),
        ("flows/test_life.py", "test_one[postgres]", {"any_url": "postgres"}, {"long", "measured"}),
        ("contract/test_store.py", "test_one[sqlite]", {"any_url": "sqlite"}, {"measured"}),
        ("contract/test_store.py", "test_one[postgres]", {"any_url": "postgres"}, {"measured"}),
        ("crash/test_kill_sqlite.py", "test_one[0]", {"chosen": "all points, share 1"}, {"long"}),
        ("crash/test_kill_sqlite.py", "test_one[1]", {"chosen": "some points"}, set()),
        ("docs/test_pages.py", "test_one[README.md]", {"page": "README.md"}, {"long"}),
        ("surfaces/test_fuzz.py", "test_one", {}, {"long"}),
    ],
)
def test_each_kind_of_test_is_marked(
    module: str, name: str, parameters: dict[str, str], expected: set[str]
) -> None:
    assert markers(PurePath(module), name, parameters) == expected


def test_no_module_imports_from_a_test_module() -> None:
    """A test module can be cut or moved alone; what several need is in a module of its own."""
    test_module = re.compile(r"^\s*(?:from|import) tests\.(?:\w+\.)*test_\w+", re.MULTILINE)
    found = [
        path for path in (ROOT / "tests").rglob("*.py") if test_module.search(path.read_text())
    ]
    assert found == []


def chosen_by(target: str) -> list[list[str]]:
    """The options with which each command of a target of the Makefile selects tests."""
    command = ["make", "--dry-run", "--no-print-directory", target]
    told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [shlex.split(options) for options in re.findall(r"-m pytest (.*)", told)]


def is_selected(options: list[str], marked: set[str]) -> bool:
    """Return True if a command runs the tests with these markers, in every folder."""
    assert not [option for option in options if option.startswith("tests")]
    expression = Expression.compile(options[options.index("-m") + 1])
    return expression.evaluate(lambda name, /, **_: name in marked)
