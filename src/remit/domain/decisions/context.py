"""The circumstances of a command, and the entries of the tables that decide commands."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from remit.domain.outputs.required_outputs import Files
from remit.domain.records.record import record
from remit.domain.task import events as ev
from remit.domain.task.task import Task

C = TypeVar("C")
Events = list[ev.Event]
NO_FILES: Files = {}


@record
class Context:
    """The circumstances of a command: actor, time, fence and the files that were checked."""

    actor: str
    now: datetime
    run_id: str | None = None
    files: Files = NO_FILES
    acting_task_id: str | None = None
    """The task whose run gives the command, once `planning.authority` has allowed it."""
    via: str | None = None
    """The surface that creates a new tree: `mcp`, or None for every other surface."""

    @property
    def run_task_id(self) -> str | None:
        """Return the id of the task whose run gives the command; None for any other caller."""
        return task_of_run(self.run_id) if self.run_id is not None else None


def task_of_run(run_id: str) -> str:
    """Return the task id in the id of a run."""
    return run_id.rpartition("-r")[0]


def other_claimer(task: Task, context: Context) -> str | None:
    """Return the actor of a claim; None for the task's own agent or session."""
    if task.session_id is not None or context.run_task_id == task.id:
        return None
    return context.actor


Decision = Callable[[Task, Any, Context], Events]
"""Returns the events of a command on a task."""


def decided_by(
    kind: type[C], decision: Callable[[Task, C, Context], Events]
) -> tuple[type[Any], Decision]:
    """Return an entry of a table of decisions, whose function takes commands of this type."""
    return kind, decision
