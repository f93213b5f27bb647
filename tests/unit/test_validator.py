"""The one validator: what is wrong with which field, and what would be right."""

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Annotated, Any, get_args

import pytest
from hypothesis import given as for_any
from hypothesis import settings
from hypothesis import strategies as st

from remit.domain.records.json_schema import record_schema
from remit.domain.records.record import Range, Wire, fields, record
from remit.domain.records.serialize import dumps, plain
from remit.domain.records.validate import parse
from remit.domain.task import commands as cmd
from remit.domain.task.task import Dependency, Limits, Output, Resource, Schedule, Tools
from remit.errors import InvalidParam

OPERATIONS: tuple[type[Any], ...] = get_args(cmd.Operation)


def problems(kind: type[Any], raw: Any) -> dict[str, str]:
    """The problem of each field."""
    with pytest.raises(InvalidParam) as refused:
        parse(kind, raw)
    found: list[dict[str, str]] = refused.value.details["fields"]
    assert all(item["field"] and item["problem"] and item["expected"] for item in found)
    return {item["field"]: f"{item['problem']}; {item['expected']}" for item in found}


def problem(field: str, value: Any) -> str:
    """The problem of one field of a new task."""
    found = problems(cmd.CreateTask, {"title": "Fix it", field: value})
    assert len(found) == 1
    return next(f"{path}: {said}" for path, said in found.items())


# Fields.


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("titel", "Did you mean title?"),
        ("acceptence", "Did you mean acceptance?"),
        ("depend_on", "Did you mean depends_on?"),
    ],
)
def test_an_unknown_field_is_refused_with_what_was_perhaps_meant(name: str, meant: str) -> None:
    assert problems(cmd.CreateTask, {"title": "Fix it", name: "x"}) == {
        name: f"is not a field here; {meant}"
    }


def test_an_unknown_field_like_nothing_is_refused_with_the_known_ones() -> None:
    assert problems(cmd.PauseTask, {"task_id": "1", "xyzzy": 1}) == {
        "xyzzy": "is not a field here; one of task_id"
    }


def test_an_unknown_field_inside_a_value_is_named_with_its_path() -> None:
    said = problems(
        cmd.CreateTask,
        {
            "title": "Fix it",
            "steps": ["a", {"title": "b", "doen": True}],
            "limits": {"max_turn": 1},
        },
    )
    assert said == {
        "steps[1].doen": "is not a field here; Did you mean done?",
        "limits.max_turn": "is not a field here; Did you mean max_turns?",
    }


@pytest.mark.parametrize("raw", [{}, {"title": None}])
def test_a_required_field_is_missing_when_absent_or_null(raw: Mapping[str, Any]) -> None:
    assert problems(cmd.CreateTask, raw) == {"title": "is missing; a value"}


@pytest.mark.parametrize("kind", OPERATIONS, ids=lambda kind: kind.__name__)
def test_null_is_as_good_as_absent_in_an_optional_field(kind: type[Any]) -> None:
    assert set(problems(kind, dict.fromkeys(fields(kind)))) == set(problems(kind, {}))


@pytest.mark.parametrize("raw", [None, [], "x", 7, [["title", "x"]]])
def test_a_body_must_be_an_object(raw: Any) -> None:
    assert "an object" in problems(cmd.CreateTask, raw)["body"]


def test_several_problems_are_reported_at_once() -> None:
    raw = {
        "titel": "x",
        "priority": 9,
        "steps": [{"title": "ok"}, {"title": 7}],
        "labels": "x",
        "completion": "never",
        "owner": "Not/An Id",
    }
    assert list(problems(cmd.CreateTask, raw)) == [
        "titel",
        "title",
        "priority",
        "steps[1].title",
        "labels",
        "completion",
        "owner",
    ]


