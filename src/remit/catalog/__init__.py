"""The operations of remit, and the one way in: what every surface is made from."""

from remit.app.core import Caller, Core
from remit.catalog.stream import fleet, follow_events, stream_parallel, task_counts
from remit.catalog.table import FOR_EVERYONE, OPERATIONS, Operation, call

__all__ = ["FOR_EVERYONE", "OPERATIONS", "Caller", "Core", "Operation", "call", "fleet", "follow_events", "stream_parallel", "task_counts"]
