"""Executes the tool calls of a run."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Literal

from remit.app.agent_loop.current_run import CurrentRun
from remit.app.agent_loop.run_writer import RunWriter
from remit.app.agent_loop.toolset import RunTools
from remit.app.conversations.statements import last_statement, last_text, text_beside_calls
from remit.app.runs.run_handle import CallRecord, CallStatus, ToolDenied, ToolFailed
from remit.app.subagents.blocking_calls import BlockingCalls
from remit.app.subagents.delegation_arguments import is_task, names_own_task
from remit.app.subagents.delegation_call import AnsweredCall, DelegatingRun, KeyedCall
from remit.app.subagents.result_cache import is_still_valid
from remit.domain.agents.media import kept
from remit.domain.agents.tools import ToolCallRequest, ToolOutcome, without_blanks
from remit.domain.decisions.completion import join_texts
from remit.domain.llm.messages import ToolCall
from remit.domain.prompts import agent_prompts
from remit.domain.task import commands as cmd
from remit.ports import ToolHost

TOOL_SECONDS = 600.0
CLAIMS = ("complete_task", "mark_task_complete")
"""Operations with which an agent claims that its task is complete."""
ENDINGS = ("fail_task", "cancel_task")
"""Operations with which an agent ends its task without a result."""
END_STATUSES = ("done", "canceled")
"""The statuses with which an agent ends its task."""
CallKind = Literal["repeatable", "once", "blocking"]


class Claims:
    """The calls with which an agent claims that its task is complete, or ends it."""

    def __init__(self, run: CurrentRun, open_host: Callable[[], ToolHost]) -> None:
        self._run, self._open_host = run, open_host

    def is_claim(self, call: ToolCall) -> bool:
        """True for a call that claims the completion of this task."""
        return call.name in CLAIMS and names_own_task(self._run.task, call.arguments)

    def ends_own_task(self, call: ToolCall) -> bool:
        """True for a call that fails or cancels this task, or completes it by its status."""
        if call.name not in ENDINGS and call.arguments.get("status") not in END_STATUSES:
            return False
        return is_task(self._run.task, call.arguments.get("task_id"))

    def with_text_beside(self, call: ToolCall) -> ToolCall:
        """Return a claim whose summary begins with the text of the same message.

        Models often answer in that text. A claim without any text gets the last statement of its
        agent, unless there is an answer, or a refused result that it hands over again.
        """
        summary = call.arguments.get("summary")
        if not isinstance(summary, str | None):
            return call
        beside = text_beside_calls(self._run.conversation.history)
        if not (beside or summary):
            beside = self._earlier_text(has_outputs=bool(call.arguments.get("outputs")))
        text = join_texts(beside, summary)
        if not text:
            return call
        return call._replace(arguments={**call.arguments, "summary": text})

    def _earlier_text(self, *, has_outputs: bool) -> str:
        """Return the last statement of the agent; for a claim without outputs, else its last
        text. Return an empty text if the task keeps an answer or a refused result.
        """
        task, history = self._run.task, self._run.conversation.history
        if task.unclaimed_message or (task.refused_summary and not has_outputs):
            return ""
        statement = last_statement(history)
        if statement or has_outputs:
            return statement
        return last_text(history)

    async def vouch_for_result(self) -> None:
        """Allow the cache to use the result if nothing that it depends on has changed.

        This is checked last, just before the claim.
        """
        task, services = self._run.task, self._run.services
        if task.cache_key is None:
            return
        if await is_still_valid(task, services.agents, services.models, self._open_host()):
            await self._run.handle.do(cmd.VouchResult(task_id=task.id))


class ToolCalls:
    """Executes tool calls, and records each under the fence of the run."""

    def __init__(self, run: CurrentRun, writer: RunWriter, tools: RunTools) -> None:
        self._run, self._writer, self._tools = run, writer, tools
        self._handle, self._conversation = run.handle, run.conversation
        self._host: ToolHost | None = None
        self.claims = Claims(run, self._tool_host)
        services = run.services
        delegating = DelegatingRun(
            services.store,
            services.agents,
            run.handle,
            run.agent,
            run.conversation.calls,
            services.operations,
            services.clock.now,
            services.equipment,
        )
        self._blocking_calls = BlockingCalls(delegating)

    async def close(self) -> None:
        """Close the tool host."""
        if self._host is not None:
            await self._host.close()

    def open(self) -> list[KeyedCall]:
        """Return the calls that have no answer yet."""
        calls = self._conversation.open_calls()
        return [(key, self._without_blank_texts(call)) for key, call in calls]

    def _without_blank_texts(self, call: ToolCall) -> ToolCall:
        """Return a call of a remit operation without its blank optional texts."""
        spec = self._tools.operations.get(call.name)
        if spec is None or call.error:
            return call
        return call._replace(arguments=without_blanks(call.arguments, spec.parameters))

    async def execute(self, calls: Sequence[KeyedCall]) -> bool:
        """Execute calls; return True if the run must wait for the answers to some of them."""
        by_kind: defaultdict[CallKind, list[KeyedCall]] = defaultdict(list)
        for key, call in calls:
            by_kind[self._kind(call)].append((key, call))
        await self._execute_together(by_kind["repeatable"])
        await self._execute_in_turn(by_kind["once"])
        blocking = by_kind["blocking"]
        if not blocking or self._must_stop:
            return False
        answers = await self._blocking_calls.begin(blocking)
        await self._record_answers(answers)
        return len(answers) < len(blocking)

    def _kind(self, call: ToolCall) -> CallKind:
        """Return how a call is made."""
        if call.name in self._tools.operations and self._blocking_calls.handles(call):
            return "blocking"
        if self._tools.is_repeatable(call.name):
            return "repeatable"
        return "once"

    @property
    def _must_stop(self) -> bool:
        """True once the run has ended or should release its task."""
        return self._handle.over or self._handle.halted

    async def _execute_together(self, calls: Sequence[KeyedCall]) -> None:
        """Execute repeatable calls at the same time."""
        if not calls:
            return
        first, *others = starmap(self._call_repeatable, calls)
        # A single call does not need a task of its own.
        records = await asyncio.gather(first, *others) if others else [await first]
        if self._handle.stopping.is_set():
            return  # the calls were stopped too; the next run repeats them
        await self._record(records)
        used = [record.tool for record in records if record.status != "denied"]
        self._writer.tool_counts.update(used)

    async def _call_repeatable(self, key: str, call: ToolCall) -> CallRecord:
        """Make a call that may be repeated, and return its record."""
        return self._ended_record(key, call, await self._call_tool(call))

    async def _execute_in_turn(self, calls: Sequence[KeyedCall]) -> None:
        """Execute calls with effects one after the other until the run must stop."""
        for key, call in calls:
            if self._must_stop:
                return
            await self._call_once(key, call)

    async def _call_once(self, key: str, call: ToolCall) -> None:
        """Make a call with effects: it is recorded before and after, and never repeated."""
        counts = self._writer.tool_counts
        counts[call.name] += 1
        try:
            if call.name in self._tools.operations and key not in self._conversation.calls:
                await self._call_operation(key, call)
            else:
                await self._call_host(key, call)
        except asyncio.CancelledError:
            counts[call.name] -= 1  # the run that records its end counts it
            raise

    async def _call_operation(self, key: str, call: ToolCall) -> None:
        """Call an operation of remit.

        The call is recorded as done in the commit that does it, so that it is never repeated. Its
        answer is recorded afterwards.
        """
        is_claim = self.claims.is_claim(call)
        if is_claim or self.claims.ends_own_task(call):
            await self._writer.report_usage()
        made, done = call, agent_prompts.CARRIED_OUT
        if is_claim:
            await self.claims.vouch_for_result()
            made, done = self.claims.with_text_beside(call), agent_prompts.CLAIMED
        outcome = await self._call_tool(made, self._ended_record(key, call, ToolOutcome(done)))
        self._writer.tool_counts[call.name] -= outcome.denied
        if not self._handle.over:
            await self._record([self._ended_record(key, call, outcome)])

    async def _call_host(self, key: str, call: ToolCall) -> None:
        """Call a workspace tool, or return the recorded result of an earlier call."""

        async def action() -> str:
            outcome = await self._call_tool(call)
            self._writer.tool_counts[call.name] -= outcome.denied
            if outcome.is_error:
                failure = ToolDenied if outcome.denied else ToolFailed
                raise failure(outcome.text)
            return outcome.text

        self._conversation.calls[key] = await self._handle.call(
            key, call.name, call.arguments, action, repeatable=False
        )

    async def _call_tool(self, call: ToolCall, *beside: CallRecord) -> ToolOutcome:
        """Call a tool; records in `beside` are stored in the commit of an operation."""
        tools = self._tools
        if call.error and tools.is_callable(call.name):
            return ToolOutcome(call.error, is_error=True)
        if call.name in tools.operations:
            rows = list(map(CallRecord.row, beside))
            operations = self._run.services.operations
            return await operations.call(call.name, call.arguments, self._handle, rows)
        request = ToolCallRequest(
            call.name,
            call.arguments,
            tools.offered,
            TOOL_SECONDS,
            self._handle.stopping,
            tuple(tools.operations),
            self._run.chosen.takes_media,
        )
        return await self._tool_host().call(request)

    def _tool_host(self) -> ToolHost:
        """Return the tools of the workspace; they are opened on first use."""
        self._host = self._host or self._run.services.tools()
        return self._host

    async def record_partial_answers(self) -> None:
        """Record the current answers to blocking calls for which the run no longer waits."""
        await self._record_answers(await self._blocking_calls.partial_answers(self.open()))

    async def _record_answers(self, answers: Sequence[AnsweredCall]) -> None:
        """Record the answers to blocking calls."""
        await self._record(list(starmap(self._ended_record, answers)))
        used = [call.name for _, call, outcome in answers if not outcome.denied]
        self._writer.tool_counts.update(used)

    def _ended_record(self, key: str, call: ToolCall, outcome: ToolOutcome) -> CallRecord:
        """Return the record of a call with its outcome."""
        begun = self._handle.begun(key, call.name, call.arguments, repeatable=True)
        return self._handle.ended(begun, _status(outcome), kept(outcome.text, outcome.media))

    async def _record(self, records: list[CallRecord]) -> None:
        """Store records of calls, and then add them to the conversation."""
        if not records:
            return
        self._writer.add_calls(records)
        await self._writer.save()
        for record in records:
            self._conversation.calls[record.call_id] = record


def _status(outcome: ToolOutcome) -> CallStatus:
    """Return how a call is recorded."""
    if outcome.denied:
        return "denied"
    if outcome.is_error:
        return "failed"
    return "done"
