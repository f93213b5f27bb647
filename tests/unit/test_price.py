"""The cost of a call, by a configured price and by a price list."""

import subprocess
import sys

import pytest

from remit.adapters.models.prices import Prices
from remit.adapters.models.registry import ModelRegistry
from remit.domain.llm.failures import Price
from remit.domain.llm.messages import Tokens
from remit.domain.llm.selection import Choices, ModelChoice

USED = Tokens(1_000_000, 1_000_000, 500_000)


def test_a_price_that_is_set_holds_whatever_the_endpoint_calls_its_model() -> None:
    prices = Prices({"m": Price(1, 2)}, "openai")
    assert prices("m", USED) == prices("m-2026", USED) == pytest.approx(3.0)


def test_without_a_provider_the_price_is_unknown() -> None:
    assert Prices()("m", USED) is None


def test_the_price_list_is_loaded_only_when_needed() -> None:
    code = """if True:
        import sys
        from remit.adapters.models.registry import ModelRegistry
        from remit.domain.llm.selection import Choices, ModelChoice
        from remit.domain.llm.messages import Tokens
        for tier in (
            ModelChoice("m", "http://h"),
            ModelChoice("m", api_key="k", prices=(1.0, 2.0, None)),
            ModelChoice("gpt-4o", api_key="k"),
        ):
            chosen = ModelRegistry(Choices({"main": tier}, {})).resolve()
            cost = chosen.gateway.cost(chosen.model, Tokens(1_000_000, 0))
            print(cost, "genai_prices" in sys.modules)
    """
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout.splitlines() == ["None False", "1.0 False", "2.5 True"]


def test_a_price_list_is_asked_once_for_each_model() -> None:
    prices = Prices(provider="openai")
    assert prices("gpt-4o", USED) == pytest.approx(0.5 * 2.5 + 0.5 * 1.25 + 10)
    assert prices("gpt-4o", Tokens(1000, 1000, 500)) == pytest.approx(
        (0.5 * 2.5 + 0.5 * 1.25 + 10) / 1000
    )
    assert prices("no-such-model", USED) is None


def test_a_long_context_costs_what_the_list_says_of_it() -> None:
    prices = Prices(provider="anthropic")
    assert prices("claude-sonnet-4-5", Tokens(1000, 0)) == pytest.approx(3 / 1000)
    assert prices("claude-sonnet-4-5", Tokens(500_000, 0)) == pytest.approx(6 / 2), (
        "twice as much beyond 200,000"
    )


def test_a_model_that_is_listed_without_a_price_is_not_free() -> None:
    assert Prices(provider="openai")("tts-1", USED) is None


@pytest.mark.parametrize(
    ("choice", "known"),
    [
        (ModelChoice("gpt-4o", api_key="k"), True),
        (ModelChoice("gpt-4o", "https://api.openai.com/v1/", "k"), True),
        (ModelChoice("anthropic:claude-sonnet-4-5", "https://api.anthropic.com/v1", "k"), True),
        (ModelChoice("claude-sonnet-4-5", "https://api.anthropic.com/v1", "k"), True),
        (ModelChoice("groq:llama-3.3-70b-versatile"), True),
        (ModelChoice("gpt-4o", "https://proxy.example/v1", "k"), False),
        (ModelChoice("gpt-4o", "https://api.openai.com.example/v1", "k"), False),
        (ModelChoice("gpt-4o", "https://proxy.example/v1", "k", prices=(1.0, 1.0, None)), True),
        (ModelChoice("ollama:gpt-4o"), False),
        (ModelChoice("ollama:gpt-4o", prices=(0.0, 0.0, None)), True),
    ],
    ids=lambda value: (
        f"{value.model} at {value.base_url or 'its own'}"
        if isinstance(value, ModelChoice)
        else None
    ),
)
async def test_a_list_holds_at_the_providers_own_address_alone(
    choice: ModelChoice, known: bool
) -> None:
    desk = ModelRegistry(Choices({"main": choice}, {}))
    chosen = desk.resolve("main")
    assert (chosen.gateway.cost(chosen.model, Tokens(1000, 1000)) is not None) == known
    await desk.close()
