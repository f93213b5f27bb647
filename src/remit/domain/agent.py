"""Who can be given work, what they may touch, and how they are called. Nothing slow is imported here: short commands need it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from remit.domain.record import record

ID = r"[a-z0-9](?:[a-z0-9_-]{0,62}[a-z0-9])?"
READING = ("LS", "Glob", "Grep", "Read", "TodoWrite")
"""What an agent has unless told otherwise, and all that a read-only one can ever have."""
WRITING = ("Write", "Edit", "MultiEdit", "Bash")
"""What can change files."""
CHANGING = (*WRITING, "Task")
"""What is denied unless somebody grants it by name."""
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
    """A stateless definition of somebody who can be given work."""

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
    """A file that may define an agent: what stands in it, or why it was not read."""

    origin: Origin
    path: str
    text: str = ""
    problem: str = ""


def agent_id(value: Any) -> Any:
    """A name as people write it (Code Reviewer, code_reviewer, php-8.3), in the one form of an id; what is no text is left alone."""
    if not isinstance(value, str):
        return value
    if not value.isascii():
        from unicodedata import normalize

        value = normalize("NFKC", value)
    return re.sub(r"[\s_]+|(?<=[a-z0-9])\.(?=[a-z0-9])", "-", value.strip().lower())


def is_agent_id(value: str) -> bool:
    """True for what keeps to the grammar of ids."""
    return re.fullmatch(ID, value) is not None


def matching(name: str, known: Iterable[str]) -> str | None:
    """The id that is meant by a name: case, spaces, dashes and underscores do not count, but a name that fits two fits none."""
    wanted = agent_id(name)
    ids = frozenset(known)
    if wanted in ids:
        return str(wanted)
    found = [other for other in ids if _bare(other) == _bare(wanted)]
    return found[0] if len(found) == 1 else None


def _bare(name: str) -> str:
    return re.sub(r"[-_]", "", name)


def may_use(agent: Agent, tools: Iterable[str]) -> tuple[str, ...]:
    """Which of these an agent can be given at all: its own bans and being read-only stand above every grant."""
    ceiling = READING if agent.read_only or agent.id in ALWAYS_READ_ONLY else None
    return tuple(tool for tool in dict.fromkeys(tools) if tool not in agent.disallowed_tools and (ceiling is None or tool in ceiling))


def not_granted(agent: Agent, asked: Iterable[str], got: Iterable[str], lacking: str) -> str:
    """What a task was to have and does not, and why, in a sentence; empty if it has all.

    `lacking` says who it is that could not pass a tool on because it does not have it.
    """
    missing = [tool for tool in dict.fromkeys(asked) if tool not in frozenset(got)]
    possible = may_use(agent, missing)
    beyond = [tool for tool in missing if tool not in possible]
    reasons = [_reason(beyond, f"{agent.id} can never have"), _reason(possible, f"{lacking} does not have")]
    told = "; ".join(reason for reason in reasons if reason)
    return f"Not granted: {told}." if told else ""


def _reason(tools: Sequence[str], why: str) -> str:
    if not tools:
        return ""
    return f"{', '.join(tools)} ({why} {'it' if len(tools) == 1 else 'them'})"


def granted(agent: Agent, allow: tuple[str, ...] | None = None, deny: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The tools of an agent under a call's grant: the list that is allowed, or its own, without what is denied or out of its reach."""
    return tuple(tool for tool in may_use(agent, agent.tools if allow is None else allow) if tool not in deny)
