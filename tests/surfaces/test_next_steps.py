"""Messages about a task that does not start yet: the reason, the start time, and what a person can
do.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from remit.domain.records.serialize import instant
from remit.ports import WorkerRow
from tests.surfaces.cli_host import shop
from tests.surfaces.place import Place

GHOST = "---\nname: ghost\ndescription: It comes and goes.\n---\nHaunt.\n"
UNKNOWN = "Agent ghost is unknown here, and no live worker works for it, so it does not start."
OWNER = "set another owner with: remit task update 1 --owner AGENT"


def _worker(name: str, agents: str) -> WorkerRow:
    return WorkerRow(name, "host", 1, "0", agents, 8, instant(datetime.now(UTC)))


@pytest.fixture
def place(
    durable_url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Place:
    monkeypatch.chdir(tmp_path)
    made = Place(durable_url, tmp_path, capsys)
    assert made.remit("init").code == 0
    return made


@pytest.fixture
def haunted(place: Place, tmp_path: Path) -> Place:
    """A workspace with a task for an agent whose file was removed."""
    file = tmp_path / ".remit" / "agents" / "ghost.md"
    file.parent.mkdir(exist_ok=True)
    file.write_text(GHOST)
    assert place.remit("task", "create", "Haunt", "--owner", "ghost").code == 0
    file.unlink()
    return place


def test_a_task_of_an_unknown_agent_is_marked_everywhere(haunted: Place) -> None:
    shown = haunted.remit("task", "show", "1")
    assert "pending · waits for agent ghost (not known here) · owner ghost\n" in shown.out
    assert (UNKNOWN in shown.err, OWNER in shown.err) == (True, True)
    assert "agent ghost (not known here)" in haunted.remit("task", "list").out
    assert haunted.remit("ready").out == ""
    assert UNKNOWN in haunted.remit("task", "message", "1", "Boo").err
    found = haunted.remit("task", "show", "1", "--json").json
    assert (found["ready"], found["held_by"]) == (False, [{"kind": "agent", "ref": "ghost"}])


def test_running_a_task_of_an_unknown_agent_is_refused_at_once(haunted: Place) -> None:
    said = haunted.remit("task", "run", "1")
    assert said.code == 4
    assert (
        "Unknown agent 'ghost': it owns task 1, but neither this process nor a live worker knows"
        " it." in said.err
    )
    assert (
        "another owner with remit task update 1\nAvailable: build, explore, general, plan, summary."
        in said.err
    )
    assert haunted.remit("task", "update", "1", "--owner", "general").code == 0
    assert [task["id"] for task in haunted.remit("ready", "--json").json["tasks"]] == ["1"]


def test_the_doctor_names_unknown_agents(haunted: Place) -> None:
    said = haunted.remit("doctor")
    assert (
        "unknown agent ghost owns #1, but this agent is unknown here, and no live worker runs it."
        in said.out
    )
    assert OWNER in said.out
    assert haunted.remit("doctor", "--json").json["unknown_agents"] == [
        {"agent_id": "ghost", "task_id": "1", "tasks": 1}
    ]


def test_an_agent_that_only_a_live_worker_knows_is_known(haunted: Place) -> None:
    async def attend(team: Any) -> None:
        await team.core.store.beat(_worker("elsewhere", "ghost"), ())

    haunted.after(attend)
    assert "pending · owner ghost · ready" in haunted.remit("task", "show", "1").out
    assert [task["id"] for task in haunted.remit("ready", "--json").json["tasks"]] == ["1"]
    assert haunted.remit("doctor", "--json").json["unknown_agents"] == []


def test_a_task_with_a_calendar_names_its_first_slot_and_is_not_ready_before(place: Place) -> None:
    created = place.remit(
        "task", "create", "Read the news", "--owner", "general", "--cron", "0 3 * * *"
    )
    assert "It starts at its next slot, " in created.err
    task = place.remit("task", "show", "1", "--json").json
    (hold,) = task["held_by"]
    assert (task["ready"], hold["kind"], hold["ref"] > instant(datetime.now(UTC))) == (
        False,
        "slot",
        True,
    )
    assert "pending · next slot 2" in place.remit("task", "show", "1").out
    assert "next slot 2" in place.remit("task", "list").out
    assert place.remit("ready").out == ""
    schedule = place.remit("schedule", "show")
    assert "#1 Read the news waits for its schedule at 0 3 * * *, next 2" in schedule.out
    assert "No task waits for the schedule." not in schedule.err


def test_a_scheduled_task_that_is_run_by_hand_is_ready(place: Place) -> None:
    place.remit("task", "create", "Read the news", "--owner", "general", "--cron", "0 3 * * *")

    async def run(team: Any) -> None:
        await team.do("RunTask", task_id="1")

    place.after(run)
    assert place.remit("task", "show", "1", "--json").json["held_by"] == []
    assert [task["id"] for task in place.remit("ready", "--json").json["tasks"]] == ["1"]


def test_a_list_says_what_each_task_waits_for(durable_url: str) -> None:
    later = instant(datetime.now(UTC) + timedelta(days=2))
    with shop(durable_url) as at:
        draft = at.create("Draft", "--owner", "general", "--draft")
        expected = {
            draft: "activation",
            at.create("Depends", "--owner", "general", "--depends-on", draft): f"#{draft}",
            at.create("Early", "--owner", "general", "--not-before", later): "not before 2",
            at.create("Unowned"): "an owner",
            at.create("Assigned", "--owner", "general", "--session", "s1"): "session s1",
            at.create("Ready", "--owner", "general"): "",
        }
        paused = at.create("Paused", "--owner", "general")
        at("task", "pause", paused)
        rows = {line.split()[0]: line for line in at("task", "list").out.splitlines()}
        for task_id, words in {**expected, paused: "resume"}.items():
            assert words in rows[task_id]
            assert words in at("task", "show", task_id).out.splitlines()[1]
        summaries = {task["id"]: task for task in at("task", "list", "--json").json["tasks"]}
        assert ["held_by" in summaries[task_id] for task_id in expected] == [
            False,
            True,
            True,
            True,
            True,
            False,
        ]


@pytest.mark.parametrize("attended", [True, False])
def test_a_dependency_that_failed_is_named_with_what_follows(
    durable_url: str, attended: bool
) -> None:
    with shop(durable_url) as at:
        at.host.attended = attended
        first = at.create("First", "--owner", "general", "--draft")
        second = at.create("Second", "--owner", "general", "--depends-on", first)
        at("task", "fail", first, "no")
        shown = at("task", "show", second)
        assert f"pending · waits for #{first} (failed) · owner general" in shown.out
        assert f"[!] #{first} failed (required: done)" in shown.out
        assert f"It can never start: #{first} is failed, and had to be done first." in shown.err
        assert (
            "A worker fails it soon."
            if attended
            else "A worker fails it when one runs. Start one with: remit worker"
        ) in shown.err
        assert f"remit task update {second} --clear depends-on" in shown.err
        refused = at("task", "run", second)
        assert (
            refused.code,
            f"Task {second} can never start: it depends on task {first} (failed)." in refused.err,
        ) == (4, True)
        at("task", "update", second, "--clear", "depends-on")
        assert at("task", "show", second, "--json").json["ready"] is True


def test_a_list_by_an_unknown_owner_names_the_one_that_was_meant() -> None:
    with shop() as at:
        at.create("Work", "--owner", "general")
        said = at("task", "list", "--owner", "genral")
        assert (said.code, said.out) == (0, "")
        assert said.err.startswith(
            "Unknown agent 'genral'. Did you mean general? Available: build,"
        )
        assert "No tasks to show." in said.err
        assert at("task", "list", "--owner", "General").err == ""
        assert at("task", "list", "--owner", "plan").err.startswith("No tasks to show.")


def test_an_event_wraps_its_head_and_ends_its_data_at_a_word() -> None:
    with shop() as at:
        at.create("one, two, three, four, five, " * 6)
        lines = at("task", "events", "1", columns=30, NO_COLOR="1").out.splitlines()
        assert max(map(len, lines)) <= 30
        assert "TaskCreated" in " ".join(lines).split()
        assert (
            at("task", "events", "1")
            .out.rstrip()
            .endswith(("one,…", "two,…", "three,…", "four,…", "five,…"))
        )


def test_amounts_of_money_are_dollars_in_limits() -> None:
    with shop() as at:
        at.create("Work", "--limits", "max_cost=0.0019", "--limits", "max_turns=20")
        assert "limits max_turns 20, max_cost $0.0019" in at("task", "show", "1").out


def test_doing_a_pending_task_again_is_refused_with_a_command() -> None:
    with shop() as at:
        at.create("Work", "--owner", "general")
        refused = at("task", "rerun", "1")
        assert (refused.code, "remit task cancel 1" in refused.err, "run_task" in refused.err) == (
            4,
            True,
            False,
        )


def test_the_doctor_counts_the_runs_that_the_store_knows(place: Place) -> None:
    place.remit("task", "create", "Work", "--owner", "general")

    async def begin(team: Any) -> None:
        await team.core.store.beat(_worker("busy", "general"), ())
        await team.do("StartRun", "system:engine", task_id="1", worker="busy")

    place.after(begin)
    assert [row["running"] for row in place.remit("doctor", "--json").json["workers"]] == [1]


GONE = (
    "The worker that ran it is gone. Continue it with: remit task run 1\n"
    "Or start a worker with: remit worker"
)


def test_a_running_task_without_its_worker_is_marked_on_every_page(place: Place) -> None:
    place.remit("task", "create", "Work", "--owner", "general")

    async def begin(team: Any) -> None:
        await team.do("StartRun", "system:engine", task_id="1", worker="dead")

    place.after(begin)
    shown = place.remit("task", "show", "1")
    assert ("running · its worker is gone · owner general\n" in shown.out, GONE in shown.err) == (
        True,
        True,
    )
    result = place.remit("task", "result", "1")
    assert result.err == f"#1 has not ended: it is running, but no worker runs it. {GONE}\n"


def test_a_running_task_with_a_live_worker_is_only_followed(place: Place) -> None:
    place.remit("task", "create", "Work", "--owner", "general")

    async def begin(team: Any) -> None:
        await team.core.store.beat(_worker("busy", "general"), ())
        await team.do("StartRun", "system:engine", task_id="1", worker="busy")

    place.after(begin)
    shown = place.remit("task", "show", "1")
    assert ("running · owner general\n" in shown.out, "is gone" in shown.err) == (True, False)
    result = place.remit("task", "result", "1")
    assert result.err == "#1 has not ended: it is running. Follow it with: remit task watch 1\n"


@pytest.mark.parametrize(
    ("create", "before", "hint"),
    [
        (
            ["--draft", "--owner", "general"],
            [],
            "Activate it with: remit task update 1 --status active",
        ),
        (["--owner", "general"], ["task", "pause", "1"], "Resume it with: remit task resume 1"),
        ([], [], "Set one with: remit task update 1 --owner AGENT"),
    ],
    ids=["draft", "paused", "ownerless"],
)
def test_a_task_that_cannot_run_now_names_the_command_that_helps(
    create: list[str],
    before: list[str],
    hint: str,
    place: Place,
) -> None:
    assert place.remit("task", "create", "Work", *create).code == 0
    if before:
        assert place.remit(*before).code == 0
    said = place.remit("task", "run", "1")
    assert (said.code, said.err.splitlines()[-1]) == (4, hint)


def test_running_a_task_with_an_open_dependency_names_it(durable_url: str) -> None:
    with shop(durable_url) as at:
        at.create("First", "--owner", "general")
        at.create("Second", "--owner", "general", "--depends-on", "1")
        said = at("task", "run", "2")
        assert (said.code, said.out) == (4, "")
        assert "It starts when #1 is done. See #1 with: remit task show 1\n" in said.err


def test_a_task_is_created_with_a_time_limit(durable_url: str) -> None:
    with shop(durable_url) as at:
        at.create("Short", "--owner", "general", "--timeout", "30", "--limits", "max_turns=5")
        assert at("task", "show", "1", "--json").json["limits"] == {
            "timeout_seconds": 30,
            "max_turns": 5,
        }
        refused = at("task", "create", "Wrong", "--owner", "general", "--timeout", "0")
        assert (refused.code, "--timeout" in refused.err) == (2, True)


def test_a_distant_time_is_shown_as_a_date(durable_url: str) -> None:
    now = datetime.now(UTC)
    with shop(durable_url) as at:
        far = at(
            "task",
            "create",
            "Far",
            "--owner",
            "general",
            "--not-before",
            instant(now + timedelta(days=400)),
        )
        near = at(
            "task",
            "create",
            "Near",
            "--owner",
            "general",
            "--not-before",
            instant(now + timedelta(days=3)),
        )
        assert ("It does not start before 2" in far.err, "(in " in far.err) == (True, False)
        assert "(in 2 d)" in near.err


def test_the_doctor_says_what_is_safe(place: Place) -> None:
    said = place.remit("doctor")
    assert "safe true" not in said.out
    assert ("when several processes write)" in said.out) == place.url.startswith("sqlite")