def test_the_message_says_field_problem_and_remedy() -> None:
    with pytest.raises(InvalidParam) as refused:
        parse(cmd.CreateTask, {"title": "x" * 257})
    assert refused.value.wire() == {
        "error": {
            "code": "INVALID_PARAM",
            "message": "title: is 257 characters long; expected at most 256 characters.",
            "details": {
                "fields": [
                    {
                        "field": "title",
                        "problem": "is 257 characters long",
                        "expected": "at most 256 characters",
                    }
                ]
            },
        }
    }


# Kinds.


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("instructions", 7, "instructions: is a number; text"),
        ("instructions", True, "instructions: is true or false; text"),
        ("instructions", ["x"], "instructions: is a list; text"),
        ("instructions", {"a": 1}, "instructions: is an object; text"),
        ("instructions", "", "instructions: is blank; 1 to 1,000,000 bytes"),
        ("instructions", " \n\t", "instructions: is blank; 1 to 1,000,000 bytes"),
        ("priority", "2", "priority: is '2'; a whole number"),
        ("priority", 1.5, "priority: is 1.5; a whole number"),
        ("priority", True, "priority: is True; a whole number"),
        ("priority", 5, "priority: is 5; 0 to 4"),
        ("priority", -1, "priority: is -1; 0 to 4"),
        ("priority", "highest", "priority: is 'highest'; a whole number"),
        ("labels", "x", "labels: is text; a list"),
        ("labels", {"a": 1}, "labels: is an object; a list"),
        ("labels", ["a", None], "labels[1]: is null; text"),
        ("labels", ["a", ""], "labels[1]: is blank; 1 to 64 characters"),
        ("labels", ["a"] * 65, "labels: has 65 entries; at most 64"),
        ("metadata", [], "metadata: is a list; an object"),
        ("metadata", {str(n): n for n in range(257)}, "metadata: has 257 entries; at most 256"),
        ("completion", "never", "completion: is 'never'; one of auto, explicit"),
        ("completion", ["auto"], "completion: is ['auto']; one of auto, explicit"),
        ("status", "done", "status: is 'done'; one of active, draft"),
        ("limits", 7, "limits: is a number; an object"),
        ("limits", {"timeout_seconds": "1"}, "limits.timeout_seconds: is '1'; a number"),
        ("limits", {"timeout_seconds": 0}, "limits.timeout_seconds: is 0.0; 0.001 to 31,536,000"),
        ("limits", {"max_turns": 0}, "limits.max_turns: is 0; 1 to 10,000"),
        ("outputs", [{"name": "a", "required": 1}], "outputs[0].required: is 1; true or false"),
        (
            "outputs",
            [{"name": "a", "kind": "png"}],
            "outputs[0].kind: is 'png'; one of text, json, file, url",
        ),
        ("steps", [{"details": "x"}], "steps[0].title: is missing; a value"),
        ("steps", [None], "steps[0]: is null; an object"),
        ("resources", ["/etc/hosts"], "resources[0]: is text; an object"),
        ("depends_on", ["x"], "depends_on[0].task_id: is 'x'; a task id such as 42, #42, or a uid"),
        ("depends_on", [0], "depends_on[0].task_id: is '0'; a task id such as 42, #42, or a uid"),
        (
            "depends_on",
            [{"task_id": "1", "on": "started"}],
            "depends_on[0].on: is 'started'; one of done, settled",
        ),
        ("tools", {"allow": "Read"}, "tools.allow: is text; a list"),
        ("tools", ["Read", 7], "tools.allow[1]: is a number; text"),
        ("model", "gpt", "model: is 'gpt'; main, light, or provider:name"),
        (
            "owner",
            "Build!",
            "owner: is 'build!'; an agent id: lower-case letters, digits, - and _, at most 64",
        ),
        (
            "tsgs",
            ["a b"],
            "tsgs[0]: is 'a b'; a guide id: lower-case letters, digits, . - and _, at most 128",
        ),
        (
            "schedule",
            {"cron": "hourly"},
            "schedule.cron: is 'hourly'; five cron fields such as 0 6-21 * * *",
        ),
    ],
)
def test_a_wrong_value_is_named_with_what_would_be_right(field: str, value: Any, said: str) -> None:
    assert problem(field, value) == said


