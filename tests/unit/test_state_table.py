"""The effect of every command in every state, written by hand from the contract and compared with
the domain.
"""

import re
from typing import get_args

import pytest
from scripts import reference

from remit.domain.task import commands as cmd
from remit.domain.task.task import State

EXPECTED = """
state             create_task  create_guide  create_subtask  rerun_task
draft             new task     new guide     stays           CONFLICT
pending           new task     new guide     stays           CONFLICT
pending, session  new task     new guide     stays           CONFLICT
running, run      new task     new guide     stays           CONFLICT
running, session  new task     new guide     stays           CONFLICT
waiting, person   new task     new guide     stays           CONFLICT
waiting, call     new task     new guide     stays           CONFLICT
waiting, tick     new task     new guide     stays           CONFLICT
waiting, timer    new task     new guide     stays           CONFLICT
waiting, wake     new task     new guide     stays           CONFLICT
paused, pending   new task     new guide     stays           CONFLICT
paused, run       new task     new guide     stays           CONFLICT
paused, person    new task     new guide     stays           CONFLICT
verifying         new task     new guide     stays           CONFLICT
done              new task     new guide     CONFLICT        new task
failed            new task     new guide     CONFLICT        new task
canceled          new task     new guide     CONFLICT        new task

state             complete_task  fail_task  cancel_task  waive_criterion  check_criteria (pass)  check_criteria (fail)  abort_task
draft             verifying      failed     canceled     stays            no effect              no effect              failed
pending           verifying      failed     canceled     stays            no effect              no effect              failed
pending, session  verifying      failed     canceled     stays            no effect              no effect              failed
running, run      verifying      failed     canceled     stays            no effect              no effect              failed
running, session  verifying      failed     canceled     stays            no effect              no effect              failed
waiting, person   verifying      failed     canceled     stays            no effect              no effect              failed
waiting, call     verifying      failed     canceled     stays            no effect              no effect              failed
waiting, tick     verifying      failed     canceled     stays            no effect              no effect              failed
waiting, timer    verifying      failed     canceled     stays            no effect              no effect              failed
waiting, wake     verifying      failed     canceled     stays            no effect              no effect              failed
paused, pending   verifying      failed     canceled     stays            no effect              no effect              failed
paused, run       verifying      failed     canceled     stays            no effect              no effect              failed
paused, person    verifying      failed     canceled     stays            no effect              no effect              failed
verifying         verifying      failed     canceled     done             done                   pending                failed
done              CONFLICT       CONFLICT   CONFLICT     CONFLICT         no effect              no effect              no effect
failed            CONFLICT       CONFLICT   CONFLICT     CONFLICT         no effect              no effect              no effect
canceled          CONFLICT       CONFLICT   CONFLICT     CONFLICT         no effect              no effect              no effect

state             pause_task  resume_task  run_task   assign_task  change_schedule  tick       fire_timer
draft             CONFLICT    CONFLICT     CONFLICT   CONFLICT     stays            no effect  no effect
pending           paused      CONFLICT     no effect  pending      stays            no effect  no effect
pending, session  paused      CONFLICT     CONFLICT   pending      stays            no effect  no effect
running, run      paused      CONFLICT     CONFLICT   CONFLICT     stays            no effect  no effect
running, session  paused      CONFLICT     CONFLICT   running      stays            no effect  no effect
waiting, person   paused      CONFLICT     CONFLICT   CONFLICT     stays            no effect  no effect
waiting, call     paused      CONFLICT     CONFLICT   CONFLICT     stays            no effect  no effect
waiting, tick     paused      CONFLICT     pending    CONFLICT     stays            pending    no effect
waiting, timer    paused      CONFLICT     pending    CONFLICT     stays            no effect  pending
waiting, wake     paused      CONFLICT     pending    CONFLICT     stays            no effect  no effect
paused, pending   CONFLICT    pending      CONFLICT   CONFLICT     stays            no effect  no effect
paused, run       CONFLICT    running      CONFLICT   CONFLICT     stays            no effect  no effect
paused, person    CONFLICT    waiting      CONFLICT   CONFLICT     stays            no effect  no effect
verifying         paused      CONFLICT     CONFLICT   CONFLICT     stays            no effect  no effect
done              CONFLICT    CONFLICT     CONFLICT   CONFLICT     CONFLICT         no effect  no effect
failed            CONFLICT    CONFLICT     CONFLICT   CONFLICT     CONFLICT         no effect  no effect
canceled          CONFLICT    CONFLICT     CONFLICT   CONFLICT     CONFLICT         no effect  no effect

state             update_task (title)  update_task (instructions)  update_task (owner)  update_task (active)
draft             stays                stays                       stays                pending
pending           stays                stays                       stays                no effect
pending, session  stays                stays                       stays                no effect
running, run      stays                stays                       canceled             no effect
running, session  stays                stays                       canceled             no effect
waiting, person   stays                stays                       canceled             no effect
waiting, call     stays                stays                       canceled             no effect
waiting, tick     stays                pending                     canceled             no effect
waiting, timer    stays                pending                     canceled             no effect
waiting, wake     stays                pending                     canceled             no effect
paused, pending   stays                stays                       stays                no effect
paused, run       stays                stays                       canceled             no effect
paused, person    stays                stays                       canceled             no effect
verifying         stays                pending                     canceled             no effect
done              CONFLICT             CONFLICT                    CONFLICT             CONFLICT
failed            CONFLICT             CONFLICT                    CONFLICT             CONFLICT
canceled          CONFLICT             CONFLICT                    CONFLICT             CONFLICT

state             update_task (done)  update_task (canceled)  send_message  attach_tsg
draft             verifying           canceled                stays         stays
pending           verifying           canceled                stays         stays
pending, session  verifying           canceled                stays         stays
running, run      verifying           canceled                stays         stays
running, session  verifying           canceled                stays         stays
waiting, person   verifying           canceled                stays         stays
waiting, call     verifying           canceled                stays         stays
waiting, tick     verifying           canceled                pending       stays
waiting, timer    verifying           canceled                pending       stays
waiting, wake     verifying           canceled                pending       stays
paused, pending   verifying           canceled                stays         stays
paused, run       verifying           canceled                stays         stays
paused, person    verifying           canceled                stays         stays
verifying         verifying           canceled                stays         stays
done              CONFLICT            CONFLICT                CONFLICT      CONFLICT
failed            CONFLICT            CONFLICT                CONFLICT      CONFLICT
canceled          CONFLICT            CONFLICT                CONFLICT      CONFLICT

state             update_steps  update_step  add_resource  remove_resource
draft             stays         stays        stays         stays
pending           stays         stays        stays         stays
pending, session  stays         stays        stays         stays
running, run      stays         stays        stays         stays
running, session  stays         stays        stays         stays
waiting, person   stays         stays        stays         stays
waiting, call     stays         stays        stays         stays
waiting, tick     stays         stays        stays         stays
waiting, timer    stays         stays        stays         stays
waiting, wake     stays         stays        stays         stays
paused, pending   stays         stays        stays         stays
paused, run       stays         stays        stays         stays
paused, person    stays         stays        stays         stays
verifying         stays         stays        stays         stays
done              CONFLICT      CONFLICT     CONFLICT      CONFLICT
failed            CONFLICT      CONFLICT     CONFLICT      CONFLICT
canceled          CONFLICT      CONFLICT     CONFLICT      CONFLICT

state             ask_user  respond    notify_user  deliver_updates (run)  deliver_updates (session)
draft             CONFLICT  NOT_FOUND  CONFLICT     CONFLICT               CONFLICT
pending           CONFLICT  NOT_FOUND  stays        CONFLICT               CONFLICT
pending, session  CONFLICT  NOT_FOUND  stays        CONFLICT               running
running, run      stays     NOT_FOUND  stays        stays                  CONFLICT
running, session  stays     NOT_FOUND  stays        CONFLICT               stays
waiting, person   CONFLICT  pending    stays        CONFLICT               CONFLICT
waiting, call     CONFLICT  NOT_FOUND  stays        CONFLICT               CONFLICT
waiting, tick     CONFLICT  NOT_FOUND  stays        CONFLICT               CONFLICT
waiting, timer    CONFLICT  NOT_FOUND  stays        CONFLICT               CONFLICT
waiting, wake     CONFLICT  NOT_FOUND  stays        CONFLICT               CONFLICT
paused, pending   CONFLICT  NOT_FOUND  stays        CONFLICT               CONFLICT
paused, run       CONFLICT  NOT_FOUND  stays        stays                  CONFLICT
paused, person    CONFLICT  stays      stays        CONFLICT               CONFLICT
verifying         CONFLICT  NOT_FOUND  stays        CONFLICT               CONFLICT
done              CONFLICT  NOT_FOUND  CONFLICT     CONFLICT               CONFLICT
failed            CONFLICT  NOT_FOUND  CONFLICT     CONFLICT               CONFLICT
canceled          CONFLICT  NOT_FOUND  CONFLICT     CONFLICT               CONFLICT

state             start_run  finish_run  yield_run  release_run  fail_run  fail_run (permanent)  time_out_run  lose_run
draft             CONFLICT   CONFLICT    CONFLICT   CONFLICT     CONFLICT  CONFLICT              CONFLICT      no effect
pending           running    CONFLICT    CONFLICT   CONFLICT     CONFLICT  CONFLICT              CONFLICT      no effect
pending, session  CONFLICT   CONFLICT    CONFLICT   CONFLICT     CONFLICT  CONFLICT              CONFLICT      no effect
running, run      CONFLICT   verifying   pending    pending      pending   failed                pending       pending
running, session  CONFLICT   CONFLICT    CONFLICT   CONFLICT     CONFLICT  CONFLICT              CONFLICT      no effect
waiting, person   CONFLICT   CONFLICT    CONFLICT   CONFLICT     CONFLICT  CONFLICT              CONFLICT      no effect
waiting, call     CONFLICT   CONFLICT    CONFLICT   CONFLICT     CONFLICT  CONFLICT              CONFLICT      no effect
waiting, tick     CONFLICT   CONFLICT    CONFLICT   CONFLICT     CONFLICT  CONFLICT              CONFLICT      no effect
waiting, timer    CONFLICT   CONFLICT    CONFLICT   CONFLICT     CONFLICT  CONFLICT              CONFLICT      no effect
waiting, wake     CONFLICT   CONFLICT    CONFLICT   CONFLICT     CONFLICT  CONFLICT              CONFLICT      no effect
paused, pending   CONFLICT   CONFLICT    CONFLICT   CONFLICT     CONFLICT  CONFLICT              CONFLICT      no effect
paused, run       CONFLICT   verifying   stays      stays        stays     failed                stays         stays
paused, person    CONFLICT   CONFLICT    CONFLICT   CONFLICT     CONFLICT  CONFLICT              CONFLICT      no effect
verifying         CONFLICT   CONFLICT    CONFLICT   CONFLICT     CONFLICT  CONFLICT              CONFLICT      no effect
done              CONFLICT   CONFLICT    CONFLICT   CONFLICT     CONFLICT  CONFLICT              CONFLICT      no effect
failed            CONFLICT   CONFLICT    CONFLICT   CONFLICT     CONFLICT  CONFLICT              CONFLICT      no effect
canceled          CONFLICT   CONFLICT    CONFLICT   CONFLICT     CONFLICT  CONFLICT              CONFLICT      no effect

state             await_task  await_subtask  settle_subtask  set_timer  settle_budget  vouch_result
draft             stays       CONFLICT       stays           CONFLICT   CONFLICT       CONFLICT
pending           stays       CONFLICT       stays           CONFLICT   CONFLICT       CONFLICT
pending, session  stays       CONFLICT       stays           CONFLICT   CONFLICT       CONFLICT
running, run      stays       stays          stays           stays      stays          no effect
running, session  stays       CONFLICT       stays           CONFLICT   CONFLICT       CONFLICT
waiting, person   stays       CONFLICT       stays           CONFLICT   CONFLICT       CONFLICT
waiting, call     stays       CONFLICT       pending         CONFLICT   CONFLICT       CONFLICT
waiting, tick     pending     CONFLICT       pending         CONFLICT   CONFLICT       CONFLICT
waiting, timer    stays       CONFLICT       pending         CONFLICT   CONFLICT       CONFLICT
waiting, wake     stays       CONFLICT       pending         CONFLICT   CONFLICT       CONFLICT
paused, pending   stays       CONFLICT       stays           CONFLICT   CONFLICT       CONFLICT
paused, run       stays       stays          stays           stays      stays          no effect
paused, person    stays       CONFLICT       stays           CONFLICT   CONFLICT       CONFLICT
verifying         stays       CONFLICT       stays           CONFLICT   CONFLICT       CONFLICT
done              no effect   CONFLICT       no effect       CONFLICT   CONFLICT       CONFLICT
failed            no effect   CONFLICT       no effect       CONFLICT   CONFLICT       CONFLICT
canceled          no effect   CONFLICT       no effect       CONFLICT   CONFLICT       CONFLICT
"""
"""`stays`: something is recorded and the state is as before; `no effect`: nothing is recorded."""


