"""Selects the gateway of a task's model; callers share gateways."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from remit.adapters.models.offline import MODEL as OFFLINE
from remit.adapters.models.offline import OfflineGateway
from remit.adapters.models.prices import Prices
from remit.adapters.models.refusals.remembered_limits import RememberedLimits
from remit.adapters.models.wires import anthropic, openai_chat, openai_responses
from remit.adapters.models.wires.endpoint import (
    CONCURRENT,
    BreakerState,
    Endpoint,
    EndpointState,
    TimeSource,
)
from remit.adapters.models.wires.http_gateway import Options
from remit.adapters.models.wires.response import DEFAULTS, Limits
from remit.domain.agents.media import takes_media
from remit.domain.llm.failures import ModelOrigin, Price
from remit.domain.llm.selection import KEYS, TIERS, Choices, ModelChoice
from remit.domain.text.redaction import shown_url
from remit.errors import Unavailable, invalid
from remit.ports import ModelGateway, ResolvedModel

WIRES = {"openai": openai_chat.BASE_URL, "anthropic": anthropic.BASE_URL}
"""The providers that we have a wire of our own for, and where they are asked."""
OFFICIAL = {urlsplit(url).hostname: provider for provider, url in WIRES.items()}
"""The provider whose price list applies to an address; other addresses may have other prices."""


class ModelRegistry:
    """Opens gateways on demand; callers of the same endpoint share its sessions, pauses and
    breakers.
    """

    def __init__(
        self,
        choices: Choices,
        *,
        limits: Limits = DEFAULTS,
        concurrent: int = CONCURRENT,
        ticks: TimeSource | None = None,
        memory: RememberedLimits | None = None,
    ) -> None:
        self._choices = choices
        self._memory = memory
        self._limits = limits
        self._concurrent = concurrent
        self._ticks = ticks
        self._gateways: dict[tuple[object, ...], ModelGateway] = {}
        self._endpoints: dict[str, Endpoint] = {}

    def __repr__(self) -> str:
        return f"ModelRegistry({', '.join(sorted(self._choices.tiers)) or OFFLINE})"

    def resolve(self, model: str | None = None) -> ResolvedModel:
        """Return the model for `main`, `light` or `provider:name`; without a name, for main.

        If no model is set, it is the offline model.
        """
        name = model or "main"
        choice = self._choices.tiers.get(name)
        if choice is not None:
            return self._tier(name, choice)
        if name in (*TIERS, OFFLINE):
            return ResolvedModel(
                self._once((OFFLINE,), OfflineGateway),
                OFFLINE,
                "the offline model: no language model is set",
                offline=True,
            )
        provider, colon, rest = name.partition(":")
        if not colon or not rest:
            raise invalid("model", f"is {name!r}", "main, light, or provider:name")
        choice = ModelChoice(rest, key_setting=KEYS.get(provider, ""))
        return self._provider(provider, rest, self._with_provider_key(provider, choice))

    def states(self) -> list[EndpointState]:
        """Return the state of each endpoint that was used."""
        return [endpoint.state() for endpoint in self._endpoints.values()]

    def trouble(self) -> list[dict[str, Any]]:
        """Return the endpoints that are paused after failures or asked for a pause, each with the
        agent; empty without trouble.
        """
        found: list[dict[str, Any]] = []
        for state in self.states():
            circuits: list[tuple[str | None, BreakerState]] = [
                (None, state.breaker),
                *state.agents.items(),
            ]
            found += [
                {
                    "endpoint": state.name,
                    "agent": agent,
                    "circuit": circuit.state,
                    "failures": circuit.failures,
                    "last": circuit.last,
                }
                for agent, circuit in circuits
                if circuit.state != "closed"
            ]
            if state.cooling_seconds:
                found.append(
                    {
                        "endpoint": state.name,
                        "agent": None,
                        "circuit": "cooling",
                        "seconds": round(state.cooling_seconds, 1),
                    }
                )
        return found

    async def close(self) -> None:
        """Close every gateway."""
        gateways, self._gateways = list(self._gateways.values()), {}
        for gateway in gateways:
            await gateway.close()

    def _tier(self, tier: str, choice: ModelChoice) -> ResolvedModel:
        """Return the model of a tier, with the key of its provider if it has none."""
        provider, name = _split_name(choice)
        if not choice.api_key and not choice.base_url:
            choice = self._with_provider_key(provider, choice)
        chosen = self._provider(provider, name, choice)
        return chosen._replace(shown=f"{tier}: {chosen.shown}")

    def _with_provider_key(self, provider: str, choice: ModelChoice) -> ModelChoice:
        """Add the key of a provider, if the environment has one."""
        key = self._choices.keys.get(provider, "")
        if not key:
            return choice
        return choice._replace(api_key=key, key_origin=KEYS[provider])

    def _provider(self, provider: str, name: str, choice: ModelChoice) -> ResolvedModel:
        """Return the model of a provider: over our own wires, or through the library."""
        origin = ModelOrigin(choice.origin, choice.key_origin, choice.key_setting)
        media = choice.media
        if media is None:
            media = takes_media(name)
        if provider not in WIRES:
            key = (provider, choice.prices, choice.parallel_tool_calls, choice.strict_turns)
            gateway = self._once(key, lambda: self._library(provider, name, choice))
            keyless = origin._replace(key="", set_key="")
            is_shown = media and not choice.strict_turns  # the library sends media after results
            return ResolvedModel(
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
        gateway = self._once(
            (provider, url, choice.api_key, choice.prices, *how),
            lambda: self._wire(provider, name, url, choice),
        )
        return ResolvedModel(
            gateway,
            name,
            f"{name} at {shown_url(url)}",
            origin,
            effort=choice.effort,
            takes_media=media,
        )

    def _wire(self, provider: str, name: str, url: str, choice: ModelChoice) -> ModelGateway:
        """Return a new gateway that speaks the API of an endpoint itself."""
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
        if choice.api == "responses":
            return openai_responses.ResponsesGateway(choice.api_key, url, **options)
        return openai_chat.OpenAIChatGateway(choice.api_key, url, **options)

    def _library(self, provider: str, name: str, choice: ModelChoice) -> ModelGateway:
        """Return a new gateway that uses pydantic-ai."""
        from remit.adapters.models.pydantic_ai import PydanticAiGateway

        return PydanticAiGateway(
            provider,
            limits=self._limits,
            endpoint=self._endpoint(provider),
            price=_prices(name, choice, provider),
            parallel_tool_calls=choice.parallel_tool_calls,
            strict_turns=choice.strict_turns,
        )

    def _endpoint(self, address: str) -> Endpoint:
        """Return the one endpoint of this address."""
        found = self._endpoints.get(address)
        if found is None:
            found = self._endpoints[address] = Endpoint(
                shown_url(address),
                address=address,
                concurrent=self._most(address),
                ticks=self._ticks,
                memory=self._memory,
            )
        return found

    def _most(self, address: str) -> int:
        """Return the maximum of concurrent calls to an endpoint: the smallest of the tiers that use
        it.
        """
        limits = [
            choice.concurrency
            for choice in self._choices.tiers.values()
            if choice.concurrency and _place(_split_name(choice)[0], choice) == address
        ]
        return min(limits, default=self._concurrent)

    def _once(self, key: tuple[object, ...], make: Callable[[], ModelGateway]) -> ModelGateway:
        """Return the gateway for a key, which is made once."""
        found = self._gateways.get(key)
        if found is None:
            found = self._gateways[key] = make()
        return found


def _without_key(provider: str, name: str, choice: ModelChoice) -> Unavailable:
    """Return the error for a model whose key is missing."""
    settings = dict.fromkeys(filter(None, (choice.key_setting, KEYS[provider])))
    names, problem = " or ".join(settings), f"no API key of {provider} is set"
    if choice.missing_key:
        names = choice.missing_key
        problem = f"{names}, which holds its API key (api_key_env), is not set"
    message = f"The model {provider}:{name} cannot be used: {problem}."
    return Unavailable(
        message, hint=f"Set {names} in the environment.", details={"cause": "model_authentication"}
    )


def _split_name(choice: ModelChoice) -> tuple[str, str]:
    """Return the provider of a tier's model, and its name there."""
    provider, colon, rest = choice.model.partition(":")
    # A model name may contain a colon: with an address, only our own wires are a prefix.
    prefixed = colon and (provider in WIRES or not choice.base_url)
    if prefixed:
        return (provider, rest)
    return ("openai", choice.model)


def _place(provider: str, choice: ModelChoice) -> str:
    """Return the endpoint that a model is asked at: an address, or a provider that a library
    knows.
    """
    if provider in WIRES:
        return (choice.base_url or WIRES[provider]).rstrip("/")
    return provider


def _prices(name: str, choice: ModelChoice, provider: str | None) -> Prices:
    """Return the prices that are set, or else those of the provider's list."""
    known: dict[str, Price] = {}
    if choice.prices:
        known[name] = Price(*choice.prices)
    return Prices(known, provider)
