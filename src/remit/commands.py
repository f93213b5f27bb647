"""Commands that a runner sends: `await handle.do(commands.FinishRun(…))`."""

from remit.domain.task.commands import (
    AskUser,
    AwaitSubtask,
    CompleteTask,
    CreateSubtask,
    DeliverUpdates,
    FailRun,
    FailTask,
    FinishRun,
    NotifyUser,
    SetTimer,
    TimeOutRun,
    UpdateStep,
    UpdateSteps,
    YieldRun,
)

__all__ = [
    "AskUser",
    "AwaitSubtask",
    "CompleteTask",
    "CreateSubtask",
    "DeliverUpdates",
    "FailRun",
    "FailTask",
    "FinishRun",
    "NotifyUser",
    "SetTimer",
    "TimeOutRun",
    "UpdateStep",
    "UpdateSteps",
    "YieldRun",
]