def cells() -> dict[tuple[str, str], str]:
    """Every cell of the tables above, by state and command."""
    found: dict[tuple[str, str], str] = {}
    for table in EXPECTED.strip().split("\n\n"):
        (_, *labels), *rows = (re.split(r"\s{2,}", line.strip()) for line in table.splitlines())
        for state, *values in rows:
            found |= {(state, label): value for label, value in zip(labels, values, strict=True)}
    return found


@pytest.mark.parametrize(
    ("state", "label", "expected"), [(*key, value) for key, value in cells().items()]
)
def test_a_command_does_in_a_state_what_the_contract_says(
    state: str, label: str, expected: str
) -> None:
    there = reference.sample_task(state).state.value
    assert reference.cell(state, label) == (there if expected == "stays" else expected)


def test_the_table_is_whole() -> None:
    labels = [label for samples in reference.GROUPS.values() for label in samples]
    assert set(cells()) == {(state, label) for state in reference.STATES for label in labels}


def test_every_state_has_a_sample_that_is_in_it() -> None:
    named = {state: state.partition(",")[0] for state in reference.STATES}
    assert {state: reference.sample_task(state).state.value for state in reference.STATES} == named
    assert set(named.values()) == {state.value for state in State}


def test_every_command_has_a_sample_under_its_name() -> None:
    samples = {
        label: sample for group in reference.GROUPS.values() for label, sample in group.items()
    }
    assert {type(sample.command) for sample in samples.values()} == {
        *get_args(cmd.Operation),
        *get_args(cmd.Signal),
    }
    assert all(
        label.partition(" ")[0] == reference.wire_name(type(sample.command))
        for label, sample in samples.items()
    )


@pytest.mark.parametrize("name", list(reference.pages()))
def test_the_reference_is_up_to_date(name: str) -> None:
    assert reference.on_disk(name) == reference.pages()[name], "run python scripts/reference.py"
