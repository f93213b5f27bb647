"""The part of a request that stays the same from turn to turn, encoded once."""

from collections.abc import Callable
from typing import Generic, TypeVar

from remit.domain.message import Tool

KEPT = 256

T = TypeVar("T")


class Static(Generic[T]):
    """A set of tools as it is sent, made when it is first sent."""

    def __init__(self, encode: Callable[[tuple[Tool, ...]], T]) -> None:
        self._encode = encode
        self._made: dict[tuple[int, ...], tuple[tuple[Tool, ...], T]] = {}

    def __call__(self, tools: tuple[Tool, ...]) -> T:
        """What is sent for these very tools; they are kept along with it, so that their ids cannot come to mean others."""
        key = tuple(map(id, tools))
        made = self._made.get(key)
        if made is None:
            if len(self._made) >= KEPT:
                self._made.pop(next(iter(self._made)))
            made = self._made[key] = tools, self._encode(tools)
        return made[1]
