"""Events as they are stored: old lines still load, and nothing stored can be changed unnoticed."""

import json
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from remit import codec
from remit.codec import EVENTS, GENESIS, decode_event, encode_event, event_of, task_of
from remit.domain.decisions.evolve import evolve
from remit.domain.records.record import MISSING, fields, is_record, replace
from remit.domain.records.serialize import dumps, plain
from remit.domain.task import events as ev
from remit.domain.task.task import Task, Tools
from remit.errors import UnknownEvent
from tests.unit.given import CREATED, ENDED, LIVE, NOW, created, given

GOLDEN = [
    json.loads(line)
    for line in (
        (Path(__file__).parent.parent / "golden" / "events.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    )
]
LANGUAGES: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "golden" / "language.json").read_text(encoding="utf-8")
)
ENTRY = ev.Entry(
    id="e1",
    stream="1",
    version=3,
    at=NOW,
    actor="user:ann",
    event=ev.MessageSent(update_id="1-u1", message="Hello"),
)


# Stored lines.


@pytest.mark.parametrize("line", GOLDEN, ids=lambda line: line["type"])
def test_a_stored_event_still_loads_and_is_written_as_it_was(line: dict[str, Any]) -> None:
    event = event_of(line["type"], line["data"])
    assert type(event).__name__ == line["type"]
    assert dumps(plain(event)) == dumps(line["data"])


def test_every_event_has_a_stored_line() -> None:
    assert {line["type"] for line in GOLDEN} == set(EVENTS)


def test_every_field_of_every_event_is_in_a_stored_line() -> None:
    stored = [event_of(line["type"], line["data"]) for line in GOLDEN]
    seen: dict[type[Any], set[str]] = {}
    for event in stored:
        _note(event, seen)
    assert {kind.__name__: set(fields(kind)) - seen[kind] for kind in seen} == {
        kind.__name__: set() for kind in seen
    }


def _note(value: Any, seen: dict[type[Any], set[str]]) -> None:
    if isinstance(value, tuple):
        for item in value:
            _note(item, seen)
    if not is_record(value):
        return
    told = seen.setdefault(type(value), set())
    for name, default in fields(value).items():
        inner = getattr(value, name)
        if default is MISSING or inner != default:
            told.add(name)
            _note(inner, seen)


# Events that this version does not know.


def test_an_unknown_event_says_so_and_what_to_do() -> None:
    with pytest.raises(
        UnknownEvent, match=r"This version does not know the event TaskTeleported\. Upgrade remit"
    ):
        event_of("TaskTeleported", {})


@pytest.mark.parametrize(
    "data",
    [
        {"owner": "build", "since": "Friday"},
        {"owner": 7},
        {"owner": None},
        {},
    ],
)
def test_an_unknown_shape_is_an_unknown_event(data: dict[str, Any]) -> None:
    with pytest.raises(UnknownEvent, match=r"TaskReassigned has an unknown shape: (owner|since)"):
        event_of("TaskReassigned", data)


def test_an_unknown_word_is_an_unknown_event() -> None:
    with pytest.raises(UnknownEvent, match="reason"):
        event_of("TaskFailed", {"reason": "boredom", "message": "x"})


def test_a_newer_shape_is_an_unknown_event() -> None:
    with pytest.raises(
        UnknownEvent, match="TaskReassigned has shape 2; this version knows shape 1"
    ):
        event_of("TaskReassigned", {"v": 2, "owner": "build"})


def test_history_stays_readable_when_a_limit_is_tightened() -> None:
    long = "x" * 10_000
    assert event_of("TaskRevised", {"title": long}).title == long
    assert event_of("StepsReplaced", {"steps": [{"title": long}]}).steps[0].title == long


# The language of events, and whom a task can be left to.


def test_every_change_of_the_language_has_a_number_that_its_events_carry() -> None:
    """If this fails: raise LANGUAGE, name the event in SINCE, add the new language to the file,
    and never edit an older one.
    """
    assert sorted(map(int, LANGUAGES)) == list(range(1, ev.LANGUAGE + 1))
    assert LANGUAGES[str(ev.LANGUAGE)] == _spoken()
    changed = {
        name: language
        for language in range(2, ev.LANGUAGE + 1)
        for name, shape in LANGUAGES[str(language)].items()
        if LANGUAGES[str(language - 1)].get(name) != shape
    }
    assert {kind.__name__: language for kind, language in ev.SINCE.items()} == changed


