"""What a call costs: the price that is set, or the one a price list knows."""

from collections.abc import Mapping

from remit.domain.message import Tokens
from remit.domain.model import Price

KEPT = 256
LONG = 30_000
"""Beyond so much input some models are dearer, each from another length on."""


class Prices:
    """Prices by model, each looked up once; for a provider by name, `genai-prices` is asked.

    Where one price is set it holds for whatever the endpoint calls its model.
    """

    def __init__(self, known: Mapping[str, Price] | None = None, provider: str | None = None) -> None:
        self._set = next(iter(known.values())) if known and len(known) == 1 else None
        self._known = known or {}
        self._listed: dict[str, Price | None] = {}
        self._provider = provider

    def __call__(self, model: str, tokens: Tokens) -> float | None:
        """US dollars, or None where nobody knows."""
        price = self._known.get(model, self._set)
        if price is None and self._provider is not None:
            return self._by_list(model, self._provider, tokens)
        return None if price is None else price.of(tokens.input, tokens.output, tokens.cached)

    def _by_list(self, model: str, provider: str, tokens: Tokens) -> float | None:
        if model not in self._listed and len(self._listed) < KEPT:
            self._listed[model] = listed(model, provider)
        price = self._listed.get(model)
        if price is None:
            return None
        return price.of(*tokens[:3]) if tokens.input <= LONG else dollars(model, provider, tokens)


def listed(model: str, provider: str) -> Price | None:
    """The price of a model by `genai-prices`; its rates are kept, since asking it costs as much as the call itself.

    A model that is on the list without a price is as one that is not: who says nothing of a price does not say that it is free.
    """
    try:
        plain, cached = dollars(model, provider, Tokens(1000, 0)), dollars(model, provider, Tokens(1000, 0, 1000))
        said = dollars(model, provider, Tokens(0, 1000))
    except LookupError:
        return None
    return Price(plain * 1000, said * 1000, cached * 1000) if plain or said else None


def dollars(model: str, provider: str, tokens: Tokens) -> float:
    """What a call costs by `genai-prices`; LookupError if it does not know the model."""
    from genai_prices import Usage, calc_price  # 0.3 seconds: only who asks a provider that is on the list pays for it

    usage = Usage(input_tokens=tokens.input, output_tokens=tokens.output, cache_read_tokens=tokens.cached)
    return float(calc_price(usage, model, provider_id=provider).total_price)
