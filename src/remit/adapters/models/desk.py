"""Which gateway a task's model means, and one of each for all who ask."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from remit.adapters.models import anthropic, responses, wire
from remit.adapters.models.answer import DEFAULTS, Limits
from remit.adapters.models.direct import Options
from remit.adapters.models.endpoint import CONCURRENT, BreakerState, Endpoint, EndpointState, Ticks
from remit.adapters.models.offline import MODEL as OFFLINE
from remit.adapters.models.offline import OfflineGateway
from remit.adapters.models.price import Prices
from remit.domain.choice import KEYS, TIERS, Choices, ModelChoice
from remit.domain.media import takes_media
from remit.domain.model import ModelOrigin, Price
from remit.errors import Unavailable, invalid
from remit.ports import Chosen, ModelGateway

WIRES = {"openai": wire.BASE_URL, "anthropic": anthropic.BASE_URL}
"""The providers that we have a wire of our own for, and where they are asked."""
OFFICIAL = {urlsplit(url).hostname: provider for provider, url in WIRES.items()}
"""Whose price list holds at an address; anybody else's may charge what they like."""


class ModelDesk:
    """Opens gateways as they are needed: callers that mean the same endpoint share its sessions, pauses and breakers."""

    def __init__(self, choices: Choices, *, limits: Limits = DEFAULTS, concurrent: int = CONCURRENT, ticks: Ticks | None = None) -> None:
        self._choices, self._limits, self._concurrent, self._ticks = choices, limits, concurrent, ticks
        self._gateways: dict[tuple[object, ...], ModelGateway] = {}
        self._endpoints: dict[str, Endpoint] = {}

    def __repr__(self) -> str:
        return f"ModelDesk({', '.join(sorted(self._choices.tiers)) or OFFLINE})"

    def resolve(self, model: str | None = None) -> Chosen:
        """Who answers for `main`, `light` or `provider:name`; without a name, main. Where nothing is set, the offline model."""
        name = model or "main"
        choice = self._choices.tiers.get(name)
        if choice is not None:
            return self._tier(name, choice)
        if name in TIERS or name == OFFLINE:
            return Chosen(self._once((OFFLINE,), OfflineGateway), OFFLINE, "the offline model: no language model is set", offline=True)
        provider, colon, rest = name.partition(":")
        if not colon or not rest:
            raise invalid("model", f"is {name!r}", "main, light, or provider:name")
        key, variable = self._choices.keys.get(provider, ""), KEYS.get(provider, "")
        choice = ModelChoice(rest, "", key, key_origin=variable if key else "", key_setting=variable)
        return self._provider(provider, rest, choice)

    def states(self) -> list[EndpointState]:
        """How each endpoint that was asked is doing."""
        return [endpoint.state() for endpoint in self._endpoints.values()]

    def trouble(self) -> list[dict[str, Any]]:
        """The endpoints that are left alone or asked for a pause, and for which agent: nothing while all is well."""
        found: list[dict[str, Any]] = []
        for state in self.states():
            circuits: list[tuple[str | None, BreakerState]] = [(None, state.breaker), *state.agents.items()]
            found += [
                {"endpoint": state.name, "agent": agent, "circuit": circuit.state, "failures": circuit.failures, "last": circuit.last}
                for agent, circuit in circuits
                if circuit.state != "closed"
            ]
            if state.cooling_seconds:
                found.append({"endpoint": state.name, "agent": None, "circuit": "cooling", "seconds": round(state.cooling_seconds, 1)})
        return found

    async def close(self) -> None:
        """Close every gateway."""
        gateways, self._gateways = list(self._gateways.values()), {}
        for gateway in gateways:
            await gateway.close()

    def _tier(self, tier: str, choice: ModelChoice) -> Chosen:
        provider, name = _named(choice)
        if not choice.api_key and not choice.base_url and (key := self._choices.keys.get(provider, "")):
            choice = choice._replace(api_key=key, key_origin=KEYS[provider])
        chosen = self._provider(provider, name, choice)
        return chosen._replace(shown=f"{tier}: {chosen.shown}")

    def _provider(self, provider: str, name: str, choice: ModelChoice) -> Chosen:
        origin = ModelOrigin(choice.origin, choice.key_origin, choice.key_setting)
        media = takes_media(name) if choice.media is None else choice.media
        if provider not in WIRES:
            key = (provider, choice.prices, choice.parallel_tool_calls, choice.strict_turns)
            gateway = self._once(key, lambda: self._library(provider, name, choice))
            keyless = origin._replace(key="", set_key="")
            is_shown = media and not choice.strict_turns  # the library sends media after results
            return Chosen(
                gateway,
                name,
                f"{provider}:{name}",
                keyless,
                effort=choice.effort,
                takes_media=is_shown,
            )
        url = _place(provider, choice)
        if not choice.api_key and url == WIRES[provider]:
            raise _without_key(provider, name, choice)
        how = (choice.stream, choice.api, choice.parallel_tool_calls, choice.strict_turns)
        gateway = self._once((provider, url, choice.api_key, choice.prices, *how), lambda: self._wire(provider, name, url, choice))
        return Chosen(gateway, name, f"{name} at {url}", origin, effort=choice.effort, takes_media=media)

    def _wire(self, provider: str, name: str, url: str, choice: ModelChoice) -> ModelGateway:
        prices = _prices(name, choice, OFFICIAL.get(urlsplit(url).hostname))
        options: Options = {
            "limits": self._limits,
            "endpoint": self._endpoint(url),
            "price": prices,
            "stream": choice.stream,
            "strict_turns": choice.strict_turns,
            "parallel_tool_calls": choice.parallel_tool_calls,
        }
        if provider == "anthropic":
            return anthropic.AnthropicGateway(choice.api_key, url, **options)
        kind = responses.ResponsesGateway if choice.api == "responses" else wire.WireGateway
        return kind(choice.api_key, url, **options)

    def _library(self, provider: str, name: str, choice: ModelChoice) -> ModelGateway:
        from remit.adapters.models.pydantic_ai import PydanticAiGateway

        return PydanticAiGateway(
            provider,
            limits=self._limits,
            endpoint=self._endpoint(provider),
            price=_prices(name, choice, provider),
            parallel_tool_calls=choice.parallel_tool_calls,
            strict_turns=choice.strict_turns,
        )

    def _endpoint(self, name: str) -> Endpoint:
        found = self._endpoints.get(name)
        if found is None:
            found = self._endpoints[name] = Endpoint(name, concurrent=self._most(name), ticks=self._ticks)
        return found

    def _most(self, name: str) -> int:
        """How many may call an endpoint at once: the least that a tier says which is asked there."""
        there = [choice for choice in self._choices.tiers.values() if _place(_named(choice)[0], choice) == name]
        return min((choice.concurrency for choice in there if choice.concurrency), default=self._concurrent)

    def _once(self, key: tuple[object, ...], make: Callable[[], ModelGateway]) -> ModelGateway:
        found = self._gateways.get(key)
        if found is None:
            found = self._gateways[key] = make()
        return found


