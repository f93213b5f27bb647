"""Unread lines are kept, then dropped and counted; no line blocks the caller."""

import io
import logging
import threading

import pytest

from remit.bootstrap.logging_setup import LogHandler
from tests.patience import patient


class Held(io.StringIO):
    """A stream that takes nothing until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()

    def write(self, text: str) -> int:
        assert self.free.wait(patient(30))
        return super().write(text)


def test_lines_that_find_no_room_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit.surfaces.text.stream_writer.MAX_WAITING", 3)
    monkeypatch.setattr("remit.bootstrap.logging_setup.FLUSH_SECONDS", patient(20))
    stream = Held()
    handler = LogHandler(stream)
    for number in range(10):
        handler.emit(logging.LogRecord("remit", logging.INFO, "", 0, f"line {number}", (), None))
    stream.free.set()
    handler.flush()
    handler.emit(logging.LogRecord("remit", logging.INFO, "", 0, "later", (), None))
    handler.flush()
    *kept, note, last = stream.getvalue().splitlines()
    assert kept == [f"line {number}" for number in range(len(kept))]
    assert note == f"{10 - len(kept)} log lines were dropped: standard error was not read."
    assert (len(kept) in (3, 4), last) == (True, "later")
