"""`--allow`: tools that an agent gets beside its own. On the wire a list of tools is exact; here it is made so."""

import sys
from typing import Any

from remit.errors import InvalidParam, NotFound, invalid
from remit.surfaces.cli.command import Prepare, Session
from remit.surfaces.cli.host import Result
from remit.surfaces.display import display_line

ALIKE = 0.75
"""How much a name must look like a tool of ours to be taken for a slip: `Bsah` and `Reed` do, `read_page` does not."""


def added(field: str, default: str | None = None, *, anywhere: bool = False) -> Prepare:
    """What was allowed, added to the tools of the agent that a field names; `anywhere` a workspace is made for it where there is none."""

    def prepare(session: Session, fields: dict[str, Any]) -> dict[str, Any]:
        if "allow" not in fields.get("tools", {}):
            return fields
        names = [_meant(name) for name in fields["tools"]["allow"]]
        if not names:
            raise invalid("--allow", "names no tool", "names of tools between commas, such as Edit,Bash")
        agent = fields.get(field, default)
        if agent is None:
            raise invalid("--allow", "adds to the tools of an agent, and no agent is named", f"--{field} as well")
        if anywhere:
            session.host.make_workspace()
        try:
            found = session.call("get_agent", agent_id=agent)
        except (NotFound, InvalidParam):
            return fields  # the operation says itself what is wrong with the agent
        _must_be_possible(found, names)
        _tell_unknown(found, names)
        if _says_nothing(names, found["tools"]):
            others = {key: value for key, value in fields["tools"].items() if key != "allow"}
            return fields | {"tools": others}
        allow = list(dict.fromkeys([*found["tools"], *names]))
        named = {"named": names} if _adds_writing(names, found["tools"]) else {}
        return fields | {"tools": fields["tools"] | {"allow": allow, **named}}

    return prepare


def _says_nothing(names: list[str], own: list[str]) -> bool:
    """True if an agent that may write by itself has these tools, and none of them writes.

    A list of all its tools would look as if the call had asked for the writing ones.
    """
    from remit.domain.agent import WRITING

    writing = {*WRITING} & {*own}
    return bool(writing) and {*names} <= {*own} - writing


def _adds_writing(names: list[str], own: list[str]) -> bool:
    """True if the whole list has a writing tool that only the agent's defaults bring in."""
    from remit.domain.agent import WRITING

    return not {*WRITING}.isdisjoint({*own} - {*names})


def _meant(name: str) -> str:
    """The tool of ours that a name means; another name may be a function that workers have, unless it looks like a slip."""
    from difflib import get_close_matches

    from remit.app.toolname import tool_of
    from remit.domain.agent import TOOLS
    from remit.domain.shape import check
    from remit.domain.value import ToolName

    if found := tool_of(name, frozenset(TOOLS)):
        return found
    ours = {tool.lower(): tool for tool in TOOLS}
    if close := get_close_matches(name.lower(), ours, n=1, cutoff=ALIKE):
        raise invalid("--allow", f"unknown tool {name!r}", f"Did you mean {ours[close[0]]}?")
    check(ToolName, name, "--allow")
    return name


def _tell_unknown(agent: Result, names: list[str]) -> None:
    from remit.domain.agent import TOOLS

    if others := [name for name in names if name not in TOOLS and name not in agent["tools"]]:
        told = f"{', '.join(others)}: not a built-in tool; it works only where workers have a function of that name."
        sys.stderr.write(f"{display_line(told)}\n")


def _must_be_possible(agent: Result, names: list[str]) -> None:
    """Refuse what would be left out without a word: an agent's own bans, and being read-only, stand above every grant."""
    from remit.domain.agent import READING, Agent, may_use

    who = Agent(id=agent["id"], description="", read_only=agent["read_only"], disallowed_tools=tuple(agent["disallowed_tools"]))
    possible = may_use(who, names)
    if beyond := [name for name in names if name not in possible]:
        banned = set(beyond) <= set(who.disallowed_tools)
        why = "its file bans that" if banned else "it is read-only, whatever is granted"
        expected = "other tools, or another agent" if banned else f"some of {', '.join(READING)}, or another agent"
        raise invalid("--allow", f"names {', '.join(beyond)}, which {who.id} cannot have: {why}", expected)
