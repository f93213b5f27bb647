"""The one waiter: reads from a position, then follows; never misses an event, never sees one twice."""

from collections.abc import AsyncGenerator

from remit.ports import EventStore, Recorded

PAGE = 500


async def follow(store: EventStore, after: str) -> AsyncGenerator[list[Recorded], None]:
    """Every event after a position, page by page, for as long as the caller listens."""
    async with store.watch() as watch:
        while True:
            # The watch was opened before this read, so what lands after it rings.
            page = await store.feed(after, PAGE)
            if page:
                after = page[-1].position
                yield page
            else:
                await watch.wait()
