"""Commands about the command line itself: help and shell completion."""

from collections.abc import Callable
from typing import Any

from remit.errors import RemitError
from remit.surfaces.cli.cli_host import Result
from remit.surfaces.cli.command import Session, WrongUse

_MOST_TASKS = 200


def show_help(_session: Session, fields: dict[str, Any]) -> Result:
    """Print the help of a command, a group, or everything."""
    from remit.surfaces.cli.parser import parse

    parse([*fields.get("words", []), "--help"])  # prints it and exits
    return {}


def print_completion(session: Session, fields: dict[str, Any]) -> Result:
    """Return a script for a shell, or names for that script."""
    from remit.surfaces.cli.completion import script

    if kind := fields.get("names"):
        return {"script": "\n".join(_read_names(session, kind))}
    if "shell" not in fields:
        raise WrongUse("Give a shell: bash, zsh or fish.")
    return {"script": script(fields["shell"])}


def _read_names(session: Session, kind: str) -> list[str]:
    """Return the ids that can be completed; none if the workspace cannot be read."""
    try:
        return [item["id"] for item in _READERS.get(kind, _read_live)(session)]
    except RemitError:
        return []


def _read_agents(session: Session) -> list[Result]:
    agents: list[Result] = session.call("list_agents")["agents"]
    return agents


def _read_questions(session: Session) -> list[Result]:
    questions: list[Result] = session.call("list_interactions")["interactions"]
    return questions


def _read_live(session: Session) -> list[Result]:
    tasks: list[Result] = session.call("list_tasks", limit=_MOST_TASKS)["tasks"]
    return tasks


def _read_ended(session: Session) -> list[Result]:
    tasks: list[Result] = session.call("list_history", limit=_MOST_TASKS)["tasks"]
    return tasks


def _read_all(session: Session) -> list[Result]:
    return [*_read_live(session), *_read_ended(session)]


def _read_paused(session: Session) -> list[Result]:
    return [task for task in _read_live(session) if task["state"] == "paused"]


def _read_unpaused(session: Session) -> list[Result]:
    return [task for task in _read_live(session) if task["state"] != "paused"]


_READERS: dict[str, Callable[[Session], list[Result]]] = {
    "agents": _read_agents,
    "questions": _read_questions,
    "ended": _read_ended,
    "tasks": _read_all,
    "paused": _read_paused,
    "unpaused": _read_unpaused,
}
"""Returns the agents, questions or tasks of each kind; of any other, the live tasks."""
