"""The result of a run: its final message completes the task, continues it or asks a person."""

from remit.domain.decisions.completion import claim, join_texts, report_gaps
from remit.domain.decisions.context import Context, Events
from remit.domain.decisions.evolve import apply_events
from remit.domain.decisions.wait_state import awaited_own_question
from remit.domain.outputs.required_outputs import FileQuery, gaps, output_files
from remit.domain.prompts.reminders import reminder
from remit.domain.records.record import replace
from remit.domain.task import commands as cmd
from remit.domain.task import events as ev
from remit.domain.task.policy import ENGINE_ACTOR, MAX_IDLE_RUNS
from remit.domain.task.task import State, Task

IDLE = f"{MAX_IDLE_RUNS} runs in a row made no progress."
UNCOMPLETED = (
    "The agent ended its work twice without calling complete_task, which this task requires."
)
"""Reasons to ask a person how a task should continue."""


def finish_run(task: Task, command: cmd.FinishRun, context: Context) -> Events:
    """Claim completion with the final message of a run.

    Continue or wait instead if updates are unread, subtasks still run, or the agent has not been
    reminded of open steps.
    """
    if task.queued:
        return []
    if any(child.holds for child in task.children):
        return [_yield_until_woken(task, command)]
    open_steps = task.open_steps
    if not task.reminded and _needs_reminder(task, open_steps):
        return [_remind(task, command, open_steps)]
    if task.completion == "explicit":
        return _continue_uncompleted(task, command)
    if task.is_kept_open:
        return _wait_idle(task, command)
    return _claim_answer(task, command, context)


def await_result(task: Task, _: cmd.AwaitTask, context: Context) -> Events:
    """Record that a caller waits for a task, so that it is never parked again.

    A task that is parked, on a tick or on a question of remit itself, runs again. If it has
    answered and was parked only because of open steps, it completes at once: its agent claims that,
    not the caller.
    """
    if task.awaited:
        return []
    awaited: Events = [ev.TaskAwaited()]
    if (question := awaited_own_question(task)) and not task.delegated:
        awaited.append(ev.TaskWoken(ref=question, cause="run"))
    if not _has_unclaimed_result(task) or gaps(task, None, context.files):
        return awaited
    after = apply_events(task, awaited, context.actor, context.now)
    completed = claim(
        after,
        replace(context, actor=f"agent:{task.owner}"),
        authorized=True,
        summary=task.final_message,
    )
    return [*awaited, *completed]


def files_to_claim(task: Task) -> tuple[FileQuery, ...]:
    """Return the files that a task submits if it completes because a caller begins to wait."""
    if task.awaited or not _has_unclaimed_result(task):
        return ()
    return output_files(task, None)


def live_run_id(task: Task) -> str:
    """Return the id of the live run, which exists once the fence was checked."""
    assert task.run is not None, "check_fence has passed"
    return task.run.id


def _needs_reminder(task: Task, open_steps: tuple[int, ...]) -> bool:
    """Return whether the final message leaves open steps or a required complete_task call."""
    if open_steps:
        return True
    return task.completion == "explicit" and task.delegated


def _continue_uncompleted(task: Task, command: cmd.FinishRun) -> Events:
    """Ask a person about a delegated task that its agent did not complete; let others wait."""
    if task.delegated:
        return _ask_person(task, command, UNCOMPLETED)
    return _wait_idle(task, command)


def _claim_answer(task: Task, command: cmd.FinishRun, context: Context) -> Events:
    """Claim completion with the answer of the run; report missing outputs to the agent instead."""
    answer = _final_answer(task, command)
    if found := gaps(task, command.outputs, context.files):
        return report_gaps(
            task,
            found,
            outputs=command.outputs,
            final_message=answer,
            tool_summary=command.tool_summary,
        )
    return claim(
        task,
        context,
        run_id=live_run_id(task),
        outputs=command.outputs,
        summary=answer,
        final_message=answer,
        tool_summary=command.tool_summary,
    )


def _has_unclaimed_result(task: Task) -> bool:
    """Return whether a task has answered and only waits for a tick, or for a person whom remit
    itself asked, with nothing new to do.
    """
    is_stalled = not task.delegated and awaited_own_question(task) is not None
    only_rests = task.waits_for_tick or is_stalled
    return (
        task.state is State.WAITING
        and not task.queued
        and only_rests
        and bool(_unclaimed_message(task))
    )


def _final_answer(task: Task, command: cmd.FinishRun) -> str:
    """Return the result of a run: a message after a reminder is added to the answer before it."""
    return join_texts(task.answer or _earlier_answer(task), command.final_message)


def _earlier_answer(task: Task) -> str | None:
    """Return the answer of an earlier run if this run added nothing but text, else None."""
    return None if task.drops_message else _unclaimed_message(task)


def _unclaimed_message(task: Task) -> str | None:
    """Return the last final message if it answers the task and was never claimed as its result."""
    return task.unclaimed_message if task.completion == "auto" else None


def _remind(task: Task, command: cmd.FinishRun, open_steps: tuple[int, ...]) -> ev.AgentReminded:
    """Give the agent one more turn that names what its final message left undone."""
    return ev.AgentReminded(
        update_id=task.update_id(),
        message=reminder(task, open_steps, command.plan_tool),
        final_message=join_texts(_earlier_answer(task), command.final_message),
        open_steps=open_steps,
    )


def _wait_idle(task: Task, command: cmd.FinishRun) -> Events:
    """Wait for the next tick.

    After `MAX_IDLE_RUNS` runs in a row without progress, ask a person instead.
    """
    assert task.run is not None
    if not task.run.progressed and task.idle_runs + 1 >= MAX_IDLE_RUNS:
        return _ask_person(task, command, IDLE)
    return [_yield_until_woken(task, command)]


def _yield_until_woken(task: Task, command: cmd.FinishRun) -> ev.RunYielded:
    """End the run and wait for the unfinished subtasks; without any, for the next tick."""
    return ev.RunYielded(
        run_id=live_run_id(task),
        final_message=_final_answer(task, command),
        tick=True,
        tool_summary=command.tool_summary,
    )


def _ask_person(task: Task, command: cmd.FinishRun, why: str) -> Events:
    """End the run with a question to a person about how the task should continue."""
    last_message = command.final_message or "(none)"
    question = f"{why} How should the task continue? The agent's last message: {last_message}"
    asked = ev.UserInteractionRequested(
        interaction_id=f"{task.id}-q{task.counts.interactions + 1}",
        question=question,
        asked_by=ENGINE_ACTOR,
    )
    answer = _final_answer(task, command)
    yielded = ev.RunYielded(
        run_id=live_run_id(task), final_message=answer, tool_summary=command.tool_summary
    )
    return [asked, yielded]
