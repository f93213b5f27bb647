"""The judge can fail: for each rule a history that breaks it, made from a good one that breaks
none.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.patience import patient
from tests.torture import checker
from tests.torture.checker import Event, Faults, History, Limits, Raw

ROOT = Path(__file__).resolve().parents[2]
WORKER, OTHER = "host-100-aa", "host-200-bb"
AT = "2026-01-01T00:00:00.000000Z"


class Forger:
    """A history in the making: events in one order, and everything around them."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str, dict[str, Any]]] = []
        self.tables: dict[str, list[dict[str, Any]]] = {name: [] for name in Raw._fields[1:]}
        self.log: list[dict[str, Any]] = []
        self.effects: list[str] = []
        self.faults = Faults(killed=(100,), wanted_kills=1)
        self.limits = Limits({"general": 2}, 2)
        self.states: dict[str, tuple[str, str | None]] = {}

    def say(self, stream: str, kind: str, actor: str = "system:engine", **data: Any) -> None:
        """One more event."""
        self.rows.append((stream, kind, actor, data))

    def task(self, stream: str, *script: list[Any], **fields: Any) -> None:
        """A created task, by an acknowledged call unless it has a parent."""
        self.say(
            stream,
            "TaskCreated",
            "user:c0",
            title=f"t{stream}",
            owner="general",
            metadata={"script": list(script)},
            **fields,
        )
        if "parent_id" not in fields:
            self.call("CreateTask", {"title": f"t{stream}"}, task=stream)

    def run(self, stream: str, number: int = 1, worker: str = WORKER) -> str:
        """A run that begins."""
        if number == 1:
            self.say(stream, "TaskStarted")
        self.say(stream, "RunStarted", run_id=f"{stream}-r{number}", worker=worker)
        self.tables["run"].append(
            {
                "task_id": int(stream),
                "run_id": f"{stream}-r{number}",
                "worker": worker,
                "outcome": "over",
            }
        )
        return f"{stream}-r{number}"

    def lose(self, stream: str, number: int = 1) -> None:
        """A run whose worker is gone."""
        self.say(stream, "RunLost", run_id=f"{stream}-r{number}")

    def finish(self, stream: str, run_id: str | None = None) -> None:
        """The good end of a task."""
        self.say(stream, "CompletionClaimed", run_id=run_id)
        self.say(stream, "TaskCompleted", verification="none")

    def call(self, command: str, fields: dict[str, Any], **answer: Any) -> None:
        """A call of a client that was acknowledged."""
        line = {"call": f"c0/{len(self.log)}", "command": command, "fields": fields}
        self.log += [{"asked": line}, {"acked": line, "updates": [], "canceled": [], **answer}]

    def wrote(self, stream: str, text: str, run_id: str, status: str = "done") -> None:
        """A recorded effect."""
        arguments = json.dumps(["file", text])
        self.tables["call"].append(
            {
                "task_id": int(stream),
                "call_id": text,
                "run_id": run_id,
                "tool": "write",
                "arguments": arguments,
                "status": status,
                "result": None,
            }
        )

    def history(self) -> History:
        """What the judge sees: versions, hashes and the rows of the tasks follow from the
        events.
        """
        events: list[Event] = []
        heads: dict[str, tuple[int, bytes]] = {}
        for place, (stream, kind, actor, data) in enumerate(self.rows):
            version, head = heads.get(stream, (0, bytes(32)))
            text = json.dumps(data)
            fields = (f"e{place}", stream, version + 1, kind, AT, actor, text)
            digest = hashlib.sha256(head + "\n".join(map(str, fields)).encode()).digest()
            events.append(Event(place, *fields, digest))
            heads[stream] = (version + 1, digest)
        ends = {
            event.stream: checker.TERMINAL[event.type]
            for event in events
            if event.type in checker.TERMINAL
        }
        for stream, (version, _) in heads.items():
            state, wait = self.states.get(stream, (ends.get(stream, "pending"), None))
            self.tables["task"].append(
                {"id": int(stream), "state": state, "wait": wait, "version": version}
            )
        return History(Raw(events, **self.tables), self.log, self.effects, self.faults, self.limits)


