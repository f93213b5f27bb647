"""Asks the model of a run: within the budget, with less to read if its context is full."""

import asyncio
import logging
from collections.abc import Awaitable
from typing import NamedTuple

from remit.app.agent_loop.budget import RunBudget, with_cost
from remit.app.agent_loop.current_run import CurrentRun
from remit.app.agent_loop.requests import RequestBuilder
from remit.app.agent_loop.run_writer import RunWriter
from remit.app.agent_loop.summaries import Summarizer
from remit.app.conversations.model_view import next_mark, replaced_by
from remit.app.conversations.stored_message import StoredMessage
from remit.domain.llm.failures import UNBILLED, ModelFailed, Retry
from remit.domain.llm.messages import Message, Request, Response, explain_cut_calls, user
from remit.domain.prompts import agent_prompts
from remit.domain.prompts.compaction import Mark

log = logging.getLogger("remit.model")


class RunStopped(Exception):
    """The run was told to stop while it waited to ask its model again."""


class Answer(NamedTuple):
    """An answer of the model, and its row, which is stored with the next write."""

    row: StoredMessage
    response: Response


class ModelTurn:
    """Makes the requests of a run to its model."""

    def __init__(
        self, run: CurrentRun, requests: RequestBuilder, budget: RunBudget, writer: RunWriter
    ) -> None:
        self._run, self._requests, self._budget, self._writer = run, requests, budget, writer
        self._summarizer = Summarizer(
            run.services.models, run.services.roots, run.handle, run.agent.id, self._pause
        )
        self._answer_seconds = 0.0
        """How many seconds the model took for its last answer."""
        self.last_failure: ModelFailed | None = None
        """Why the model did not answer the last request; None if it did."""
        self.has_answered = False
        """True once it has answered a request."""

    async def next_request(self, last_turn_text: str = "") -> Request | None:
        """Build the next request; None if the budget of the tree does not cover it.

        With `last_turn_text`, it asks for the last report.
        """
        request = await self._requests.build(last_turn_text, self._answer_seconds)
        is_covered = await self._budget.reserve(request, report=bool(last_turn_text))
        return request if is_covered else None

    async def ask(self, request: Request) -> Answer:
        """Ask the model; its answer is stored with the next write."""
        loop = asyncio.get_running_loop()
        asked = loop.time()
        response = await self._respond(request)
        self._answer_seconds = loop.time() - asked
        self._writer.add_usage(response)
        await self._budget.settle(response)
        row = self._next_row(response.message, response)
        self._writer.add_message(row)
        return Answer(row, response)

    async def _respond(self, request: Request) -> Response:
        """Return a response with its cost; release the reservation of a call that was not made."""
        gateway = self._run.chosen.gateway
        try:
            response = await gateway.request(request, pause=self._pause)
            self.last_failure, self.has_answered = None, True
        except RunStopped:
            await self._budget.release()
            raise
        except ModelFailed as failed:
            self.last_failure = failed
            if failed.kind in UNBILLED:
                await self._budget.release()
            raise
        return with_cost(explain_cut_calls(response), self._run.chosen)

    async def _pause(self, waiting: Awaitable[None], retry: Retry | None = None) -> None:
        """Wait before the model is asked again, and log why.

        Raise `RunStopped` if the run should stop, or `StaleRun` if it has lost its task.
        """
        handle = self._run.handle
        if retry is not None:
            self.last_failure = retry.failed
            told = {"task": handle.task.id, "run": handle.run_id, "model": self._run.chosen.shown}
            log.warning("#%s: %s", handle.task.id, retry, extra={"fields": told})
        either = [asyncio.ensure_future(waiting), asyncio.ensure_future(handle.stopping.wait())]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in either:
                one.cancel()
        if not await handle.may_go_on():
            raise RunStopped

    async def report(self, why: str) -> str | None:
        """Ask for a last report in one more turn; tool calls in it are ignored.

        Return None if the budget of the tree does not cover it.
        """
        text = agent_prompts.LAST_TURN.format(why=why)
        while request := await self.next_request(text):
            try:
                return (await self.ask(request)).response.text
            except ModelFailed as failed:
                if failed.kind != "context_overflow":
                    raise
                mark = next_mark(self._run.conversation)
                if mark is None:
                    raise
            await self.compact(mark)
        return None

    async def report_without_history(self) -> str | None:
        """Ask for a last report, with only the instructions and any summary as context.

        Return None if there is no report.
        """
        await self._budget.refresh()
        why = agent_prompts.LIMIT_REACHED.format(limit="the context of the model")
        text = agent_prompts.LAST_TURN.format(why=why)
        short = await self._requests.build(text, self._answer_seconds, has_history=False)
        if not await self._budget.reserve(short, report=True):
            return None
        try:
            return (await self.ask(short)).response.text
        except ModelFailed:
            return None

    async def compact(self, mark: Mark) -> None:
        """Store a compaction mark, with a summary of the messages that it replaces."""
        message = Message("user", ())
        response: Response | None = None
        if mark.kind == "summarized":
            text, response = await self._summary(mark)
            message = user(text)
        row = self._next_row(message, response)
        row = row._replace(more={**row.more, "mark": mark._asdict()})
        self._writer.add_message(row)
        await self._writer.save()
        self._run.conversation.append(row)

    async def _summary(self, mark: Mark) -> tuple[str, Response | None]:
        """Return a summary of messages, and the response that was billed for it."""
        replaced = replaced_by(self._run.conversation, mark)
        text, response = await self._summarizer.summarize(replaced)
        if response is not None:
            self._writer.add_usage(response)
        return text, response

    def _next_row(self, message: Message, response: Response | None) -> StoredMessage:
        run = self._run
        return run.conversation.next_row(message, run.handle.run_id, run.services.now(), response)
