"""An endpoint that fails too often is left alone, and everybody can see that."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from remit.adapters.models.desk import ModelDesk
from remit.adapters.models.endpoint import FAILURES_TO_OPEN, Ticks
from remit.adapters.tools import WorkspaceTools
from remit.app.run import AgentRunner
from remit.app.view import worker_view
from remit.domain.choice import Choices, ModelChoice
from remit.domain.value import State
from remit.surfaces.agent_tools import CatalogTools
from tests.agents.stage import stage
from tests.modelserver import ModelServer, Status

FAST = Ticks(now=time.monotonic, sleep=lambda _: asyncio.sleep(0))


@asynccontextmanager
async def opened_desk(url: str) -> AsyncIterator[ModelDesk]:
    desk = ModelDesk(Choices({"main": ModelChoice("m", url)}, {}), ticks=FAST)
    try:
        yield desk
    finally:
        await desk.close()


async def test_a_circuit_that_opens_is_seen_with_the_worker(any_url: str, tmp_path: Path) -> None:
    async with ModelServer("openai").running() as server, opened_desk(server.url) as desk, stage(any_url, tmp_path, [], workers=0) as at:
        server.replies = [Status(500, "out of order")]
        assert desk.trouble() == []
        core = at.team.core
        runner = AgentRunner(core.store, core.agents, desk, lambda: WorkspaceTools(tmp_path), CatalogTools(core), core.clock)
        await at.team.hire(runner, heartbeat_seconds=0.4)
        tasks = [await at.create(limits={"max_attempts": 1}) for _ in range(FAILURES_TO_OPEN)]
        assert {(await at.team.ended(task_id)).state for task_id in tasks} == {State.FAILED}
        async with asyncio.timeout(30):
            while not (models := json.loads((await core.store.workers())[0].models or "[]")):  # noqa: ASYNC110 - its worker beats when it does
                await asyncio.sleep(0.05)
        (opened,) = [model for model in models if model["agent"] is None]
        assert (opened["endpoint"], opened["circuit"]) == (server.url, "open")
        assert opened["failures"] >= FAILURES_TO_OPEN
        assert worker_view((await core.store.workers())[0], 60.0)["models"] == models
