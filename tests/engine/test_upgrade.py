"""Workers of different versions on one store."""

import json
from typing import Any

import pytest

from remit.domain.project import Change
from remit.domain.value import State
from remit.ports import Append, Store, Unit
from tests.engine.fleet import fleet


async def written_by_a_newer_remit(store: Store, task_id: str) -> None:
    """Give a task's row a field that this version does not know, and the hash of an event that came with it."""
    ((*columns, _head, document),) = await store.select("rows_task", {"ids": [int(task_id)]})
    values: tuple[Any, ...] = (*columns, b"newer", json.dumps({**json.loads(document), "mood": "cheerful"}))
    await store.commit(Unit((Append(task_id, 1, ()),), (Change("task", (int(task_id),), values),)))


async def test_a_worker_leaves_alone_what_a_newer_one_wrote(any_url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with fleet(any_url) as team:
        newer = await team.create(["finish", "no"])
        await written_by_a_newer_remit(team.core.store, newer)
        await team.hire()
        assert (await team.ended(await team.create(["finish", "yes"]))).state is State.DONE
        assert (await team.core.store.select("rows_task", {"ids": [int(newer)]}))[0][3] == "pending"
        assert await team.events(newer) == ["TaskCreated"]
        assert [key for key in await team.jobs() if key == f"run/{newer}"] == [f"run/{newer}"]
        assert "Traceback" not in caplog.text
