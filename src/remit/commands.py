"""Commands that a runner sends: `await handle.do(commands.FinishRun(…))`."""

from remit.domain.task.commands import (
    AbortTask,
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
    "AbortTask",
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
