"""`output_type`: the agent must hand over a value of a type, and the caller gets an instance of
it.
"""

import pickle
from collections.abc import AsyncIterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, make_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict
from uuid import UUID

import pytest
from pydantic import UUID4, BaseModel, Field, HttpUrl, TypeAdapter, field_validator

from remit import (
    Conflict,
    InvalidOutput,
    InvalidParam,
    NotFound,
    Remit,
    RemitClient,
    RemitError,
    StreamEnd,
    TaskResult,
)
from remit.api.output_type import TypedOutput
from remit.bootstrap.store_opening import open_core
from remit.testing import Answer, Asked, scripted_model
from tests.surfaces.http import TOKEN, site

FOUND = {"title": "Retry policy", "places": [{"file": "run.py", "line": 12}]}


class Place(BaseModel):
    file: str
    line: int = Field(ge=1)


class Finding(BaseModel):
    title: str
    places: list[Place]


@dataclass
class PlaceData:
    file: str
    line: int


@dataclass
class FindingData:
    title: str
    places: list[PlaceData]


class PlaceDict(TypedDict):
    file: str
    line: NotRequired[int]


class FindingDict(TypedDict):
    title: str
    places: list[PlaceDict]


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def must_be_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("must be even")
        return value


class Color(Enum):
    RED = "red"


class Painted(BaseModel):
    color: Color


VALUES: dict[str, Any] = {
    "it": FOUND,
    "that": FOUND,
    "number": {"number": 3},
    "color": {"color": "red"},
}
"""What the agent hands over, by the last word of the objective."""
FORMATTED = [
    (datetime, "yesterday", "2026-01-31T10:00:00Z"),
    (date, "31.01.2026", "2026-01-31"),
    (time, "noon", "12:00"),
    (timedelta, "two hours", "PT2H"),
    (UUID, "17", "0198c0de-0000-7000-8000-000000000000"),
    (UUID4, "0198c0de-0000-7000-8000-000000000000", "a4d7e3c0-5b1f-4a63-9d0e-2f6f1f0c8f11"),
    (HttpUrl, "nope", "https://example.com/a"),
    (HttpUrl, "ftp://example.com/a", "http://example.com/a"),
    (HttpUrl, "ftp:x", "HTTPS://example.com/a"),
    (Decimal, "abc", "1.50"),
    (Decimal, "1e", " 1_000.5e1 "),
    (Decimal, "", "1e99999"),
    (Decimal, "_", "._5"),
    (IPv4Address, "10.0.0.256", "10.0.0.1"),
    (IPv6Address, "fd00::g", "fd00::1"),
]
"""Types, and for each a wrong text and a right one."""


def rule(asked: Asked) -> Answer:
    if asked.results or "Say" in asked.objective:
        return "I cannot."
    found = VALUES.get(asked.objective.rpartition(" ")[2], {"title": 3})
    return [("complete_task", {"outputs": {"output": found}, "summary": "Done."})]


@pytest.fixture
async def remit(durable_url: str, tmp_path: Path) -> AsyncIterator[Remit]:
    async with scripted_model(rule), Remit.open(tmp_path, durable_url) as opened:
        yield opened


async def test_the_output_is_an_instance_of_the_type(remit: Remit) -> None:
    model = (await remit.task("Find it", output_type=Finding)).output
    assert model == Finding(title="Retry policy", places=[Place(file="run.py", line=12)])
    data = (await remit.task("Find it", output_type=FindingData)).output
    assert data == FindingData("Retry policy", [PlaceData("run.py", 12)])
    typed_dict = (await remit.task("Find it", output_type=FindingDict)).output
    assert typed_dict["places"][0]["file"] == "run.py"
    launched = await remit.Task("Look", "Find it", "general", output_type=Finding)
    assert launched.output == model
    again = await remit.task_output(launched.task_id, output_type=Finding)
    assert again.output == model
    several = await remit.task_parallel(
        ["Find it", {"objective": "Find that", "outputs": []}], output_type=Finding
    )
    assert [each.output for each in several.results] == [model, model]
    async for settled in remit.stream_parallel(["Find it"], output_type=Finding):
        assert settled.result.output == model
    async for item in remit.stream("task", objective="Find it", output_type=Finding):
        if isinstance(item, StreamEnd):
            assert isinstance(item.answer, TaskResult)
            assert item.answer.output == model


