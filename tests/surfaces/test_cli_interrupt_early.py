"""Ctrl-C at any moment after the start of a command: exit code 130, no traceback, and only true
statements.
"""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from remit.bootstrap.local_host import WorkspaceHost
from remit.surfaces.cli import main as cli
from remit.surfaces.cli.output.next_steps import NO_SERVER_WORKER
from tests.patience import patient
from tests.surfaces.shell import Shell, interruptible, served, until

MOMENTS = {"some points": 8, "all points": 40}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    assert made.remit("init").code == 0
    assert made.remit("task", "create", "Work", "--owner", "general").code == 0
    return made


SCRIPT = """
import os, signal, sys
{before}
sys.argv[1:] = {arguments}
from remit.__main__ import main
{loaded}
main()
"""
"""What the installed `remit` does, with something before, and something before `main`."""


def _command(before: str, arguments: tuple[str, ...], loaded: str = "") -> list[str]:
    script = SCRIPT.format(before=before, arguments=list(arguments), loaded=loaded)
    return [sys.executable, "-c", script]


@pytest.mark.parametrize("chosen", MOMENTS)
@pytest.mark.parametrize(
    "arguments", [("run", "Look"), ("task", "run", "1"), ("task", "list")], ids=" ".join
)
def test_it_ends_without_an_error_at_any_moment(
    shell: Shell, arguments: tuple[str, ...], chosen: str
) -> None:
    span, codes = _seconds_undisturbed(shell), []
    for moment in range(MOMENTS[chosen]):
        code, err = _interrupted_after(span * moment / MOMENTS[chosen], shell, arguments)
        codes.append(code)
        assert "Traceback" not in err, err
        assert "Warning" not in err, err
        # A command before has ended the task.
        refused = arguments[:2] == ("task", "run") and "is done" in err
        assert code in (0, 130) or refused, err
        # What has ended needs no further word.
        assert code != 130 or "Stop" in err or "✓ #1" in err, err
    assert 130 in codes


AT_PROGRESS = """
import time
from remit.surfaces.cli.output import live_progress
from remit.surfaces.text import stream_writer

def interrupted(progress):
    raise KeyboardInterrupt

write = stream_writer.write_through

def slowly(stream, text):
    time.sleep(0.2)
    write(stream, text)

live_progress.Progress.__enter__ = interrupted
stream_writer.write_through = slowly
"""
"""Ctrl-C comes before the progress has begun, and standard error is slow."""


def test_the_last_lines_are_written_if_progress_has_not_begun(shell: Shell) -> None:
    done = _script(shell, AT_PROGRESS, "task", "run", "1")
    assert done.returncode == 130
    assert "Stop" in done.stderr


def _seconds_undisturbed(shell: Shell) -> float:
    """Measure how long the shortest command takes, so that interrupts come while one runs on
    every machine.
    """
    began = time.monotonic()
    done = _script(shell, "", "task", "list")
    assert done.returncode == 0, done.stderr
    return time.monotonic() - began


def _interrupted_after(seconds: float, shell: Shell, arguments: tuple[str, ...]) -> tuple[int, str]:
    """Interrupt a command so many seconds after Python loaded its first module.

    Before that, nothing of remit runs, so remit cannot guard it.
    """
    command = _command("", arguments, loaded="os.write(1, b'.')")
    with interruptible():
        started = subprocess.Popen(
            command,
            cwd=shell.folder,
            env=shell.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
    assert started.stdout is not None
    assert started.stdout.read(1) == b"."
    time.sleep(seconds)
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=patient(30))
    return started.returncode, err.decode()


