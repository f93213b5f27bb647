"""A PostgreSQL database that is restored in several transactions under live processes."""

import asyncio
import json
import signal
import subprocess
import time
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import asyncpg
import pytest

from remit import Remit, RolledBack
from remit.adapters.stores.postgres.completeness import INDEXES, SEQUENCES, TABLES, TRIGGERS
from remit.bootstrap import open_store
from tests.patience import patient
from tests.postgres import PostgresForTests
from tests.surfaces.copied_place import asked, refusal
from tests.surfaces.repository import titles
from tests.surfaces.shell import Served, Shell, served, until

SECTIONS = ("pre-data", "data", "post-data")
WINDOW = {
    "pre-data": "is incomplete",
    "data": "is incomplete",
    "post-data": "went back in time",
}


class Database:
    """A workspace on a database that can be dumped and restored, one section at a time."""

    def __init__(self, folder: Path, server: PostgresForTests) -> None:
        self.server, self.folder = server, folder
        self.url = server.new_database()
        self.shell = Shell(folder, REMIT_DATABASE_URL=self.url, REMIT_HEARTBEAT_SECONDS="4")
        assert self.shell.remit("init").code == 0

    def create(self, title: str) -> None:
        said = self.shell.remit("task", "create", title)
        assert said.code == 0, said.err

    def dump(self, name: str) -> None:
        self._run("pg_dump", "-Fc", "-f", str(self.folder / name), self._name)

    def restore(self, name: str, section: str) -> None:
        clean = ("--clean", "--if-exists") if section == "pre-data" else ()
        into = ("-d", self._name, str(self.folder / name))
        self._run("pg_restore", *clean, f"--section={section}", *into)

    def execute(self, statement: str) -> None:
        async def done() -> None:
            connection = await asyncpg.connect(self.url)
            try:
                await connection.execute(statement)
            finally:
                await connection.close()

        asyncio.run(done())

    @property
    def _name(self) -> str:
        return self.url.partition("?")[0].rpartition("/")[2]

    def _run(self, program: str, *arguments: str) -> None:
        path = self.server.programs / program
        there = ("-h", str(self.server.folder), "-U", "postgres")
        subprocess.run([str(path), *there, *arguments], check=True, timeout=patient(60))


@pytest.fixture
def database(tmp_path: Path, postgres: PostgresForTests) -> Database:
    return Database(tmp_path, postgres)


def test_a_live_server_refuses_everything_while_its_database_is_restored(
    database: Database,
) -> None:
    database.create("First")
    database.dump("older")
    database.create("Second")
    with served(database.shell) as server:
        answers: list[Any] = []
        waiting = Thread(
            target=lambda: answers.append(asked(server, "/api/tasks/2/result?wait=600"))
        )
        waiting.start()
        assert asked(server, "/api/tasks", title="Third")[0] in (200, 201)
        for section in SECTIONS:
            database.restore("older", section)
            until(lambda: asked(server, "/api/tasks")[0] == 409)
            assert asked(server, "/api/tasks", title="Lost")[0] == 409
            assert asked(server, "/readyz")[0] == 503
            said = database.shell.remit("task", "list")
            assert (said.code, "Traceback" in said.err) == (4, False), said.err
            expected = WINDOW[section]
            until(partial(is_refused, server, expected))
            for message in (said.err, refusal(server)):
                assert expected in message
                assert "already exists" not in message
        waiting.join(patient(30))
        assert [answer["error"]["code"] for _, answer in answers] == ["CONFLICT"]
        assert database.shell.remit("doctor", "--accept-rollback").code == 0
        until(lambda: asked(server, "/readyz")[0] == 200)
        assert asked(server, "/api/tasks", title="Fourth")[0] in (200, 201)
        assert asked(server, "/api/delegate", objective="Go on.")[0] == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(patient(20)) == 0
    assert titles(database.shell) == ["Fourth", "First"]


