"""Commands in poor surroundings: a user without a home or an account, closed and full streams."""

import signal
import subprocess
import sys

import pytest

from tests.patience import patient
from tests.surfaces.shell import Shell

NO_ACCOUNT = """
import pwd, sys
def no_account(uid):
    raise KeyError(uid)
pwd.getpwuid = no_account
from remit.__main__ import main
main()
"""


def homeless(shell: Shell, *arguments: str) -> "subprocess.Popen[str]":
    """A command of a user who has neither a home folder nor an account."""
    del shell.env["HOME"]
    shell.env["XDG_STATE_HOME"] = str(shell.folder / "state")
    return subprocess.Popen(
        [sys.executable, "-c", NO_ACCOUNT, *arguments],
        cwd=shell.folder,
        env=shell.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "Where is x", "--agent", "explore"),
        ("doctor",),
        ("mcp",),
        ("task", "create", "A", "--resource", "~/a.txt"),
    ],
)
def test_a_user_without_a_home_or_an_account_can_use_commands(
    shell: Shell, arguments: tuple[str, ...]
) -> None:
    out, err = homeless(shell, *arguments).communicate(timeout=patient(60))
    assert "Traceback" not in err
    if arguments[0] == "run":
        assert "done" in err, out + err


@pytest.mark.parametrize("command", [("worker",), ("serve", "--port", "0")])
def test_a_user_without_a_home_or_an_account_can_work_and_serve(
    shell: Shell, command: tuple[str, ...]
) -> None:
    started = homeless(shell, *command)
    assert started.stderr is not None
    said = next(line for line in started.stderr if "started" in line or "http://" in line)
    started.send_signal(signal.SIGTERM)
    _, err = started.communicate(timeout=patient(30))
    assert (started.returncode, "Traceback" in said + err) == (0, False), said + err


def typed(shell: Shell, line: str) -> tuple[int, str, str]:
    """A command line as a shell runs it: its exit code, its output and its messages."""
    remit = f'"{sys.executable}" -m remit'
    done = subprocess.run(
        ["/bin/sh", "-c", line.replace("remit", remit, 1)],
        cwd=shell.folder,
        env=shell.env,
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("stream", [">&-", "2>&-", "2>/dev/full", ">&- 2>&-", "<&-"])
@pytest.mark.parametrize(
    "command", ["task list", 'run "Where is x" --agent explore', "task create New --owner build"]
)
def test_a_closed_or_full_stream_does_not_change_what_a_command_does(
    shell: Shell, command: str, stream: str
) -> None:
    code, out, err = typed(shell, f"remit {command} {stream}")
    assert (code, "Traceback" in err) == (0, False), err
    if "2>" not in stream and command.startswith("run"):
        assert "#1" in err
    if not stream.startswith(">") and "task list" not in command:
        assert out
    listed = shell.remit("task", "list", "--json").json["tasks"]
    ended = shell.remit("task", "history", "--json").json["tasks"]
    assert [task["state"] for task in (*listed, *ended)] == {
        "task list": [],
        'run "Where is x" --agent explore': ["done"],
        "task create New --owner build": ["pending"],
    }[command]


def test_closed_standard_input_is_empty(shell: Shell) -> None:
    for line in ("remit run - <&-", "remit run - </dev/null"):
        code, out, err = typed(shell, line)
        assert (code, out, "Traceback" in err) == (2, "", False), err
        # A slow machine prints that the command is starting.
        assert err.endswith("error: OBJECTIVE: is blank; expected 1 to 1,000,000 bytes.\n")


def test_an_error_keeps_its_exit_code_if_the_output_is_closed(shell: Shell) -> None:
    lines = [f"remit task show 9 {stream}" for stream in ("2>&-", "2>/dev/full")]
    assert [typed(shell, line)[0] for line in lines] == [3, 3]
