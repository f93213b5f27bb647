"""Numbers, nouns and amounts of money as people read them."""

import pytest

from remit.domain.text.counting import counted, dollars, in_seconds, plain_number


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 tool calls"), (1, "1 tool call"), (2, "2 tool calls"), (1234, "1,234 tool calls")],
)
def test_a_noun_agrees_with_its_number(number: int, text: str) -> None:
    assert counted(number, "tool call") == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "$0.00"),
        (0.0018, "$0.0018"),
        (0.00001234, "$0.000012"),
        (1e-9, "$0.000000001"),
        (0.1234, "$0.1234"),
        (0.5, "$0.50"),
        (0.99999, "$1.00"),
        (12.345, "$12.35"),
        (1234567.0, "$1,234,567.00"),
    ],
)
def test_money_has_sensible_digits_and_is_never_rounded_to_nothing(
    amount: float, text: str
) -> None:
    assert dollars(amount) == text


@pytest.mark.parametrize(
    ("amount", "text"), [(600, "600"), (1_500_000, "1,500,000"), (0.5, "0.5"), (0.00001, "0.00001")]
)
def test_a_number_has_no_exponent(amount: float, text: str) -> None:
    assert plain_number(amount) == text


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(1, "1 second"), (1.0, "1 second"), (0.5, "0.5 seconds"), (2_000_000, "2,000,000 seconds")],
)
def test_a_time_agrees_with_its_noun(seconds: float, told: str) -> None:
    assert in_seconds(seconds) == told
