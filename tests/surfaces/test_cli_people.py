"""How people are asked, told and heard on the command line."""

import pytest

from tests.surfaces.cli_host import shop


def test_the_inbox_says_who_asks_and_how_to_answer(any_url: str) -> None:
    with shop(any_url) as at:
        assert at("inbox") == (0, "", "Nothing needs you.\n")
        at.create("Release", "--owner", "build")
        at("task", "subtask", "1", "Deploy", "general")
        at.ask("2", "Which region?", ["eu", "us"])
        assert at("inbox").out == (
            "#1 Release / #2 Deploy\n"
            "  2-q1 agent:general asked just now\n"
            "    Which region?\n"
            "      1 eu\n"
            "      2 us\n"
            "    answer with: remit interact respond 2-q1 --option N\n"
        )
        assert at("interact", "respond", "2-q1", "--option", "2").out == "Answered.\n"
        assert at("interact", "list").out == ""
        assert "user:ann answered just now: us\n" in at("interact", "list", "--status", "answered", "--task", "2").out


def test_a_task_stands_for_its_one_open_question(any_url: str) -> None:
    with shop(any_url) as at:
        task = at.create("Deploy", "--owner", "general")
        nothing = at("interact", "respond", task, "yes")
        assert (nothing.code, nothing.err.splitlines()[0]) == (4, "error: Task 1 has no open question.")
        run = at.ask(task, "Which region?")
        at.do("AskUser", "agent:general", run, task_id=task, question="Which size?")
        several = at("interact", "respond", task, "eu")
        assert (several.code, "1-q1: Which region?; 1-q2: Which size?" in several.err) == (4, True)
        assert at("interact", "respond", "1-q1", "eu").code == 0
        assert at("interact", "respond", f"#{task}", "-", "--json", stdin="small\n").json == {"success": True}
        answers = at("interact", "list", "--status", "answered", "--json").json["interactions"]
        assert [item["answer"] for item in answers] == ["eu", "small"]


@pytest.mark.parametrize(
    ("argv", "code", "told"),
    [
        (("1-q1",), 2, "An answer is needed"),
        (("1-q1", "eu", "--option", "1"), 2, "An answer is needed"),
        (("1-q1", "--option", "3"), 2, "a number from 1 to 2"),
        (("1-q1", "--option", "one"), 2, "a whole number"),
        (("1-q2", "--option", "1"), 2, "offers no options"),
        (("1-q9", "--option", "1"), 4, "Question 1-q9 is not open."),
        (("1-q9", "eu"), 3, "There is no interaction 1-q9."),
        (("7", "eu"), 3, "There is no task 7."),
    ],
)
def test_an_answer_that_fits_no_question_is_refused(argv: tuple[str, ...], code: int, told: str) -> None:
    with shop() as at:
        run = at.ask(at.create("Deploy", "--owner", "general"), "Which region?", ["eu", "us"])
        at.do("AskUser", "agent:general", run, task_id="1", question="Why?")
        said = at("interact", "respond", *argv)
        assert (said.code, told in said.err, said.out) == (code, True, "")


def test_notifications_and_messages_have_their_receipts(any_url: str) -> None:
    with shop(any_url) as at:
        assert at("notifications").err == "No agent has told you anything.\n"
        task = at.create("Deploy", "--owner", "general")
        assert at("task", "updates", task).err.startswith("Nothing was changed or said")
        run = at.start(task)
        at.do("NotifyUser", "agent:general", run, task_id=task, message="Half way.")
        assert at("notifications").out.endswith("  #1 agent:general: Half way.\n")
        assert at("task", "message", task, "Hurry.").out == "Sent 1-u1 - it is read with the next model request of the live run\n"
        at.do("DeliverUpdates", "agent:general", run, task_id=task, turn=2)
        assert at("task", "updates", task).out == "1-u1 message (delivered in turn 2, just now): Hurry.\n"
