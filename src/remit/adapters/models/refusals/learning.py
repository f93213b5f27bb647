"""A gateway that learns from refusals: it omits what a model does not accept."""

import asyncio
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import ClassVar

from remit.adapters.models.refusals.endpoint_limits import (
    LIMITS,
    SHAPES,
    STRICT_TURNS,
    Known,
    Words,
    exceeds_room,
    find_refused,
    named_maximum,
    refuses_thoughts,
    unreadable_media,
)
from remit.adapters.models.refusals.message_forms import drop_thoughts, hide_media
from remit.adapters.models.refusals.mistaken_calls import mistaken_call
from remit.adapters.models.refusals.refusal import CutOff, Refusal, advice_for, is_about_slots
from remit.adapters.models.refusals.remembered_limits import Limits
from remit.adapters.models.wires.endpoint import Endpoint
from remit.adapters.models.wires.response import Priced, cost_of
from remit.domain.agents.media import Media
from remit.domain.llm.failures import CROWD_ADVICE, ModelFailed
from remit.domain.llm.messages import Pause, Request, Response, Tokens
from remit.domain.text.counting import counted

log = logging.getLogger("remit.models")

MAX_UNREADABLE = 16
"""The maximum number of unreadable files that a gateway remembers; each may have megabytes."""


class Trial:
    """What one request leaves out after refusals; it is a lesson only if the request is then
    accepted.

    A refusal may quote words of the conversation, or be about something else.
    """

    def __init__(self) -> None:
        self.limits: set[str] = set()
        self.unreadable: set[Media] = set()
        self.output_limit: int | None = None


