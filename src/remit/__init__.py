"""remit: hand work to agents under a durable contract."""

TYPE_CHECKING = False  # as type checkers read it; to import typing takes longer than most of what a command does before Ctrl-C is handled
if TYPE_CHECKING:
    from typing import Any

    from remit.bootstrap.api import Remit as Remit
    from remit.domain.envelope import TaskResult as TaskResult

__version__ = "0.1.0"


def __getattr__(name: str) -> "Any":
    """Load the library when it is first asked for: commands that only read do without it."""
    if name == "Remit":
        from remit.bootstrap.api import Remit

        return Remit
    if name == "TaskResult":
        from remit.domain.envelope import TaskResult

        return TaskResult
    raise AttributeError(name)
