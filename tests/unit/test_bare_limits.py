"""Tests take their time limits from `tests/patience.py`: a bare number fails on a busy machine."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
LEAST_SECONDS = 1
"""Shorter ones are pauses between two looks, or limits that a test wants to see exceeded."""
NEVER_SECONDS = 600
"""Longer ones are limits that a test never reaches."""
WAITS = {"timeout": 0, "timeout_at": 0, "wait": 0, "wait_for": 1, "join": 0}
"""Functions that wait, and the position of their limit."""
NAMES = {
    "timeout",
    "heartbeat_seconds",
    "lease_seconds",
    "first_byte_seconds",
    "idle_seconds",
    "connect_seconds",
}
"""Keywords that hold a limit, whichever function they are given to."""
OTHER_UNITS = {"call"}
"""Functions whose keyword `timeout` is not in seconds: tools of remit."""


@pytest.mark.parametrize(
    "path",
    sorted(set(TESTS.rglob("*.py")) - set(TESTS.glob("unit/*"))),
    ids=lambda path: str(path.relative_to(TESTS)),
)
def test_no_limit_is_a_bare_number(path: Path) -> None:
    found = list(bare_limits(path.read_text()))
    assert found == [], "use patient(seconds) of tests/patience.py"


@pytest.mark.parametrize(
    "source",
    [
        "asyncio.timeout(20)",
        "asyncio.wait_for(done.wait(), 20.0)",
        "child.wait(20)",
        "child.communicate(timeout=20)",
        "subprocess.run(['remit'], timeout=60, check=True)",
        "deadline = time.monotonic() + 30",
        "team.hire(heartbeat_seconds=2.0)",
    ],
)
def test_a_bare_limit_is_found(source: str) -> None:
    assert list(bare_limits(source)) == [f"line 1: {source.partition(' = ')[2] or source}"]


@pytest.mark.parametrize(
    "source",
    [
        "asyncio.timeout(patient(20))",
        "flag.wait(0.01)",
        "hire(heartbeat_seconds=3600)",
        "call('Bash', timeout=1500)",
    ],
)
def test_other_numbers_are_not_found(source: str) -> None:
    assert list(bare_limits(source)) == []


def bare_limits(source: str) -> Iterator[str]:
    """Yield the expressions of a module that wait for a fixed number of seconds."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call | ast.BinOp) and any(
            _is_bare(limit) for limit in _limits(node)
        ):
            yield f"line {node.lineno}: {ast.get_source_segment(source, node)}"


def _limits(node: ast.Call | ast.BinOp) -> list[ast.expr]:
    if isinstance(node, ast.BinOp):
        return [node.right] if _name(node.left) in ("monotonic", "perf_counter") else []
    name = _name(node)
    place = WAITS.get(name, len(node.args))
    given = [
        keyword.value
        for keyword in node.keywords
        if keyword.arg in NAMES and name not in OTHER_UNITS
    ]
    return [*node.args[place : place + 1], *given]


def _name(node: ast.expr) -> str:
    called = node.func if isinstance(node, ast.Call) else node
    return (
        called.attr
        if isinstance(called, ast.Attribute)
        else called.id
        if isinstance(called, ast.Name)
        else ""
    )


def _is_bare(limit: ast.expr) -> bool:
    return (
        isinstance(limit, ast.Constant)
        and isinstance(limit.value, int | float)
        and LEAST_SECONDS <= limit.value < NEVER_SECONDS
    )
