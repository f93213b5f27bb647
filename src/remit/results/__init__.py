"""Typed, read-only results of operations: attributes, and `to_dict()` for the JSON.

`shapes` is generated from the catalog; `task_result` has the results of delegations.
"""

from remit.results import shapes
from remit.results.base import ResultObject
from remit.results.readiness import QueueInfo, Readiness, WorkerInfo
from remit.results.shapes import *  # noqa: F403 - its __all__ is generated
from remit.results.task_result import (
    ErrorInfo,
    IndexedResult,
    OpenQuestion,
    ResultStatus,
    ResultUsage,
    StreamEnd,
    StreamIdle,
    StreamItem,
    TaskResult,
    TaskResults,
)

__all__ = [
    "ErrorInfo",
    "IndexedResult",
    "OpenQuestion",
    "QueueInfo",
    "Readiness",
    "ResultObject",
    "ResultStatus",
    "ResultUsage",
    "StreamEnd",
    "StreamIdle",
    "StreamItem",
    "TaskResult",
    "TaskResults",
    "WorkerInfo",
]
__all__ += shapes.__all__
