"""The tables of decisions and changes name every command and event."""

from typing import get_args

from remit.domain.decisions.decide import DECISIONS as OTHER_DECISIONS
from remit.domain.decisions.decide import TaskCommand
from remit.domain.decisions.evolve import CHANGES, DATED_CHANGES
from remit.domain.decisions.runs import DECISIONS, RunCommand
from remit.domain.task import events as ev


def test_every_event_after_the_first_one_changes_the_task_in_one_way() -> None:
    assert CHANGES.keys().isdisjoint(DATED_CHANGES)
    assert CHANGES.keys() | DATED_CHANGES.keys() == set(get_args(ev.Event)) - {ev.TaskCreated}


def test_every_command_of_a_run_is_decided() -> None:
    assert DECISIONS.keys() == set(get_args(RunCommand))


def test_every_command_on_one_task_is_decided_once() -> None:
    assert OTHER_DECISIONS.keys().isdisjoint(DECISIONS)
    assert set(get_args(TaskCommand)) <= OTHER_DECISIONS.keys() | DECISIONS.keys()
