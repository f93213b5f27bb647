"""What a call costs: where a price is set, and where a price list is installed."""

from importlib.util import find_spec

import pytest

from remit.adapters.models import price
from remit.adapters.models.price import Prices
from remit.domain.message import Tokens
from remit.domain.model import Price

USED = Tokens(1_000_000, 1_000_000, 500_000)


def test_a_price_that_is_set_holds_whatever_the_endpoint_calls_its_model() -> None:
    prices = Prices({"m": Price(1, 2)}, "openai")
    assert prices("m", USED) == prices("m-2026", USED) == pytest.approx(3.0)


def test_without_a_price_list_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(price, "find_spec", lambda _name: None)
    assert Prices()("m", USED) is None
    assert Prices(provider="openai")("m", USED) is None


@pytest.mark.skipif(find_spec("genai_prices") is None, reason="genai-prices is not installed")
def test_a_price_list_is_asked_once_for_each_model() -> None:
    prices = Prices(provider="openai")
    assert prices("gpt-4o", USED) == pytest.approx(0.5 * 2.5 + 0.5 * 1.25 + 10)
    assert prices("no-such-model", USED) is None