class LearningGateway(ABC):
    """A gateway that repeats a request without what its endpoint has refused.

    It remembers what helped.
    """

    OPTIONAL: ClassVar[frozenset[str]]
    """The parameters that some endpoints refuse; they are left out once they did."""
    MAX_TOKENS: ClassVar[int | None] = None
    """The limit of output tokens that is sent where a request sets none."""
    WORDS: ClassVar[Words] = {}
    """The words by which a parameter is refused, where its name alone does not do."""

    def __init__(self, endpoint: Endpoint, price: Priced | None, *, strict_turns: bool) -> None:
        self.endpoint, self._price = endpoint, price
        self._unreadable: set[Media] = set()
        self._set = {STRICT_TURNS} if strict_turns else set[str]()

    async def request(self, request: Request, *, pause: Pause | None = None) -> Response:
        """Return one answer."""
        seconds = request.timeout_seconds
        return await self.endpoint.call(
            self._attempts(request, pause),
            agent=request.agent,
            timeout_seconds=math.inf if seconds is None else seconds,
            pause=pause,
        )

    def cost(self, model: str, tokens: Tokens) -> float | None:
        """Return the cost of a call by the configured or listed price."""
        return cost_of(self._price, model, tokens)

    def _attempts(
        self, request: Request, pause: Pause | None
    ) -> Callable[[float], Awaitable[Response]]:
        """Return what sends a request, for each retry; all of them are one trial."""
        return partial(self._attempt, request, pause, trial=Trial())

    async def _attempt(
        self,
        request: Request,
        pause: Pause | None,
        seconds: float,
        *,
        trial: Trial,
    ) -> Response:
        """Send a request; send it again in another form while its refusals allow one."""
        while True:
            known = self._known(request.model, trial)
            request = hide_media(request, self._unreadable | trial.unreadable)
            request = self._cap_output(request, trial)
            try:
                response = await self._send(request, known, seconds)
            except ModelFailed as failed:
                if failed.started:
                    await self._remember(request.model, trial)
                if (without := _without_refused_content(failed, request)) is not None:
                    request = without
                elif (answer := mistaken_call(failed, request)) is not None:
                    await self._remember(request.model, trial)
                    return answer._replace(cost=self.cost(answer.model, answer.tokens))
                elif not self._learn(request, known, failed, trial):
                    self._explain(failed)
                    raise
                if pause is not None:
                    await pause(asyncio.sleep(0))
            else:
                await self._remember(request.model, trial)
                return response

    async def _remember(self, model: str, trial: Trial) -> None:
        """Remember what an accepted request left out, also for other processes."""
        refused = self.endpoint.refused(model)
        if found := trial.limits - refused:
            refused.update(found)
            log.info(
                "%s does not accept %s; remit no longer sends it", self, ", ".join(sorted(found))
            )
        if (most := trial.output_limit) is not None:
            self.endpoint.limit_output(model, most)
            log.info("%s accepts at most %d output tokens for %s", self, most, model)
        if len(self._unreadable) > MAX_UNREADABLE:
            self._unreadable.clear()
        self._unreadable.update(trial.unreadable)
        new = Limits(frozenset(found), trial.output_limit)
        if new != Limits():
            await asyncio.to_thread(self.endpoint.share, model, new)

    def _known(self, model: str, trial: Trial) -> Known:
        """Return what to leave out, by the settings and by earlier refusals."""
        self.endpoint.recall(model, self.OPTIONAL | SHAPES)
        return frozenset(self.endpoint.refused(model) | self._set | trial.limits)

    def _learn(self, request: Request, known: Known, failed: ModelFailed, trial: Trial) -> bool:
        """Return True if a refused request can be sent again in another form.

        `known` is what was known when the request was built.
        """
        if not isinstance(failed, Refusal):
            return False
        if media := unreadable_media(failed, request):
            trial.unreadable.update(media)
            return True
        if self._learn_maximum(request, known, failed, trial):
            return True
        return self._learn_refused(request, known, failed, trial)

    def _learn_refused(
        self, request: Request, known: Known, refusal: Refusal, trial: Trial
    ) -> bool:
        """Leave out what a refusal is about; return True if the request can be sent without it.

        If other requests have learned something since this one was built, this refusal is ignored:
        it may be about the same thing.
        """
        sent = [name for name in self._parameter_names(request, known) if name in self.OPTIONAL]
        found = find_refused(refusal, request, sent, known, self.WORDS) - known
        if self._known(request.model, trial) != known:
            is_rejected = refusal.kind == "rejected_request" and not refusal.started
            return bool(found) or is_rejected
        trial.limits.update(found)
        return bool(found)

    def _learn_maximum(
        self, request: Request, known: Known, refusal: Refusal, trial: Trial
    ) -> bool:
        """Return True if a lower limit of output tokens can help; a maximum is learned once."""
        most, wanted = named_maximum(refusal), self._output_limit(request)
        sent = self._parameter_names(request, known)
        if not most or not wanted or most >= wanted or LIMITS.isdisjoint(sent):
            return False
        limit = self._known_maximum(request.model, trial)
        if limit is not None:
            return limit < wanted  # another request has learned it since this one was sent
        trial.output_limit = most
        return True

    def _known_maximum(self, model: str, trial: Trial) -> int | None:
        """Return the maximum of output tokens, as remembered or else as this trial assumes it."""
        return self.endpoint.output_limit(model) or trial.output_limit

    def _cap_output(self, request: Request, trial: Trial) -> Request:
        """Return the same request with a limit of output tokens that its model accepts."""
        limit, wanted = self._known_maximum(request.model, trial), self._output_limit(request)
        if limit is None or wanted is None or wanted <= limit:
            return request
        return request._replace(settings=request.settings._replace(max_tokens=limit))

    def _output_limit(self, request: Request) -> int | None:
        """Return the limit of output tokens that a request asks for."""
        return request.settings.max_tokens or self.MAX_TOKENS

    def _explain(self, failed: ModelFailed) -> None:
        """Add which setting helps: if an endpoint cannot do what every request needs, or seems to
        serve fewer concurrent calls than it got.
        """
        if isinstance(failed, Refusal) and (advice := advice_for(failed.said)):
            failed.kind = failed.cause = "misconfigured"
            failed.text = f"{failed.text.rstrip('.')}. {advice}"
        running = self.endpoint.most_running
        if _suggests_crowding(failed, running):
            calls = f"{counted(running, 'call')} were"
            if running == 1:
                calls = "1 call was"
            failed.text = f"{failed.text}. {calls} under way there. {CROWD_ADVICE}"

    @abstractmethod
    def _parameter_names(self, request: Request, known: Known) -> Iterable[str]:
        """Return the names of the parameters of a request, without those that were refused."""

    @abstractmethod
    async def _send(
        self,
        request: Request,
        known: Known,
        seconds: float,
    ) -> Response:
        """Put a request once, and read its answer."""


def _without_refused_content(failed: ModelFailed, request: Request) -> Request | None:
    """Return a request without what is refused of this conversation alone; None if nothing is."""
    if refuses_thoughts(failed, request):
        return drop_thoughts(request)
    if exceeds_room(failed, request):
        return request._replace(settings=request.settings._replace(max_tokens=None))
    return None


def _suggests_crowding(failed: ModelFailed, running: int) -> bool:
    """Return True if a failure may come from too many concurrent calls."""
    if isinstance(failed, CutOff):
        return running > 1
    return isinstance(failed, Refusal) and is_about_slots(failed.said)
