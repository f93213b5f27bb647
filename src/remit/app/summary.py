"""Summaries of the older part of a conversation, written by the light model."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from remit.app.activation import Activation
from remit.app.purse import Purse, Roots
from remit.domain import compaction
from remit.domain.message import Message, ModelSettings, Request, Response, user
from remit.domain.model import UNBILLED, ModelFailed
from remit.errors import RemitError
from remit.ports import Chosen, Models

SUMMARY_TOKENS = 1_500
"""How long a summary may be."""
Pause = Callable[[Awaitable[None]], Awaitable[None]]


class Summarized(NamedTuple):
    """A summary, and the answer that it is; without an answer it is an excerpt that no model wrote."""

    text: str
    response: Response | None = None


class Summarizer:
    """Asks the light model, within the budget of the tree."""

    def __init__(self, models: Models, roots: Roots, activation: Activation, agent: str, pause: Pause) -> None:
        self._models, self._roots, self._activation = models, roots, activation
        self._agent, self._pause = agent, pause

    async def summarize(self, messages: Sequence[Message]) -> Summarized:
        """Summarize messages; if no model can, give their beginning and end instead."""
        characters = compaction.SUMMARY_INPUT
        try:
            chosen = self._models.resolve("light")
        except RemitError:
            return _excerpt(messages)
        while characters >= compaction.LEAST_SUMMARY_INPUT:
            try:
                response = await self._ask(chosen, compaction.record_of(messages, characters))
            except ModelFailed as failed:
                if failed.kind != "context_overflow":
                    return _excerpt(messages)
                characters //= 2
                continue
            if response is None or not response.text.strip():
                return _excerpt(messages)
            return Summarized(response.text[: compaction.SUMMARY_CHARACTERS], response)
        return _excerpt(messages)

    async def _ask(self, chosen: Chosen, record: str) -> Response | None:
        """The answer of the model; None if the tree cannot pay for it."""
        request = Request(
            model=chosen.model,
            system=compaction.SUMMARY_SYSTEM,
            messages=(user(record),),
            settings=ModelSettings(max_tokens=SUMMARY_TOKENS),
            agent=self._agent,
        )
        purse = Purse(self._activation, chosen)
        await purse.open(self._roots)
        if not await purse.reserve(request, report=False):
            return None
        try:
            response = await chosen.gateway.request(request, pause=self._pause)
        except Exception as error:
            if not isinstance(error, ModelFailed) or error.kind in UNBILLED:
                await purse.free()
            raise
        if response.cost is None:
            response = response._replace(cost=chosen.gateway.cost(chosen.model, response.tokens))
        await purse.settle(response)
        return response


def _excerpt(messages: Sequence[Message]) -> Summarized:
    record = compaction.record_of(messages, compaction.LEAST_SUMMARY_INPUT)
    return Summarized(f"{compaction.NO_SUMMARY}\n{record}")
