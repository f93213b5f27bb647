"""The operations of remit, and the one way in: what every surface is made from."""

from remit.app.core import Caller, Core
from remit.catalog.method import method_of
from remit.catalog.stream import BEGINNING, fleet, follow_events, task_counts
from remit.catalog.table import FOR_EVERYONE, OPERATIONS, Operation, attend, call, enveloped

__all__ = [
    "BEGINNING",
    "FOR_EVERYONE",
    "OPERATIONS",
    "Caller",
    "Core",
    "Operation",
    "attend",
    "call",
    "enveloped",
    "fleet",
    "follow_events",
    "method_of",
    "task_counts",
]
