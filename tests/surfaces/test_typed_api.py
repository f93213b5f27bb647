"""Type checkers know the whole public API: right uses pass, and each wrong one is an error on
its line.
"""

import json
import pickle
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from copy import copy, deepcopy
from datetime import UTC, datetime
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from scripts import stubs

import remit
from remit import (
    IndexedResult,
    Interaction,
    InvalidParam,
    Remit,
    RemitClient,
    RemitError,
    ResultObject,
    StreamEnd,
    StreamIdle,
    TaskResult,
    TaskResults,
    Wait,
    WaitFor,
    errors,
    results,
)
from remit.api.methods import Operations
from remit.catalog import FOR_EVERYONE, Caller
from remit.catalog.output_schemas import RESULT_CLASSES, SHAPES, result_class
from remit.domain.task import commands as domain_commands
from remit.ports import Store
from tests.surfaces.http import TOKEN, site
from tests.surfaces.story import STORY

HERE = Path(__file__).resolve().parent
SAMPLE = HERE / "typed" / "sample.txt"
CACHE = HERE.parents[1] / ".mypy_cache" / "typed"
PROGRAMS = Path(sys.executable).parent


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    path = tmp_path / "sample.py"
    path.write_text(SAMPLE.read_text())
    return path


def wrong_lines() -> list[int]:
    lines = SAMPLE.read_text().splitlines()
    return [number for number, line in enumerate(lines, start=1) if line.endswith("# wrong")]


