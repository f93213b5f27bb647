"""Questions, notifications and answers on the command line."""

import io
from contextlib import redirect_stderr, redirect_stdout

import pytest

from remit.surfaces.cli.main import main
from tests.surfaces.cli_host import shop


def test_the_inbox_says_who_asks_and_how_to_answer(any_url: str) -> None:
    with shop(any_url) as at:
        assert at("inbox") == (0, "", "No open questions.\n")
        at.create("Release", "--owner", "build")
        at("task", "subtask", "1", "Deploy", "general")
        at.ask("2", "Which region?", ["eu", "us"])
        assert (
            at("inbox").out == "#1 Release / #2 Deploy\n"
            "  2-q1 agent:general asked just now\n"
            "    Which region?\n"
            "      1 eu\n"
            "      2 us\n"
            "    answer with: remit interact respond 2-q1 N\n"
        )
        assert at("interact", "respond", "2-q1", "--option", "2").out == "Answered.\n"
        assert at("interact", "list").out == ""
        assert (
            "user:ann answered just now: us\n"
            in at("interact", "list", "--status", "answered", "--task", "2").out
        )


@pytest.mark.parametrize(
    ("options", "allow_other", "typed", "kept"),
    [
        (["eu", "us"], False, "2", "us"),
        (["eu", "us"], False, "us", "us"),
        (["eu", "us"], True, "asia", "asia"),
        (["eu", "us"], True, "3", "3"),
        (["4", "2", "1"], False, "2", "2"),
        ([], False, "2", "2"),
    ],
)
def test_a_question_is_answered_by_a_number_or_a_text(
    any_url: str, options: list[str], allow_other: bool, typed: str, kept: str
) -> None:
    with shop(any_url) as at:
        run = at.start(at.create("Deploy", "--owner", "general"))
        at.do(
            "AskUser",
            "agent:general",
            run,
            task_id="1",
            question="Where?",
            options=options,
            allow_other=allow_other,
        )
        (asked,) = at("inbox", "--json").json["interactions"]
        assert asked["allow_other"] is (allow_other or not options)
        assert at("interact", "respond", "1", typed).out == "Answered.\n"
        (answered,) = at("interact", "list", "--status", "answered", "--json").json["interactions"]
        assert answered["answer"] == kept


def test_a_number_that_could_mean_two_options_is_refused(any_url: str) -> None:
    with shop(any_url) as at:
        run = at.start(at.create("Deploy", "--owner", "general"))
        at.do(
            "AskUser", "agent:general", run, task_id="1", question="How many?", options=["2", "1"]
        )
        assert "answer with: remit interact respond 1-q1 --option N\n" in at("inbox").out
        refused = at("interact", "respond", "1-q1", "2")
        assert refused.code == 2
        assert "is ambiguous: 2 is the text of option 1 and the number of option 2" in refused.err
        assert "--option 1 or --option 2" in refused.err
        assert at("interact", "respond", "1-q1", "--option", "2").out == "Answered.\n"
        (answered,) = at("interact", "list", "--status", "answered", "--json").json["interactions"]
        assert answered["answer"] == "1"


def test_a_hint_for_a_task_that_cannot_run_names_what_helps(any_url: str) -> None:
    with shop(any_url) as at:
        at("task", "create", "Outside", "--session", "abc")
        refused = at("task", "run", "1")
        assert refused.code == 4
        assert "Session abc works on it; no worker runs it." in refused.err
        assert "--owner" not in refused.err
        at("task", "create", "Later", "--owner", "general", "--draft")
        assert "Task 2 cannot run now: it is a draft." in at("task", "run", "2").err
        busy = at.create("Busy", "--owner", "general")
        at.start(busy)
        running = at("task", "run", busy)
        assert running.code == 4
        assert running.err.startswith(f"error: Task {busy} is already running.\n")
        held = at("task", "result", "2")
        assert (
            "#2 has not ended: it is a draft. Activate it with: remit task update 2 --status active"
            in held.err
        )
        at("task", "create", "Held", "--owner", "general")
        at("task", "pause", "3")
        assert "it is paused. Resume it with: remit task resume 3" in at("task", "result", "3").err
        assert "(none)" in at("task", "list").out


def test_the_inbox_says_where_another_answer_is_accepted(any_url: str) -> None:
    with shop(any_url) as at:
        run = at.start(at.create("Deploy", "--owner", "general"))
        at.do(
            "AskUser",
            "agent:general",
            run,
            task_id="1",
            question="Where?",
            options=["eu"],
            allow_other=True,
        )
        assert "answer with: remit interact respond 1-q1 'N OR YOUR ANSWER'\n" in at("inbox").out


