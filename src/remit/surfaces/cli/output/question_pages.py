"""Pages about questions: the inbox, and each question in it."""

from functools import cache
from typing import Any

from remit.surfaces.cli.cli_host import Result
from remit.surfaces.cli.output.next_steps import how_to_answer
from remit.surfaces.cli.output.terminal import Ink, Screen
from remit.surfaces.cli.output.times import ago
from remit.surfaces.text.display import display


def show_inbox(answer: Result, screen: Screen) -> None:
    """Show every open question: its agent, task and age, and how to answer it."""

    @cache
    def title_of(task_id: str) -> str:
        return str(screen.ask("get_task", task_id=task_id)["title"])

    for number, item in enumerate(answer["interactions"]):
        if number:
            screen.put()
        screen.put(text=" / ".join(f"#{task_id} {title_of(task_id)}" for task_id in item["path"]))
        put_question(item, screen, indent=2)
    if answer["next_cursor"]:
        screen.note(f"There are more: add --cursor {answer['next_cursor']}")
    elif not answer["interactions"]:
        screen.note("No open questions.")


def put_question(item: dict[str, Any], screen: Screen, indent: int = 0) -> None:
    """Write a question with its options or its answer."""
    screen.put(
        Ink(f"{item['id']} ", "bold"),
        Ink(f"{item['asked_by']} asked {ago(item['asked_at'], screen.now)}", "yellow"),
        indent=indent,
    )
    screen.put(text=item["question"], indent=indent + 2)
    options: list[str] = item["options"] or []
    for number, option in enumerate(options, 1):
        screen.put(Ink(f"{number} ", "dim"), text=option, indent=indent + 4)
    if any(map(_has_hidden_characters, (item["question"], *options))):
        screen.put(
            Ink("careful: ", "red"),
            text="this text contains hidden characters, which are not shown",
            indent=indent + 2,
        )
    if item["status"] == "open":
        screen.put(Ink(f"answer with: {how_to_answer(item)}", "cyan"), indent=indent + 2)
    elif item["answer"] is not None:
        answered = f"{item['answered_by']} answered {ago(item['answered_at'], screen.now)}: "
        screen.put(Ink(answered, "green"), text=item["answer"], indent=indent + 2)


def _has_hidden_characters(text: str) -> bool:
    """Return True if a text contains characters that are not shown."""
    from unicodedata import normalize

    return display(text) != normalize("NFC", text.replace("\r\n", "\n"))
