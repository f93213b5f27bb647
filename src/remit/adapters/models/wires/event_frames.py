"""Server-sent events, taken apart as their bytes arrive."""

from json import JSONDecoder
from typing import Any, Protocol

from remit.adapters.models.wires.response import bad
from remit.domain.llm.failures import ModelFailed

_decode = JSONDecoder().raw_decode


class Answer(Protocol):
    """Reads an answer as it arrives."""

    started: bool

    def fold(self, frame: Any) -> None:
        """Read one frame of a stream."""
        ...

    def whole(self, document: Any) -> None:
        """Read the whole answer at once."""
        ...


class EventFrames:
    """Server-sent events, as endpoints write them: only `data` lines count."""

    __slots__ = ("_answer", "_broken", "_held", "_limit", "_size", "done")

    def __init__(self, answer: Answer, limit: int) -> None:
        self._answer, self._limit = answer, limit
        self._held: list[bytes] = []
        self._size = 0
        self._broken = ""
        self.done = False

    def feed(self, data: bytes) -> None:
        """Read some bytes, cut anywhere."""
        cut = data.rfind(b"\n")
        if cut < 0:
            self._hold(data)
            return
        block, rest = data[:cut], data[cut + 1 :]
        if self._held:
            block = b"".join((*self._held, block))
            self._held, self._size = [], 0
        if rest:
            self._hold(rest)
        if len(block) > self._limit and max(map(len, block.split(b"\n"))) > self._limit:
            raise self._too_long()
        self._read_lines(block.decode("utf-8", "replace").split("\n"))

    def _read_lines(self, lines: list[str]) -> None:
        """Read complete lines; frames in their usual form are decoded immediately."""
        fold = self._answer.fold
        for line in lines:
            if line.startswith("data: {") and not self._broken:
                try:
                    frame, end = _decode(line, 6)
                except ValueError:
                    self._broken = line[6:]
                    continue
                if end != len(line) and not line[end:].isspace():
                    raise ValueError("more than one value in a frame")
                fold(frame)
            elif line or self._broken:
                self._read_other_line(line)

    def end(self) -> None:
        """Read the rest; raise ValueError if the last frame is incomplete."""
        if self._held and not self.done:
            self.feed(b"\n")
        if self._broken:
            raise ValueError("the last frame is cut short")

    def _hold(self, data: bytes) -> None:
        """Keep the start of a line whose end has not arrived."""
        self._held.append(data)
        self._size += len(data)
        if self._size > self._limit:
            raise self._too_long()

    def _read_other_line(self, line: str) -> None:
        """Read anything but a whole frame in its usual form.

        A value may be spread over several lines, up to an empty one.
        """
        if line.startswith("error: {"):  # llama.cpp reports errors like this, not as data
            line = f'data: {{"error": {line[7:]}}}'
        if line.startswith("data:"):
            self._read_value(line[5:].strip())
        elif self._broken and not line.strip():
            raise ValueError("a frame is not JSON")

    def _read_value(self, value: str) -> None:
        """Read the value of a data line."""
        if value == "[DONE]":
            self.done = True
        elif value:
            self._join(value)

    def _join(self, value: str) -> None:
        """Read a value together with the lines before it that were not complete."""
        text = value
        if self._broken:
            text = f"{self._broken}\n{value}"
        if len(text) > self._limit:
            raise self._too_long()
        try:
            frame, end = _decode(text)
        except ValueError:
            self._broken = text
            return
        if text[end:].strip():
            raise ValueError("more than one value in a frame")
        self._broken = ""
        self._answer.fold(frame)

    def _too_long(self) -> ModelFailed:
        """Return the failure of a frame over the limit."""
        return bad(f"a frame is longer than {self._limit:,} bytes", started=self._answer.started)
