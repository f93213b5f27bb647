"""The log of `remit worker` and `remit serve`: lines on standard error, as text or JSON."""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from remit.app.engine.task_log import FIELDS
from remit.domain.records.serialize import instant
from remit.surfaces.shutdown import write_line
from remit.surfaces.text.display import display_line
from remit.surfaces.text.printed_commands import with_commands_in_line
from remit.surfaces.text.stream_writer import ThreadedWriter

LEVELS = {"quiet": logging.WARNING, "normal": logging.INFO, "verbose": logging.DEBUG}
FLUSH_SECONDS = 0.5
"""How long an ending process waits for its last lines, which may have no reader."""
_BARE = re.compile(r"[^\s\"=]+")


class LogHandler(logging.Handler):
    """Writes lines in a thread: an unread log must not block the event loop or heartbeats.

    Lines are dropped and counted while too many wait; the next line reports the count.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._writer = ThreadedWriter(stream)
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line."""
        if self._dropped and self._writer.has_room:
            self._writer.put(f"{self.format(_dropped(self._dropped))}\n")
            self._dropped = 0
        if not self._writer.put(f"{self.format(record)}\n"):
            self._dropped += 1

    def flush(self) -> None:
        """Wait briefly until every line is written."""
        self._writer.drain(FLUSH_SECONDS)


def _dropped(count: int) -> logging.LogRecord:
    """Return the line that reports how many lines were dropped."""
    lines = "1 log line was" if count == 1 else f"{count} log lines were"
    text = f"{lines} dropped: standard error was not read."
    return logging.LogRecord("remit.log", logging.WARNING, "", 0, text, (), None)


def start_logging(log_format: str, detail: str) -> LogHandler:
    """Log to standard error: remit's own lines by detail, those of libraries from warnings on."""
    handler = LogHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(capture=True)
    logging.getLogger("remit").setLevel(LEVELS[detail])
    return handler


def write_last_line(line: str) -> None:
    """Write a JSON line past all loggers, one of which may keep the process from ending."""
    record = logging.LogRecord("remit.server", logging.WARNING, "", 0, line, (), None)
    write_line(JsonFormatter().format(record))


class TextFormatter(logging.Formatter):
    """`time level message key=value`, with a traceback below if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        words = [_time(record), record.levelname, _message(record)]
        words += [f"{name}={_quoted(value)}" for name, value in _fields(record).items()]
        lines = [" ".join(words)]
        if record.exc_info:
            lines += map(display_line, self.formatException(record.exc_info).splitlines())
        return "\n".join(lines)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: `time`, `level`, `logger`, `message`, and the fields of
    the event.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line | _fields(record), ensure_ascii=False)


def _time(record: logging.LogRecord) -> str:
    return instant(datetime.fromtimestamp(record.created, UTC))


def _message(record: logging.LogRecord) -> str:
    return display_line(with_commands_in_line(record.getMessage()))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields of a record, safe to display."""
    found: dict[str, Any] = getattr(record, FIELDS, {})
    texts = {name: display_line(value) for name, value in found.items() if isinstance(value, str)}
    return found | texts


def _quoted(value: Any) -> str:
    """Return a field value, quoted unless it is one plain word."""
    text = value if isinstance(value, str) else json.dumps(value)
    if isinstance(value, float) and "e" in text:
        text = f"{value:.12f}".rstrip("0").rstrip(".")
    if _BARE.fullmatch(text):
        return text
    return json.dumps(text, ensure_ascii=False)
