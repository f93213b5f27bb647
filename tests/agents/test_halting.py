"""Tools and model calls in progress when a task is stopped, here and in another process."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from remit.adapters.tools.functions import repeatable, stopping
from remit.domain.task.task import State
from tests.agents.endpoint import Body, RuledServer, answers, objective, wants
from tests.agents.processes import sleepers, worker
from tests.agents.stage import Gate, Stage, calls, reached, results, says, stage
from tests.crash.process import until
from tests.modelserver import Say

SLEEP = f"echo begun >> begun.txt; sleep 61 # {os.getpid()}"
"""A long command that is told from that of a test beside this one."""


async def paused(at: Stage, task_id: str) -> None:
    """Pause a task and wait until its run has stopped."""
    await at.call("pause_task", task_id=task_id)
    held = await at.team.until(task_id, lambda task: task.run is None)
    assert (held.state, held.attempts) == (State.PAUSED, 0)


async def test_a_command_is_ended_by_a_pause_and_its_agent_learns_of_it(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, [calls(("Bash", {"command": SLEEP})), says("Done.")]) as at:
        task_id = await at.create(tools=["Bash"])
        await until((tmp_path / "begun.txt").exists)
        await paused(at, task_id)
        assert sleepers(SLEEP) == []
        await at.call("resume_task", task_id=task_id)
        assert (await at.team.ended(task_id)).state is State.DONE
        assert "[Canceled, with all its processes.]" in results(at.script.asked[1])[0]
        assert (tmp_path / "begun.txt").read_text() == "begun\n"


async def test_a_coroutine_is_cancelled_by_a_pause(any_url: str, tmp_path: Path) -> None:
    gate = Gate()

    async def forever() -> str:
        """Never done."""
        gate.reached.set()
        await asyncio.Event().wait()
        return "never"

    async with stage(
        any_url, tmp_path, [calls(("forever", {})), says("Done.")], functions=[forever]
    ) as at:
        task_id = await at.create(tools=["forever"])
        await reached(gate)
        await paused(at, task_id)
        await at.call("resume_task", task_id=task_id)
        await at.team.ended(task_id)
        assert results(at.script.asked[1]) == ["forever was stopped before it finished."]


async def test_a_function_in_a_thread_can_ask_whether_to_stop(any_url: str, tmp_path: Path) -> None:
    begun: list[bool] = []

    def patient() -> str:
        """Works until it is told."""
        begun.append(stopping())
        while not stopping():
            time.sleep(0.01)
        return "as far as I came"

    async with stage(
        any_url, tmp_path, [calls(("patient", {})), says("Done.")], functions=[patient]
    ) as at:
        task_id = await at.create(tools=["patient"])
        await until(lambda: bool(begun))
        await paused(at, task_id)
        await at.call("resume_task", task_id=task_id)
        await at.team.ended(task_id)
        assert (results(at.script.asked[1]), begun) == (["as far as I came"], [False])


async def test_a_read_only_call_is_repeated_after_a_pause(any_url: str, tmp_path: Path) -> None:
    gate, turns = Gate(), list[int]()

    @repeatable
    async def look() -> str:
        """Looks, and takes long the first time."""
        turns.append(1)
        gate.reached.set()
        if len(turns) == 1:
            await asyncio.Event().wait()
        return "seen"

    async with stage(
        any_url, tmp_path, [calls(("look", {})), says("Done.")], functions=[look]
    ) as at:
        task_id = await at.create(tools=["look"])
        await reached(gate)
        await paused(at, task_id)
        await at.call("resume_task", task_id=task_id)
        await at.team.ended(task_id)
        assert (results(at.script.asked[1]), len(turns)) == (["seen"], 2)


class Crowd:
    """A boss with many workers: half of them are in a long command, half wait for the model."""

    def __init__(self, count: int) -> None:
        self.count, self.asked_at, self.thinking = count, list[float](), 0

    async def __call__(self, body: Body) -> Say:
        self.asked_at.append(time.monotonic())
        if objective(body) == "Lead":
            works = [
                {"objective": f"Work {number}", "tools": ["Bash"]} for number in range(self.count)
            ]
            return Say(calls=(wants("f1", "task_parallel", tasks=works),))
        if not self.thinks(body):
            return Say(calls=(wants("b1", "Bash", command=SLEEP),))
        self.thinking += 1
        await asyncio.Event().wait()
        return Say(("never",))

    def thinks(self, body: Body) -> bool:
        """True for requests that get no answer."""
        return objective(body) != "Lead" and (
            answers(body) > 0 or int(objective(body).removeprefix("Work ")) % 2 == 0
        )


@asynccontextmanager
async def elsewhere(url: str, folder: Path, count: int) -> AsyncIterator[tuple[Stage, Crowd, Any]]:
    """A crowd at work in another process, all of them in the middle of something."""
    crowd, begun = Crowd(count), folder / "begun.txt"
    (folder / ".remit").mkdir()
    async with (
        RuledServer(crowd).running() as server,
        stage(url, folder, [says("never")], workers=0) as at,
        worker(folder, url, server.url, concurrency=count),
    ):
        await at.create(owner="build", instructions="Lead", tools=["Bash", "Task"])
        await until(lambda: begun.exists() and len(begun.read_text().split()) == count // 2)
        await until(lambda: crowd.thinking == count // 2)
        yield at, crowd, server


async def test_a_cancel_stops_a_crowd_in_another_process(durable_url: str, tmp_path: Path) -> None:
    async with elsewhere(durable_url, tmp_path, 16) as (at, crowd, server):
        canceled = (await at.call("cancel_task", task_id="1"))["canceled"]
        assert len(canceled) == 17
        await at.team.idle()
        await until(lambda: not sleepers(SLEEP))
        thinking = [
            transport
            for asked, transport in zip(server.asked, server.transports, strict=True)
            if crowd.thinks(asked.body)
        ]
        assert len(thinking) == 8
        await until(lambda: all(transport.is_closing() for transport in thinking))
        assert len(crowd.asked_at) == 17
        assert {(await at.team.task(name)).state for name in canceled} == {State.CANCELED}


async def test_a_pause_reaches_a_command_and_a_model_call_in_another_process(
    durable_url: str, tmp_path: Path
) -> None:
    async with elsewhere(durable_url, tmp_path, 2) as (at, crowd, server):
        await paused(at, "3")
        assert sleepers(SLEEP) == []
        assert len(crowd.asked_at) == 3, "the end of the command was told to nobody yet"
        await at.call("resume_task", task_id="3")
        await until(lambda: len(crowd.asked_at) == 4)
        assert objective(server.asked[-1].body) == "Work 1"
        await at.call("pause_task", task_id="2")
        await at.call("cancel_task", task_id="1")
        await at.team.idle()
        assert (len(crowd.asked_at), (tmp_path / "begun.txt").read_text()) == (4, "begun\n")
