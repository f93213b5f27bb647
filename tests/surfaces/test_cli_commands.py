"""Commands on a real store: each command has the effect of its operation."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from remit.domain.agents.agent import READING
from remit.ports import Unit
from remit.surfaces.cli.command_table import COMMANDS
from remit.surfaces.cli.output.times import ago, since, span
from tests.surfaces.cli_host import Shop, shop

GUIDE = "flaky-network"


def test_a_task_is_created_with_every_option() -> None:
    with shop() as at:
        first = at.create("First")
        at("guide", "add", "Flaky network", "Retry.")
        said = at(
            *(
                "task",
                "create",
                "Write the report",
                "--owner",
                "general",
                "--instructions",
                "Write it.",
                "--description",
                "The board asks.",
            ),
            *(
                "--accept",
                "It is short.",
                "--accept",
                "It is true.",
                "--output",
                "report",
                "--output",
                "data:json",
                "--output",
                "notes?",
                "--output",
                '{"name": "rows", "kind": "json", "schema": {"type": "array"}, "required": false}',
            ),
            *(
                "--step",
                "Read",
                "--step",
                "[x] Plan",
                "--resource",
                "https://example.com/a",
                "--resource",
                "notes.md",
                "--guide",
                GUIDE,
            ),
            *(
                "--priority",
                "high",
                "--depends-on",
                f"#{first}",
                "--label",
                "q3",
                "--label",
                "board",
                "--set",
                "team=core",
                "--set",
                'size={"n": 3}',
            ),
            *(
                "--set",
                "round=2",
                "--limits",
                "max_turns=20",
                "--limits",
                "max-cost=1.5",
                "--model",
                "light",
                "--effort",
                "high",
                "--allow",
                "Edit, bash",
                "--deny",
                "LS",
            ),
            *(
                "--explicit",
                "--draft",
                "--not-before",
                "2030-01-31T08:00:00Z",
                "--cron",
                "0 6 * * *",
                "--channel",
                "board",
                "--session",
                "s1",
            ),
            *("--parent-session", "s0", "--idempotency-key", "k1", "--json"),
        )
        task = said.json["task"]
        assert said.code == 0
        assert (task["owner"], task["instructions"], task["description"]) == (
            "general",
            "Write it.",
            "The board asks.",
        )
        assert [item["text"] for item in task["acceptance"]] == ["It is short.", "It is true."]
        outputs = [(item["name"], item["kind"], item["required"]) for item in task["outputs"]]
        assert outputs == [
            ("report", "text", True),
            ("data", "json", True),
            ("notes", "text", False),
            ("rows", "json", False),
        ]
        assert task["outputs"][3]["schema"] == {"type": "array"}
        assert [(item["title"], item["done"]) for item in task["steps"]] == [
            ("Read", False),
            ("Plan", True),
        ]
        assert [item["value"] for item in task["resources"]] == [
            "https://example.com/a",
            str(Path.cwd() / "notes.md"),
        ]
        assert (task["guides"], task["priority"], task["labels"]) == ([GUIDE], 1, ["q3", "board"])
        assert task["depends_on"] == [{"task_id": first, "on": "done"}]
        assert task["metadata"] == {"team": "core", "size": {"n": 3}, "round": 2}
        assert (task["limits"], task["model"], task["effort"]) == (
            {"max_turns": 20, "max_cost": 1.5},
            "light",
            "high",
        )
        assert task["tools"] == {"allow": [*READING, "Edit", "Bash"], "deny": ["LS"]}
        assert (task["completion"], task["status"], task["channel"]) == (
            "explicit",
            "draft",
            "board",
        )
        assert (task["session_id"], task["parent_session_id"], task["idempotency_key"]) == (
            "s1",
            "s0",
            "k1",
        )
        assert task["schedule"]["cron"] == "0 6 * * *"


def test_text_comes_from_the_line_from_a_file_or_from_standard_input(tmp_path: Path) -> None:
    brief = tmp_path / "brief.md"
    brief.write_text("From a file: größer.\n")
    with shop() as at:
        cases = {
            f"@{brief}": "From a file: größer.",
            "-": "From a pipe.",
            "@@ann": "@ann",
            "plain": "plain",
        }
        for given, expected in cases.items():
            said = at(
                "task", "create", "T", "--instructions", given, "--json", stdin="From a pipe.\n"
            )
            assert said.json["task"]["instructions"] == expected


def test_a_list_shows_whom_each_task_waits_for() -> None:
    with shop() as at:
        assert at("task", "list").err.startswith(
            "No tasks to show. Create one with: remit task create"
        )
        task = at.create("Deploy", "--owner", "general")
        run = at.ask(task, "Which region?", ["eu", "us"])
        at.do("YieldRun", "agent:general", run, task_id=task)
        header, row = at("task", "list").out.splitlines()
        assert header.split() == ["ID", "STATE", "OWNER", "TITLE", "WAITS", "FOR", "CHANGED"]
        assert re.match(r"1   waiting  general  Deploy  you: 1-q1 \(for \d+ s\)  just now$", row)
        assert re.search(
            r"\nwaiting for you: 1-q1 \(for \d+ s\) · owner general\n", at("task", "show", task).out
        )
        at("task", "pause", task)
        assert "\npaused · waits for resume, you: 1-q1 (for " in at("task", "show", task).out
        at("task", "resume", task)
        assert at("task", "list", "--status", "done").out == ""
        assert "◐ waiting" in at("task", "list", "--owner", "general", columns=100).out


def test_the_printed_command_shows_the_next_page() -> None:
    with shop() as at:
        for number in range(3):
            at.create(f"Task {number}")
        first = at("task", "list", "--limit", "2")
        assert first.err.startswith("There are more: add --cursor ")
        rest = at("task", "list", "--limit", "2", "--cursor", first.err.split()[-1])
        assert [line.split()[0] for line in (first.out + rest.out).splitlines()] == [
            "ID",
            "3",
            "2",
            "ID",
            "1",
        ]
        at("task", "pause", "1")
        events = at("task", "events", "1", "--limit", "1")
        assert ("TaskCreated by user:ann" in events.out, events.err) == (
            True,
            "There are more: add --after 1\n",
        )
        run = at.ask(at.create("Deploy", "--owner", "general"), "Which region?")
        at.do("AskUser", "agent:general", run, task_id="4", question="Which size?")
        assert at("inbox", "--limit", "1").err.startswith("There are more: add --cursor ")


def test_times_are_shown_as_people_say_them() -> None:
    now = datetime(2030, 1, 31, 12, tzinfo=UTC)
    cases = {
        0: "just now",
        59: "just now",
        60: "1 min ago",
        3600: "1 h ago",
        86400 * 2.5: "2 d ago",
        -7200: "in 2 h",
    }
    assert [ago((now - timedelta(seconds=seconds)).isoformat(), now) for seconds in cases] == list(
        cases.values()
    )
    assert (ago(None, now), since(None, now), span(5.9)) == ("", "", "5 s")


def test_a_whole_task_reads_like_a_page() -> None:
    with shop() as at:
        before = at.create("Before")
        task = at.create(
            "Deploy",
            *(
                "--instructions",
                "Roll it out.",
                "--accept",
                "It answers.",
                "--output",
                "url:url",
                "--step",
                "Build",
                "--step",
                "Ship",
            ),
        )
        at("task", "update", task, "--owner", "build", "--depends-on", before)
        at("task", "subtask", task, "Compile", "general", "--for-step", "0")
        at("task", "subtask", task, "Look around", "explore")
        at("task", "complete", "3")
        at("task", "resource", "add", task, "https://example.com", "--label", "docs")
        page = at("task", "show", f"#{task}").out
        assert page.splitlines()[:2] == ["#2 Deploy", "pending · waits for #1 · owner build"]
        for part in (
            "Instructions\n  Roll it out.\n",
            "Acceptance\n  [ ] c1 It answers.\n",
            "Outputs\n  [ ] url (url)\n",
            "Plan\n  0 [ ] Build → #3 done\n  1 [ ] Ship\n",
            "Subtasks\n  #4 pending Look around\n",
            "Resources\n  0 url https://example.com (docs)\n",
            "Depends on\n  [ ] #1 to be done\n",
            "(just now) by user:ann\n",
        ):
            assert part in page


def test_a_page_shows_questions_and_undelivered_updates() -> None:
    with shop() as at:
        task = at.create("Deploy", "--owner", "general")
        at.ask(task, "Which region?", ["eu", "us"])
        at("task", "message", task, "Hurry.")
        page = at("task", "show", task).out
        assert (
            "Open questions\n  1-q1 agent:general asked just now\n    Which region?\n      1 eu\n  "
            "    2 us\n" in page
        )
        assert "Not delivered yet\n  1-u1 message (queued, just now): Hurry.\n" in page


def test_the_end_of_a_task_is_shown_with_its_result() -> None:
    with shop() as at:
        task = at.create(
            "Report", "--output", "report", "--output", "data:json", "--accept", "Short."
        )
        missing = at("task", "complete", task)
        assert (
            missing.code,
            "--output: missing required outputs: report, data. Add --output report=… --output"
            " data=…" in missing.err,
        ) == (2, True)
        said = at(
            "task",
            "complete",
            task,
            "--output",
            "report=-",
            "--output",
            'data:={"n": 1}',
            "--summary",
            "Written.",
            stdin="Two pages.\n",
        )
        assert said.out == "Completed #1 Report (done)\n"
        page = at("task", "show", task).out
        assert "done · owner (none) · unverified" in page
        assert '[x] report (text): Two pages.\n  [x] data (json): {"n": 1}\n' in page
        assert "Result\n  Written.\n" in page
        assert "[~] c1 Short.\n      attested" in page
        failed = at.create("Hopeless")
        assert at("task", "fail", failed, "No network.").out == "Failed #2 Hopeless (failed)\n"
        assert "Result\n  failed error: No network.\n" in at("task", "show", failed).out
        assert [line.split()[0] for line in at("task", "history").out.splitlines()[1:]] == [
            "2",
            "1",
        ]


def test_the_time_of_a_run_in_progress_is_not_part_of_the_work_time() -> None:
    with shop() as at:
        task = at.create("Paint", "--owner", "general")
        run = at.ask(task, "Which color?")
        at.do("YieldRun", "agent:general", run, task_id=task)
        assert re.search(r"^  worked for [0-9.]+ s$", at("task", "show", task).out, re.MULTILINE)
        at("interact", "respond", "1-q1", "Red")
        at.start(task)
        page = at("task", "show", task).out
        assert re.search(r"^  worked for [0-9.]+ s before this run$", page, re.MULTILINE), page


def test_cancel_says_what_went_with_it() -> None:
    with shop() as at:
        task = at.create("Parent")
        child = at("task", "subtask", task, "Child", "build", "--json").json["task_id"]
        at("task", "subtask", child, "Grandchild", "general")
        assert (
            at("task", "cancel", task, "--message", "Not needed.").out
            == "Canceled #1, and with it #2, #3\n"
        )
        assert at("task", "cancel", at.create("Lone")).out == "Canceled #4\n"


def test_a_task_is_changed_held_and_run_again() -> None:
    with shop() as at:
        task = at.create("Draft", "--draft", "--label", "old", "--set", "a=1")
        assert (
            at("task", "show", task).out.splitlines()[1]
            == "draft · waits for activation · owner (none)"
        )
        said = at(
            "task",
            "update",
            task,
            "--status",
            "active",
            "--owner",
            "general",
            "--title",
            "Real",
            "--instructions",
            "Do.",
            "--clear",
            "labels",
        )
        assert said.out == "Updated #1 Real (pending)\n"
        assert said.err == "Its agent receives it with its next request: 1-u1\n"
        assert at("task", "show", task, "--json").json["labels"] == []
        assert at("task", "pause", task).out == "Paused #1 Real (paused)\n"
        assert at("task", "resume", task).out == "Resumed #1 Real (pending)\n"
        ran = at("task", "run", task)
        assert ran.out == "Ready to run: #1 Real (pending)\n"
        assert [row.split()[0] for row in at("ready").out.splitlines()] == ["ID", "1"]
        at("task", "cancel", task)
        assert at("task", "rerun", task).out == "Created #2 Real (pending)\n"
        stale = at("task", "update", "2", "--title", "X", "--expected-version", "99")
        assert stale.code == 4


def test_a_handoff_prints_the_successor() -> None:
    with shop() as at:
        task = at.create("Deploy", "--owner", "general")
        at.start(task)
        said = at("task", "update", task, "--owner", "build")
        assert (said.out, said.err) == ("Updated #2 Deploy (pending)\n", "It replaces #1.\n")


def test_the_plan_is_replaced_and_ticked_off() -> None:
    with shop() as at:
        task = at.create("Report")
        assert at("task", "steps", task, "[x] Read", "[ ] Write", "Send").code == 0
        assert (
            at(
                "task", "step", task, "1", "--done", "--details", "two pages", "--title", "Write it"
            ).code
            == 0
        )
        assert at("task", "step", task, "0", "--undone").code == 0
        assert (
            "Plan\n  0 [ ] Read\n  1 [x] Write it\n        two pages\n  2 [ ] Send\n"
            in at("task", "show", task).out
        )


def test_resources_guides_sessions_and_waivers() -> None:
    with shop() as at:
        task = at.create("Report", "--accept", "Short.")
        assert at("task", "resource", "add", task, "notes.md").code == 0
        assert (
            at("task", "resource", "remove", task, "0").out
            == "Removed it from #1 Report (pending)\n"
        )
        assert (
            at("guide", "add", "Flaky network", "Retry.\nThen wait.").out
            == f"Added guide {GUIDE}\n"
        )
        assert at("task", "guide", task, GUIDE).out == "Linked.\n"
        assert f"{GUIDE}  read it with: remit guide show {GUIDE}\n" in at("task", "show", task).out
        assert at("guide", "show", GUIDE).out.splitlines()[3:] == ["Retry.", "Then wait."]
        assert (
            at("guide", "list").out.splitlines()[1].startswith(f"{GUIDE}  Flaky network  user:ann")
        )
        assert (
            at("task", "waive", task, "c1", "It may be long.").out
            == "Waived it for #1 Report (pending)\n"
        )
        assert "[-] c1 Short." in at("task", "show", task).out
        assert at("task", "assign", task, "session-7").code == 0
        assert "session session-7" in at("task", "show", task).out


def test_agents_are_listed_and_shown() -> None:
    with shop() as at:
        assert [row.split()[0] for row in at("agents", "list").out.splitlines()] == [
            "ID",
            "build",
            "explore",
            "general",
            "plan",
            "summary",
        ]
        assert at("agents", "show", "explore").out.startswith(
            "explore\nSearches and reads the workspace"
        )


def test_a_watched_task_is_followed_to_its_end_and_the_exit_code_tells_which() -> None:
    endings: dict[int, tuple[str, dict[str, Any]]] = {
        0: ("CompleteTask", {}),
        1: ("FailTask", {"message": "No."}),
        130: ("CancelTask", {}),
    }
    for code, (command, fields) in endings.items():
        with shop() as at:
            task = at.create("Deploy")
            at.host.soon.append(at.host.desk.do("SendMessage", task_id=task, message="Hurry."))
            at.host.soon.append(at.host.desk.do(command, task_id=task, **fields))
            said = at("task", "watch", task)
            lines = said.out.splitlines()
            assert said.code == code
            assert "#1 1 TaskCreated by user:ann: Deploy" in lines[0]
            assert "#1 2 TaskAwaited by user:ann" in lines[1]
            assert "#1 3 MessageSent by user:ann: update_id 1-u1, Hurry." in lines[2]
            again = at(
                "task",
                "watch",
                task,
                "--after",
                at("task", "events", task, "--json").json["events"][0]["position"],
            )
            assert (again.code, again.out) == (code, said.out.partition("\n")[2])


def test_a_watched_task_is_followed_where_another_takes_its_place(any_url: str) -> None:
    with shop(any_url) as at:
        at.start(at.create("Deploy", "--owner", "general"))
        assert at("task", "update", "1", "--owner", "build").code == 0
        assert at("task", "complete", "2", "--summary", "Done.").code == 0
        said = at("task", "watch", "1")
        assert (said.code, said.err) == (0, "#1 was handed over and continues as #2.\n")
        ends = [line.split()[4] for line in said.out.splitlines() if "#1 " in line or "#2 " in line]
        assert [kind for kind in ends if kind in ("TaskCanceled", "TaskCompleted")] == [
            "TaskCanceled",
            "TaskCompleted",
        ]


def test_all_tasks_are_watched_until_stopped() -> None:
    with shop() as at:
        at.host.patience = 1
        at.host.soon.append(at.host.desk.do("CreateTask", title="New"))
        said = at("task", "watch", "--json")
        assert (said.code, said.err.splitlines()) == (
            130,
            ["Stopping… Ctrl-C or SIGTERM again to quit now.", "Stopped watching."],
        )
        assert (said.json["type"], said.json["data"]["title"]) == ("TaskCreated", "New")
        at.create("Newer")
        assert (
            "TaskCreated by user:ann: Newer"
            in at("task", "watch", "--after", said.json["position"]).out
        )


def test_everything_moves_to_another_store(tmp_path: Path) -> None:
    target = tmp_path / "dump.jsonl"
    with shop() as at:
        at.create("Moved")
        assert at("export", "events", str(target)).out.endswith(f" events to {target}\n")
        assert at("export", "events", str(tmp_path / "no" / "dump")).code == 2
        refused = at("export", "events", "-")
        assert (refused.code, "not to standard output" in refused.err) == (2, True)
    with shop() as at:
        assert at("import", str(target), "--json").json == {
            "what": "events",
            "source": str(target),
            "count": 1,
        }
        assert "Moved" in at("task", "list").out
        assert at("import", str(tmp_path / "none")).code == 2


def test_a_delegated_task_sets_the_exit_code(tmp_path: Path) -> None:
    with shop() as at:
        ran = at("run", "Look", "--agent", "explore", "--timeout", "5")
        assert (ran.code, ran.out.splitlines()[0]) == (0, "Look")
        assert "it asks: Look 1: Look · answer with: remit interact respond 1-q1 N\n" in ran.err
        assert "done" in ran.err
        assert (
            ran.err.splitlines()[-1]
            == "#1 general, Look: completed, 1 tool call, 1,234 tokens, worked for 5.7 s"
        )
        assert "2 tool calls · 10 tokens · $0.50" in ran.err
        assert (at("run", "Fail").code, at("run", "Late").code) == (1, 124)
        work = tmp_path / "work.txt"
        work.write_text('First\n{"objective": "Second"}\n')
        several = at("parallel", str(work), "--json").json["results"]
        assert [result["data"]["result"] for result in several] == ["First", "Second"]
        assert at("parallel", str(work)).out.splitlines()[0] == "[1] #1 general: completed"
        work.write_text("")
        assert at("parallel", str(work)).code == 2


@pytest.mark.parametrize(
    ("text", "works"),
    {
        "one object": ('{"objective": "One"}\n', ["One"]),
        "objects over several lines in a list": (
            '\n[\n{"objective": "One"},\n"Two"\n]',
            ["One", "Two"],
        ),
        "what is no work, in a list": ('[5, null, "Two"]', ["5", "None", "Two"]),
        "lines that only look like a list": (
            "[docs] One\n[1] Two\n[ ] Three\n",
            ["[docs] One", "[1] Two", "[ ] Three"],
        ),
    }.values(),
)
def test_work_is_read_from_lists_lines_and_objects(text: str, works: list[str]) -> None:
    with shop() as at:
        results = at("parallel", "-", "--json", stdin=text).json["results"]
        assert [result["data"]["result"] for result in results] == works


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('First\n{"objective": \n', "FILE, line 2: "),
        ('[{"objective": "One"},\n{"objective" "Two"}]', "FILE: "),
        ('["One"\n', "FILE: "),
    ],
)
def test_work_that_begins_like_json_and_is_none_is_refused_as_a_whole(
    text: str, place: str
) -> None:
    with shop() as at:
        said = at("parallel", "-", stdin=text)
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith(f"error: {place}is not valid JSON (")
        assert at("parallel", "-", stdin="[]").code == 2


def test_the_result_of_an_unfinished_task_is_its_state() -> None:
    with shop() as at:
        at.create("Look", "--owner", "general")
        said = at("task", "result", "1")
        assert (said.code, said.out) == (0, "")
        assert said.err == "#1 has not ended: it is pending. Follow it with: remit task watch 1\n"
        at("task", "complete", "1", "--summary", "Seen.")
        said = at("task", "result", "1")
        assert said.out == "Seen.\n"
        assert said.err.startswith("#1 general: completed, 0 tool calls, worked for 0.")
        at.create("Drop", "--owner", "general")
        at("task", "cancel", "2")
        assert at("task", "result", "2").err.startswith("#2 general: canceled, 0 tool calls")


def test_the_result_of_a_task_ends_with_its_cost() -> None:
    with shop() as at:
        run = at.start(at.create("Look", "--owner", "general"))
        used = {"requests": 1, "input_tokens": 900, "output_tokens": 100, "cost": 0.0018}
        at.do("FinishRun", "agent:general", run, task_id="1", final_message="Seen.", usage=used)
        said = at("task", "result", "1").err
        assert said.startswith("#1 general: completed, 0 tool calls, 1,000 tokens, $0.0018, worked")


def test_creating_a_task_without_a_worker_prints_a_notice() -> None:
    with shop() as at:
        assert at("task", "create", "Look", "--owner", "general").err == ""
        at.host.attended = False
        assert (
            "No worker is running for it. Run it here with: remit task run 2\n"
            in at("task", "create", "Look", "--owner", "general").err
        )
        assert "No worker" not in at("task", "create", "Look", "--owner", "general", "--draft").err


def test_a_worker_is_started_for_some_agents_and_a_server_without_one() -> None:
    with shop() as at:
        assert at("worker", "--agents", "general, plan", "--concurrency", "3").code == 0
        assert at.host.options["concurrency"] == 3
        assert at("serve", "--no-worker").code == 0
        assert at.host.served == [("worker", ["general", "plan"]), ("serve", (False, False))]


def test_a_claim_that_must_be_checked_names_the_worker() -> None:
    with shop() as at:
        task = at.create(
            "Report",
            "--accept",
            '{"text": "It is there", "check": {"output": "report"}}',
            "--accept",
            "It is short.",
        )
        said = at(
            "task", "complete", task, "--output", "report=Two pages.", "--summary", "Written."
        )
        assert (said.code, said.out) == (0, "Being verified: #1 Report (verifying)\n")
        assert (
            said.err
            == "A worker checks its acceptance criteria. Follow it with: remit task watch 1\n"
        )
        at.host.wait(at.host.core.store.commit(Unit((), (), drops=("check/1",))))
        found = at("doctor")
        assert (found.code, "#1 are verifying but have no check job" in found.out) == (
            1,
            True,
        )
        assert at("doctor", "--fix").code == 0
        assert at("doctor").code == 0
        wrong = at(
            "task",
            "create",
            "Report",
            "--accept",
            '{"text": "It is there", "check": {"output": 7}}',
        )
        assert (wrong.code, "--accept, check.output: is a number; expected text." in wrong.err) == (
            2,
            True,
        )
        assert at("task", "create", "Report", "--accept", "{no JSON").code == 2


def test_the_schedule_shows_the_next_slots_and_the_waiting_tasks() -> None:
    with shop() as at:
        said = at("schedule", "show")
        assert said.out.splitlines()[:2] == [
            "0 6-21 * * * in Europe/Berlin",
            "  next 2026-01-01 07:00:00",
        ]
        assert "#2 Own waits for its schedule at 0 7 * * *" in said.out
        assert "No worker for all tasks is running" in said.err
        assert at("schedule", "tick").out == "Requested a tick; 1 task is waiting for it.\n"
        assert at("migrate").out == "The memory store has schema 2\n"


def test_the_doctor_shows_workers_and_repairs_leftovers() -> None:
    with shop() as at:
        at("task", "create", "Forgotten", "--owner", "general")
        at.host.wait(at.host.core.store.commit(Unit((), (), drops=("run/1",))))
        said = at("doctor")
        assert (said.code, "#1 could run but are not in the queue" in said.out) == (1, True)
        assert "99 s ago: lost" in said.out
        assert (
            "has paused http://model/v1 for plan after 10 failures in a row (half open): out of"
            " order" in said.out
        )
        assert "does not call http://model/v1 for 3.5 s, as it asked for a pause" in said.out
        assert at("doctor", "--fix").code == 0
        assert at("doctor", "--json").json["left_behind"]["runnable_without_job"] == []


def test_the_doctor_shows_what_is_in_force_and_verifies() -> None:
    with shop() as at:
        at.create("One")
        said = at("doctor", "--verify", "--database-url", "memory:")
        assert said.code == 0
        assert "database_url  memory:  option" in said.out
        assert "unknown setting colour in config.toml" in said.out
        assert "tasks 1 pending" in said.out
        assert "1 stream, 1 event, 1 row\n  Everything is consistent.\n" in said.out
        assert "verified" not in at("doctor", "--json").json


def test_the_workspace_the_token_and_the_servers() -> None:
    with shop() as at:
        assert at("--workspace", "/tmp/w", "init").out == "Workspace /tmp/w\n"
        assert at("token", "show").out == "s3cret\n"
        assert at("serve", "--host", "0.0.0.0", "--port", "9000", "--insecure").code == 0
        assert (at.host.options["host"], at.host.options["port"]) == ("0.0.0.0", 9000)
        assert at("mcp") == (0, "", "")
        assert at.host.served == [("serve", (True, True)), ("mcp", None)]


@pytest.mark.parametrize(
    "argv",
    [
        ("--workspace", "/w", "--url=http://x", "task", "list"),
        ("task", "--workspace", "/w", "list", "--url", "http://x"),
    ],
)
def test_the_workspace_option_can_be_before_or_after_the_command(argv: tuple[str, ...]) -> None:
    with shop() as at:
        assert at(*argv).code == 0
        assert at.host.options == {
            "workspace": "/w",
            "url": "http://x",
            "database_url": None,
            "host": None,
            "port": None,
            "concurrency": None,
            "mcp_tools": None,
            "log_format": None,
        }


def test_json_is_what_the_catalogue_returns() -> None:
    with shop() as at:
        _fill(at)
        for argv, operation, fields in READS:
            assert at(*argv, "--json").json == at.host.call(operation, fields)
        assert at("--json", "task", "show", "1").json == at.host.call("get_task", {"task_id": "1"})
        assert at("task", "show", "1", "--json", columns=80).out.startswith('{\n  "id": "1",\n')


READS: tuple[tuple[tuple[str, ...], str, dict[str, Any]], ...] = (
    (("task", "list"), "list_tasks", {}),
    (("task", "list", "--state", "running"), "list_tasks", {"state": "running"}),
    (
        ("task", "list", "--scope", "tree", "--parent", "1"),
        "list_tasks",
        {"scope": "tree", "parent": "1"},
    ),
    (("task", "show", "1"), "get_task", {"task_id": "1"}),
    (("task", "events", "1"), "get_events", {"task_id": "1"}),
    (("task", "updates", "1"), "list_updates", {"task_id": "1"}),
    (("task", "history"), "list_history", {}),
    (("ready",), "list_ready", {}),
    (("inbox",), "list_interactions", {}),
    (("interact", "list", "--status", "closed"), "list_interactions", {"status": "closed"}),
    (("notifications",), "list_notifications", {}),
    (("guide", "list"), "list_guides", {}),
    (("guide", "show", GUIDE), "get_guide", {"guide_id": GUIDE}),
    (("agents", "list"), "list_agents", {}),
    (("agents", "show", "plan"), "get_agent", {"agent_id": "plan"}),
)


def test_every_operation_for_people_has_a_command() -> None:
    from remit.catalog import FOR_EVERYONE

    waiting = {"create_subtask", "task", "task_parallel", "run_task", "task_output"}
    by_hand = {"respond", "send_message"} | waiting
    offered = {
        command.act for command in COMMANDS.values() if isinstance(command.act, str)
    } | by_hand
    assert offered == {
        name for name, operation in FOR_EVERYONE.items() if not operation.alias_of
    } - {"Task"}


def _fill(at: Shop) -> None:
    at("guide", "add", "Flaky network", "Retry.")
    run = at.ask(at.create("Deploy", "--owner", "general"), "Which region?", ["eu", "us"])
    at.do("NotifyUser", "agent:general", run, task_id="1", message="Half way.")
    at("task", "message", "1", "Hurry.")
    at.create("Ready", "--owner", "general")
    at("task", "complete", at.create("Ended"))
