"""Pages about agents and guides: one agent, the check of all agent files, one guide."""

from typing import Any

from remit.domain.text.counting import counted
from remit.surfaces.cli.cli_host import Result
from remit.surfaces.cli.output.page_parts import format_value, put_facts, put_prose
from remit.surfaces.cli.output.terminal import Ink, Screen
from remit.surfaces.cli.output.times import ago
from remit.surfaces.text.display import surround
from remit.surfaces.text.printed_commands import command_line

_VERDICTS = {"honored": "green", "mapped": "cyan", "ignored": "dim", "problem": "red"}
_FATES = {"used": "green", "shadowed": "yellow", "disabled": "yellow", "refused": "red"}
_SHOWN_APART = ("id", "description", "prompt", "spawnable")
"""Fields of an agent that the list of details does not show under their own names."""


def show_guide(answer: Result, screen: Screen) -> None:
    """Show a guide with its text."""
    origin = f"{answer['id']}, by {answer['created_by']} {ago(answer['created_at'], screen.now)}"
    screen.put(Ink(answer["title"], "bold"))
    screen.put(Ink(origin, "dim"))
    screen.put()
    screen.put(text=answer["body"])


def show_agent(answer: Result, screen: Screen) -> None:
    """Show an agent."""
    screen.put(Ink(answer["id"], "bold"))
    screen.put(text=answer["description"])
    facts = {
        name.replace("_", " "): _format_fact(value)
        for name, value in answer.items()
        if name not in _SHOWN_APART
    }
    if answer["spawnable"] is not None:
        facts["delegates to"] = _format_fact(answer["spawnable"]) or "(none)"
    put_facts("Details", facts, screen)
    put_prose("Role", answer["prompt"], screen)


def _format_fact(value: Any) -> str:
    """Return a field of an agent in words; empty if it is not set."""
    if isinstance(value, list):
        items: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
        return ", ".join(map(format_value, items))
    if value is True:
        return "yes"
    return format_value(value) if value else ""


def show_agent_check(answer: Result, screen: Screen) -> None:
    """Show how each agent file and setting is used."""
    for file in answer["files"]:
        _put_file(file, screen)
    for note in answer["settings"]:
        _put_field(f"[agents.{note['agent_id']}] {note['field']}".rstrip(), note, screen)
    if not answer["files"]:
        screen.note(
            f"There are no agent files here. Make one with: {command_line('agents new ID')}"
        )
    problems = counted(answer["problems"], "problem") if answer["problems"] else "no problems"
    screen.note(f"{counted(len(answer['agents']), 'agent')}, {problems}.")


def _put_file(file: dict[str, Any], screen: Screen) -> None:
    """Write how an agent file and its fields are used."""
    screen.put(
        Ink(file["path"], "bold"),
        f": {file['agent_id'] or 'no agent'}, ",
        Ink(file["status"], _FATES[file["status"]]),
        surround(file["by"], " by "),
    )
    for note in file["fields"]:
        _put_field(note["field"] or "the file", note, screen)


def _put_field(name: str, note: dict[str, Any], screen: Screen) -> None:
    """Write how a field is used: honored, mapped, ignored or a problem."""
    verdict = Ink(f"{note['verdict']:<9}", _VERDICTS[note["verdict"]])
    screen.put(verdict, name, text=surround(note["text"], " "), indent=2)