def test_a_task_id_selects_its_only_open_question(any_url: str) -> None:
    with shop(any_url) as at:
        task = at.create("Deploy", "--owner", "general")
        nothing = at("interact", "respond", task, "yes")
        assert (nothing.code, nothing.err.splitlines()[0]) == (
            4,
            "error: Task 1 has no open question.",
        )
        run = at.ask(task, "Which region?")
        at.do("AskUser", "agent:general", run, task_id=task, question="Which size?")
        several = at("interact", "respond", task, "eu")
        assert (several.code, "1-q1: Which region?; 1-q2: Which size?" in several.err) == (4, True)
        assert at("interact", "respond", "1-q1", "eu").code == 0
        assert at("interact", "respond", f"#{task}", "-", "--json", stdin="small\n").json == {
            "success": True
        }
        answers = at("interact", "list", "--status", "answered", "--json").json["interactions"]
        assert [item["answer"] for item in answers] == ["eu", "small"]


@pytest.mark.parametrize(
    ("argv", "code", "told"),
    [
        (("1-q1",), 2, "Give an answer"),
        (("1-q1", "eu", "--option", "1"), 2, "Give an answer"),
        (("1-q1", "--option", "3"), 2, "a number from 1 to 2"),
        (("1-q1", "--option", "one"), 2, "a whole number"),
        (("1-q2", "--option", "1"), 2, "offers no options"),
        (("1-q9", "--option", "1"), 4, "Question 1-q9 is not open."),
        (("1-q9", "eu"), 3, "There is no interaction 1-q9."),
        (
            ("1-q1", "asia"),
            2,
            "is 'asia', which is not an option of question 1-q1; expected one of 'eu', 'us'",
        ),
        (
            ("1-q1", "3"),
            2,
            "is '3', which is not an option of question 1-q1; expected one of 'eu', 'us'",
        ),
        (("7", "eu"), 3, "There is no task 7."),
    ],
)
def test_an_answer_that_fits_no_question_is_refused(
    argv: tuple[str, ...], code: int, told: str
) -> None:
    with shop() as at:
        run = at.ask(at.create("Deploy", "--owner", "general"), "Which region?", ["eu", "us"])
        at.do("AskUser", "agent:general", run, task_id="1", question="Why?")
        said = at("interact", "respond", *argv)
        assert (said.code, told in said.err, said.out) == (code, True, "")


def test_notifications_and_messages_have_their_receipts(any_url: str) -> None:
    with shop(any_url) as at:
        assert at("notifications").err == "No notifications.\n"
        task = at.create("Deploy", "--owner", "general")
        assert at("task", "updates", task).err.startswith("No updates since it was created")
        run = at.start(task)
        at.do("NotifyUser", "agent:general", run, task_id=task, message="Half way.")
        assert at("notifications").out.endswith("  #1 agent:general: Half way.\n")
        assert (
            at("task", "message", task, "Hurry.").out
            == "Sent 1-u1. The agent reads it with the next model request of the live run.\n"
        )
        at.do("DeliverUpdates", "agent:general", run, task_id=task, turn=2)
        assert (
            at("task", "updates", task).out
            == "1-u1 message (delivered in turn 2, just now): Hurry.\n"
        )


def test_an_event_names_several_updates_in_plain_words(any_url: str) -> None:
    with shop(any_url) as at:
        run = at.start(at.create("Deploy", "--owner", "general"))
        at("task", "message", "1", "First the tests.")
        at("task", "message", "1", "Then the docs.")
        at.do("DeliverUpdates", "agent:general", run, task_id="1")
        assert "update_ids 1-u1 1-u2, run_id" in at("task", "events", "1").out


def test_next_steps_are_printed_after_the_receipt(any_url: str) -> None:
    with shop(any_url) as at:
        at.host.attended = False
        at.create("Deploy", "--owner", "general")
        at.ask("1", "Which region?", ["eu", "us"])
        both = io.StringIO()
        with redirect_stdout(both), redirect_stderr(both):
            main(["interact", "respond", "1-q1", "1"], lambda _options: at.host)
            main(["task", "message", "1", "Hurry."], lambda _options: at.host)
        begins = [" ".join(line.split()[:2]) for line in both.getvalue().splitlines()]
        assert begins == [
            *("Answered.", "The worker", "Or start"),
            *("Sent 1-u2.", "The worker", "Or start"),
        ]


def test_next_steps_are_not_printed_for_programs(any_url: str) -> None:
    with shop(any_url) as at:
        at.host.attended = False
        at.create("Deploy", "--owner", "general")
        assert at("task", "message", "1", "Hurry.", "--json").err == ""