def good() -> Forger:
    """A bit of everything, all of it right."""
    at = Forger()
    at.task("1", ["write", "file", "t1:0"], ["finish", "x"])
    run = at.run("1")
    at.wrote("1", "t1:0", run)
    at.effects.append(f"t1:0 {run}")
    at.say("1", "MessageSent", "user:c0", update_id="1-u1", message="hello")
    at.call("SendMessage", {"message": "hello", "task_id": "1"}, task="1", updates=["1-u1"])
    at.say("1", "UpdateDelivered", update_ids=["1-u1"], run_id=run)
    at.finish("1", run)

    at.task("2", ["block", {}], ["ask", "Which?"], ["finish", "x"])
    run = at.run("2")
    at.task("3", ["finish", "x"], parent_id="2")
    at.say("2", "SubtaskLinked", child_id="3")
    below = at.run("3")
    at.say("2", "RunYielded", run_id=run)
    at.finish("3", below)
    at.say("2", "SubtaskSettled", child_id="3", state="done")
    run = at.run("2", 2)
    at.say("2", "UserInteractionRequested", interaction_id="2-q1", question="Which?")
    at.say("2", "RunYielded", run_id=run)
    at.say("2", "UserInteractionResponded", "user:c0", interaction_id="2-q1", answer="this")
    at.call("Respond", {"interaction_id": "2-q1", "answer": "this"}, task="2")
    question = {"task_id": 2, "interaction_id": "2-q1", "question": "Which?"}
    at.tables["interaction"].append(
        {**question, "status": "answered", "answer": "this", "answered_by": "user:c0"}
    )
    at.finish("2", at.run("2", 3))

    at.task("4", ["kill"], limits={"max_attempts": 2})
    for number in (1, 2):
        at.run("4", number)
        at.lose("4", number)
    at.say("4", "TaskFailed", reason="lost", message="gone")

    at.task("5", ["finish", "x"], depends_on=[{"task_id": "1"}, {"task_id": "4", "on": "settled"}])
    at.finish("5", at.run("5"))

    at.task("6", ["ask", "silence"])
    at.say("6", "RunYielded", run_id=at.run("6"))
    at.states["6"] = ("waiting", json.dumps({"on": [{"kind": "user", "ref": "6-q1"}]}))
    at.tables["interaction"].append(
        {
            "task_id": 6,
            "interaction_id": "6-q1",
            "question": "silence",
            "status": "open",
            "answer": None,
            "answered_by": None,
        }
    )

    at.task("7", ["children", []])
    at.task("8", ["finish", "x"], parent_id="7")
    at.call("CancelTask", {"task_id": "7"}, task="7", canceled=["7", "8"])
    at.say("7", "TaskCanceled", "user:c0", reason="user")
    at.say("8", "TaskCanceled", "user:c0", reason="parent")
    at.tables["job"].append({"key": "tick", "worker": None})
    return at


def test_a_good_history_breaks_no_rule() -> None:
    assert checker.violations(good().history()) == []


Forgery = Callable[[Forger], None]


def _row(at: Forger, kind: str, stream: str) -> int:
    """The position of an event."""
    return next(index for index, row in enumerate(at.rows) if row[:2] == (stream, kind))


def twice_created(at: Forger) -> None:
    at.task("9")
    at.rows[-1] = ("9", "TaskCreated", "user:c0", {"title": "t1", "metadata": {"script": []}})


def never_created(at: Forger) -> None:
    at.call("CreateTask", {"title": "lost"}, task="99")


def ended_twice(at: Forger) -> None:
    at.say("1", "TaskCompleted", verification="none")


def went_on_after_its_end(at: Forger) -> None:
    at.say("1", "MessageSent", update_id="1-u2", message="late")


def stuck(at: Forger) -> None:
    at.task("9", ["finish", "x"])


def waits_for_nothing(at: Forger) -> None:
    at.states["6"] = ("waiting", json.dumps({"on": [{"kind": "timer", "ref": "6-t1"}]}))


def failed_without_reason(at: Forger) -> None:
    at.rows[-2:] = []
    at.task("9", ["finish", "x"])
    at.say("9", "TaskFailed", reason="dependency", message="why?")


def two_runs_at_once(at: Forger) -> None:
    at.rows.insert(
        _row(at, "RunStarted", "1") + 1,
        ("1", "RunStarted", "system:engine", {"run_id": "1-r2", "worker": OTHER}),
    )