def _spoken() -> dict[str, Any]:
    """Every event of a task by name: the number of its shape, and its fields down to the last
    word.
    """
    return {
        kind.__name__: [len(codec.UPCASTERS.get(kind.__name__, ())) + 1, _shape(kind)]
        for kind in get_args(ev.Event)
    }


def _shape(hint: Any) -> Any:
    if is_record(hint):
        return {name: _shape(inner) for name, inner in get_type_hints(hint).items()}
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return [member.value for member in hint]
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    if parts := [part for part in get_args(hint) if part not in (type(None), ...)]:
        return [_shape(part) for part in parts]
    return getattr(hint, "__name__", str(hint))


def test_a_task_needs_a_reader_of_the_newest_language_that_it_has_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ev, "LANGUAGE", 3)
    monkeypatch.setattr(ev, "SINCE", {ev.MessageSent: 3, ev.TaskRevised: 2})
    monkeypatch.delitem(ev.ADDED, ev.MessageSent)
    task = given(CREATED)
    heard = evolve(task, replace(ENTRY, version=task.version + 1))
    later = evolve(
        heard, replace(ENTRY, version=heard.version + 1, event=ev.TaskRevised(title="Another"))
    )
    assert (task.language, heard.language, later.language) == (1, 3, 3)
    document = dumps(plain(later))
    assert task_of(document) == later
    monkeypatch.setattr(ev, "LANGUAGE", 2)
    with pytest.raises(
        UnknownEvent,
        match=r"Task 1 has events of language 3; this version knows language 2\. Upgrade remit",
    ):
        task_of(document)


def test_a_task_can_begin_in_a_newer_language() -> None:
    assert given(created(awaited=True)).language == 2


def test_a_grant_that_tells_what_was_named_is_of_the_third_language() -> None:
    assert given(created(tools=Tools(allow=("Edit",), named=()))).language == 3
    assert given(created(tools=Tools(allow=("Edit",)))).language == 1


def test_an_event_that_uses_no_added_field_is_of_the_first_language() -> None:
    """If this failed, every task from before would differ from its replay."""
    assert given(CREATED).language == 1


def test_every_field_that_an_older_event_got_is_named_with_its_language() -> None:
    """If this fails: name the new field in ADDED."""
    added: dict[str, dict[str, int]] = {}
    for language in range(2, ev.LANGUAGE + 1):
        before, now = LANGUAGES[str(language - 1)], LANGUAGES[str(language)]
        for name in before.keys() & now.keys():
            for field in now[name][1].keys() - before[name][1].keys():
                added.setdefault(name, {})[field] = language
    assert {kind.__name__: fields for kind, fields in ev.ADDED.items()} == added


# Old shapes.


def _named(data: dict[str, Any]) -> dict[str, Any]:
    return {"owner": data["agent"]}


def _lowered(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "owner": data["owner"].lower()}


def test_old_shapes_are_brought_up_to_date_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(codec.UPCASTERS, "TaskReassigned", (_named, _lowered))
    assert event_of("TaskReassigned", {"agent": "Build"}) == ev.TaskReassigned(owner="build")
    assert event_of("TaskReassigned", {"v": 2, "owner": "Build"}) == ev.TaskReassigned(
        owner="build"
    )
    assert event_of("TaskReassigned", {"v": 3, "owner": "Build"}) == ev.TaskReassigned(
        owner="Build"
    )
    with pytest.raises(UnknownEvent, match="shape 4"):
        event_of("TaskReassigned", {"v": 4, "owner": "build"})


def test_a_changed_shape_is_stored_with_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(codec.UPCASTERS, "MessageSent", (lambda data: data,))
    stored = encode_event(ENTRY, GENESIS)
    assert json.loads(stored.data) == {"v": 2, "update_id": "1-u1", "message": "Hello"}
    assert decode_event(stored) == ENTRY


