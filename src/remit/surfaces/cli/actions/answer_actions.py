"""Answering questions from agents, and what happens after a message or an answer."""

import re
import sys
from contextlib import suppress
from typing import Any

from remit.errors import Conflict, RemitError, invalid
from remit.surfaces.cli.cli_host import Result
from remit.surfaces.cli.command import Session, WrongUse
from remit.surfaces.cli.output.terminal import write_notes

_NUMBER_OF_QUESTION = r"-q\d+$"
_MOST_QUESTIONS = 1000


def answer_question(session: Session, fields: dict[str, Any]) -> Result:
    """Answer a question, given by its id or its task."""
    ref, number, answer = fields["ref"], fields.get("option"), fields.get("answer")
    if (number is None) == (answer is None):
        raise WrongUse("Give an answer: a text, or --option with the number of an option.")
    question_id = ref
    if not re.search(_NUMBER_OF_QUESTION, ref):
        question_id = _find_only_question(session, ref)["id"]
    if number is not None:
        answer = _choose_option(session, question_id, number)
    else:
        answer = _resolve_number(session, question_id, answer)
    return session.call("respond", interaction_id=question_id, answer=answer)


def tell_outlook(session: Session, fields: dict[str, Any]) -> None:
    """Print what happens next to a task after a message or an answer.

    Print nothing if the store cannot be read.
    """
    task_id = fields.get("task_id")
    if task_id is None:
        task_id = re.sub(_NUMBER_OF_QUESTION, "", fields["ref"])
    sys.stdout.flush()
    with suppress(RemitError):
        if said := session.outlook(session.call("get_task", task_id=task_id)):
            write_notes(*said.split("\n"))


def _find_only_question(session: Session, task_id: str) -> Result:
    """Return the only open question of a task."""
    found = _read_open_questions(session, task_id)
    if not found:
        raise Conflict(
            f"Task {task_id} has no open question.",
            hint="See all open questions with: `remit inbox`",
        )
    if len(found) > 1:
        listed = "; ".join(f"{item['id']}: {item['question']}" for item in found)
        raise Conflict(
            f"Task {task_id} has {len(found)} open questions.",
            hint=f"Give the id of one. {listed}",
        )
    return found[0]


def _resolve_number(session: Session, question_id: str, answer: Any) -> Any:
    """Return the option with this number, or the answer itself."""
    text = str(answer).strip()
    if not text.isdecimal():
        return answer
    options = _read_options(session, question_id) or []
    if not 1 <= int(text) <= len(options):
        return answer
    meant = options[int(text) - 1]
    if text in options and meant != text:
        number = options.index(text) + 1
        problem = (
            f"is ambiguous: {text} is the text of option {number} and the number of option {text}"
        )
        raise invalid("ANSWER", problem, f"--option {number} or --option {text}")
    return meant


def _choose_option(session: Session, question_id: str, number: int) -> str:
    """Return the option of an open question with this number."""
    options = _read_options(session, question_id)
    if options is None:
        raise Conflict(
            f"Question {question_id} is not open.",
            hint="See all open questions with: `remit inbox`",
        )
    if not options:
        expected = f"an answer as text: {question_id} offers no options"
        raise invalid("--option", f"is {number}", expected)
    if not 1 <= number <= len(options):
        raise invalid("--option", f"is {number}", f"a number from 1 to {len(options)}")
    return options[number - 1]


def _read_options(session: Session, question_id: str) -> list[str] | None:
    """Return the options of an open question; None if it is not open."""
    found = _read_open_questions(session, question_id.rpartition("-q")[0])
    options: dict[str, list[str]] = {item["id"]: item["options"] or [] for item in found}
    return options.get(question_id)


def _read_open_questions(session: Session, task_id: str) -> list[Result]:
    page = session.call("list_interactions", task_id=task_id, limit=_MOST_QUESTIONS)
    found: list[Result] = page["interactions"]
    return found
