"""Reminders after a final message that left work open."""

from collections.abc import Mapping, Sequence

from remit.domain.prompts.claims import claim_again, claim_with, outstanding
from remit.domain.prompts.headings import in_one_line
from remit.domain.task.commands import PlanTool
from remit.domain.task.task import Task

EXPLICIT = "A message does not complete this task."
"""The start of a reminder that only says that complete_task must be called.

Its update is stored with type steps.
"""
_ONE_LAST_MESSAGE = (
    "Then end with one last message. Your answer above stays part of the result, so do not"
    " repeat it: say what is new or corrected, or that nothing is."
)
_NO_EARLIER_MESSAGE = (
    "Then end with one last message. Only your last message above stays part of the result, and no"
    " message before it: repeat from those what belongs to the result, and say what is new or"
    " corrected, or that nothing is."
)
_ENDS_TASK = " It ends the task. Steps that are still open then stay on record as open."
_NEXT_TICK = (
    "If you end with another message and steps are open, the task waits for its next scheduled run."
)


def reminder(task: Task, open_steps: Sequence[int], tool: PlanTool) -> str:
    """Return the reminder after a final message that left work open.

    Steps have the numbers of the task block.
    """
    return "\n".join([*_open_steps(task, open_steps, tool), *_how_to_end(task)])


def _open_steps(task: Task, open_steps: Sequence[int], tool: PlanTool) -> list[str]:
    if not open_steps:
        return []
    lines = [f"- step {index}: {in_one_line(task.steps[index].title)}" for index in open_steps]
    return [
        "Your last message would end this run, but these steps of your plan are still open:",
        *lines,
        f"Do what is left to do.{_HOW_TO_MARK[tool].format(index=open_steps[0])}",
    ]


def _how_to_end(task: Task) -> list[str]:
    """Explain how to end the task now that the agent has sent a final message."""
    if task.completion == "explicit":
        return _only_explicitly(task)
    claim: list[str] = []
    if outstanding(task):
        claim = [f"Then call {claim_again(task)}. A message alone does not complete this task."]
    if not task.delegated:
        return [*claim, _NEXT_TICK]
    if claim:
        return claim
    last = _NO_EARLIER_MESSAGE if task.drops_message else _ONE_LAST_MESSAGE
    return [f"{last}{_ENDS_TASK}"]


def _only_explicitly(task: Task) -> list[str]:
    """Explain how to end a task that only complete_task completes."""
    call = claim_with(outstanding(task))
    otherwise = "the task waits for its next scheduled run"
    if task.delegated:
        otherwise = "a person is asked how to go on"
    return [
        f"{EXPLICIT} Only complete_task does.",
        f"If the work is done, call {call}. If you need a person to decide, call ask_user.",
        f"If you end with another message instead, {otherwise}.",
    ]


_HOW_TO_MARK: Mapping[PlanTool, str] = {
    "update_step": (
        ' Mark each step that is done: call update_step with {{"index": {index}, "done": true}}'
        " (for step {index})."
    ),
    "TodoWrite": (
        ' Mark the steps that are done: call TodoWrite with the whole list, with "status":'
        ' "completed" for each step that is done.'
    ),
    "": "",
}
"""How to mark a step as done, by the agent's planning tool."""
