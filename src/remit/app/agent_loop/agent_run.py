"""The agent loop: ask the model, execute its tool calls, and repeat until the run ends or waits.

Every message and every call is stored under the run's fence. A run may stop anywhere; the next run,
in any process, continues at the same call.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Literal

from remit.app.agent_loop.budget import RunBudget
from remit.app.agent_loop.current_run import CurrentRun
from remit.app.agent_loop.limits import Deadline, LimitReached, RunLimits
from remit.app.agent_loop.model_turn import Answer, ModelTurn, RunStopped
from remit.app.agent_loop.prompts import Prompts
from remit.app.agent_loop.requests import RequestBuilder
from remit.app.agent_loop.run_end import RunEnd, report_text
from remit.app.agent_loop.run_writer import RunWriter
from remit.app.agent_loop.tool_calls import ToolCalls
from remit.app.agent_loop.toolset import RunTools
from remit.app.agent_loop.written_calls import WrittenCalls
from remit.app.conversations.model_view import next_mark
from remit.app.conversations.reminders import knows_how_to_call, standing_reminder
from remit.app.conversations.statements import completed, last_answer
from remit.domain.llm.failures import (
    CONTEXT_FULL,
    CUT_OFF,
    MAX_CONTEXT_FULL,
    MAX_CUT_OFF,
    ModelFailed,
    excerpt,
)
from remit.domain.llm.messages import UNFINISHED, Response, Tokens
from remit.domain.projection.follow_up_jobs import report_seconds
from remit.domain.prompts import agent_prompts
from remit.domain.prompts.environment import environment_section
from remit.domain.task import commands as cmd
from remit.domain.text.counting import in_seconds

LEAST_SECONDS = 0.1
"""A run with less time left than this ends."""
SILENCE = "its answer was empty twice"
LITTLE_ROOM = 10
"""How many times as long as its answer a request is that leaves little room in the context."""
Cut = Literal["", "cut_off", "context_full"]
"""Why an answer was cut off; empty for a complete one."""


class AgentRun:
    """One run of an agent: continues the conversation until the run must stop."""

    def __init__(self, run: CurrentRun, tools: RunTools) -> None:
        self._run, self._handle, self._conversation = run, run.handle, run.conversation
        self._budget = RunBudget(run.handle, run.chosen)
        self._writer = RunWriter(run.handle, run.conversation)
        self._limits = RunLimits(run, self._budget, self._writer)
        self._deadline = Deadline(run, self._limits)
        self._written = WrittenCalls(run, tools)
        self._prompts = Prompts(run, self._writer, tools, self._written)
        self._requests = RequestBuilder(run, tools, self._limits, self._budget)
        self._model = ModelTurn(run, self._requests, self._budget, self._writer)
        self._calls = ToolCalls(run, self._writer, tools)
        self._end = RunEnd(run, self._writer, tools, self._calls)
        self._answers = _Answers(run, self._writer, self._model, self._end, self._written)

    async def close(self) -> None:
        """Close the tool host."""
        await self._calls.close()

    async def release(self) -> None:
        """Release the run after it was cancelled, so that the next run continues at the same call.

        A tool call with effects stays recorded as started; the next run reports its outcome as
        unknown.
        """
        current = asyncio.current_task()
        assert current is not None
        current.uncancel()
        self._writer.discard()
        await self._writer.release()

    # The time of the run.

    async def run_within_time_limit(self) -> None:
        """Run until the run ends or its task reaches its time limit.

        A limit that changes during the run applies at once.
        """
        await self._prepare()
        self._handle.changed = self._deadline.move
        has_time = self._limits.time_left() > 0
        while has_time:
            with self._deadline.opened() as deadline:
                try:
                    async with deadline:
                        return await self._loop()
                except TimeoutError:
                    if not deadline.expired():
                        raise
            has_time = await self._continue_with_time_left()
        return await self._end_at_time_limit()

    async def _prepare(self) -> None:
        """Read the budget, and describe the workspace at the start of a task."""
        await self._budget.open(self._run.services.roots)
        environment = self._conversation.environment
        if not environment:
            found = await self._run.services.environment()
            environment = environment_section(found, await self._limits.allowance())
        self._prompts.environment = self._requests.environment = environment

    async def _continue_with_time_left(self) -> bool:
        """Prepare to continue and return True if the time limit is not reached after all.

        The process stood still, which does not count, or the limit was raised. The interrupted step
        is repeated.
        """
        await self._handle.exclude_silence()
        await self._handle.look()
        if self._limits.time_left() < LEAST_SECONDS:
            return False
        await self._discard_step()
        self._writer.count_stored_calls()
        return True

    async def _discard_step(self) -> None:
        """Forget what the interrupted step did not store."""
        self._writer.discard()
        await self._conversation.reload(self._run.services.store)

    async def _end_at_time_limit(self) -> None:
        """End the task at its time limit, with a short report if its agent has begun.

        The interrupted step is discarded.
        """
        limit = self._limits.seconds(self._run.task)
        assert limit is not None, "only a limit ends the time"
        await self._handle.look()
        if await self._end.finish_unanswered_reminder():
            return
        await self._discard_step()
        self._writer.count_stored_calls(is_ended=True)
        message = f"The time limit of {in_seconds(limit)} is reached."
        if error := await self._last_model_error():
            message += f" {error}"
        report = ""
        if self._conversation.turns and not self._handle.halted:
            with suppress(TimeoutError, ModelFailed, RunStopped):
                async with asyncio.timeout(report_seconds(limit)):
                    report = await self._report_at_time_limit(limit)
        await self._end.abort("timeout", message + report)

    async def _last_model_error(self) -> str:
        """Return why the model did not answer last, in this run or the one before; empty if it
        did.
        """
        if failed := self._model.last_failure:
            return self._end.explain(failed)
        return "" if self._model.has_answered else await self._end.error_of_run_before()

    async def _report_at_time_limit(self, limit: float) -> str:
        """Ask for a last report, which can use the partial answers to open calls."""
        await self._budget.refresh()
        await self._calls.record_partial_answers()
        why = agent_prompts.LIMIT_REACHED.format(limit=in_seconds(limit))
        return report_text(await self._model.report(why))

    # The loop.

    async def _loop(self) -> None:
        """Make the open calls or ask the model, in turn, until the run ends."""
        while not self._handle.over:
            self._deadline.move(self._run.task)
            if self._handle.halted:
                return await self._writer.release()
            calls = self._calls.open()
            if not calls:
                await self._continue()
            elif await self._calls.execute(calls):
                return await self._writer.end(cmd.YieldRun(task_id=self._run.task.id))
        return None

    async def _continue(self) -> None:
        """Ask the model, or end the run with the last answer if there is nothing else to read."""
        may_repeat = self._run.task.queued and self._end.was_refused
        if may_repeat and await self._prompts.skip_read_reports():
            # The agent had read these reports when it gave its answer.
            return await self._end.finish(last_answer(self._conversation.history))
        is_prompted = await self._prompts.add()
        if is_prompted and self._handle.halted:
            return None
        with suppress(RunStopped):
            await self._take_turn()
        return None

    async def _take_turn(self) -> None:
        """Ask the model once and act on its answer, or on its failure."""
        await self._budget.refresh()
        if missing_price := self._budget.missing_price:
            return await self._end.abort("budget", missing_price)
        try:
            answer = await self._ask_or_report()
        except ModelFailed as failed:
            if failed.kind == "context_overflow":
                return await self._answers.make_room(failed)
            return await self._end.fail(failed)
        if answer is not None:
            await self._answers.receive(answer)
        return None

    async def _ask_or_report(self) -> Answer | None:
        """Return the answer of the model; None if a limit was reached, which ends the run."""
        limit = self._limits.reached()
        if limit is None:
            request = await self._model.next_request()
            if request is not None:
                return await self._model.ask(request)
        if await self._end.finish_unanswered_reminder():
            return None
        await self._last_turn(limit or await self._limits.tree_budget())
        return None

    async def _last_turn(self, limit: LimitReached) -> None:
        """Let the agent report, and end its task because of a limit.

        The task ends even if the model cannot be asked for a report. If the agent was only reminded
        of open steps, its earlier answer ends the task.
        """
        is_reminded = standing_reminder(self._conversation.history) is not None
        if is_reminded and await self._end.finish_with_previous_answer():
            return
        report = await self._last_report(limit)
        if (limit.reason, limit.scope) == ("budget", "own"):
            limit = self._limits.exceeded_budget() or limit  # the report uses tokens too
        message = limit.error + report
        if not report:
            message = _without_report(limit, await self._budget.shortage())
        await self._end.abort(limit.reason, message)

    async def _last_report(self, limit: LimitReached) -> str:
        """Return the last report of the agent, or why it could not report; empty for neither."""
        try:
            return report_text(await self._model.report(limit.message))
        except ModelFailed as failed:
            if not failed.permanent:
                raise
            return f" It could not report: {failed.text}"


class _Answers:
    """Acts on the answers of the model: continues the run, or ends it."""

    def __init__(
        self,
        run: CurrentRun,
        writer: RunWriter,
        model: ModelTurn,
        end: RunEnd,
        written: WrittenCalls,
    ) -> None:
        self._conversation, self._writer = run.conversation, writer
        self._model, self._end, self._written = model, end, written
        self._cuts: Counter[Cut] = Counter()
        """How many answers in a row were cut off for the same reason."""

    async def receive(self, answer: Answer) -> None:
        """Continue or end the run, depending on an answer."""
        cut = self._cut_of(answer.response)
        self._cuts = Counter({cut: self._cuts[cut] + 1})
        await self._accept(answer.response)
        self._conversation.append(answer.row)
        if cut == "context_full":
            await self.make_room(ModelFailed("context_overflow", CONTEXT_FULL))

    def _cut_of(self, response: Response) -> Cut:
        """Return why an answer ended early, by its stop reason.

        After `MAX_CUT_OFF` answers that ended at a limit, the limit is the context if the last one
        had little room in it and the conversation can be compacted.
        """
        cut = _cut_of(response)
        is_last = cut == "cut_off" and self._cuts[cut] + 1 >= MAX_CUT_OFF
        if is_last and _had_little_room(response.tokens):
            return "cut_off" if next_mark(self._conversation) is None else "context_full"
        return cut

    async def _accept(self, response: Response) -> None:
        """Continue or end the run with an answer; fail it if the answer is useless."""
        if response.stop == "refusal":
            refusal = f"it refused to answer: {excerpt(response.text or response.reason)}"
            await self._end.fail(ModelFailed("rejected_request", refusal))
        elif self._cuts["cut_off"] >= MAX_CUT_OFF:
            await self._end.fail(ModelFailed("cut_off", CUT_OFF))
        elif response.text.strip():
            await self._accept_text(response)
        else:
            await self._accept_silence(response)

    async def _accept_text(self, response: Response) -> None:
        """End the run with the text of a complete answer."""
        text = completed(self._conversation.history, response.text)
        if _is_unfinished(response):
            await self._writer.save()  # the next prompt tells the model to continue
        elif (written := self._written.find(text)) is None:
            await self._end.finish(text)
        elif knows_how_to_call(self._conversation.history):
            await self._end.finish_with_written_call(written, text)
        else:
            await self._writer.save()  # the next prompt explains how to call tools

    async def _accept_silence(self, response: Response) -> None:
        """Continue after an answer without text; fail if the model says nothing twice."""
        conversation = self._conversation
        if _is_unfinished(response):
            await self._writer.save()
        elif conversation.is_continued:  # the model has nothing to add to the part before
            await self._end.finish(completed(conversation.history, response.text))
        elif not conversation.was_silent:
            await self._writer.save()  # the next prompt tells the model to continue
        elif not await self._end.finish_with_previous_answer():
            await self._end.fail(ModelFailed("bad_response", SILENCE, started=True))

    async def make_room(self, overflow: ModelFailed) -> None:
        """Compact the conversation so that the model can be asked again, or fail the task."""
        mark = next_mark(self._conversation)
        if mark is not None and self._cuts["context_full"] < MAX_CONTEXT_FULL:
            await self._model.compact(mark)
        elif not await self._end.finish_despite_failure(overflow):
            report = report_text(await self._model.report_without_history())
            await self._end.fail_for_good(overflow, report)


def _without_report(limit: LimitReached, shortage: str) -> str:
    """Return why a task ends whose budget does not cover a last report either."""
    if limit.scope == "tree":
        return shortage
    return f"{limit.error} It could not report: {shortage}"


def _is_unfinished(response: Response) -> bool:
    """True for an answer with calls, and for one that the model would continue."""
    return bool(response.calls) or response.stop in UNFINISHED


def _had_little_room(tokens: Tokens) -> bool:
    """True if a request was so much longer than its answer that it may have filled the context."""
    return tokens.input >= LITTLE_ROOM * max(tokens.output, 1)


def _cut_of(response: Response) -> Cut:
    """Return why an answer without a complete call ended early."""
    if response.stop not in UNFINISHED or not all(call.error for call in response.calls):
        return ""
    if response.stop == "context_full":
        return "context_full"
    return "cut_off"