@pytest.mark.parametrize(
    "value",
    [
        "tomorrow",
        "2026-01-31T08:00:00",
        "2026-02-31T08:00:00Z",
        7,
        True,
        "0001-01-01T00:00:00+14:00",
    ],
)
def test_an_instant_needs_a_time_zone(value: Any) -> None:
    assert "schedule.not_before: is " in problem("schedule", {"not_before": value})
    assert "ISO 8601 with a time zone" in problem("schedule", {"not_before": value})


def test_an_instant_is_kept_in_utc() -> None:
    command = parse(
        cmd.CreateTask, {"title": "x", "schedule": {"not_before": "2026-01-31T09:00:00+01:00"}}
    )
    assert command.schedule == Schedule(not_before=datetime(2026, 1, 31, 8, tzinfo=UTC))


@pytest.mark.parametrize("ref", ["42", "#42", 42, " #42 "])
def test_a_task_is_named_by_number_or_hash(ref: Any) -> None:
    assert parse(cmd.PauseTask, {"task_id": ref}).task_id == "42"


def test_a_task_is_named_by_uid_in_any_case() -> None:
    assert (
        parse(cmd.PauseTask, {"task_id": "0194BC5E-0000-7000-8000-00000000000A"}).task_id
        == "0194bc5e-0000-7000-8000-00000000000a"
    )


@pytest.mark.parametrize(
    "ref", ["", "0", "042", "-1", "4.2", "##4", "x", True, 4.2, 0, -1, "9" * 19, "42\n7", "٤٢"]
)
def test_nothing_else_names_a_task(ref: Any) -> None:
    assert list(problems(cmd.PauseTask, {"task_id": ref})) == ["task_id"]


@record
class Search:
    """A search."""

    ignore_case: Annotated[bool, Wire("-i")]
    after: Annotated[int | None, Wire("-A"), Range(0, 9)] = None


def test_a_field_can_have_a_name_on_the_wire_that_python_cannot_spell() -> None:
    assert parse(Search, {"-i": True, "-A": 3}) == Search(ignore_case=True, after=3)
    assert problems(Search, {"ignore_case": True, "-A": 10}) == {
        "ignore_case": "is not a field here; one of -i, -A",
        "-i": "is missing; a value",
        "-A": "is 10; 0 to 9",
    }
    schema = record_schema(Search)
    assert (list(schema["properties"]), schema["required"]) == (["-i", "-A"], ["-i"])


def test_a_whole_float_is_a_whole_number() -> None:
    assert parse(cmd.CreateTask, {"title": "x", "priority": 3.0}).priority == 3


def test_short_forms_equal_long_forms() -> None:
    short = {
        "title": "x",
        "acceptance": ["a"],
        "outputs": ["b"],
        "steps": ["c"],
        "depends_on": ["#1", 2],
        "tools": ["Read"],
        "priority": "high",
    }
    assert parse(cmd.CreateTask, short) == cmd.CreateTask(
        title="x",
        acceptance=(cmd.NewCriterion(text="a"),),
        outputs=(Output(name="b"),),
        steps=(cmd.NewStep(title="c"),),
        depends_on=(Dependency(task_id="1"), Dependency(task_id="2")),
        tools=Tools(allow=("Read",)),
        priority=1,
    )


# Sizes.


@pytest.mark.parametrize(
    ("field", "fits", "said"),
    [
        ("title", "é" * 256, "title: is 257 characters long; at most 256 characters"),
        (
            "instructions",
            "x" * 1_000_000,
            "instructions: is larger than 1,000,000 bytes; at most 1,000,000 bytes",
        ),
    ],
)
def test_a_text_of_the_greatest_length_fits_and_one_more_does_not(
    field: str, fits: str, said: str
) -> None:
    assert getattr(parse(cmd.CreateTask, {"title": "x", field: fits}), field) == fits
    assert problem(field, fits + fits[:1]) == said


