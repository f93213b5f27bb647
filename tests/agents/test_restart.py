"""A worker that was killed and restarted on the same machine does not wait for the lease of its
predecessor.
"""

import asyncio
import os
import signal
from pathlib import Path

from remit.bootstrap import open_store
from remit.bootstrap.embedded_worker import remove_dead_workers
from remit.domain.task.task import State
from tests.agents.endpoint import Body, RuledServer, answers, objective, wants
from tests.agents.processes import worker
from tests.agents.stage import says, stage
from tests.modelserver import Say
from tests.patience import patient

CHILDREN = 20
NEVER = 600.0
"""A lease that no test sees run out."""


class Fanout:
    """A boss with twenty workers, of whom the last ones are kept from answering until they are
    let.
    """

    def __init__(self) -> None:
        self.done, self.most, self.go_on = 0, asyncio.Event(), asyncio.Event()

    async def __call__(self, body: Body) -> Say:
        if objective(body) == "Lead":
            return (
                Say(("All.",))
                if answers(body)
                else Say(
                    calls=(
                        wants("f1", "task_parallel", tasks=[f"Work {n}" for n in range(CHILDREN)]),
                    )
                )
            )
        if self.done >= CHILDREN * 0.6:
            self.most.set()
            await self.go_on.wait()
        self.done += 1
        return Say(("Done.",))


async def test_a_killed_worker_that_restarts_continues_at_once(
    durable_url: str, tmp_path: Path
) -> None:
    story = Fanout()
    (tmp_path / ".remit").mkdir()
    async with (
        RuledServer(story).running() as server,
        stage(durable_url, tmp_path, [says("never")], workers=0) as at,
    ):
        async with worker(tmp_path, durable_url, server.url, heartbeat=NEVER) as first:
            task_id = await at.create(owner="build", instructions="Lead", tools=["Task"])
            async with asyncio.timeout(patient(20)):
                await story.most.wait()
            os.kill(first.pid, signal.SIGKILL)
            await first.wait()
        story.go_on.set()
        async with worker(tmp_path, durable_url, server.url, heartbeat=NEVER):
            task = await at.team.ended(task_id)
        assert (task.state, len(task.children)) == (State.DONE, CHILDREN)
        assert len(await at.team.core.store.workers()) == 1, "only the second, which was killed too"


async def test_live_workers_keep_their_runs(durable_url: str, tmp_path: Path) -> None:
    """The worker process is there, and so are those that this process cannot know anything of."""
    (tmp_path / ".remit").mkdir()
    nowhere = "http://127.0.0.1:9"
    async with (
        stage(durable_url, tmp_path, [says("never")], workers=0) as at,
        worker(tmp_path, durable_url, nowhere, heartbeat=NEVER) as process,
    ):
        (row,) = await at.team.staff(1)
        assert (row.pid, bool(row.place)) == (process.pid, True)
        elsewhere = [
            row._replace(worker="other-boot", pid=2**22 + 1, place=row.place.replace("-", "_")),
            row._replace(
                worker="other-namespace", pid=2**22 + 1, place=row.place.replace("pid:[", "pid:[1")
            ),
            row._replace(worker="other-machine", pid=2**22 + 1, place=f"other{row.place}"),
            row._replace(worker="older-remit", pid=2**22 + 1, place=""),
        ]
        gone = row._replace(worker="same-number-used-again", place=f"{row.place}0")
        async with open_store(durable_url) as store:
            for other in (*elsewhere, gone):
                await store.beat(other, [])
            await remove_dead_workers(at.team.core)
            left = {other.worker for other in await store.workers()}
        assert left == {row.worker, *(other.worker for other in elsewhere)}
        os.kill(process.pid, signal.SIGSTOP)  # it is stuck, which its lease finds out, but it lives
        await remove_dead_workers(at.team.core)
        assert row.worker in {other.worker for other in await at.team.core.store.workers()}
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        await remove_dead_workers(at.team.core)
        assert row.worker not in {other.worker for other in await at.team.core.store.workers()}
