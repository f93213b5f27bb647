"""Commands: nothing of them survives, nothing secret reaches them, nothing they write drowns us."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from secrets import randbelow
from threading import Event
from time import monotonic
from typing import Any

import pytest

from remit.adapters.tools.shell import supervisor
from remit.adapters.tools.shell.processes import Runner
from remit.adapters.tools.shell.sandbox import sandbox_command
from remit.domain.agents.tools import MAX_OUTPUT
from tests.patience import patient
from tests.toolbox import BOXES, BWRAP, RG, Toolbox, processes_in, processes_with, until

WITHOUT_EFFECT = {"kill -9 1", "touch ../x"}
"""What the sandbox lets a command do to itself alone."""
ROOT = Path(__file__).parents[2]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    (root / ".git").mkdir(parents=True)
    (root / ".remit").mkdir()
    (root / ".remit" / "secret").write_text("canary-of-remit")
    return root


@pytest.fixture(params=BOXES)
def box(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def call(workspace: Path, box: str) -> AsyncIterator[Toolbox]:
    toolbox = Toolbox(workspace, box=box)
    yield toolbox
    await toolbox.host.close()
    assert await until(lambda: not processes_in(workspace))


@pytest.fixture
def marker() -> str:
    """A number of seconds to sleep that nobody else sleeps."""
    return f"1000.{randbelow(10**12):012}"


def escaping(marker: str) -> str:
    """Four shells that leave their parent, their group and their session, and one that stays."""
    return f"""
    for i in 1 2 3 4; do
        (setsid sh -c 'trap "" TERM HUP INT; echo x >>started; sleep {marker} & sleep {marker}' \
            >/dev/null 2>&1 </dev/null &)
    done
    sleep {marker}
    """


def environment(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def started(argv: list[str], **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv, stdout=subprocess.PIPE, **options)


async def all_started(marker: str) -> bool:
    return await until(lambda: len(processes_with(f"sleep\0{marker}")) >= 9)


async def test_a_command_says_what_it_wrote_and_how_it_ended(call: Toolbox) -> None:
    assert await call.said("Bash", command="echo out; echo err >&2") == "out\nerr"
    assert await call.said("Bash", command="true") == "(The command wrote nothing.)"
    assert await call.refused("Bash", command="echo no; exit 3") == "no\n[Exit code 3]"
    assert await call.refused("Bash", command="kill -9 $$") in ("[Exit code -9]", "[Exit code 137]")
    assert await call.said("Bash", command="pwd; cat", description="reads nothing") == str(
        call.workspace
    )
    assert await call.said("Bash", command="echo text >new; cat new") == "text"
    assert (call.workspace / "new").read_text() == "text\n"


async def test_nothing_survives_the_end_of_a_command(call: Toolbox, marker: str) -> None:
    command = (
        escaping(marker).rsplit("sleep", 1)[0]
        + "until [ $(grep -c x started 2>/dev/null || echo 0) = 4 ]; do :; done; echo done"
    )
    assert "done" in await call.said("Bash", command=command)
    assert await until(lambda: not processes_with(marker))


async def test_nothing_survives_a_timeout(call: Toolbox, marker: str) -> None:
    milliseconds = round(patient(1.5) * 1000)
    outcome = await call("Bash", command=escaping(marker), timeout=milliseconds)
    assert f"Stopped after {milliseconds / 1000:g} seconds" in outcome.text
    assert (call.workspace / "started").read_text() == "x\n" * 4
    assert await until(lambda: not processes_with(marker))


async def test_nothing_survives_the_deadline_of_the_call(call: Toolbox, marker: str) -> None:
    await call.said("Bash", command="true")
    assert "Stopped after" in (await call("Bash", command=f"sleep {marker}", seconds=0.5)).text
    assert await until(lambda: not processes_with(marker))


async def test_nothing_survives_a_cancel(call: Toolbox, marker: str) -> None:
    async with asyncio.TaskGroup() as group:
        running = group.create_task(call("Bash", command=escaping(marker)))
        assert await all_started(marker)
        call.cancel.set()
    assert running.result().is_error
    assert "Canceled" in running.result().text
    assert await until(lambda: not processes_with(marker))


async def test_nothing_survives_when_the_caller_is_canceled(call: Toolbox, marker: str) -> None:
    running = asyncio.ensure_future(call("Bash", command=escaping(marker)))
    assert await all_started(marker)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not processes_with(marker)


async def test_nothing_survives_the_host(workspace: Path, box: str, marker: str) -> None:
    call = Toolbox(workspace, box=box)
    running = asyncio.ensure_future(call("Bash", command=escaping(marker)))
    assert await all_started(marker)
    await call.host.close()
    assert await until(lambda: not processes_with(marker))
    assert "Ended from outside" in (await running).text


@pytest.mark.parametrize("when", ["started", "starting"])
async def test_nothing_survives_a_killed_worker(
    workspace: Path, box: str, marker: str, when: str
) -> None:
    for _ in range(3):
        argv = [
            sys.executable,
            "-m",
            "tests.security.shell_worker",
            str(workspace),
            box,
            escaping(marker),
        ]
        with started(
            argv, cwd=workspace, env={**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"}
        ) as worker:
            assert worker.stdout
            assert await asyncio.to_thread(worker.stdout.readline) == b"calling\n"
            if when == "started":
                assert await all_started(marker)
            worker.kill()
        assert await until(
            lambda: not processes_in(workspace) and not processes_with(f"sleep\0{marker}")
        )


async def test_nothing_survives_a_killed_reaper(call: Toolbox, marker: str) -> None:
    """The process that watches over a command can be killed too: then the mark that the command
    carries is looked for.
    """
    running = asyncio.ensure_future(call("Bash", command=escaping(marker)))
    assert await all_started(marker)
    assert call.host._runner._supervisor is not None
    _, program = call.host._runner._supervisor
    ours = supervisor._children(program.pid)
    for pid in ours:
        os.kill(pid, signal.SIGKILL)
    assert "Ended from outside" in (await running).text
    assert ours
    assert await until(lambda: not processes_with(f"sleep\0{marker}"))
    assert await call.said("Bash", command="echo again") == "again"


async def test_a_killed_supervisor_is_started_again(call: Toolbox) -> None:
    await call.said("Bash", command="true")
    assert call.host._runner._supervisor is not None
    _, program = call.host._runner._supervisor
    program.kill()
    program.wait()
    assert await call.said("Bash", command="echo again") == "again"


async def test_processes_of_a_dead_worker_are_ended(marker: str) -> None:
    """A mark names its worker; the next supervisor ends what belongs to one that is gone."""
    alive, gone, foreign = (
        supervisor.cookie(os.getpid(), "n"),
        supervisor.cookie(os.getpid(), "n").replace(".", ".9", 1),
        "1.1.1.n",
    )
    marks = {
        name: started(["sleep", marker], env={supervisor.COOKIE: mark})
        for name, mark in (("alive", alive), ("gone", gone), ("foreign", foreign))
    }
    assert await until(lambda: len(processes_with(f"sleep\0{marker}")) == 3)
    try:
        assert supervisor.sweep(supervisor._is_left_over) == 1
        assert marks["gone"].wait(patient(20)) == -signal.SIGKILL
        assert marks["alive"].poll() is marks["foreign"].poll() is None
    finally:
        for process in marks.values():
            process.kill()
            process.communicate()


async def test_commands_can_run_at_once_and_end_apart(call: Toolbox, marker: str) -> None:
    async with asyncio.TaskGroup() as group:
        long = group.create_task(call("Bash", command=f"echo long >ready; sleep {marker}"))
        assert await until((call.workspace / "ready").exists)
        assert [
            outcome.text
            for outcome in await asyncio.gather(
                *(call("Bash", command=f"echo {n}") for n in range(4))
            )
        ] == list("0123")
        assert not long.done()
        call.cancel.set()


async def test_too_many_processes_end_a_command(call: Toolbox, marker: str) -> None:
    outcome = await call(
        "Bash",
        command=f"i=0; while [ $i -lt 600 ]; do sleep {marker} & i=$((i+1)); done; wait",
        timeout=600_000,
    )
    assert outcome.is_error
    assert "too many processes" in outcome.text
    assert await until(lambda: not processes_with(f"sleep\0{marker}"))


async def test_a_fork_bomb_is_stopped(call: Toolbox, marker: str) -> None:
    """It would come to two thousand processes, faster than they can be looked at one by one."""
    bomb = f"b() {{ [ $1 -gt 0 ] && {{ b $(($1 - 1)) & b $(($1 - 1)) & }}; sleep {marker}; }}; b 10"
    outcome = await call("Bash", command=bomb)
    assert "too many processes" in outcome.text
    assert await until(lambda: not processes_with(marker))


async def test_a_process_that_never_stays_is_caught(call: Toolbox, marker: str) -> None:
    """Each generation makes a session of its own, starts the next and ends."""
    (call.workspace / "rabbit").write_text(
        "echo x >>ran; [ $2 -gt 0 ] && setsid sh ./rabbit $1 $(($2 - 1)) >/dev/null 2>&1 &\n"
    )
    milliseconds = round(patient(0.5) * 1000)
    outcome = await call(
        "Bash", command=f"sh ./rabbit {marker} 5000; sleep 1000", timeout=milliseconds
    )
    assert f"Stopped after {milliseconds / 1000:g} seconds" in outcome.text
    generations = (call.workspace / "ran").read_text().count("x")
    assert 1 < generations < 5000
    assert not processes_with(marker)
    assert (call.workspace / "ran").read_text().count("x") == generations


async def test_a_flood_ends_and_keeps_its_beginning_and_end(call: Toolbox) -> None:
    flood = await call("Bash", command="echo first; yes")
    assert flood.cut
    assert flood.is_error
    assert flood.text.startswith("first\ny\n")
    assert "Stopped: too much output" in flood.text
    assert len(flood.text) < MAX_OUTPUT + 1000
    much = await call("Bash", command="echo first; yes | head -c 1000000; echo last")
    assert (much.cut, much.is_error) == (True, False)
    assert much.text.startswith("first\n")
    assert much.text.endswith("last")
    assert "bytes left out. To see them, run the command again" in much.text


@pytest.mark.parametrize("first", ["", "x", "xx", "xxx"])
async def test_a_flood_is_cut_between_characters(call: Toolbox, first: str) -> None:
    command = f"printf '{first}'; yes $'\\U0001f642' | tr -d '\\n' | head -c 1000000"
    much = await call("Bash", command=command)
    assert much.cut
    assert "\ufffd" not in much.text


async def test_output_is_text_for_any_bytes(call: Toolbox) -> None:
    assert await call.said("Bash", command=r"printf 'a\377\000b'") == "a\ufffd\ufffdb"


async def test_no_secret_reaches_a_command(
    call: Toolbox, box: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LLM_API_KEY", "canary-of-env")
    (tmp_path / "outside").write_text("canary-of-host")
    seen = await call.said(
        "Bash", command="env; tr '\\0' '\\n' </proc/self/environ; ls /proc/self/fd"
    )
    assert "canary" not in seen
    assert "LLM_" not in seen
    # The last is the folder that is listed.
    assert [line for line in seen.split("\n") if line.isdigit()] == ["0", "1", "2", "3"]
    assert call.host._runner._supervisor is not None
    _, program = call.host._runner._supervisor
    assert environment(program.pid) == b""
    if box == "sandbox_command":
        everywhere = await call(
            "Bash",
            command=(
                f"cat /proc/*/environ .remit/* {tmp_path}/outside /etc/shadow ~/.* 2>&1; ls -a"
                " .remit / /home /root"
            ),
        )
        assert "canary" not in everywhere.text
        assert "root:" not in everywhere.text


@pytest.mark.skipif(
    not BWRAP,
    reason="needs bubblewrap; that commands are refused without it is tested in test_toolhost.py",
)
@pytest.mark.parametrize(
    "command",
    [
        "touch .git/x",
        "mv .git away",
        "rm -rf .git",
        "touch .remit/x",
        "rmdir .remit",
        "touch /usr/x",
        "touch /x",
        "touch /etc/x",
        "touch ../x",
        "touch /dev/x",
        "mount -t tmpfs x /usr",
        "unshare -r true",
        "umount .git",
        "cat /etc/shadow",
        "head -c 300000000 /dev/zero >/tmp/big",
        "head -c 300000000 /dev/zero >/dev/shm/big",
        "exec 3<>/dev/tcp/127.0.0.1/22",
        "kill -9 1",
        "ln -s /etc/hostname l && cat l",
    ],
)
async def test_the_sandbox_holds(workspace: Path, command: str) -> None:
    call = Toolbox(workspace, box="sandbox_command")
    outcome = await call("Bash", command=f"( {command} ) 2>&1 && echo ESCAPED")
    assert "ESCAPED" not in outcome.text or command in WITHOUT_EFFECT
    assert (workspace / ".remit" / "secret").read_text() == "canary-of-remit"
    assert sorted(path.name for path in workspace.parent.iterdir()) == ["ws"]
    await call.host.close()


def test_the_sandbox_is_asked_for_in_full(workspace: Path) -> None:
    argv = sandbox_command("/usr/bin/bwrap", workspace, ["/bin/sh", "-c", "--share-net"])
    end = argv.index("--")
    words = " ".join(argv[:end])
    assert argv[end + 1 :] == ["/bin/sh", "-c", "--share-net"]
    for wanted in (
        "--unshare-all",
        "--disable-userns",
        "--die-with-parent",
        "--new-session",
        "--cap-drop ALL",
        "--clearenv",
        "--remount-ro /",
    ):
        assert wanted in words
    assert f"--bind {workspace} {workspace}" in words
    assert f"--ro-bind {workspace}/.git {workspace}/.git" in words
    assert f"--tmpfs {workspace}/.remit" in words
    assert words.count("--size") == 3
    assert "--share-net" not in words
    assert "/home" not in words
    assert f"--ro-bind {workspace} {workspace}" in " ".join(
        sandbox_command("/usr/bin/bwrap", workspace, ["true"], writable=False)
    )


def test_the_sandbox_mounts_over_no_link(tmp_path: Path) -> None:
    (tmp_path / ".git").symlink_to("/etc")
    (tmp_path / ".remit").symlink_to("/etc")
    words = " ".join(sandbox_command("/usr/bin/bwrap", tmp_path, ["true"]))
    assert ".git" not in words
    assert ".remit" not in words


@pytest.mark.parametrize(
    "rg", [None, *([RG] if RG else [])], ids=["engine", "ripgrep"][: 2 if RG else 1]
)
@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|aa)+$",
        "(.*a){25}$",
        "^(([a-z])+.)+[A-Z]([a-z])+$",
        "((a*)*)*b",
        "(?:a?){30}a{30}$",
    ],
)
async def test_no_expression_takes_long(workspace: Path, rg: str | None, pattern: str) -> None:
    """Each would keep an engine that tries one way after the other busy for longer than the test
    may take.
    """
    (workspace / "a.txt").write_text(("a" * 5000 + "!\n") * 20)
    call = Toolbox(workspace, box=BOXES[-1], rg=rg)
    before = monotonic()
    await call("Grep", pattern=pattern)
    assert monotonic() - before < patient(20)
    await call.host.close()


async def test_a_supervisor_that_cannot_start_is_reported_to_the_model(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(workspace / "missing"))
    call = Toolbox(workspace, box="unsandboxed")
    assert await call.refused("Bash", command="true") == "Bash failed: No such file or directory."
    await call.host.close()


async def test_a_runner_that_never_ran_has_nothing_to_close() -> None:
    await Runner().close()


async def test_a_canceled_close_leaves_no_process_behind(workspace: Path) -> None:
    held = Event()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    toolbox = Toolbox(workspace, box=BOXES[0])
    assert not (await toolbox("Bash", command="true")).is_error
    holding = asyncio.create_task(asyncio.to_thread(held.wait))
    closing = asyncio.create_task(toolbox.host.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    held.set()
    await holding
    await asyncio.to_thread(lambda: None)
    del toolbox, closing
    # A process that was not waited for warns when it is collected, and that fails the test.
    gc.collect()
