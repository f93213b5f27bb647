"""`--allow` and `--deny`: tools that an agent gets in addition, and tools that it does not get.

Operations take an exact list of tools, which is made here.
"""

import sys
from typing import Any

from remit.errors import InvalidParam, NotFound, invalid
from remit.surfaces.cli.cli_host import Result
from remit.surfaces.cli.command import Prepare, Session
from remit.surfaces.text.display import display_line

ALIKE = 0.75
"""How similar to a built-in tool a name must be to count as a typo: `Bsah` and `Reed` are,
`read_page` is not.
"""


def resolve_tools(field: str, default: str | None = None, *, anywhere: bool = False) -> Prepare:
    """Return a function that adds the allowed tools to those of the agent in a field, and denies
    tools by their right names.

    With `anywhere`, a workspace is created if there is none.
    """

    def prepare(session: Session, fields: dict[str, Any]) -> dict[str, Any]:
        if "deny" in fields.get("tools", {}):
            denied = _known_names("--deny", fields["tools"]["deny"])
            fields = fields | {"tools": fields["tools"] | {"deny": denied}}
        if "allow" not in fields.get("tools", {}):
            return fields
        names = _known_names("--allow", fields["tools"]["allow"])
        agent = fields.get(field, default)
        if agent is None:
            raise invalid(
                "--allow",
                "needs an agent",
                f"--{field} as well",
            )
        if anywhere:
            session.host.make_workspace()
        try:
            found = session.call("get_agent", agent_id=agent)
        except (NotFound, InvalidParam):
            return fields  # the operation reports the problem with the agent
        _must_be_possible(found, names)
        _tell_unknown(found, names)
        return fields | {"tools": _exact_tools(fields["tools"], names, found["tools"])}

    return prepare


def _known_names(option: str, typed: list[str]) -> list[str]:
    """Return the tools of an option by their right names."""
    names = [_find_tool(option, name) for name in typed]
    if not names:
        raise invalid(option, "names no tool", "tool names separated by commas, such as Edit,Bash")
    return names


def _exact_tools(tools: dict[str, Any], names: list[str], own: list[str]) -> dict[str, Any]:
    """Return the exact list of an agent's tools and the allowed ones."""
    exact = dict(tools)
    if _says_nothing(names, own):
        del exact["allow"]
        return exact
    exact["allow"] = list(dict.fromkeys([*own, *names]))
    if _adds_writing(names, own):
        exact["named"] = names
    return exact


def _says_nothing(names: list[str], own: list[str]) -> bool:
    """Return True if an agent that writes by default has all these tools, and none of them writes.

    A list of all its tools would look like a request for the writing ones.
    """
    from remit.domain.agents.agent import WRITING

    writing = {*WRITING} & {*own}
    return bool(writing) and {*names} <= {*own} - writing


def _adds_writing(names: list[str], own: list[str]) -> bool:
    """Return True if the list has a writing tool that only the agent's defaults add."""
    from remit.domain.agents.agent import WRITING

    return not {*WRITING}.isdisjoint({*own} - {*names})


def _find_tool(option: str, name: str) -> str:
    """Return the built-in tool with a name.

    An unknown name may be a function of the workers, unless it looks like a typo.
    """
    from difflib import get_close_matches

    from remit.app.agents.tool_names import tool_of
    from remit.domain.agents.agent import TOOLS
    from remit.domain.records.validate import check
    from remit.domain.task.task import ToolName

    if found := tool_of(name, frozenset(TOOLS)):
        return found
    ours = {tool.lower(): tool for tool in TOOLS}
    if close := get_close_matches(name.lower(), ours, n=1, cutoff=ALIKE):
        raise invalid(option, f"unknown tool {name!r}", f"Did you mean {ours[close[0]]}?")
    check(ToolName, name, option)
    return name


def _tell_unknown(agent: Result, names: list[str]) -> None:
    """Print the tools that are neither built in nor the agent's own."""
    from remit.domain.agents.agent import TOOLS

    if others := [name for name in names if name not in TOOLS and name not in agent["tools"]]:
        told = (
            f"{', '.join(others)}: not a built-in tool; it works only if workers have a function"
            " of that name."
        )
        sys.stderr.write(f"{display_line(told)}\n")


def _must_be_possible(agent: Result, names: list[str]) -> None:
    """Refuse tools that would be dropped silently: an agent's own bans and its read-only mode
    override every grant.
    """
    from remit.domain.agents.agent import READING, Agent, may_use

    who = Agent(
        id=agent["id"],
        description="",
        read_only=agent["read_only"],
        disallowed_tools=tuple(agent["disallowed_tools"]),
    )
    possible = may_use(who, names)
    if beyond := [name for name in names if name not in possible]:
        banned = set(beyond) <= set(who.disallowed_tools)
        why = "its file bans that" if banned else "it is always read-only"
        expected = (
            "other tools, or another agent"
            if banned
            else f"some of {', '.join(READING)}, or another agent"
        )
        raise invalid(
            "--allow", f"names {', '.join(beyond)}, which {who.id} cannot have: {why}", expected
        )
