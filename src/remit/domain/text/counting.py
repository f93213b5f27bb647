"""Numbers with nouns, and amounts of money, for people."""

from math import floor, log10

_PLACES = 4
_SIGNIFICANT = 2


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 turn`, `2 turns`, `1,234 tokens`."""
    return f"{number:,} {plural(number, noun)}"


def plural(number: float, noun: str) -> str:
    """Return a noun in the singular for 1, else in the plural."""
    return noun if number == 1 else f"{noun}s"


def in_seconds(seconds: float) -> str:
    """Return a duration: `1 second`, `0.5 seconds`, `1,500 seconds`."""
    return f"{plain_number(seconds)} {plural(seconds, 'second')}"


def dollars(amount: float) -> str:
    """Return US dollars: `$12.35`, `$0.50`, `$0.0018`; a small amount keeps two significant
    digits.
    """
    if not 0 < amount < 1:
        return f"${amount:,.2f}"
    places = max(_PLACES, _SIGNIFICANT - 1 - floor(log10(amount)))
    whole, _, fraction = f"{amount:.{places}f}".rstrip("0").partition(".")
    return f"${whole}.{fraction:0<2}"


def plain_number(amount: float) -> str:
    """Return a number without an exponent: `600`, `1,500,000`, `0.5`."""
    return f"{amount:,.12f}".rstrip("0").rstrip(".")
