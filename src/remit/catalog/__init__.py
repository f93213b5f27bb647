"""The operations of remit, and the one way in: what every surface is made from."""

from remit.app.core import VIA_MCP, Caller, Core
from remit.catalog.lean import lean_answer, lean_input, lean_output, lean_read, lean_refusal
from remit.catalog.method import method_of
from remit.catalog.profile import PROFILES, tools_of
from remit.catalog.stream import BEGINNING, fleet, follow_events, task_counts
from remit.catalog.table import FOR_EVERYONE, OPERATIONS, Operation, attend, call, enveloped

__all__ = [
    "BEGINNING",
    "FOR_EVERYONE",
    "OPERATIONS",
    "PROFILES",
    "VIA_MCP",
    "Caller",
    "Core",
    "Operation",
    "attend",
    "call",
    "enveloped",
    "fleet",
    "follow_events",
    "lean_answer",
    "lean_input",
    "lean_output",
    "lean_read",
    "lean_refusal",
    "method_of",
    "task_counts",
    "tools_of",
]
