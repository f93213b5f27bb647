"""The part of a request that stays the same from turn to turn, encoded once."""

from collections.abc import Callable, Mapping
from json import JSONEncoder
from json.encoder import encode_basestring as quote
from typing import Any, Generic, TypeVar

from remit.adapters.models.tool_schemas import acceptable
from remit.domain.llm.messages import Tool

KEPT = 256
_encode = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

T = TypeVar("T")


class EncodedTools(Generic[T]):
    """A set of tools as it is sent, made when it is first sent."""

    def __init__(self, encode: Callable[[tuple[Tool, ...]], T]) -> None:
        self._encode = encode
        self._made: dict[tuple[int, ...], tuple[tuple[Tool, ...], T]] = {}

    def __call__(self, tools: tuple[Tool, ...]) -> T:
        """Return the encoded form of these tools.

        The tools are kept with it, so that their ids are not reused for other objects.
        """
        key = tuple(map(id, tools))
        made = self._made.get(key)
        if made is None:
            if len(self._made) >= KEPT:
                self._made.pop(next(iter(self._made)))
            made = self._made[key] = tools, self._encode(tools)
        return made[1]


def encoded_tools(
    write: Callable[[str, str, str], str],
    shape: Callable[[Mapping[str, Any]], dict[str, Any]],
) -> EncodedTools[str]:
    """Return tools as items of a JSON list, encoded once.

    `write` makes an item of the JSON texts of a name, a description and a schema; `shape` makes a
    schema that the endpoint accepts.
    """

    def encode(tools: tuple[Tool, ...]) -> str:
        found = acceptable(tools)
        return ",".join(
            write(quote(tool.name), quote(tool.description), _encode(shape(tool.schema)))
            for tool in found
        )

    return EncodedTools(encode)