@pytest.mark.parametrize(("kind", "wrong", "right"), FORMATTED)
async def test_a_text_in_a_wrong_format_is_refused_and_the_agent_is_told(
    durable_url: str, tmp_path: Path, kind: Any, wrong: str, right: str
) -> None:
    told: list[str] = []

    def correct_itself(asked: Asked) -> Answer:
        told.extend(str(result) for result in asked.results)
        value = right if asked.results else wrong
        return [("complete_task", {"outputs": {"output": {"value": value}}})]

    found = make_dataclass("Found", [("value", kind)])
    async with scripted_model(correct_itself), Remit.open(tmp_path, durable_url) as remit:
        result: TaskResult[Any] = await remit.task("Find it", output_type=found)
    assert result.output == found(TypeAdapter(kind).validate_python(right))
    assert "outputs.output.value: is " in told[0]


async def test_a_value_that_only_the_type_refuses_is_a_fault_of_the_agent(remit: Remit) -> None:
    result = await remit.task("Find an odd number", output_type=Even)
    assert result.status == "completed"
    with pytest.raises(InvalidOutput, match="The agent's output is not a valid Even") as refused:
        _ = result.output
    assert (refused.value.code, refused.value.status) == ("INTERNAL_ERROR", 500)
    assert "output.number: Value error, must be even." in str(refused.value)
    assert result.outputs["output"] == {"number": 3}


async def test_a_typed_result_can_be_pickled_and_copied(remit: Remit) -> None:
    result = await remit.task("Find a color", output_type=Painted)
    for same in (pickle.loads(pickle.dumps(result)), deepcopy(result)):
        assert same == result
        assert same.output == result.output == Painted(color=Color.RED)
    assert pickle.loads(pickle.dumps(result)).output.color is Color.RED


async def test_the_client_gets_it_too(durable_url: str, tmp_path: Path) -> None:
    async with (
        scripted_model(rule),
        Remit.open(tmp_path, durable_url, worker="all"),
        open_core(durable_url) as core,
        site(core.store) as served,
        RemitClient(served.url, TOKEN) as client,
    ):
        found = await client.task("Find it", output_type=Finding)
    assert (found.output.title, found.outputs["output"]) == ("Retry policy", FOUND)


async def test_the_agent_reads_the_schema_and_must_follow_it(remit: Remit) -> None:
    failed = await remit.task("Lose everything", output_type=Finding)
    assert failed.status == "failed"
    with pytest.raises(RemitError, match="output"):
        failed.raise_for_status()
    with pytest.raises(RemitError, match="output"):
        _ = failed.output
    (output,) = (await remit.get_task(failed.task_id)).outputs
    assert (output.name, output.kind, output.required) == ("output", "json", True)
    assert output.schema is not None
    assert output.schema["required"] == ["title", "places"]
    assert "Retry" not in str(output.schema)


async def test_a_result_without_a_typed_output_says_so(remit: Remit) -> None:
    plain = await remit.task("Say it")
    with pytest.raises(Conflict, match="no typed output"):
        _ = plain.output
    untyped = await remit.task_output(plain.task_id, output_type=Finding)
    with pytest.raises(NotFound, match="no output named 'output'"):
        _ = untyped.output
    receipt = await remit.task("Find it", wait=False, output_type=Finding)
    assert receipt.status == "running"
    with pytest.raises(Conflict, match="has not ended"):
        _ = receipt.output
    assert (
        await remit.task_output(receipt.task_id, wait_seconds=60)
    ).raise_for_status().status == "completed"


