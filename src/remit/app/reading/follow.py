"""Follows the event feed from a position, without gaps or duplicates."""

from collections.abc import AsyncGenerator

from remit.ports import EventStore, Recorded

PAGE = 500


async def follow(store: EventStore, after: str) -> AsyncGenerator[list[Recorded], None]:
    """Yield every event after a position, page by page, until the caller stops."""
    async with store.watch() as watch:
        while True:
            # The watch was opened before this read, so later events wake it.
            page = await store.feed(after, PAGE)
            if page:
                after = page[-1].position
                yield page
            else:
                await watch.wait()
