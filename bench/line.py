"""One line of the result table."""

from typing import NamedTuple


class Line(NamedTuple):
    """One measurement: two figures, their ratio and the target."""

    what: str
    ours: str
    other: str
    ratio: float
    target: str
    met: bool
