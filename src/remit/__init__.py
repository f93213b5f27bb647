"""remit: hand work to agents under a durable contract."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remit.bootstrap.api import Remit as Remit
    from remit.domain.envelope import TaskResult as TaskResult

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load the library when it is first asked for: commands that only read do without it."""
    if name == "Remit":
        from remit.bootstrap.api import Remit

        return Remit
    if name == "TaskResult":
        from remit.domain.envelope import TaskResult

        return TaskResult
    raise AttributeError(name)
