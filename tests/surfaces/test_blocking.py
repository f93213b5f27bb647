"""`open_sync()`: the same operations as blocking calls, for scripts and notebooks."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from remit import NotFound, Remit, RemitClient, SyncRemit, Unavailable
from remit.catalog import FOR_EVERYONE
from tests.patience import patient
from tests.surfaces.http import TOKEN, site


@pytest.fixture
def opened(
    durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SyncRemit]:
    for name in ("LLM_MODEL_ID", "LIGHT_LLM_MODEL_ID"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "kiln.py").write_text("def fire(kiln): ...\n")
    with Remit.open_sync(tmp_path, durable_url) as remit:
        yield remit


def test_calls_and_streams_block(opened: SyncRemit) -> None:
    made = opened.create_task("Write it", status="draft", steps=["Read"])
    assert opened.get_task(made.task_id).steps[0].title == "Read"
    found = opened.task("Where is the `kiln` fired?", subagent_type="explore")
    assert "kiln.py:1" in found.raise_for_status().text
    settled = sorted(
        opened.stream_parallel(["Find `fire`", "Find `kiln`"]), key=lambda item: item.index
    )
    assert [item.result.status for item in settled] == ["completed", "completed"]
    *_, end = opened.stream("task", objective="Find `fire`")
    assert type(end).__name__ == "StreamEnd"
    for event in opened.events(after=""):
        assert (event.task_id, event.type) == (made.task_id, "TaskCreated")
        break
    assert opened.call("get_task", task_id="1")["title"] == "Write it"
    with pytest.raises(NotFound, match="no task 99"):
        opened.get_task("99")


def test_every_operation_is_there() -> None:
    own = {"call", "close", "events", "ready", "stream", "stream_parallel"}
    assert {name for name in dir(SyncRemit) if not name.startswith("_")} - own == set(FOR_EVERYONE)


async def test_it_works_inside_a_running_event_loop(tmp_path: Path, durable_url: str) -> None:
    with Remit.open_sync(tmp_path, durable_url) as remit:
        assert remit.create_task("Write it").task.title == "Write it"


async def test_a_server_can_be_called_too() -> None:
    def work(url: str) -> str:
        with RemitClient.open_sync(url, TOKEN) as remit:
            made = remit.create_task("Write it")
            events = remit.events(after="", task_id=made.task_id)
            return f"{remit.get_task(made.task_id).title}: {next(events).type}"

    async with (
        Remit.open(database_url="memory:", worker=False) as remit,
        site(remit._core.store) as served,
    ):
        assert await asyncio.to_thread(work, served.url) == "Write it: TaskCreated"


def test_a_closed_one_refuses(tmp_path: Path) -> None:
    with Remit.open_sync(tmp_path, "memory:") as remit:
        events = remit.events(after="")
        remit.create_task("Write it")
        assert next(events).type == "TaskCreated"
    with pytest.raises(Unavailable, match="This Remit is closed"):
        remit.list_tasks()
    with pytest.raises(Unavailable, match="This Remit is closed"):
        next(events)
    remit.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "remit"]


def test_an_error_while_opening_is_raised(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"The folder .* does not exist\."):
        Remit.open_sync(tmp_path / "missing")
    assert not [thread for thread in threading.enumerate() if thread.name == "remit"]


def test_closing_ends_the_calls_of_other_threads(tmp_path: Path) -> None:
    remit = Remit.open_sync(tmp_path, "memory:")
    refused: list[BaseException] = []
    waits = threading.Event()

    def wait() -> None:
        events = remit.events()
        waits.set()
        try:
            next(events)
        except Unavailable as error:
            refused.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert waits.wait(patient(20))
    remit.close()
    thread.join(patient(20))
    assert [str(error) for error in refused] == ["This Remit is closed. Open a new one."]


INTERRUPTED = """
import os, signal, sys, threading
from remit import Remit

with Remit.open_sync(sys.argv[1], "memory:", worker=False) as remit:
    task_id = remit.create_task("Write it", owner="general").task_id
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        for event in remit.events():
            print("unexpected", event)
    except KeyboardInterrupt:
        print("interrupted")
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        remit.task_output(task_id, wait_seconds=600)
    except KeyboardInterrupt:
        print("interrupted again", remit.get_task(task_id).state)
"""


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_ctrl_c_ends_the_wait_and_not_the_task(tmp_path: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(60), check=False)
    assert (done.returncode, done.stdout) == (
        0,
        "interrupted\ninterrupted again pending\n",
    ), done.stderr
    assert signal.SIGINT.name not in done.stderr


FORGOTTEN = """
import sys
from remit import Remit

remit = Remit.open_sync(sys.argv[1], "sqlite:///" + sys.argv[1] + "/remit.db")
events = remit.events(after="")
remit.create_task("Write it")
print(next(events).type)
"""


def test_a_program_that_forgets_to_close_it_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORGOTTEN, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(60), check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "TaskCreated\n", "")


FORKED = """
import multiprocessing, sys
from remit import Remit, Unavailable

def work():
    for call in (remit.list_tasks, lambda: next(events), lambda: next(remit.events())):
        try:
            call()
        except Unavailable as error:
            print(error, flush=True)
    events.close()
    remit.close()

remit = Remit.open_sync(sys.argv[1], sys.argv[2])
remit.create_task("First", status="draft")
events = remit.events(after="")
next(events)
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
print(child.exitcode, remit.create_task("Second", status="draft").task_id)
remit.close()
"""


def test_a_forked_process_is_told_to_open_it_itself(durable_url: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKED, str(tmp_path), durable_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(60), check=False)
    told = "This Remit was opened in another process. Start processes with the method spawn, "
    *refused, last = done.stdout.splitlines()
    assert refused == [f"{told}and call open_sync() in each."] * 3, done.stderr
    assert (done.returncode, last) == (0, "0 2"), done.stderr
