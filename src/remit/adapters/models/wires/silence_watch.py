"""The time limits of a model call: for its first byte, for silence, and in total."""

import asyncio

from remit.adapters.models.wires.response import Limits


class SilenceWatch:
    """Ends a call that receives nothing for too long, with a single timer."""

    __slots__ = ("_end", "_last", "_limits", "_loop", "_scope", "_timer", "over", "silent")

    def __init__(self, limits: Limits, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._last = self._loop.time()
        self._end = self._last + min(seconds, limits.total_seconds)
        self._timer: asyncio.TimerHandle | None = None
        self._scope: asyncio.Timeout | None = None
        self.silent = True
        self.over = False

    def start(self, scope: asyncio.Timeout) -> None:
        """Start to watch a scope."""
        self._scope = scope
        self._timer = self._loop.call_at(self._due(), self._look)

    def stop(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()

    def note_activity(self) -> None:
        """Note that the endpoint has sent something."""
        self._last = self._loop.time()
        if self.silent:
            self.silent = False
            self._shorten()

    def _shorten(self) -> None:
        """Set the timer for the limit after the first byte, if that limit is the shorter one."""
        if self._timer is None or self._limits.idle_seconds >= self._limits.first_byte_seconds:
            return
        self._timer.cancel()
        self._timer = self._loop.call_at(self._due(), self._look)

    def _due(self) -> float:
        """Return when the call ends unless the endpoint sends something."""
        silence = self._limits.idle_seconds
        if self.silent:
            silence = self._limits.first_byte_seconds
        return min(self._last + silence, self._end)

    def _look(self) -> None:
        """End the call if it is due, or set the timer again."""
        now, due = self._loop.time(), self._due()
        if now < due:
            self._timer = self._loop.call_at(due, self._look)
            return
        self.over = now >= self._end
        assert self._scope is not None
        self._scope.reschedule(now)
