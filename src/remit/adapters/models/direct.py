"""What gateways that speak HTTP themselves have in common: one session, one endpoint, and what each model was found not to take."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import ClassVar, TypedDict, Unpack

from remit.adapters.models.answer import DEFAULTS, Limits, Priced
from remit.adapters.models.endpoint import Endpoint
from remit.adapters.models.http import Http
from remit.domain.message import OnPart, Pause, Request, Response, Tokens
from remit.domain.model import ModelFailed


class Options(TypedDict, total=False):
    """What may be said of any of them; without `stream`, answers come whole."""

    limits: Limits
    endpoint: Endpoint | None
    price: Priced | None
    stream: bool


class DirectGateway(ABC):
    """A gateway over one session."""

    OPTIONAL: ClassVar[Mapping[str, tuple[str, ...]]]
    """What some endpoints refuse, with the words they refuse it by; it is left out once they did."""

    def __init__(self, url: str, headers: Mapping[str, str], api_key: str, **options: Unpack[Options]) -> None:
        self._limits, self._price, self._stream = options.get("limits", DEFAULTS), options.get("price"), options.get("stream", True)
        self._http = Http(url, headers, (api_key,), self._limits if self._stream else self._limits.whole())
        self.endpoint = options.get("endpoint") or Endpoint(self._http.name)
        self._refused: dict[str, set[str]] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._http.name})"

    async def request(self, request: Request, *, on_part: OnPart | None = None, pause: Pause | None = None) -> Response:
        """One answer; pieces of it go to `on_part` as they come."""
        attempt = partial(self._attempt, request, on_part, pause)
        return await self.endpoint.call(attempt, agent=request.agent, timeout_seconds=request.timeout_seconds, pause=pause)

    def cost(self, model: str, tokens: Tokens) -> float | None:
        """What a call costs by the price that is set or listed."""
        return self._price(model, tokens) if self._price else None

    async def close(self) -> None:
        """Close the session."""
        await self._http.close()

    async def _attempt(self, request: Request, on_part: OnPart | None, pause: Pause | None, seconds: float | None) -> Response:
        while True:
            try:
                return await self._send(request, on_part, seconds)
            except ModelFailed as failed:
                known = self._refused.setdefault(request.model, set())
                refused = {name for name, words in self.OPTIONAL.items() if any(word in failed.text for word in words)} - known
                if failed.kind != "rejected_request" or not refused:
                    raise
                known |= refused
                if pause is not None:
                    await pause(asyncio.sleep(0))

    @abstractmethod
    async def _send(self, request: Request, on_part: OnPart | None, seconds: float | None) -> Response:
        """Put a request once, and read its answer."""
