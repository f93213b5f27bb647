"""The owner that a list is filtered by: a name that no agent has finds nothing, which is worth a word."""

import sys
from typing import Any

from remit.surfaces.cli.command import Session
from remit.surfaces.display import display_line


def checked_owner(session: Session, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a list; if it is empty because no agent has the name of the owner, a note on standard error."""
    owner = fields.get("owner")
    if owner is None:
        return fields
    from remit.domain.agent import matching
    from remit.errors import advice

    found = session.call("list_tasks", **{**fields, "limit": 1})
    if not found["tasks"] and matching(owner, found["agents"]) is None:
        told = f"Unknown agent {owner!r}. {advice(owner, found['agents'])}"
        sys.stderr.write(f"{display_line(told)}\n")
    return fields
