"""`remit`, and `python -m remit`. Ctrl-C ends them without an error from the first moment on.

Nothing slow is imported at the top, and remit itself only after Ctrl-C is handled. `signal` would
take milliseconds; `_signal` is what it wraps, and every Python has loaded it before it runs this.
"""

import atexit
import builtins
import io
import os
import sys
from _thread import get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, NoReturn
else:
    import _signal

INTERRUPTED = 130
STOPPED = "Stopped.\n"


def main() -> None:
    """Run the command line and leave with its exit code."""
    _complete_streams()
    guard = ImportGuard(builtins.__import__)
    builtins.__import__ = guard.load
    code = INTERRUPTED
    has_ended = False
    try:
        run, host = guard.call(_load)
        code = run(sys.argv[1:], host)
        has_ended = True
    except (
        KeyboardInterrupt
    ):  # just before or after the command, or while the first one was handled
        if not has_ended:
            guard.tell()
    finally:
        builtins.__import__ = guard.unguarded
    _end_with(code)


def _complete_streams() -> None:
    """Open closed standard streams on the null device, and let no write to standard error fail.

    A file that is opened later would get the number of a closed stream, and what a command does
    must not depend on who reads its messages.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode)  # noqa: PTH123, SIM115 - pathlib is slow to import
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)  # a stream without a reference is closed
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(_Messages(sys.stderr.fileno(), "w", closefd=False)),
        encoding=sys.stderr.encoding,
        errors="replace",
        line_buffering=True,
    )


class _Messages(io.FileIO):
    """Standard error, which loses what cannot be written."""

    def write(self, data: "Any", /) -> int:
        """Write, unless the disk is full or the reader is gone."""
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _end_with(code: int) -> "NoReturn":
    """Leave with an exit code that a further Ctrl-C does not change, whatever threads Python
    waits for.
    """
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, lambda _number, _frame: os._exit(code))
        # Python removes every other handler before it has ended.
        atexit.register(_signal.signal, _signal.SIGINT, _signal.SIG_IGN)
    sys.exit(code)


def _end_unless_error(
    kind: type[BaseException], error: BaseException, trace: "TracebackType | None"
) -> None:
    """End a process without a traceback if Ctrl-C came where `main` cannot catch it: before its
    `try`, or after.
    """
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    _tell(STOPPED)
    os._exit(INTERRUPTED)


def _load() -> "tuple[Callable[..., int], Callable[..., Any]]":
    from remit.bootstrap.local_host import WorkspaceHost
    from remit.surfaces.cli.main import main as run

    return run, WorkspaceHost


class ImportGuard:
    """Ends the process at once if Ctrl-C comes during an import.

    KeyboardInterrupt in the middle of an import becomes any error that the module makes of it, or
    is lost. The guard replaces only Python's own handler, and restores it after the import: asyncio
    and waits look for that handler. A process that ignores Ctrl-C keeps ignoring it.
    """

    def __init__(self, unguarded: "Callable[..., Any]") -> None:
        self.unguarded = unguarded
        """What `import` did before."""
        self._thread = get_ident()

    def load(self, *given: "Any", **named: "Any") -> "Any":
        """Do what `import` does."""
        return self.call(self.unguarded, *given, **named)

    def call(self, load: "Callable[..., Any]", *given: "Any", **named: "Any") -> "Any":
        """Call something that imports modules."""
        by_default = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
        if not by_default or get_ident() != self._thread:  # guarded, handled elsewhere or ignored
            return load(*given, **named)
        _signal.signal(_signal.SIGINT, self._end)
        try:
            return load(*given, **named)
        finally:
            _signal.signal(_signal.SIGINT, _signal.default_int_handler)

    def tell(self) -> None:
        """Write that the command was stopped."""
        _tell(STOPPED)

    def _end(self, _number: int, _frame: object) -> None:
        try:
            self.tell()
        finally:
            os._exit(INTERRUPTED)


def _tell(words: str) -> None:
    if not _may_log_json():
        try:
            os.write(2, words.encode())
        except OSError:
            return


def _may_log_json() -> bool:
    """True if standard error may be for JSON alone."""
    return "REMIT_LOG_FORMAT" in os.environ or any(
        word.startswith("--log-format") for word in sys.argv
    )


sys.excepthook = _end_unless_error  # before `main` is called: an interrupt may come just then

if __name__ == "__main__":
    main()
