"""Summaries of the older part of a conversation, written by the light model."""

from collections.abc import Sequence
from typing import NamedTuple

from remit.app.agent_loop.budget import RootLimits, RunBudget, with_cost
from remit.app.runs.run_handle import RunHandle
from remit.domain.llm.failures import UNBILLED, ModelFailed
from remit.domain.llm.messages import Message, ModelSettings, Pause, Request, Response, user
from remit.domain.prompts import compaction
from remit.errors import RemitError
from remit.ports import Models, ResolvedModel

SUMMARY_TOKENS = 1_500
"""The maximum length of a summary."""


class Summarized(NamedTuple):
    """A summary or, if no model wrote one, an excerpt, with the response that was billed."""

    text: str
    response: Response | None = None
    """None if no model answered."""


class Summarizer:
    """Writes summaries with the light model, within the budget of the tree."""

    def __init__(
        self, models: Models, roots: RootLimits, handle: RunHandle, agent: str, pause: Pause
    ) -> None:
        self._models, self._roots, self._handle = models, roots, handle
        self._agent, self._pause = agent, pause
        self._characters = compaction.SUMMARY_INPUT
        """How much the model can read at once, as far as this run knows."""

    async def summarize(self, messages: Sequence[Message]) -> Summarized:
        """Summarize messages; without a model, return an excerpt of their beginning and end."""
        try:
            chosen = self._models.resolve("light")
        except RemitError:
            return _excerpt(messages)
        while self._characters >= compaction.LEAST_SUMMARY_INPUT:
            try:
                record = compaction.record_of(messages, self._characters)
                response = await self._ask(chosen, record)
            except ModelFailed as failed:
                if failed.kind != "context_overflow":
                    return _excerpt(messages)
                self._characters //= 2
                continue
            if response is None:
                return _excerpt(messages)
            if not response.text.strip():
                return _excerpt(messages)._replace(response=response)
            return Summarized(response.text[: compaction.SUMMARY_CHARACTERS], response)
        return _excerpt(messages)

    async def _ask(self, chosen: ResolvedModel, record: str) -> Response | None:
        """Ask the model; return None if the budget of the tree does not cover the request."""
        request = Request(
            model=chosen.model,
            system=compaction.SUMMARY_SYSTEM,
            messages=(user(record),),
            settings=ModelSettings(max_tokens=SUMMARY_TOKENS),
            agent=self._agent,
        )
        budget = RunBudget(self._handle, chosen)
        await budget.open(self._roots)
        if not await budget.reserve(request, report=False):
            return None
        try:
            response = await chosen.gateway.request(request, pause=self._pause)
        except Exception as error:
            if not isinstance(error, ModelFailed) or error.kind in UNBILLED:
                await budget.release()
            raise
        response = with_cost(response, chosen)
        await budget.settle(response)
        return response


def _excerpt(messages: Sequence[Message]) -> Summarized:
    """Return the beginning and the end of messages instead of a summary."""
    record = compaction.record_of(messages, compaction.LEAST_SUMMARY_INPUT)
    return Summarized(f"{compaction.NO_SUMMARY}\n{record}")
