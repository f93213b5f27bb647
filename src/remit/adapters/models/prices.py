"""The cost of a call, by the configured price or by a price list."""

from collections.abc import Mapping

from remit.domain.llm.failures import Price
from remit.domain.llm.messages import Tokens

KEPT = 256
LONG = 30_000
"""The input length from which some models may cost more; the exact length differs."""


class Prices:
    """Prices by model, each looked up once; the prices of a named provider come from
    `genai-prices`.

    A price that is set applies to every model name of the endpoint.
    """

    def __init__(
        self, known: Mapping[str, Price] | None = None, provider: str | None = None
    ) -> None:
        self._known = known or {}
        self._set: Price | None = None
        if len(self._known) == 1:
            (self._set,) = self._known.values()
        self._listed: dict[str, Price | None] = {}
        self._provider = provider

    def __call__(self, model: str, tokens: Tokens) -> float | None:
        """Return the cost in US dollars; None if the price is unknown."""
        price = self._known.get(model, self._set)
        if price is not None:
            return price.of(tokens.input, tokens.output, tokens.cached)
        if self._provider is None:
            return None
        return self._listed_cost(model, self._provider, tokens)

    def _listed_cost(self, model: str, provider: str, tokens: Tokens) -> float | None:
        """Return the cost by the price list; long inputs may have other rates."""
        if model not in self._listed and len(self._listed) < KEPT:
            self._listed[model] = find_price(model, provider)
        price = self._listed.get(model)
        if price is None:
            return None
        if tokens.input > LONG:
            return dollars(model, provider, tokens)
        return price.of(*tokens[:3])


def find_price(model: str, provider: str) -> Price | None:
    """Return the price of a model by `genai-prices`.

    Its rates are kept, since asking it costs as much as the call itself.

    A model that is on the list without a price is like one that is not on it: a missing price does
    not mean that the model is free.
    """
    try:
        plain = dollars(model, provider, Tokens(1000, 0))
        cached = dollars(model, provider, Tokens(1000, 0, 1000))
        said = dollars(model, provider, Tokens(0, 1000))
    except LookupError:
        return None
    if not plain and not said:
        return None
    return Price(plain * 1000, said * 1000, cached * 1000)


def dollars(model: str, provider: str, tokens: Tokens) -> float:
    """Return the cost of a call by `genai-prices`; raise LookupError for an unknown model."""
    # 0.3 seconds: paid only for providers on the list.
    from genai_prices import Usage, calc_price

    usage = Usage(
        input_tokens=tokens.input, output_tokens=tokens.output, cache_read_tokens=tokens.cached
    )
    return float(calc_price(usage, model, provider_id=provider).total_price)
