"""What a call costs: the price that is set, or the one a price list knows."""

from collections.abc import Mapping
from decimal import Decimal
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from remit.domain.message import Tokens
from remit.domain.model import Price

KEPT = 256


class Prices:
    """Prices by model, each looked up once; for a provider by name, `genai-prices` is asked where it is installed.

    Where one price is set it holds for whatever the endpoint calls its model.
    """

    def __init__(self, known: Mapping[str, Price] | None = None, provider: str | None = None) -> None:
        self._set = next(iter(known.values())) if known and len(known) == 1 else None
        self._known: dict[str, Price | None] = dict(known or {})
        self._provider = provider

    def __call__(self, model: str, tokens: Tokens) -> float | None:
        """US dollars, or None where nobody knows."""
        if model not in self._known and self._set is None and self._provider is not None and len(self._known) < KEPT:
            self._known[model] = listed(model, self._provider)
        price = self._known.get(model, self._set)
        return None if price is None else price.of(tokens.input, tokens.output, tokens.cached)


def listed(model: str, provider: str) -> Price | None:
    """The price of a model by `genai-prices`; its rates are kept, since asking it costs as much as the call itself."""
    if find_spec("genai_prices") is None:
        return None
    prices: Any = import_module("genai_prices")

    def dollars(**counts: int) -> Any:
        return prices.calc_price(prices.Usage(**counts), model, provider_id=provider).total_price * Decimal(1000)

    try:
        plain, cached = dollars(input_tokens=1000), dollars(input_tokens=1000, cache_read_tokens=1000)
        return Price(float(plain), float(dollars(output_tokens=1000)), float(cached))
    except LookupError:
        return None