async def test_a_task_is_not_called_missing_while_its_database_is_restored(
    database: Database,
) -> None:
    database.create("First")
    database.dump("older")
    async with Remit.open(database.folder, database_url=database.url, worker=False) as remit:
        made = await remit.create_task(title="Second")
        await remit.get_task(made.task_id)
        await asyncio.to_thread(database.restore, "older", "pre-data")
        # At once, before the store is checked again: nothing may be read from the empty tables.
        with pytest.raises(RolledBack, match="is incomplete"):
            await remit.get_task(made.task_id)
        with pytest.raises(RolledBack, match="is incomplete"):
            await remit.complete_task(task_id=made.task_id)


def test_a_live_worker_continues_when_the_newest_copy_is_restored(database: Database) -> None:
    database.create("First")
    worker = database.shell.started("worker")
    try:
        until(lambda: len(database.shell.remit("doctor", "--json").json["workers"]) == 1)
        database.dump("newest")
        for section in SECTIONS:
            database.restore("newest", section)
            time.sleep(1.5)  # longer than the pause between two looks at the store
        said = database.shell.remit("run", "Go on.")
        assert said.code == 0, said.err
        worker.send_signal(signal.SIGTERM)
        _, log = worker.communicate(timeout=patient(30))
        assert worker.returncode == 0, log
        assert "Task done" in log, "the worker itself has done it"
        assert "Traceback" not in log
    finally:
        worker.kill()


def test_the_worker_of_an_mcp_server_continues_after_a_restore(database: Database) -> None:
    database.create("First")
    child = database.shell.started("mcp")
    try:
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
        call(child, "initialize", {**hello, "clientInfo": {"name": "tester", "version": "1"}})
        assert not call(child, "tools/call", delegation("Begin."))["isError"]
        database.dump("newest")
        for section in SECTIONS:
            database.restore("newest", section)
            time.sleep(1.5)  # longer than the pause between two looks at the store
        answer = call(child, "tools/call", delegation("Go on."))
        assert not answer["isError"], answer
        _, log = child.communicate(timeout=patient(30))
        assert (child.returncode, "has failed" in log) == (0, False), log
    finally:
        child.kill()


def test_a_store_without_an_index_is_refused_and_the_index_is_named(database: Database) -> None:
    database.create("First")
    with served(database.shell, "--no-worker") as server:
        database.execute("DROP INDEX remit.job_queued")
        until(lambda: asked(server, "/api/tasks", title="Lost")[0] == 409)
        assert "job_queued" in refusal(server)
        database.execute("CREATE UNIQUE INDEX job_queued ON remit.job (key) WHERE worker IS NULL")
        until(lambda: asked(server, "/api/tasks", title="Second")[0] in (200, 201))


async def test_every_part_of_the_schema_is_required(postgres: PostgresForTests) -> None:
    url = postgres.new_database()
    async with open_store(url):
        connection = await asyncpg.connect(url)
        relations = await connection.fetch(
            "SELECT relname FROM pg_class WHERE relnamespace = 'remit'::regnamespace"
        )
        triggers = await connection.fetch("SELECT tgname FROM pg_trigger WHERE NOT tgisinternal")
        await connection.close()
    assert {row[0] for row in relations} == {*TABLES, *INDEXES, *SEQUENCES}
    assert {row[0] for row in triggers} == {*TRIGGERS}


def is_refused(server: Served, why: str) -> bool:
    """True if a server refuses a request for this reason."""
    return why in refusal(server)


def delegation(objective: str) -> dict[str, Any]:
    """The parameters of a call that delegates work and waits for it."""
    return {"name": "task", "arguments": {"objective": objective}}


def call(child: "subprocess.Popen[str]", method: str, parameters: dict[str, Any]) -> Any:
    """Send a request to an MCP server on standard input, and return its result."""
    assert child.stdin is not None
    assert child.stdout is not None
    request = {"jsonrpc": "2.0", "id": method, "method": method, "params": parameters}
    child.stdin.write(json.dumps(request) + "\n")
    child.stdin.flush()
    for line in child.stdout:
        answer = json.loads(line)
        if "method" not in answer:
            return answer["result"]
    raise AssertionError("the server has closed its output")