def test_a_body_counts_in_bytes() -> None:
    assert parse(cmd.CreateTask, {"title": "x", "instructions": "é" * 500_000})
    assert "1,000,000 bytes" in problem("instructions", "é" * 500_001)


def test_a_step_title_has_60_characters_and_is_named_by_its_place() -> None:
    steps: list[Any] = ["a", "b", {"title": "é" * 60}]
    assert parse(cmd.UpdateSteps, {"task_id": "1", "steps": steps})
    assert (
        problem("steps", [*steps, {"title": "é" * 61}])
        == "steps[3].title: is 61 characters long; at most 60 characters"
    )


def test_a_plan_has_at_most_1000_steps() -> None:
    assert len(parse(cmd.CreateTask, {"title": "x", "steps": ["s"] * 1000}).steps) == 1000
    assert problem("steps", ["s"] * 1001) == "steps: has 1,001 entries; at most 1,000"


def test_a_huge_field_is_refused_however_it_is_made() -> None:
    assert "metadata: is larger" in problem("metadata", {"a": ["x" * 500_000, "y" * 500_000, "z"]})
    assert "metadata: is larger" in problem("metadata", {"a": [0] * 300_000})
    assert "metadata: is larger" in problem("metadata", {"k" * 1_000_001: 1})


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_a_body_is_at_most_32_levels_deep() -> None:
    assert parse(cmd.CreateTask, {"title": "x", "metadata": {"a": nested(30)}})
    assert (
        problem("metadata", {"a": nested(31)})
        == "metadata: is nested deeper than 32 levels; at most 32 levels"
    )


@pytest.mark.parametrize("levels", [900, 100_000])
def test_no_nesting_exhausts_the_stack(levels: int) -> None:
    assert "nested deeper" in problem("metadata", {"a": nested(levels)})
    assert "nested deeper" in problem("steps", nested(levels))


# Values that are refused everywhere.


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (math.nan, "metadata.a[0]: is nan; a finite number"),
        (math.inf, "metadata.a[0]: is inf; a finite number"),
        (-math.inf, "metadata.a[0]: is -inf; a finite number"),
        ("\ud800", "metadata.a[0]: contains a lone surrogate; text in valid Unicode without NUL"),
        ("a\0b", "metadata.a[0]: contains a NUL character; text in valid Unicode without NUL"),
        (2**63, f"metadata.a[0]: is {2**63}; a number within 64 bits"),
        (-(2**63) - 1, f"metadata.a[0]: is {-(2**63) - 1}; a number within 64 bits"),
        (b"x", "metadata.a[0]: is a Python bytes; a JSON value"),
        ({1, 2}, "metadata.a[0]: is a Python set; a JSON value"),
        (object, "metadata.a[0]: is a Python type; a JSON value"),
        (1j, "metadata.a[0]: is a Python complex; a JSON value"),
    ],
)
def test_a_value_that_json_cannot_hold_is_named_with_its_path(value: Any, said: str) -> None:
    assert problem("metadata", {"a": [value]}) == said


@pytest.mark.parametrize("field", ["title", "instructions", "owner"])
@pytest.mark.parametrize("value", ["\ud800", "a\0b"])
def test_text_is_valid_unicode_everywhere(field: str, value: str) -> None:
    assert field in problems(cmd.CreateTask, {"title": "x", field: value})


@pytest.mark.parametrize("key", [1, None, ("a",), "\ud800", "a\0"])
def test_keys_are_text_everywhere(key: Any) -> None:
    assert "has the key" in problem("metadata", {key: 1})
    assert "has the key" in problems(cmd.CreateTask, {"title": "x", key: 1})["body"]


