"""Agents: their definitions, their tools and their names.

No slow imports here: short commands need this module.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from remit.domain.records.pick import among, beyond
from remit.domain.records.record import record

ID = r"[a-z0-9](?:[a-z0-9_-]{0,62}[a-z0-9])?"
READING = ("LS", "Glob", "Grep", "Read", "TodoWrite")
"""The tools of an agent by default, and the only ones that a read-only agent can have."""
WRITING = ("Write", "Edit", "MultiEdit", "Bash")
"""The tools that can change files."""
CHANGING = (*WRITING, "Task")
"""The tools that are denied unless granted by name."""
TOOLS = READING + CHANGING
CAPABILITIES = ("tasks",)
EFFORTS = ("none", "low", "medium", "high", "xhigh", "max")
ALWAYS_READ_ONLY = frozenset({"explore", "plan"})
"""Agents that change nothing, whatever a file, a setting or a call says."""

Mode = Literal["subagent", "primary", "all"]
Origin = Literal["folder", "opencode", "claude", "remit"]
_NOTHING: Mapping[str, Any] = {}


@record
class Agent:
    """A stateless definition of an agent."""

    id: str
    description: str
    mode: Mode = "subagent"
    model: str = "main"
    tools: tuple[str, ...] = READING
    disallowed_tools: tuple[str, ...] = ()
    spawnable: tuple[str, ...] | None = None
    capabilities: tuple[str, ...] = ()
    read_only: bool = False
    hidden: bool = False
    max_turns: int | None = None
    timeout_seconds: float | None = None
    effort: str | None = None
    source: str = "built in"
    prompt: str = ""
    extra: Mapping[str, Any] = _NOTHING


class AgentFile(NamedTuple):
    """A file that may define an agent: its content, or why it was not read."""

    origin: Origin
    path: str
    text: str = ""
    problem: str = ""


def agent_id(value: Any) -> Any:
    """Return a name as people write it (Code Reviewer, code_reviewer, php-8.3) in the form of an
    id.

    A value that is not text is returned unchanged.
    """
    if not isinstance(value, str):
        return value
    if not value.isascii():
        from unicodedata import normalize

        value = normalize("NFKC", value)
    return re.sub(r"[\s_]+|(?<=[a-z0-9])\.(?=[a-z0-9])", "-", value.strip().lower())


def is_agent_id(value: str) -> bool:
    """Return True for a valid id."""
    return re.fullmatch(ID, value) is not None


def matching(name: str, known: Iterable[str]) -> str | None:
    """Return the id that is meant by a name: case, spaces, dashes and underscores do not count, but
    a name that fits two fits none.
    """
    wanted = agent_id(name)
    ids = frozenset(known)
    if wanted in ids:
        return str(wanted)
    found = [other for other in ids if _bare(other) == _bare(wanted)]
    return found[0] if len(found) == 1 else None


def _bare(name: str) -> str:
    return re.sub(r"[-_]", "", name)


def may_use(agent: Agent, tools: Iterable[str]) -> tuple[str, ...]:
    """Return the tools that an agent can be given at all: its denied tools and being read-only
    override every grant.
    """
    allowed = beyond(dict.fromkeys(tools), agent.disallowed_tools)
    if agent.read_only or agent.id in ALWAYS_READ_ONLY:
        return tuple(among(allowed, READING))
    return tuple(allowed)


def not_granted(agent: Agent, asked: Iterable[str], got: Iterable[str], lacking: str) -> str:
    """Return a sentence on requested tools that a task does not have, and why; empty if it has all.

    `lacking` names the agent that could not pass on a tool because it does not have it.
    """
    missing = beyond(dict.fromkeys(asked), frozenset(got))
    possible = may_use(agent, missing)
    impossible = beyond(missing, possible)
    reasons = [
        _reason(impossible, f"{agent.id} can never have"),
        _reason(possible, f"{lacking} does not have"),
    ]
    told = "; ".join(filter(None, reasons))
    return f"Not granted: {told}." if told else ""


def _reason(tools: Sequence[str], why: str) -> str:
    if not tools:
        return ""
    return f"{', '.join(tools)} ({why} {'it' if len(tools) == 1 else 'them'})"


def granted(
    agent: Agent, allow: tuple[str, ...] | None = None, deny: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return the tools of an agent under a call's grant: the allowed list or its own, without
    denied and unavailable tools.
    """
    tools = agent.tools if allow is None else allow
    return tuple(beyond(may_use(agent, tools), deny))
