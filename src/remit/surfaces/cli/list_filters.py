"""Checks of the filters of `remit task list`."""

import sys
from typing import Any

from remit.surfaces.cli.command import Session, WrongUse
from remit.surfaces.text.display import display_line


def check_filters(session: Session, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a list; note on standard error if the owner is unknown and the list is
    empty.
    """
    if fields.get("scope") == "tree" and "parent" not in fields:
        raise WrongUse("--parent is required with --scope tree.")
    owner = fields.get("owner")
    if owner is None:
        return fields
    from remit.domain.agents.agent import matching
    from remit.errors import advice

    found = session.call("list_tasks", **{**fields, "limit": 1})
    if not found["tasks"] and matching(owner, found["agents"]) is None:
        told = f"Unknown agent {owner!r}. {advice(owner, found['agents'])}"
        sys.stderr.write(f"{display_line(told)}\n")
    return fields
