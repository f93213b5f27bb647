"""Following events from synchronous code."""

from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from typing import Any

from remit import config
from remit.bootstrap.store_opening import open_core
from remit.bootstrap.sync_delegation import Ending, each
from remit.catalog import follow_events
from remit.client import RemitClient
from remit.config import Settings

Page = list[dict[str, Any]]


def follow_now(
    settings: Settings,
    task_id: str | None,
    after: str | None,
    ending: Ending,
    *,
    create: bool = True,
) -> Generator[Page]:
    """Yield pages of events until the caller stops or a signal ends the wait."""
    return each(_pages(settings, task_id, after, create=create), ending)


async def _pages(
    settings: Settings, task_id: str | None, after: str | None, *, create: bool
) -> AsyncGenerator[Page, None]:
    # Close the follower before its source; the end of the loop would close both at once.
    if settings.get("url"):
        async with (
            RemitClient(settings.get("url"), config.server_token(settings)) as client,
            aclosing(client.follow(after, task_id)) as events,
        ):
            async for event in events:
                yield [event]
        return
    async with (
        open_core(settings.database_url, create=create) as core,
        aclosing(follow_events(core, after, task_id)) as pages,
    ):
        async for page in pages:
            yield page
