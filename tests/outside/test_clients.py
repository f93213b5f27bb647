"""Claude Code and opencode, as they are installed from npm, keep their work with remit whatever
happens to their sessions.
"""

import asyncio
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.modelserver import Say
from tests.outside.clients import (
    Claude,
    Desk,
    Opencode,
    ask_for,
    client_rule,
    finished,
    program,
    stopped,
)
from tests.outside.model import Asked, ScriptedModel
from tests.patience import patient

BOTH = pytest.mark.parametrize("client", [Claude, Opencode], ids=lambda kind: kind.name)
LONGEST_IDLE_SECONDS = 60.0
"""The patience of opencode if nothing is set."""
Kind = type[Claude] | type[Opencode]


class Slow:
    """The model of remit's own agents: it answers after a while, or when it is let go."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.open, self.reached = asyncio.Event(), asyncio.Event()

    async def answer(self) -> Say:
        """Say something, late."""
        self.reached.set()
        if self.seconds:
            await asyncio.sleep(self.seconds)
        else:
            await self.open.wait()
        return Say(("The slow result.",))


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
async def desk(durable_url: str, tmp_path: Path, slow: Slow) -> AsyncIterator[Desk]:
    def rule(asked: Asked) -> Any:
        return client_rule(asked) or slow.answer()

    async with ScriptedModel(rule).running() as model:
        yield Desk(tmp_path, model, durable_url)


def told(desk: Desk) -> str:
    """Everything that the model of the client was told."""
    return "\n".join(
        text for asked in desk.model.asked if asked.tool("create_task") for text in asked.texts
    )


@pytest.mark.parametrize("name", ["claude", "opencode"])
def test_the_client_is_installed(name: str) -> None:
    ran = subprocess.run(
        [program(name), "--version"],
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=True,
    )
    assert ran.stdout.strip()


@BOTH
async def test_progress_keeps_a_call_alive_that_outlasts_the_patience_of_its_client(
    client: Kind, desk: Desk, slow: Slow
) -> None:
    """The client gives up after a silence; the call takes much longer and succeeds."""
    idle = min(patient(30), LONGEST_IDLE_SECONDS)
    slow.seconds = 1.5 * idle
    prompt = ask_for(("task", {"objective": "Be slow", "timeout_seconds": 10 * idle}))
    ended = await finished(await client(desk, idle).start(prompt))
    assert ended.code == 0, ended
    assert "The slow result." in told(desk), (ended, told(desk)[-2000:])


async def test_without_progress_the_same_call_is_given_up(desk: Desk, slow: Slow) -> None:
    """The limit of the test above is in force: a client that hears less often than it wants does
    give up.
    """
    desk.remit["REMIT_PROGRESS_SECONDS"] = "10"
    prompt = ask_for(("task", {"objective": "Be slow"}))
    await finished(await Claude(desk, 2).start(prompt))
    assert "sent no response or progress" in told(desk)


@BOTH
async def test_work_in_the_background_survives_the_sessions_that_began_it_and_looked_at_it(
    client: Kind, desk: Desk, slow: Slow
) -> None:
    """More sessions end than a task has attempts.

    Some end by themselves, some in the middle of a call.
    """
    begin = ask_for(("task", {"objective": "Be slow", "wait": False}))
    look = ask_for(("task_output", {"task_id": "1"}))
    wait = ask_for(("task_output", {"task_id": "1", "wait_seconds": 600}))
    ended = await finished(await client(desk).start(begin))
    assert ended.code == 0, ended
    for _ in range(2):
        ended = await finished(await client(desk).start(look))
        assert ended.code == 0, ended
        assert (await desk.command("task", "show", "1", "--json"))["status"] == "active"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        slow.reached.clear()
        session = await client(desk).start(wait)
        async with asyncio.timeout(patient(120)):
            await slow.reached.wait()
        await stopped(session, number)
        assert (await desk.command("task", "show", "1", "--json"))["status"] == "active"
    slow.open.set()
    ended = await finished(await client(desk).start(wait))
    assert ended.code == 0, ended
    task = await desk.command("task", "show", "1", "--json")
    assert (task["state"], task["final_message"]) == ("done", "The slow result.")
    assert "The slow result." in told(desk)


async def test_the_store_survives_undo_in_opencode(desk: Desk) -> None:
    """opencode keeps snapshots of the folder in git and restores them.

    The database must not be among them.
    """
    git = shutil.which("git")
    assert git is not None, "git is missing"
    (desk.work / "notes.txt").write_text("first\n")
    author = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
    for arguments in (["init", "-q"], ["add", "-A"], [*author, "commit", "-q", "-m", "first"]):
        await asyncio.to_thread(subprocess.run, [git, *arguments], cwd=desk.work, check=True)
    changed = {"filePath": str(desk.work / "notes.txt"), "content": "second\n"}
    async with Opencode(desk).serving() as api:
        session = await api.session()
        await api.say(session, ask_for(("create_task", {"title": "Before"})))
        titles = [("create_task", {"title": f"After {number}"}) for number in range(3)]
        read = ("read", {"filePath": str(desk.work / "notes.txt")})
        message = await api.say(session, ask_for(read, ("write", changed), *titles))
        assert (desk.work / "notes.txt").read_text() == "second\n"
        await api.undo(session, message)
        assert (desk.work / "notes.txt").read_text() == "first\n", "undo has restored the files"
        await api.say(session, ask_for(("create_task", {"title": "Later"})))
    tasks = (await desk.command("task", "list", "--json"))["tasks"]
    expected = {"Before", "After 0", "After 1", "After 2", "Later"}
    assert {task["title"] for task in tasks} == expected
    assert (await desk.command("doctor", "--verify", "--json"))["verified"]["faults"] == []