def test_mypy_finds_each_wrong_use_and_no_other(sample: Path) -> None:
    command = [
        str(PROGRAMS / "mypy"),
        "--strict",
        "--config-file=",
        f"--cache-dir={CACHE}",
        "--output=json",
        "--python-executable",
        sys.executable,
        "sample.py",
    ]
    done = subprocess.run(command, cwd=sample.parent, capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    errors = {each["line"]: each["message"] for each in found if each["severity"] == "error"}
    assert sorted(errors) == wrong_lines(), errors or done.stdout + done.stderr


def test_pyright_finds_each_wrong_use_and_no_other(sample: Path) -> None:
    (sample.parent / "pyrightconfig.json").write_text(
        json.dumps({"typeCheckingMode": "strict", "include": ["sample.py"]})
    )
    command = [
        str(PROGRAMS / "basedpyright"),
        "--outputjson",
        "--pythonpath",
        sys.executable,
        "-p",
        str(sample.parent),
    ]
    done = subprocess.run(command, cwd=sample.parent, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    errors = {
        each["range"]["start"]["line"] + 1: each["message"]
        for each in found
        if each["severity"] == "error"
    }
    assert sorted(errors) == wrong_lines(), errors


def test_the_generated_files_are_up_to_date() -> None:
    assert {path.name: path.read_text() == text for path, text in stubs.files().items()} == {
        "shapes.py": True,
        "inputs.py": True,
        "methods.pyi": True,
    }


def test_every_shape_has_a_class_with_its_fields() -> None:
    assert RESULT_CLASSES.keys() == SHAPES.keys()
    for shape in SHAPES.keys() - {"envelope", "results"}:
        kind = getattr(results, RESULT_CLASSES[shape])
        assert list(kind._fields) == list(SHAPES[shape]["properties"]), shape


def test_everything_public_is_in_the_package() -> None:
    assert set(results.__all__) <= set(remit.__all__)
    for name in remit.__all__:
        assert getattr(remit, name) is not None
    assert set(remit.__all__) <= set(dir(remit))
    with pytest.raises(AttributeError, match="no attribute 'Remti'"):
        remit.Remti  # type: ignore[attr-defined]  # noqa: B018


def test_every_command_that_the_runner_page_names_can_be_imported() -> None:
    page = (HERE.parents[1] / "docs/howto/write-a-runner.md").read_text()
    named = {name for name in re.findall(r"`([A-Z]\w+)`", page) if hasattr(domain_commands, name)}
    assert "AbortTask" in named
    assert named <= set(remit.commands.__all__)


def test_every_error_is_in_the_package() -> None:
    kinds = {name for name, value in vars(errors).items() if _is_error(value)}
    assert kinds <= set(remit.__all__)


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, RemitError)


def test_documents_and_examples_import_from_the_package_alone() -> None:
    root = HERE.parents[1]
    pages = [root / "README.md", *root.glob("docs/**/*.md"), *root.glob("examples/**/*.py")]
    imported = re.compile(r"^\s*(?:from|import) remit\.\S*", re.MULTILINE)
    found = {page.name: imported.findall(page.read_text()) for page in pages}
    assert {name: lines for name, lines in found.items() if lines} == {}


# What comes back at run time.


def fits(value: Any, hint: Any) -> bool:
    """True if a value is of the type that an annotation names."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(fits(value, part) for part in args)
    if origin is Literal:
        return value in args
    if origin is tuple:
        return isinstance(value, tuple) and all(fits(item, args[0]) for item in value)
    if isinstance(value, ResultObject) and isinstance(hint, type) and isinstance(value, hint):
        return all(
            fits(getattr(value, name), part)
            for name, part in get_type_hints(hint).items()
            if name in value._fields
        )
    if hint is float:
        return isinstance(value, int | float)
    return isinstance(value, origin or hint)


@pytest.fixture(params=["library", "client"])
async def typed(request: pytest.FixtureRequest, store: Store) -> AsyncIterator[Operations]:
    """Both ways to every operation, on every store."""
    async with site(store) as served, RemitClient(served.url, TOKEN) as client:
        yield client if request.param == "client" else Remit(served.core, Caller(actor="user:ann"))


async def test_the_result_of_every_operation_fits_its_class(typed: Operations) -> None:
    for name, fields in STORY:
        if '"format"' in json.dumps(fields):
            continue
        answer = await getattr(typed, name)(**fields)
        assert type(answer).__name__ == result_class(FOR_EVERYONE[name].output), name
        if isinstance(answer, ResultObject):
            assert fits(answer, type(answer)), (name, answer.to_dict())
            assert answer.to_dict().keys() <= answer._fields.keys(), name
            assert type(answer).from_dict(answer.to_dict()) == answer


WIRE = {
    "id": "1-q1",
    "task_id": "1",
    "question": "Which?",
    "options": ["a"],
    "asked_at": "2026-01-31T08:00:00.000000Z",
    "later": {"x": [1]},
}


def test_a_result_is_a_read_only_view_of_its_json() -> None:
    found = Interaction.from_dict(WIRE)
    assert (found.options, found.asked_at) == (("a",), datetime(2026, 1, 31, 8, tzinfo=UTC))
    assert found.answer is None, "a field that was not sent"
    assert found.to_dict() == WIRE, "also what this version does not know"
    found.to_dict()["later"]["x"].append(2)
    assert found.to_dict() == WIRE
    assert repr(found) == "Interaction(id='1-q1', task_id='1', question='Which?')"
    assert found == Interaction.from_dict(dict(WIRE))
    assert found != Interaction.from_dict({**WIRE, "id": "1-q2"})
    with pytest.raises(AttributeError, match="read-only: answer cannot be set"):
        found.answer = "b"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        _ = found.later  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="not subscriptable"):
        _ = found["id"]  # type: ignore[index]


def _delegated(text: str = "It is in kiln.py.") -> TaskResult[None]:
    data: dict[str, Any] = {"task_id": "1", "status": "completed", "result": text}
    data |= {"subagent_type": "explore", "outputs": {"found": [1]}}
    return TaskResult({"data": data, "stats": {"tokens": 1, "tool_calls": 2, "time_ms": 3}})


CHANGES: dict[str, Callable[[Any], object]] = {
    "set an item": lambda value: value.__setitem__("z", 1),
    "delete an item": lambda value: value.__delitem__("a"),
    "update": lambda value: value.update(z=1),
    "change a nested list": lambda value: value["a"]["b"].append(2),
    "replace a nested item": lambda value: value["a"]["b"].__setitem__(0, 2),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_the_values_of_a_result_cannot_be_changed(change: str) -> None:
    async with Remit.open(database_url="memory:", worker=False) as opened:
        made = await opened.create_task("Write it", metadata={"a": {"b": [1]}})
    before = made.task.to_dict()
    with pytest.raises(TypeError, match="read-only"):
        CHANGES[change](made.task.metadata)
    assert made.task.to_dict() == before
    assert made.task.metadata == {"a": {"b": [1]}}
    assert json.loads(json.dumps(made.task.metadata)) == made.task.metadata
    own: Any = deepcopy(made.task.metadata)
    CHANGES[change](own)
    assert pickle.loads(pickle.dumps(made.task)) == made.task


def test_every_result_is_read_only_and_has_its_json() -> None:
    result = _delegated()
    results: list[Any] = [result, TaskResults([result]), IndexedResult(0, result)]
    for each in (*results, StreamEnd(result), StreamIdle(1.0), result.usage):
        assert json.loads(json.dumps(each.to_dict())) == each.to_dict()
        assert deepcopy(each) == each
        for name in ("foo", "index", "_envelope", "answer"):
            with pytest.raises(AttributeError):
                setattr(each, name, 1)
    for each in results:
        for name in vars(each):
            with pytest.raises(AttributeError, match="read-only"):
                delattr(each, name)
    with pytest.raises(TypeError, match="read-only"):
        result.outputs["found"].append(2)


def test_the_results_of_several_tasks_are_a_sequence() -> None:
    first, second = _delegated("One."), _delegated("Two.")
    found = TaskResults([first, second])
    assert (len(found), list(found), found[1], found[:1]) == (2, [first, second], second, (first,))
    assert IndexedResult(0, first) == IndexedResult(0, _delegated("One."))
    assert IndexedResult(0, first) != IndexedResult(1, first)


@pytest.mark.parametrize("operation", ["task", "task_parallel", "Task", "task_output"])
async def test_a_stream_refuses_a_form_of_the_result(operation: Any) -> None:
    async with Remit.open(database_url="memory:", worker=False) as opened:
        stream: Any = opened.stream
        with pytest.raises(InvalidParam, match=r"^format: is not a parameter here"):
            await anext(stream(operation, format="flat"))


def test_a_result_can_be_made_for_a_test_of_a_program() -> None:
    wait = Wait(on=(WaitFor(kind="user", ref="1-q1"),), since=datetime(2026, 1, 31, 8, tzinfo=UTC))
    assert wait.to_dict() == {
        "on": [{"kind": "user", "ref": "1-q1"}],
        "since": "2026-01-31T08:00:00.000000Z",
    }
    assert (wait.on[0].call_id, copy(wait) == wait, pickle.loads(pickle.dumps(wait)) == wait) == (
        None,
        True,
        True,
    )
    with pytest.raises(TypeError, match=r"WaitFor: unknown \['kin'\], missing \['kind'\]"):
        WaitFor(kin="user", ref="1")  # type: ignore[call-arg]


async def test_an_error_of_a_result_is_raised_as_its_kind() -> None:
    async with Remit.open(database_url="memory:") as opened:
        (refused,) = (
            await opened.task_parallel([{"objective": "x", "subagent_type": "nobody"}])
        ).results
    assert (refused.status, refused.task_id, refused.error and refused.error.code) == (
        "failed",
        "",
        "INVALID_PARAM",
    )
    assert refused.text.startswith("tasks[0].subagent_type: unknown agent 'nobody'")
    with pytest.raises(InvalidParam, match="unknown agent 'nobody'"):
        refused.raise_for_status()
    assert refused.to_dict()["task_id"] is None
    with pytest.raises(AttributeError, match="read-only"):
        refused.text = "Fine."  # type: ignore[misc]
