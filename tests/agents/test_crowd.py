"""More sub-agents than a model's endpoint is to be asked by at once."""

import asyncio
from pathlib import Path

import pytest

from remit import Remit, WorkInput
from tests.agents.endpoint import Body, RuledServer
from tests.agents.stage import Gate
from tests.modelserver import Say
from tests.patience import patient

MOST = 2


async def test_no_more_calls_reach_an_endpoint_than_its_tiers_allow(
    durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are at work and ask.

    The endpoint hears of as many at a time as the tier with the smaller number says.
    """
    gate, inside, peak = Gate(), 0, 0

    async def rule(_: Body) -> Say:
        nonlocal inside, peak
        inside += 1
        peak = max(peak, inside)
        if inside == MOST:
            gate.reached.set()
        await gate.open.wait()
        inside -= 1
        return Say(("Done.",))

    async with RuledServer(rule).running() as server:
        for name, value in {
            "MODEL_ID": "m",
            "BASE_URL": f"{server.url}/v1",
            "CONCURRENCY": "3",
        }.items():
            monkeypatch.setenv(f"LLM_{name}", value)
        monkeypatch.setenv("LIGHT_LLM_MODEL_ID", "l")
        monkeypatch.setenv("LIGHT_LLM_CONCURRENCY", str(MOST))
        async with Remit.open(tmp_path, durable_url) as remit:
            works: list[WorkInput] = [
                {"objective": f"Work {number}", "model": "light" if number % 2 else "main"}
                for number in range(MOST + 3)
            ]
            waiting = asyncio.ensure_future(remit.task_parallel(tasks=works))
            await asyncio.wait_for(gate.reached.wait(), patient(30))
            async with asyncio.timeout(patient(30)):
                # Nothing notifies of this.
                while len((await remit.list_tasks(status="active")).in_flight) < len(works):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            gate.open.set()
            found = await waiting
    assert [item.status for item in found.results] == ["completed"] * len(works)
    assert (peak, len(server.asked)) == (MOST, len(works))