def test_the_greatest_numbers_of_64_bits_fit() -> None:
    numbers = {"a": [2**63 - 1, -(2**63), 1e308, 0.1]}
    assert parse(cmd.CreateTask, {"title": "x", "metadata": numbers}).metadata == numbers


@pytest.mark.parametrize(
    "value", [datetime(2026, 1, 31, tzinfo=UTC), MappingProxyType({"b": 1}), (1, [2, (3,)])]
)
def test_whatever_is_let_through_can_be_stored(value: Any) -> None:
    try:
        command = parse(cmd.CreateTask, {"title": "x", "metadata": {"a": value}})
    except InvalidParam:
        return
    assert (
        parse(cmd.CreateTask, {"title": "x", "metadata": json.loads(dumps(command.metadata))})
        == command
    )


def test_a_caller_cannot_change_what_it_has_sent() -> None:
    sent: dict[str, Any] = {"a": [1]}
    command = parse(cmd.CreateTask, {"title": "x", "metadata": sent})
    sent["a"].append(2)
    assert command.metadata == {"a": [1]}


# Whatever comes.

NAMES = sorted(
    {name for kind in OPERATIONS for name in fields(kind)}
    | {"text", "name", "allow", "not_before", "v"}
)
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["1", "#2", "done", "build", "a:b", "url"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=8,
)


@settings(max_examples=400, deadline=None)
@for_any(
    st.sampled_from(OPERATIONS), JUNK | st.dictionaries(st.sampled_from(NAMES), JUNK, max_size=6)
)
def test_junk_is_read_or_refused_and_never_breaks_anything(kind: type[Any], raw: Any) -> None:
    with suppress(InvalidParam):
        command = parse(kind, raw)
        assert parse(kind, json.loads(dumps(plain(command)))) == command


TEXTS = st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20
).filter(str.strip)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXTS,
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=4,
)
BRIEFS = st.builds(
    cmd.CreateTask,
    title=TEXTS,
    instructions=st.none() | TEXTS,
    acceptance=st.lists(st.builds(cmd.NewCriterion, text=TEXTS, check=VALUES), max_size=2).map(
        tuple
    ),
    outputs=st.lists(
        st.builds(
            Output, name=TEXTS, kind=st.sampled_from(["text", "json"]), required=st.booleans()
        ),
        max_size=2,
    ).map(tuple),
    steps=st.lists(
        st.builds(cmd.NewStep, title=TEXTS, details=st.none() | TEXTS, done=st.booleans()),
        max_size=2,
    ).map(tuple),
    resources=st.lists(
        st.builds(Resource, type=st.just("url"), value=TEXTS, label=st.none() | TEXTS), max_size=2
    ).map(tuple),
    priority=st.integers(0, 4),
    depends_on=st.lists(
        st.builds(
            Dependency, task_id=st.integers(1, 9).map(str), on=st.sampled_from(["done", "settled"])
        ),
        max_size=2,
    ).map(tuple),
    tools=st.builds(
        Tools,
        allow=st.none() | st.lists(TEXTS, max_size=2).map(tuple),
        deny=st.lists(TEXTS, max_size=2).map(tuple),
    ),
    limits=st.builds(
        Limits,
        timeout_seconds=st.none() | st.floats(0.001, 1000),
        max_depth=st.none() | st.integers(0, 32),
    ),
    metadata=st.none() | st.dictionaries(TEXTS, VALUES, max_size=3),
    schedule=st.none() | st.builds(Schedule, not_before=st.datetimes(timezones=st.just(UTC))),
    status=st.sampled_from(["active", "draft"]),
    idempotency_key=st.none() | TEXTS,
)


@settings(max_examples=150, deadline=None)
@for_any(BRIEFS)
def test_a_command_survives_the_wire(command: cmd.CreateTask) -> None:
    assert parse(cmd.CreateTask, json.loads(dumps(plain(command)))) == command
