"""What every measurement ends in: a line of a table."""

from typing import NamedTuple


class Line(NamedTuple):
    """One measurement: two figures, their ratio, and what the ratio has to be."""

    what: str
    ours: str
    other: str
    ratio: float
    target: str
    met: bool
