"""The check for a live worker of a task gives the same result from the store and from a server."""

from typing import Any

import pytest

from remit.adapters.clock import SystemClock
from remit.app.agents.registry import AgentRegistry
from remit.app.context import AppContext
from remit.app.reading.views import worker_view
from remit.app.runs.live_workers import is_alive, is_attended, is_attended_by, never_dead
from remit.app.runs.worker_scope import Scope
from remit.bootstrap import open_store
from remit.catalog import Caller, call
from remit.domain.records.serialize import dumps
from remit.ports import WorkerRow

LEASE = 10.0


def _worker(
    agents: str = "general", age: float = 1.0, roots: tuple[int, ...] | None = None
) -> WorkerRow:
    row = WorkerRow("w1", "host", 1, "0", agents, 8, "2026-01-01T06:00:00Z")
    return row._replace(age_seconds=age, scope="" if roots is None else dumps(list(roots)))


@pytest.mark.parametrize(
    ("row", "task", "expected"),
    [
        (_worker(), {}, True),
        (_worker(age=11.0), {}, False),
        (_worker("plan"), {}, False),
        (_worker("plan,general"), {}, True),
        (_worker(""), {}, False),
        (_worker(roots=(7,)), {}, True),
        (_worker(roots=(8,)), {}, False),
        (_worker("plan"), {"state": "verifying"}, True),
    ],
)
def test_the_store_and_a_server_give_the_same_answer(
    row: WorkerRow, task: dict[str, Any], expected: bool
) -> None:
    shown = {"root_id": "7", "state": "running", "owner": "general", **task}
    served = worker_view(row, alive=is_alive(row, LEASE, never_dead))
    agent = None if shown["state"] == "verifying" else shown["owner"]
    assert is_attended([row], LEASE, never_dead, 7, agent) is expected
    assert is_attended_by([served], shown) is expected


@pytest.mark.parametrize(("agents", "adopted"), [("general", False), ("plan", True)])
async def test_a_tree_whose_agent_no_live_worker_works_for_is_adopted(
    any_url: str, agents: str, adopted: bool
) -> None:
    async with open_store(any_url) as store:
        core = AppContext(store, SystemClock(), AgentRegistry())
        fields = {"title": "Go", "owner": "general"}
        await call(core, "create_task", fields, Caller(actor="user:ann", via="mcp"))
        await store.beat(_worker(agents), [])
        scope = Scope(store, core.clock, LEASE, never_dead, "mcp")
        await scope.refresh()
        assert (1 in scope) is adopted
