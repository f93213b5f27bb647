"""A store that went back within a run: turns write messages and calls, but no events."""

import asyncio
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.modelserver import ModelServer, Reply, Say
from tests.patience import patient
from tests.postgres import PostgresForTests
from tests.surfaces.copied_place import CopiedPlace


class PausingModel(ModelServer):
    """Asks for one more file in every turn, and waits before its second and its last answer."""

    COPIED, LAST = 2, 5

    def __init__(self) -> None:
        super().__init__("openai")
        self.reached = {turn: asyncio.Event() for turn in (self.COPIED, self.LAST)}
        self.open = asyncio.Event()
        """Set when the second answer may come; the last one never does."""

    async def _choose(self, _body: dict[str, Any]) -> Reply:
        turn = len(self.asked)
        if turn in self.reached:
            self.reached[turn].set()
            await (self.open if turn == self.COPIED else self._over).wait()
        arguments = f'{{"file_path": "out{turn}.txt", "content": "{turn}"}}'
        return Say(calls=((f"c{turn}", "Write", (arguments,)),))


class BusyPlace(CopiedPlace):
    """A workspace that is copied while processes use its store."""

    def keep_copy(self) -> None:
        if self.server is None:
            with sqlite3.connect(self.file) as store, sqlite3.connect(self.copy) as copy:
                store.backup(copy)
            store.close()
            copy.close()
            return
        dump = str(self.copy.with_name("copy.dump"))
        self._run("pg_dump", "-Fc", "-f", dump, self.name)
        self._sql(f"CREATE DATABASE {self.name}_copy")
        self._run("pg_restore", "-d", f"{self.name}_copy", dump)

    def go_back(self) -> None:
        if self.server is None:
            for name in ("remit.db-wal", "remit.db-shm"):
                self.file.with_name(name).unlink()
        super().go_back()

    def _run(self, program: str, *arguments: str) -> None:
        assert self.server is not None
        path = self.server.programs / program
        there = ("-h", str(self.server.folder), "-U", "postgres")
        subprocess.run([str(path), *there, *arguments], check=True, timeout=patient(60))


@pytest.fixture(params=["sqlite", "postgres"])
def busy(request: pytest.FixtureRequest, tmp_path: Path) -> BusyPlace:
    server: PostgresForTests | None = None
    if request.param == "postgres":
        server = request.getfixturevalue("postgres")
    return BusyPlace(tmp_path, server)


async def run_up_to_the_last_turn(place: BusyPlace, model: PausingModel) -> "subprocess.Popen[str]":
    """Let a worker work on a task, and copy the store after the first turn."""
    place.shell.env |= {
        "LLM_MODEL_ID": "m",
        "LLM_API_KEY": "none",
        "LLM_BASE_URL": f"{model.url}/v1",
    }
    words = ("task", "create", "T", "--owner", "general", "--allow", "Write")
    said = await asyncio.to_thread(place.shell.remit, *words)
    assert said.code == 0, said.err
    worker = place.shell.started("worker")
    try:
        async with asyncio.timeout(patient(30)):
            await model.reached[model.COPIED].wait()
            await asyncio.to_thread(place.keep_copy)
            model.open.set()
            await model.reached[model.LAST].wait()
    except BaseException:
        worker.kill()
        worker.communicate()
        raise
    return worker


async def test_a_store_that_lost_turns_of_a_run_is_refused(busy: BusyPlace) -> None:
    async with PausingModel().running() as model:
        assert isinstance(model, PausingModel)
        worker = await run_up_to_the_last_turn(busy, model)
        # Opening the store writes the mark.
        assert (await asyncio.to_thread(busy.shell.remit, "doctor", "--json")).json["store"]
        worker.kill()
        worker.communicate()
        await asyncio.to_thread(busy.go_back)
        for words in (["task", "list"], ["task", "create", "Lost"], ["worker"]):
            said = await asyncio.to_thread(busy.shell.remit, *words)
            assert (said.code, "went back in time" in said.err) == (4, True), words
        assert "turns" in said.err
        assert len(model.asked) == model.LAST, "no turn is repeated"
        accept = ("doctor", "--accept-rollback")
        assert (await asyncio.to_thread(busy.shell.remit, *accept)).code == 0
        assert (await asyncio.to_thread(busy.shell.remit, "task", "list")).code == 0


async def test_a_live_worker_stops_when_its_store_lost_turns_of_its_run(busy: BusyPlace) -> None:
    async with PausingModel().running() as model:
        assert isinstance(model, PausingModel)
        worker = await run_up_to_the_last_turn(busy, model)
        try:
            await asyncio.to_thread(busy.go_back)
            async with asyncio.timeout(patient(30)):
                await asyncio.to_thread(read_until, worker, "Stopped claiming jobs")
        finally:
            worker.kill()
            worker.communicate()
        said = await asyncio.to_thread(busy.shell.remit, "task", "list")
        assert (said.code, "went back in time" in said.err) == (4, True)
        assert len(model.asked) == model.LAST, "no turn is repeated"


def read_until(process: "subprocess.Popen[str]", text: str) -> None:
    assert process.stderr is not None
    while text not in (line := process.stderr.readline()):
        assert line, "the process ended"
