"""The operations of remit and their single entry point, from which every surface is built."""

from remit.app.context import VIA_MCP, AppContext, Caller
from remit.catalog.mcp_profiles import PROFILES, tools_of
from remit.catalog.model_schemas import (
    lean_answer,
    lean_fields,
    lean_input,
    lean_output,
    lean_read,
    lean_refusal,
)
from remit.catalog.operations import (
    FOR_EVERYONE,
    OPERATIONS,
    Operation,
    attend,
    call,
    find_operation,
    refusal_in_envelope,
    stream_of,
)
from remit.catalog.streams import fleet, follow_events, task_counts

__all__ = [
    "FOR_EVERYONE",
    "OPERATIONS",
    "PROFILES",
    "VIA_MCP",
    "AppContext",
    "Caller",
    "Operation",
    "attend",
    "call",
    "find_operation",
    "fleet",
    "follow_events",
    "lean_answer",
    "lean_fields",
    "lean_input",
    "lean_output",
    "lean_read",
    "lean_refusal",
    "refusal_in_envelope",
    "stream_of",
    "task_counts",
    "tools_of",
]
