"""How a run ends: with an answer, because of a failure of its model, or because of a limit."""

from collections.abc import Mapping
from typing import Any, cast

from remit.app.agent_loop.current_run import CurrentRun
from remit.app.agent_loop.run_writer import RunWriter
from remit.app.agent_loop.tool_calls import CLAIMS, ToolCalls
from remit.app.agent_loop.toolset import RunTools
from remit.app.conversations.reminders import standing_reminder
from remit.app.conversations.statements import last_answer, last_statement, last_text
from remit.app.subagents.delegation_arguments import names_own_task
from remit.codec import decode_event
from remit.domain.llm.failures import CAUSES, ModelFailed, explain
from remit.domain.llm.text_call_values import read_arguments
from remit.domain.llm.text_calls import Written, is_marked
from remit.domain.projection.rows import OUTCOMES
from remit.domain.task import commands as cmd
from remit.domain.task import events as ev
from remit.domain.task.policy import max_attempts
from remit.domain.task.task import FailCause, FailReason, Json, Task
from remit.store_queries.event_queries import EVENTS

LOOK_BACK = 50
"""The most events that are read to find how the run before ended."""
IDLE = frozenset({"no_first_byte", "stalled", "timed_out"})
"""Kinds of model failures that mean that the model stayed silent for too long."""