def _without_key(provider: str, name: str, choice: ModelChoice) -> Unavailable:
    """What is said of a model that cannot be asked without a key."""
    names, problem = " or ".join(dict.fromkeys(name for name in (choice.key_setting, KEYS[provider]) if name)), f"no API key of {provider} is set"
    if choice.missing_key:
        names, problem = choice.missing_key, f"{choice.missing_key}, which holds its API key (api_key_env), is not set"
    message = f"The model {provider}:{name} cannot be used: {problem}."
    return Unavailable(message, hint=f"Set {names} in the environment.", details={"cause": "model_authentication"})


def _named(choice: ModelChoice) -> tuple[str, str]:
    """The provider of a tier's model, and its name there."""
    provider, colon, rest = choice.model.partition(":")
    # Names of models may hold a colon themselves: behind an address only our own wires are a prefix.
    prefixed = colon and (provider in WIRES or not choice.base_url)
    return (provider, rest) if prefixed else ("openai", choice.model)


def _place(provider: str, choice: ModelChoice) -> str:
    """The endpoint that a model is asked at: an address, or a provider that a library knows."""
    return (choice.base_url or WIRES[provider]).rstrip("/") if provider in WIRES else provider


def _prices(name: str, choice: ModelChoice, provider: str | None) -> Prices:
    """What is set, or else what the list of a provider says."""
    return Prices({name: Price(*choice.prices)} if choice.prices else {}, provider)
