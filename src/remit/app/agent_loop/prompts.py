"""The user messages of a run: instructions, updates and requests to continue."""

from collections.abc import Sequence
from typing import Any

from remit.app.agent_loop.current_run import CurrentRun
from remit.app.agent_loop.run_writer import RunWriter
from remit.app.agent_loop.toolset import RunTools
from remit.app.agent_loop.written_calls import WrittenCalls
from remit.app.conversations.statements import last_answer
from remit.domain.llm.messages import user
from remit.domain.prompts import agent_prompts, rejections, reports, terms, update_messages
from remit.domain.task import commands as cmd
from remit.domain.task.task import Task, Update, prerequisites


class Prompts:
    """Appends the user messages of a run to its conversation."""

    def __init__(
        self, run: CurrentRun, writer: RunWriter, tools: RunTools, written: WrittenCalls
    ) -> None:
        self._run, self._writer, self._tools, self._written = run, writer, tools, written
        self.environment = ""
        """The description of the workspace in the first message."""

    @property
    def _task(self) -> Task:
        return self._run.task

    async def add(self) -> bool:
        """Append the next user message; return False if no message is needed."""
        if self._task.queued:
            await self.skip_read_reports()
        updates = self._task.queued
        parts = await self._parts(updates)
        if not parts:
            return False
        conversation = self._run.conversation
        run_id, now = self._run.handle.run_id, self._run.services.now()
        row = conversation.next_row(user(*parts), run_id, now)
        if not conversation.history:
            row = row._replace(more=self._facts_of_first_message())
        self._writer.add_message(row)
        if updates:
            await self._writer.write(self._delivery(updates, conversation.turns + 1))
        conversation.append(row)
        return True

    async def skip_read_reports(self) -> bool:
        """Mark reports as delivered that the agent has read as the answer to a call.

        Return True if no other update is queued.
        """
        queued, read = self._task.queued, self._run.conversation.results_read
        read_already = [update for update in queued if reports.reports_on(update, read)]
        if not read_already:
            return False
        turns = self._run.conversation.turns
        await self._run.handle.do(self._delivery(read_already, turns))
        return not self._task.queued

    def _facts_of_first_message(self) -> dict[str, Any]:
        """Return what is stored with the first message: the terms that it contains can change."""
        return {
            "environment": self.environment,
            "instructions": len(self._task.instructions),
            "terms_version": self._task.terms_version,
        }

    def _delivery(self, updates: Sequence[Update], turn: int) -> cmd.DeliverUpdates:
        """Return the command that marks updates as delivered in a turn."""
        ids = tuple(update.update_id for update in updates)
        return cmd.DeliverUpdates(task_id=self._task.id, turn=turn, update_ids=ids)

    async def _parts(self, updates: Sequence[Update]) -> list[str]:
        """Return the parts of the next message; empty if no message is needed."""
        parts: list[str] = []
        news = updates
        if not self._run.conversation.history:
            parts = await self._first_parts()
            news = [update for update in updates if update_messages.is_said(update)]
        if news:
            parts.append(update_messages.news(self._task, news))
        return parts + self._how_to_continue(news, is_alone=not parts)

    async def _first_parts(self) -> list[str]:
        """Return the task as its agent reads it first, and why its last claim was rejected."""
        first = agent_prompts.first_message(self._task, await self._prerequisites())
        criteria = terms.criteria_in_full(self._task)
        rejection = rejections.standing_rejection(self._task)
        return [first, *criteria, *filter(None, [rejection])]

    async def _prerequisites(self) -> list[Task]:
        """Return the tasks that this one depends on."""
        return await self._run.handle.tasks(prerequisites(self._task.depends_on))

    def _how_to_continue(self, news: Sequence[Update], *, is_alone: bool) -> list[str]:
        """Return a request to continue after a message of the agent; empty if none is needed.

        `is_alone` is true if the prompt has no other part.
        """
        written = self._written.unexplained()
        if written is not None:
            names = self._tools.shown_names
            return [agent_prompts.how_to_call(written.tool, names, self._tools.callable_names)]
        conversation = self._run.conversation
        has_only_messages = all(update.type == "message" for update in news)
        if has_only_messages and conversation.is_cut_off:
            return [agent_prompts.CUT_OFF]
        if is_alone and conversation.finished:
            was_silent = not last_answer(conversation.history).strip()
            return [agent_prompts.work_prompt(self._tools.plan_tool, was_silent=was_silent)]
        return []
