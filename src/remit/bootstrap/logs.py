"""How `remit worker` and `remit serve` log: single lines on standard error, as text or as JSON."""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any

from remit.app.task_log import FIELDS
from remit.domain.wire import instant
from remit.surfaces.display import display_line

LEVELS = {"quiet": logging.WARNING, "normal": logging.INFO, "verbose": logging.DEBUG}
_BARE = re.compile(r"[^\s\"=]+")


def start_logging(log_format: str, detail: str) -> None:
    """Log to standard error from now on: remit's own lines by detail, those of libraries from warnings on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(capture=True)
    logging.getLogger("remit").setLevel(LEVELS[detail])


def write_last_line(line: str) -> None:
    """Write one line as JSON past all loggers: one of them may be what keeps a process from ending."""
    record = logging.LogRecord("remit.server", logging.WARNING, "", 0, line, (), None)
    sys.stderr.write(f"{JsonFormatter().format(record)}\n")
    sys.stderr.flush()


class TextFormatter(logging.Formatter):
    """`time level message key=value`, and a traceback below where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        words = [_time(record), record.levelname, display_line(record.getMessage())]
        words += [f"{name}={_quoted(value)}" for name, value in _fields(record).items()]
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        lines = (display_line(line) for line in trace.splitlines())
        return "\n".join([" ".join(words), *lines])


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time`, `level`, `logger`, `message`, and the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": display_line(record.getMessage()),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line | _fields(record), ensure_ascii=False)


def _time(record: logging.LogRecord) -> str:
    return instant(datetime.fromtimestamp(record.created, UTC))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = getattr(record, FIELDS, {})
    return {name: display_line(value) if isinstance(value, str) else value for name, value in found.items()}


def _quoted(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    if isinstance(value, float) and "e" in text:
        text = f"{value:.12f}".rstrip("0").rstrip(".")
    return text if _BARE.fullmatch(text) else json.dumps(text, ensure_ascii=False)
