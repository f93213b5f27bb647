"""Units that a store appends."""

from remit.adapters.clock import SystemClock
from remit.codec import GENESIS, encode_event
from remit.domain.task import events as ev
from remit.ports import Append, Unit

CLOCK = SystemClock()


def unit(stream: str, expected: int = 0, previous: bytes = GENESIS, *, title: str = "t") -> Unit:
    """A unit with one event; its stream does not belong to a task, so it has no rows."""
    event = ev.GuideCreated(id=stream, title=title, body="b")
    entry = ev.Entry(
        id=CLOCK.uid(),
        stream=stream,
        version=expected + 1,
        at=CLOCK.now(),
        actor="user:ann",
        event=event,
    )
    return Unit((Append(stream, expected, (encode_event(entry, previous),)),), ())