def stale_run_wrote(at: Forger) -> None:
    at.rows[_row(at, "CompletionClaimed", "1")][3]["run_id"] = "1-r0"


def live_at_the_end(at: Forger) -> None:
    at.tables["run"][0]["outcome"] = None


def answered_twice(at: Forger) -> None:
    at.rows.insert(
        _row(at, "UserInteractionResponded", "2"),
        ("2", "UserInteractionResponded", "user:c1", {"interaction_id": "2-q1", "answer": "that"}),
    )


def another_answer(at: Forger) -> None:
    at.rows[_row(at, "UserInteractionResponded", "2")][3]["answer"] = "that"


def asked_out_of_the_blue(at: Forger) -> None:
    at.rows[_row(at, "UserInteractionRequested", "2")][3]["question"] = "What now?"


def question_left_open(at: Forger) -> None:
    at.tables["interaction"][0]["status"] = "open"


def told_twice(at: Forger) -> None:
    at.rows.insert(
        _row(at, "CompletionClaimed", "1"),
        ("1", "UpdateDelivered", "system:engine", {"update_ids": ["1-u1"], "run_id": "1-r1"}),
    )


def never_told(at: Forger) -> None:
    at.rows.pop(_row(at, "UpdateDelivered", "1"))


def message_lost(at: Forger) -> None:
    at.rows.pop(_row(at, "UpdateDelivered", "1"))
    at.rows.pop(_row(at, "MessageSent", "1"))


def settled_twice(at: Forger) -> None:
    place = _row(at, "SubtaskSettled", "2")
    at.rows.insert(place, at.rows[place])


def done_without_its_child(at: Forger) -> None:
    at.rows.pop(_row(at, "SubtaskSettled", "2"))


def settled_before_its_end(at: Forger) -> None:
    at.rows.insert(_row(at, "RunStarted", "3"), at.rows.pop(_row(at, "SubtaskSettled", "2")))


def timer_fired_twice(at: Forger) -> None:
    for _ in range(2):
        at.rows.insert(
            _row(at, "CompletionClaimed", "1"),
            ("1", "TimerFired", "system:engine", {"ref": "1-t1"}),
        )


def child_outlives_cancel(at: Forger) -> None:
    at.rows.pop(_row(at, "TaskCanceled", "8"))


def cancel_lost(at: Forger) -> None:
    at.rows.pop(_row(at, "TaskCanceled", "7"))


def effect_twice(at: Forger) -> None:
    at.effects.append("t1:0 1-r2")


def effect_lost(at: Forger) -> None:
    at.effects.clear()


def effect_unrecorded(at: Forger) -> None:
    at.tables["call"].clear()


def effect_never_ended(at: Forger) -> None:
    at.tables["call"][0]["status"] = "started"


def started_too_early(at: Forger) -> None:
    at.rows.append(at.rows.pop(_row(at, "TaskFailed", "4")))


def _ends_late(at: Forger) -> None:
    for kind in ("CompletionClaimed", "TaskCompleted"):
        at.rows.append(at.rows.pop(_row(at, kind, "1")))


def too_many_of_an_agent(at: Forger) -> None:
    at.limits = Limits({"general": 2})
    _ends_late(at)


def too_many_in_the_fleet(at: Forger) -> None:
    at.limits = Limits({}, 2)
    _ends_late(at)


def limit_of_an_agent_never_tried(at: Forger) -> None:
    at.limits = Limits({"general": 3})


def limit_of_the_fleet_never_tried(at: Forger) -> None:
    at.limits = Limits({}, 3)


def job_left(at: Forger) -> None:
    at.tables["job"].append({"key": "run/1", "worker": WORKER})


def given_up_too_early(at: Forger) -> None:
    at.rows[_row(at, "TaskCreated", "4")][3]["limits"]["max_attempts"] = 3


def failed_by_itself(at: Forger) -> None:
    at.rows.insert(
        _row(at, "CompletionClaimed", "1"),
        ("1", "RunFailed", "system:engine", {"run_id": "1-r1", "error": "KeyError"}),
    )


def robbed_of_its_run(at: Forger) -> None:
    at.rows.insert(
        _row(at, "CompletionClaimed", "1"), ("1", "RunLost", "system:engine", {"run_id": "1-r1"})
    )
    at.tables["run"][0]["worker"] = OTHER