async def test_a_name_that_is_taken_is_refused(remit: Remit) -> None:
    with pytest.raises(
        InvalidParam, match="outputs: has 'output', which is the name of the typed output"
    ):
        await remit.task("Find it", outputs=["output"], output_type=Finding)
    with pytest.raises(InvalidParam, match=r"tasks\[1\]\.outputs: has 'output'"):
        await remit.task_parallel(
            ["Find it", {"objective": "x", "outputs": [{"name": "output"}]}], output_type=Finding
        )
    with pytest.raises(InvalidParam, match="format: is not a parameter here"):
        await remit.task("Find it", format="flat")  # type: ignore[call-overload]


def test_a_type_that_remit_cannot_check_is_refused_by_its_place() -> None:
    class Keyed(BaseModel):
        counts: dict[Literal["a", "b"], int]

    with pytest.raises(
        InvalidParam,
        match=r"output_type\.properties\.counts\.propertyNames: is not checked by remit",
    ):
        TypedOutput(Keyed)
    with pytest.raises(
        InvalidParam,
        match=r"output_type: is object, which has no JSON Schema|output_type: is Thing",
    ):
        TypedOutput(type("Thing", (), {}))


@dataclass
class ListOfDicts:
    places: list[PlaceDict]
    title: str = "Untitled"


@dataclass(frozen=True, slots=True)
class FrozenOne:
    place: PlaceDict | None
    tags: dict[str, PlaceDict] = field(default_factory=dict)


class NestedDict(TypedDict):
    place: PlaceDict | None
    other: NotRequired[Literal["none"] | PlaceDict]
    whole: ListOfDicts


class LimitedDict(TypedDict):
    line: NotRequired[Annotated[int, Field(ge=1)]]


@dataclass
class Tree:
    name: str
    below: list["Tree"]


PLACE: PlaceDict = {"file": "run.py", "line": 12}


@pytest.mark.parametrize(
    ("kind", "given", "read"),
    [
        (ListOfDicts, {"places": [PLACE]}, ListOfDicts([PLACE])),
        (FrozenOne, {"place": PLACE}, FrozenOne(PLACE)),
        (FrozenOne, {"place": None, "tags": {"a": PLACE}}, FrozenOne(None, {"a": PLACE})),
        (
            NestedDict,
            {"place": None, "other": PLACE, "whole": {"places": [PLACE], "title": "T"}},
            {"place": None, "other": PLACE, "whole": ListOfDicts([PLACE], "T")},
        ),
        (list[PlaceDict | int], [PLACE, 3], [PLACE, 3]),
        (Annotated[Sequence[PlaceDict], Field(max_length=2)], [PLACE], [PLACE]),
        (Tree, {"name": "a", "below": [{"name": "b", "below": []}]}, Tree("a", [Tree("b", [])])),
    ],
)
def test_typed_dicts_may_be_anywhere_in_a_type(kind: Any, given: Any, read: Any) -> None:
    typed = TypedOutput(kind)
    found = typed.read({"output": given})
    assert found == read
    assert type(found) is type(read)
    if isinstance(given, dict):
        with pytest.raises(InvalidOutput, match=r" output\."):
            typed.read({"output": given | {"place": {"file": 3}, "places": [{}], "below": 3}})


def test_the_limits_of_a_typed_dict_are_part_of_its_schema() -> None:
    assert TypedOutput(LimitedDict).schema["properties"] == {
        "line": {"type": "integer", "minimum": 1}
    }


def test_values_are_read_as_json() -> None:
    class Strict(BaseModel, strict=True):
        price: Decimal
        sizes: tuple[int, ...]

    read: Any = TypedOutput(Strict).read({"output": {"price": "1.50", "sizes": [1, 2]}})
    assert (read.price, read.sizes) == (Decimal("1.50"), (1, 2))
    assert TypedOutput(list[Even]).read({"output": [{"number": 2}]}) == [Even(number=2)]
    with pytest.raises(
        InvalidOutput, match=r"not a valid list. output\.0\.number: Value error, must be even\."
    ):
        TypedOutput(list[Even]).read({"output": [{"number": 3}]})
