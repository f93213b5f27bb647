"""The common part of gateways with their own HTTP client: one session, one endpoint, and the
learned limits of each model.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from json import JSONEncoder
from typing import Any, ClassVar, TypedDict, Unpack

from remit.adapters.models.encoded_tools import encoded_tools
from remit.adapters.models.refusals.endpoint_limits import BARE_SCHEMAS, Known
from remit.adapters.models.refusals.learning import LearningGateway
from remit.adapters.models.tool_schemas import bare_schema, plain_schema
from remit.adapters.models.wires.endpoint import Endpoint
from remit.adapters.models.wires.http_stream import Body, Http
from remit.adapters.models.wires.partial_answer import PartialAnswer
from remit.adapters.models.wires.response import DEFAULTS, Limits, Priced
from remit.domain.llm.messages import Request, Response
from remit.domain.text.redaction import url_secrets

_encode = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Options(TypedDict, total=False):
    """Options of any gateway; without `stream`, answers arrive in one piece."""

    limits: Limits
    endpoint: Endpoint | None
    price: Priced | None
    stream: bool
    strict_turns: bool
    """True for an endpoint that accepts only strictly alternating user and assistant messages."""
    parallel_tool_calls: bool
    """False where a model is to call one tool at a time."""


class HttpGateway(LearningGateway):
    """A gateway over one session.

    `write_tool` makes a tool as JSON of the JSON texts of its name, description and schema.
    """

    ANSWER: ClassVar[type[PartialAnswer]]
    """Reads the answers of the endpoint as they arrive."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        api_key: str,
        write_tool: Callable[[str, str, str], str],
        **options: Unpack[Options],
    ) -> None:
        self._limits = options.get("limits", DEFAULTS)
        self._stream = options.get("stream", True)
        self._parallel = options.get("parallel_tool_calls", True)
        http_limits = self._limits
        if not self._stream:
            http_limits = http_limits.whole()
        self._http = Http(url, headers, (api_key, *url_secrets(url)), http_limits)
        self._tools = encoded_tools(write_tool, plain_schema)
        self._bare_tools = encoded_tools(write_tool, bare_schema)
        endpoint = options.get("endpoint") or Endpoint(self._http.name)
        strict_turns = options.get("strict_turns", False)
        super().__init__(endpoint, options.get("price"), strict_turns=strict_turns)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._http.name})"

    async def close(self) -> None:
        """Close the session."""
        await self._http.close()

    async def _send(
        self,
        request: Request,
        known: Known,
        seconds: float,
    ) -> Response:
        body = Body(self._body(request, known))
        answer = self.ANSWER(self._http, self._limits)
        answer.complete = await self._http.post(body, answer, seconds)
        return answer.response(request, body.length, self._price)

    def _parameter_names(self, request: Request, known: Known) -> Iterable[str]:
        return self._parameters(request, known)

    def _encode_parameters(self, request: Request, known: Known) -> str:
        """Return the parameters as members of a JSON object."""
        parameters = self._parameters(request, known)
        return "".join(f',"{name}":{value}' for name, value in parameters.items())

    def _encode_tools(self, request: Request, known: Known) -> str:
        """Return the tools as a member of a JSON object; empty if there are none."""
        if not request.tools:
            return ""
        encode = self._tools
        if BARE_SCHEMAS in known:
            encode = self._bare_tools
        return f',"tools":[{encode(request.tools)}]'

    @abstractmethod
    def _body(self, request: Request, known: Known) -> bytes:
        """Return a request as JSON."""

    @abstractmethod
    def _parameters(self, request: Request, known: Known) -> dict[str, str]:
        """Return the parameters beside the conversation, as JSON by name, without refused ones."""


def without_refused(wanted: Mapping[str, Any], known: Known) -> dict[str, Any]:
    """Return the parameters that are set and that the endpoint has not refused."""
    return {
        name: value for name, value in wanted.items() if value is not None and name not in known
    }


def json_or_none(value: float | str | tuple[str, ...] | None) -> str | None:
    """Return a setting as JSON; None if it is not set."""
    if value in (None, ()):
        return None
    return _encode(value)


def effort_object(request: Request) -> str | None:
    """Return an object with the effort of a model as JSON; None to send no such parameter."""
    effort = effort_of(request)
    if effort is None:
        return None
    return f'{{"effort":"{effort}"}}'


def effort_of(request: Request) -> str | None:
    """Return how much a model should think; None to send no such parameter."""
    effort = request.settings.effort
    if effort == "none":
        return None
    return effort


def tool_limits(request: Request, *, is_parallel: bool) -> dict[str, Any]:
    """Return the parameters of OpenAI that limit how tools are called."""
    limits: dict[str, Any] = {}
    if not request.tools:
        return limits
    if not request.may_call:
        limits["tool_choice"] = "none"
    if not is_parallel:
        limits["parallel_tool_calls"] = False
    return limits


def openai_tool_parameters(request: Request, *, is_parallel: bool) -> dict[str, str]:
    """Return the parameters of both APIs of OpenAI that limit how tools are called, as JSON."""
    limits = tool_limits(request, is_parallel=is_parallel)
    return {name: _encode(value) for name, value in limits.items()}