class RunEnd:
    """Ends a run."""

    def __init__(
        self, run: CurrentRun, writer: RunWriter, tools: RunTools, calls: ToolCalls
    ) -> None:
        self._run, self._writer, self._tools, self._calls = run, writer, tools, calls
        self._final_message = ""
        """The last final message with which this run tried to end."""

    @property
    def _task(self) -> Task:
        return self._run.task

    @property
    def was_refused(self) -> bool:
        """True after a final message that did not end the task, if no message followed."""
        if not self._run.conversation.finished:
            return False
        answer = last_answer(self._run.conversation.history)
        return bool(answer) and answer in (self._final_message, self._task.final_message)

    async def finish(self, final_message: str, outputs: Mapping[str, Json] | None = None) -> None:
        """Try to end the run with a final message; its task may answer with a reminder instead."""
        self._final_message = final_message
        await self._calls.claims.vouch_for_result()
        command = cmd.FinishRun(
            task_id=self._task.id,
            final_message=final_message,
            outputs=outputs,
            plan_tool=self._tools.plan_tool,
        )
        await self._writer.end(command)

    @property
    def _has_called(self) -> bool:
        """True if the agent has called a tool."""
        return any(item.calls for item in self._run.conversation.history)

    def _is_quotation(self, text: str) -> bool:
        """Return True if a model that calls tools repeats a message: it means what it wrote."""
        is_repeated = text.strip() == last_text(self._run.conversation.history)
        return self._has_called and is_repeated and not is_marked(text)

    async def finish_with_written_call(self, written: Written, text: str) -> None:
        """End the run with an answer that contains a written call.

        The answer is its prose, its claim, or a quotation that a model that calls tools repeats.
        """
        if written.has_prose:
            return await self.finish(text)
        if written.tool in CLAIMS:
            claim = read_arguments(text, written.tool)
            if claim is not None and names_own_task(self._task, claim):
                return await self._finish_with_claim(claim)
        elif self._is_quotation(text):
            return await self.finish(text)
        message = self._tools.why_no_call(written.tool, has_called=self._has_called)
        return await self.fail(ModelFailed("tool_calls_as_text", message))

    async def _finish_with_claim(self, claim: Mapping[str, Any]) -> None:
        """End the run with the summary and the outputs of a claim that was written as text."""
        result, outputs = claim.get("summary"), claim.get("outputs")
        handed = cast("Mapping[str, Json]", outputs) if isinstance(outputs, dict) else None
        if not isinstance(result, str):
            refused = None if handed else self._task.refused_summary
            result = refused or last_statement(self._run.conversation.history)
        await self.finish(result, handed)

    async def finish_with_previous_answer(self) -> bool:
        """End the run with the final message before the reminder; return False if it cannot.

        A message that lacked required outputs cannot end the run.
        """
        answer = self._task.answer
        if not answer or self._task.output_asks:
            return False
        await self.finish(answer)
        return self._run.handle.over

    async def finish_unanswered_reminder(self) -> bool:
        """End the run with the final message before the reminder if no turn is left to answer it.

        Return False if the run does not end.
        """
        history = self._run.conversation.history
        if not history or history[-1] is not standing_reminder(history):
            return False
        return await self.finish_with_previous_answer()

    async def finish_despite_failure(self, failed: ModelFailed) -> bool:
        """End the run with the final message before the reminder if the model failed for good.

        Return False if the run does not end.
        """
        last_attempt = self._task.attempts + 1 >= max_attempts(self._task.limits)
        says_nothing = failed.kind == "bad_response"
        is_final = failed.permanent or failed.lasting or last_attempt or says_nothing
        if not is_final or standing_reminder(self._run.conversation.history) is None:
            return False
        return await self.finish_with_previous_answer()

    async def fail(self, failed: ModelFailed) -> None:
        """End the run because its model failed; another run may try again."""
        if await self.finish_despite_failure(failed):
            return
        error = self.explain(failed)
        if failed.kind == "circuit_open":
            await self._wait_for_circuit(failed, error)
        elif failed.kind in IDLE:
            await self._writer.end(cmd.TimeOutRun(task_id=self._task.id, error=error))
        else:
            command = cmd.FailRun(
                task_id=self._task.id,
                error=error,
                permanent=failed.permanent,
                cause=CAUSES.get(failed.cause),
                retry_seconds=failed.retry_after,
            )
            await self._writer.end(command)

    async def fail_for_good(self, failed: ModelFailed, report: str) -> None:
        """Fail the task because of a failure that no other run can avoid, with a last report."""
        command = cmd.FailRun(
            task_id=self._task.id,
            error=self.explain(failed) + report,
            permanent=True,
            cause=CAUSES[failed.cause],
        )
        await self._writer.end(command)

    async def error_of_run_before(self) -> str:
        """Return the error of the run before this one; empty if it did not fail."""
        after = max(self._task.version - LOOK_BACK, 0)
        parameters = {"stream": self._task.id, "after": after, "limit": LOOK_BACK}
        rows = await self._run.services.store.select(EVENTS, parameters)
        for row in reversed(rows):
            event = decode_event(row.stored).event
            if isinstance(event, ev.RunFailed | ev.RunTimedOut):
                return event.error
            if type(event) in OUTCOMES:
                return ""
        return ""

    def explain(self, failed: ModelFailed) -> str:
        """Return why the model failed, and which setting to change."""
        return explain(failed, self._run.chosen.shown, self._run.chosen.origin)

    async def _wait_for_circuit(self, failed: ModelFailed, error: str) -> None:
        """Release the run until the model may be asked again; this is not a failed attempt.

        Abort the task if the model has failed too often.
        """
        is_last_attempt = 0 < self._task.attempts == max_attempts(self._task.limits) - 1
        if not failed.lasting and not is_last_attempt:
            return await self._writer.release(failed.retry_after)
        reason: FailReason = "timeout" if failed.cause in IDLE else "error"
        return await self.abort(reason, error, cause=CAUSES.get(failed.cause))

    async def abort(
        self, reason: FailReason, message: str, *, cause: FailCause | None = None
    ) -> None:
        """Fail the task because of a limit or a failure that does not end soon."""
        command = cmd.AbortTask(task_id=self._task.id, reason=reason, message=message, cause=cause)
        await self._writer.end(command)


def report_text(text: str | None) -> str:
    """Return the last report of an agent as a part of an error; empty without a report."""
    return "" if text is None else f" Its report: {text or '(none)'}"
