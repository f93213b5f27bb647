"""Calls that wait for a person, or for a subtask for a limited time."""

from collections.abc import Mapping
from datetime import timedelta

from remit.app.subagents.delegation_call import DelegatingRun, failed, raise_if_run_ends
from remit.domain.agents.tools import ToolOutcome
from remit.domain.delegation.requests import TaskOutput
from remit.domain.llm.messages import ToolCall
from remit.domain.prompts.update_messages import answer_returned
from remit.domain.records.validate import parse
from remit.domain.task import commands as cmd
from remit.domain.task.task import Task
from remit.errors import Forbidden, NotFound, RemitError, invalid
from remit.store_queries.record_queries import CALL_ANSWERS

Answers = Mapping[str, str | None]
"""The answers of people to the questions of a task by call; None for open questions."""


async def answers_to(run: DelegatingRun) -> Answers:
    """Return the answers to the questions of the task of a run."""
    rows = await run.store.select(CALL_ANSWERS, {"id": int(run.task.id)})
    return {row.call_id: row.answer for row in rows}


async def ask(run: DelegatingRun, key: str, call: ToolCall, answers: Answers) -> ToolOutcome | None:
    """Ask a question that was not asked yet; return its outcome, None while it has no answer."""
    is_blocking = call.arguments.get("blocking", True) is not False
    is_asked = key in answers
    if is_asked and is_blocking:
        return _answer_outcome(answers[key])
    try:
        question = _question(run, key, call)
    except RemitError as refused:
        return run.refusal(call, refused)
    if not is_asked:
        try:
            await run.handle.do(question)
        except (Forbidden, NotFound) as refused:  # the call names another task
            return failed(refused.for_agent or str(refused))
    if is_blocking:
        return None
    return ToolOutcome("Asked. The answer comes as a message.")


def _question(run: DelegatingRun, key: str, call: ToolCall) -> cmd.AskUser:
    """Return the question of a call; it is about the task of the run unless it names another."""
    fields = {**call.arguments, "call_id": key}
    if fields.get("task_id") is None:
        fields["task_id"] = run.task.id
    return parse(cmd.AskUser, fields)


def _answer_outcome(answer: str | None) -> ToolOutcome | None:
    """Return the outcome of a question that was asked; None while it is open."""
    if answer is None:
        return None
    return ToolOutcome(answer_returned(answer))


async def watch(run: DelegatingRun, key: str, call: ToolCall) -> ToolOutcome | None:
    """Return the state of a subtask once it has ended or the wait has timed out; else None.

    The wait starts once, even if the run is interrupted.
    """
    if _waits_for_call(run.task, key):
        return None
    try:
        request = parse(TaskOutput, call.arguments)
        if key not in run.calls and await _begin_wait(run, key, call, request):
            return None
    except RemitError as refused:
        raise_if_run_ends(refused)
        return run.refusal(call, refused)
    arguments = {**call.arguments, "wait_seconds": 0}
    return await run.operations.call(call.name, arguments, run.handle)


def _waits_for_call(task: Task, key: str) -> bool:
    """True if a task waits for the outcome of a call."""
    return any(item.call_id == key for item in task.waits_on)


async def _begin_wait(run: DelegatingRun, key: str, call: ToolCall, request: TaskOutput) -> bool:
    """Start to wait for a subtask; return False if it has ended."""
    until = run.now() + timedelta(seconds=request.wait_seconds)
    wait = cmd.AwaitSubtask(task_id=run.task.id, child_id=request.task_id, call_id=key, until=until)
    try:
        outcome = await run.handle.do(wait, run.begun(key, call))
    except NotFound as missing:
        raise invalid(
            "wait_seconds",
            f"is {request.wait_seconds:g}, but task {request.task_id} is not your subtask",
            "0, which returns its state at once: you can wait only for tasks that you create as"
            " subtasks",
        ) from missing
    return bool(outcome.entries)