def _script(shell: Shell, before: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = _command(before, arguments)
    with interruptible():
        return subprocess.run(
            command,
            cwd=shell.folder,
            env=shell.env,
            capture_output=True,
            text=True,
            timeout=patient(60),
            check=False,
        )


@pytest.mark.parametrize(
    ("module", "arguments", "said"),
    [
        (
            "remit.surfaces.cli.command_table",
            ("run", "Look"),
            "Stopped.\n",
        ),
        ("remit.bootstrap.sync_delegation", ("run", "Look"), "Stopped.\n"),
        ("asyncio", ("task", "create", "More"), "Stopped.\n"),
    ],
)
def test_while_a_module_is_loaded_it_ends_at_once(
    shell: Shell, tmp_path: Path, module: str, arguments: tuple[str, ...], said: str
) -> None:
    """The module sends it to its own process, and turns the interrupt into an error as some
    libraries do.
    """
    fakes = tmp_path / "fakes"
    target = fakes.joinpath(*module.split("."))
    target.parent.mkdir(parents=True)
    target.with_suffix(".py").write_text(
        "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n    for _ in"
        " range(1000): pass\nexcept KeyboardInterrupt:\n    raise SystemError('spoiled') from"
        " None\n"
    )
    # Its folder is searched first, also for modules of a package.
    before = (
        "import importlib.machinery\nclass First:\n    def find_spec(self, name, path=None,"
        " target=None):\n        return importlib.machinery.PathFinder.find_spec(name,"
        f" [{str(target.parent)!r}]) if name == {module!r} else None\nsys.meta_path.insert(0,"
        " First())\n"
    )
    done = _script(shell, before, *arguments)
    assert (done.returncode, done.stderr) == (130, said)


@pytest.mark.parametrize("function", ["main", "_end_with"])
def test_outside_of_what_main_can_catch_it_ends_without_a_traceback(
    shell: Shell, function: str
) -> None:
    before = (
        "def interrupt(frame, event, argument):\n"
        f"    if event == 'call' and frame.f_code.co_name == {function!r}:\n"
        "        sys.setprofile(None)\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.setprofile(interrupt)\n"
    )
    done = _script(shell, before, "task", "list")
    assert (done.returncode, done.stderr) == (130, "Stopped.\n")


def test_a_process_that_ignores_it_keeps_ignoring_it(shell: Shell) -> None:
    before = "signal.signal(signal.SIGINT, signal.SIG_IGN); os.kill(os.getpid(), signal.SIGINT)"
    after = "import atexit; atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))"
    done = _script(shell, f"{before}; {after}", "task", "list")
    assert (done.returncode, done.stderr) == (0, "")


def test_at_the_end_of_python_it_does_not_change_the_exit_code(shell: Shell) -> None:
    done = _script(
        shell,
        "import atexit; atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))",
        "task",
        "list",
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [("task", "watch"), ("task", "watch", "1")], ids=" ".join)
@pytest.mark.parametrize("remote", [False, True], ids=["store", "server"])
def test_watching_says_that_it_stopped_and_the_state_of_the_task(
    shell: Shell, arguments: tuple[str, ...], remote: bool
) -> None:
    if not remote:
        said = _stopped_watching(shell, *arguments)
        stands = [
            "#1 is kept (pending).",
            "No worker is running for it now. Continue it with: remit task run 1",
            "Cancel it with: remit task cancel 1",
        ]
    else:
        with served(shell, "--no-worker") as server:
            shell.env |= {"REMIT_URL": server.url, "REMIT_TOKEN": server.token}
            said = _stopped_watching(shell, *arguments)
        stands = [
            f"The server at {server.url} keeps #1 (pending).",
            NO_SERVER_WORKER,
            "Cancel it with: remit task cancel 1",
        ]
    stopped = ["Stopping… Ctrl-C or SIGTERM again to quit now.", "Stopped watching."]
    assert said == [*stopped, *(stands if "1" in arguments else [])]


def _is_idle(pid: int) -> bool:
    """True if an event loop of a process waits and uses no CPU time."""
    looks = [_activity(pid)]
    for _ in range(5):
        time.sleep(0.1)
        looks.append(_activity(pid))
    state, *_ = looks[0]
    opened = (link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink())
    return (
        state == "S" and len(set(looks)) == 1 and any("eventpoll" in str(path) for path in opened)
    )


def _activity(pid: int) -> tuple[str, ...]:
    """The state of a process, and the CPU time that it has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (fields[0], *fields[11:13])


def _stopped_watching(shell: Shell, *arguments: str) -> list[str]:
    with interruptible():
        started = shell.started(*arguments)
    until(lambda: _is_idle(started.pid))
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=patient(30))
    assert started.returncode == 130, err
    # On a busy machine the command repeats that it waits before it is seen to be idle.
    return [line for line in err.splitlines() if " · no news for " not in line]


def test_an_interrupt_inside_a_codec_ends_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt("decoding with 'utf-8-sig' codec failed (KeyboardInterrupt: )")

    monkeypatch.setattr(cli, "_run_guarded", interrupted)
    assert cli.main([], WorkspaceHost) == 130
