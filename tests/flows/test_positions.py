"""Events are followed from a position; what is not one is refused in the same way everywhere."""

from typing import Any

import pytest

from remit import InvalidParam, Remit, RemitClient
from remit.bootstrap import open_store
from tests.surfaces.http import TOKEN, site

BAD = ("junk", "-1", "1.x", "1.2.3", ".1", "1.", "1e3", "99999999999999999999", "1\n2", "٣", 5)


@pytest.mark.parametrize("after", BAD)
async def test_a_bad_position_is_refused(any_url: str, after: Any) -> None:
    async with Remit.open(database_url=any_url, worker=False) as remit:
        made = await remit.create_task(title="One")
        for task_id in (None, made.task_id):
            with pytest.raises(InvalidParam, match=r"^after: .*expected the position of an event"):
                await anext(remit.events(after, task_id))


@pytest.mark.parametrize("after", BAD)
async def test_the_client_refuses_a_bad_position_too(any_url: str, after: Any) -> None:
    async with (
        open_store(any_url) as store,
        site(store) as served,
        RemitClient(served.url, TOKEN) as remit,
    ):
        with pytest.raises(InvalidParam, match=r"^after: .*expected the position of an event"):
            await anext(remit.events(after))


async def test_a_position_of_another_kind_of_store_is_refused(any_url: str) -> None:
    foreign = "1" if any_url.startswith("postgres") else "1.1"
    async with Remit.open(database_url=any_url, worker=False) as remit:
        with pytest.raises(InvalidParam, match=r"^after: "):
            await anext(remit.events(foreign))


@pytest.mark.parametrize("beginning", ["", "0"])
async def test_both_words_for_the_beginning_work(any_url: str, beginning: str) -> None:
    async with Remit.open(database_url=any_url, worker=False) as remit:
        made = await remit.create_task(title="One")
        assert (await anext(remit.events(beginning))).task_id == made.task_id
