"""What gateways that speak HTTP themselves have in common: one session, one endpoint, and what each model was found not to take."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TypedDict, Unpack

from remit.adapters.models.answer import DEFAULTS, Limits, Priced
from remit.adapters.models.dialect import Known
from remit.adapters.models.endpoint import Endpoint
from remit.adapters.models.http import Http
from remit.adapters.models.learning import LearningGateway
from remit.domain.message import OnPart, Pause, Request, Response, Tokens


class Options(TypedDict, total=False):
    """What may be said of any of them; without `stream`, answers come whole."""

    limits: Limits
    endpoint: Endpoint | None
    price: Priced | None
    stream: bool
    strict_turns: bool
    """True for an endpoint that takes user and assistant messages in strict alternation only."""
    parallel_tool_calls: bool
    """False where a model is to call one tool at a time."""


class DirectGateway(LearningGateway):
    """A gateway over one session."""

    def __init__(self, url: str, headers: Mapping[str, str], api_key: str, **options: Unpack[Options]) -> None:
        self._limits, self._price, self._stream = options.get("limits", DEFAULTS), options.get("price"), options.get("stream", True)
        self._http = Http(url, headers, (api_key,), self._limits if self._stream else self._limits.whole())
        endpoint = options.get("endpoint") or Endpoint(self._http.name)
        super().__init__(endpoint, strict_turns=options.get("strict_turns", False))
        self._parallel = options.get("parallel_tool_calls", True)

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

    def _sent(self, request: Request, known: Known) -> Iterable[str]:
        return self._parameters(request, known)

    def _encoded(self, request: Request, known: Known) -> str:
        """The parameters as members of a JSON object."""
        parameters = self._parameters(request, known)
        return "".join(f',"{name}":{value}' for name, value in parameters.items())

    @abstractmethod
    def _parameters(self, request: Request, known: Known) -> dict[str, str]:
        """What is asked for beside the conversation: JSON by name, without what was refused."""