def test_an_upcaster_does_not_touch_what_was_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    def emptied(data: dict[str, Any]) -> dict[str, Any]:
        return {"owner": data.pop("agent")}

    monkeypatch.setitem(codec.UPCASTERS, "TaskReassigned", (emptied,))
    data = {"agent": "build"}
    event_of("TaskReassigned", data)
    assert data == {"agent": "build"}


# Sealed and opened.


def test_sealed_events_open_unchanged() -> None:
    assert decode_event(encode_event(ENTRY, GENESIS)) == ENTRY


def test_a_sealed_event_is_one_line_of_plain_text() -> None:
    stored = encode_event(
        replace(ENTRY, event=ev.MessageSent(update_id="1-u1", message="a\nb\u2028é")), GENESIS
    )
    assert (stored.type, stored.at, stored.actor) == (
        "MessageSent",
        "2026-01-31T08:00:00.000000Z",
        "user:ann",
    )
    assert stored.data == '{"update_id":"1-u1","message":"a\\nb\u2028é"}'
    assert "\n" not in stored.data


def test_instants_are_stored_in_utc_with_microseconds() -> None:
    elsewhere = datetime(2026, 1, 31, 9, 0, 0, 5, tzinfo=timezone(timedelta(hours=1)))
    assert encode_event(replace(ENTRY, at=elsewhere), GENESIS).at == "2026-01-31T08:00:00.000005Z"
    assert decode_event(encode_event(replace(ENTRY, at=elsewhere), GENESIS)).at == datetime(
        2026, 1, 31, 8, 0, 0, 5, tzinfo=UTC
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"id": "e2"},
        {"stream": "2"},
        {"version": 4},
        {"at": NOW + timedelta(microseconds=1)},
        {"actor": "user:bob"},
        {"event": ev.MessageSent(update_id="1-u1", message="hello")},
        {"event": ev.MessageSent(update_id="1-u2", message="Hello")},
        {"event": ev.UserNotified(notification_id="1-u1", message="Hello")},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_the_hash_changes_with_every_field(changed: dict[str, Any]) -> None:
    assert (
        encode_event(replace(ENTRY, **changed), GENESIS).hash != encode_event(ENTRY, GENESIS).hash
    )


def test_the_hash_is_chained_to_the_one_before() -> None:
    first = encode_event(ENTRY, GENESIS)
    assert len(first.hash) == 32
    assert encode_event(ENTRY, GENESIS) == first
    assert encode_event(ENTRY, first.hash).hash != first.hash


def test_a_change_far_back_changes_every_hash_after_it() -> None:
    def chain(message: str) -> list[bytes]:
        hashes = [
            encode_event(
                replace(ENTRY, event=ev.MessageSent(update_id="1-u1", message=message)), GENESIS
            ).hash
        ]
        for version in range(4, 7):
            hashes.append(encode_event(replace(ENTRY, version=version), hashes[-1]).hash)
        return hashes

    assert not set(chain("Hello")) & set(chain("Hallo"))


# Whole tasks.


@pytest.mark.parametrize("state", [*LIVE, *ENDED])
def test_a_task_survives_its_row(state: str) -> None:
    task = given(*{**LIVE, **ENDED}[state])
    assert task_of(dumps(plain(task))) == task


def test_a_task_with_everything_survives_its_row() -> None:
    (whole,) = (event_of(line["type"], line["data"]) for line in GOLDEN[:1])
    task = given(whole)
    assert isinstance(task, Task)
    assert task_of(dumps(plain(task))) == task


def test_a_task_that_an_agent_paused_before_replays_to_the_row_that_it_has() -> None:
    """Older versions did not record whether an agent paused a task."""
    task = given(CREATED)
    version = task.version + 1
    paused = event_of("TaskPaused", {})
    entry = replace(ENTRY, version=version, actor="agent:general", event=paused)
    after = evolve(task, entry)
    assert (after.paused_by_agent, after.language) == (False, 1)
    newer = evolve(task, replace(entry, event=ev.TaskPaused(by_agent=True)))
    assert (newer.paused_by_agent, newer.language) == (True, 2)