def repaired(at: Forger) -> None:
    place = _row(at, "RunStarted", "1")
    at.rows[place] = ("1", "RunStarted", "system:recovery", at.rows[place][3])


def few_operations(at: Forger) -> None:
    at.log += [
        {"asked": {"call": f"c9/{number}", "command": "RunTask", "fields": {}}}
        for number in range(10)
    ]


def kills_that_missed(at: Forger) -> None:
    at.faults = Faults(killed=(999,), wanted_kills=1, stopped=(100,))


FORGERIES: list[tuple[checker.Rule, Forgery]] = [
    *[(checker.created_once, forge) for forge in (twice_created, never_created)],
    *[(checker.one_end, forge) for forge in (ended_twice, went_on_after_its_end)],
    *[
        (checker.ended_as_scripted, forge)
        for forge in (stuck, waits_for_nothing, failed_without_reason)
    ],
    *[
        (checker.one_live_run, forge)
        for forge in (two_runs_at_once, stale_run_wrote, live_at_the_end)
    ],
    *[
        (checker.one_answer, forge)
        for forge in (answered_twice, another_answer, asked_out_of_the_blue, question_left_open)
    ],
    *[(checker.updates_once, forge) for forge in (told_twice, never_told, message_lost)],
    *[
        (checker.told_once, forge)
        for forge in (
            settled_twice,
            done_without_its_child,
            settled_before_its_end,
            timer_fired_twice,
        )
    ],
    *[(checker.cancel_reaches_all, forge) for forge in (child_outlives_cancel, cancel_lost)],
    *[
        (checker.effects_once, forge)
        for forge in (effect_twice, effect_lost, effect_unrecorded, effect_never_ended)
    ],
    (checker.dependents_wait, started_too_early),
    *[(checker.limits_hold, forge) for forge in (too_many_of_an_agent, too_many_in_the_fleet)],
    *[
        (checker.limits_hold, forge)
        for forge in (limit_of_an_agent_never_tried, limit_of_the_fleet_never_tried)
    ],
    (checker.queue_is_empty, job_left),
    *[(checker.bad_ends_are_counted, forge) for forge in (given_up_too_early, failed_by_itself)],
    *[(checker.lost_with_their_worker, forge) for forge in (robbed_of_its_run, repaired)],
    *[(checker.not_vacuous, forge) for forge in (few_operations, kills_that_missed)],
]


@pytest.mark.parametrize(
    ("rule", "forge"), FORGERIES, ids=[forge.__name__ for _, forge in FORGERIES]
)
def test_a_forged_history_is_caught(rule: checker.Rule, forge: Forgery) -> None:
    at = good()
    forge(at)
    assert list(rule(at.history())) != []


@pytest.mark.parametrize(
    "change",
    [
        lambda event: event._replace(text='{"title":"other"}'),
        lambda event: event._replace(version=7),
        lambda event: event._replace(hash=bytes(32)),
        lambda event: event._replace(actor="user:mallory"),
    ],
    ids=["data", "version", "hash", "actor"],
)
def test_a_changed_event_breaks_the_chain(change: Callable[[Event], Event]) -> None:
    history = good().history()
    history.raw.events[3] = change(history.raw.events[3])
    assert list(checker.one_history(history)) != []


def test_an_event_that_is_there_twice_or_missing_is_caught() -> None:
    history = good().history()
    history.raw.events.append(history.raw.events[0])
    assert list(checker.one_history(history)) != []
    history = good().history()
    history.raw.events.pop(1)
    assert list(checker.one_history(history)) != []


def test_the_judge_knows_nothing_of_remit() -> None:
    code = (
        "import sys, tests.torture.checker; print([name for name in sys.modules if"
        " name.partition('.')[0] == 'remit'])"
    )
    alone = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=True,
    )
    assert alone.stdout == "[]\n"


def test_every_rule_has_a_history_that_breaks_it() -> None:
    assert {rule for rule, _ in FORGERIES} | {checker.one_history} == set(checker.RULES)


def test_a_run_that_is_lost_while_all_workers_were_late_is_allowed() -> None:
    at = good()
    robbed_of_its_run(at)
    at.faults = at.faults._replace(
        spans=((datetime(2025, 12, 31, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)),)
    )
    assert list(checker.lost_with_their_worker(at.history())) == []
