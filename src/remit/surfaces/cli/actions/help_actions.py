"""Commands about the command line itself: help and shell completion."""

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
        return [item["id"] for item in _read_items(session, kind)]
    except RemitError:
        return []


def _read_items(session: Session, kind: str) -> list[Result]:
    """Return the agents, questions or tasks of this kind."""
    items: list[Result]
    match kind:
        case "agents":
            items = session.call("list_agents")["agents"]
        case "questions":
            items = session.call("list_interactions")["interactions"]
        case "ended":
            items = _read_ended(session)
        case "tasks":
            items = [*_read_live(session), *_read_ended(session)]
        case "paused":
            items = [task for task in _read_live(session) if task["state"] == "paused"]
        case "unpaused":
            items = [task for task in _read_live(session) if task["state"] != "paused"]
        case _:
            items = _read_live(session)
    return items


def _read_live(session: Session) -> list[Result]:
    tasks: list[Result] = session.call("list_tasks", limit=_MOST_TASKS)["tasks"]
    return tasks


def _read_ended(session: Session) -> list[Result]:
    tasks: list[Result] = session.call("list_history", limit=_MOST_TASKS)["tasks"]
    return tasks
