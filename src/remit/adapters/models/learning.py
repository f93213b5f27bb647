"""How a gateway learns from refusals: what a model does not take is left out from then on."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from remit.adapters.models.dialect import (
    LIMITS,
    STRICT_TURNS,
    Known,
    Words,
    forgetful,
    learned,
    named_maximum,
    readable,
    refuses_thoughts,
    unreadable,
)
from remit.adapters.models.endpoint import Endpoint
from remit.adapters.models.refusal import CutOff, Refusal, is_about_slots
from remit.domain.counting import counted
from remit.domain.media import Media
from remit.domain.message import OnPart, Pause, Request, Response
from remit.domain.model import CROWD_ADVICE, ModelFailed

log = logging.getLogger("remit.models")

MAX_UNREADABLE = 16
"""How many files that its endpoint could not read a gateway remembers; each may have megabytes."""


class LearningGateway(ABC):
    """A gateway that asks again without what its endpoint has refused."""

    OPTIONAL: ClassVar[frozenset[str]]
    """The parameters that some endpoints refuse; they are left out once they did."""
    MAX_TOKENS: ClassVar[int | None] = None
    """The limit of output tokens that is sent where a request sets none."""
    WORDS: ClassVar[Words] = {}
    """The words by which a parameter is refused, where its name alone does not do."""

    def __init__(self, endpoint: Endpoint, *, strict_turns: bool) -> None:
        self.endpoint = endpoint
        self._unreadable: set[Media] = set()
        self._set = {STRICT_TURNS} if strict_turns else set[str]()

    async def _attempt(
        self,
        request: Request,
        on_part: OnPart | None,
        pause: Pause | None,
        seconds: float | None,
    ) -> Response:
        while True:
            known = self._known(request.model)
            request = self._capped(readable(request, self._unreadable))
            try:
                return await self._send(request, known, on_part, seconds)
            except ModelFailed as failed:
                if refuses_thoughts(failed, request):
                    request = forgetful(request)
                elif found := unreadable(failed, request):
                    self._forget_media(found)
                elif not self._learn(request, known, failed):
                    self._explain(failed)
                    raise
                if pause is not None:
                    await pause(asyncio.sleep(0))

    def _forget_media(self, media: list[Media]) -> None:
        """Show these files no more; all others are."""
        if len(self._unreadable) > MAX_UNREADABLE:
            self._unreadable.clear()
        self._unreadable.update(media)

    def _known(self, model: str) -> Known:
        """What a model here does not take, as far as that is set or was found."""
        return frozenset(self.endpoint.refused(model) | self._set)

    def _learn(self, request: Request, known: Known, failed: ModelFailed) -> bool:
        """True if a refused request can be sent again in another form.

        `known` is what the request was built with. If other requests have learned something
        since then, this refusal teaches nothing: it may be about the same thing.
        """
        if not isinstance(failed, Refusal):
            return False
        if self._learn_maximum(request, known, failed):
            return True
        sent = [name for name in self._sent(request, known) if name in self.OPTIONAL]
        found = learned(failed, request, sent, known, self.WORDS) - known
        if self._known(request.model) != known:
            is_rejected = failed.kind == "rejected_request" and not failed.started
            return bool(found) or is_rejected
        if found:
            self.endpoint.refused(request.model).update(found)
            log.info("%s does not take %s; it is not sent again", self, ", ".join(sorted(found)))
        return bool(found)

    def _learn_maximum(self, request: Request, known: Known, refusal: Refusal) -> bool:
        """True if a lower limit of output tokens can help; a maximum is learned once."""
        most, wanted = named_maximum(refusal), self._wanted(request)
        is_sent = not LIMITS.isdisjoint(self._sent(request, known))
        if not (most and wanted and is_sent and most < wanted):
            return False
        limit = self.endpoint.output_limit(request.model)
        if limit is not None:
            return limit < wanted  # another request has learned it since this one was sent
        self.endpoint.limit_output(request.model, most)
        log.info("%s takes at most %d output tokens of %s", self, most, request.model)
        return True

    def _capped(self, request: Request) -> Request:
        """The same request with no higher limit of output tokens than its model takes."""
        limit, wanted = self.endpoint.output_limit(request.model), self._wanted(request)
        if limit is None or wanted is None or wanted <= limit:
            return request
        return request._replace(settings=request.settings._replace(max_tokens=limit))

    def _wanted(self, request: Request) -> int | None:
        return request.settings.max_tokens or self.MAX_TOKENS

    def _explain(self, failed: ModelFailed) -> None:
        """Add what to set where an endpoint seems to serve fewer calls at once than it was sent."""
        running = self.endpoint.most_running
        is_cut = isinstance(failed, CutOff) and running > 1
        if is_cut or (isinstance(failed, Refusal) and is_about_slots(failed.said)):
            calls = counted(running, "call")
            were = "was" if running == 1 else "were"
            failed.text = f"{failed.text}. {calls} {were} under way there. {CROWD_ADVICE}"

    @abstractmethod
    def _sent(self, request: Request, known: Known) -> Iterable[str]:
        """The names of the parameters that go with a request, without what was refused."""

    @abstractmethod
    async def _send(
        self,
        request: Request,
        known: Known,
        on_part: OnPart | None,
        seconds: float | None,
    ) -> Response:
        """Put a request once, and read its answer."""
