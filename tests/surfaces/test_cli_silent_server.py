"""Commands that go through a server which accepts connections and never answers."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import patient
from tests.surfaces.shell import Shell, interruptible

SCRIPT = """
import sys
import remit.surfaces.cli.output.live_progress as progress
progress.REPEAT_SECONDS = 1.2
sys.argv[1:] = {arguments}
from remit.__main__ import main
main()
"""
COMMANDS = {
    "task run": ("task", "run", "4"),
    "task watch, one": ("task", "watch", "4"),
    "task watch, all": ("task", "watch"),
    "task list": ("task", "list"),
    "task result": ("task", "result", "4", "--wait", "100"),
    "run": ("run", "Find it"),
}


@pytest.fixture
def url() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_that_it_waits_and_ends_at_ctrl_c(
    tmp_path: Path, url: str, command: str
) -> None:
    shell = Shell(tmp_path, REMIT_URL=url, REMIT_TOKEN="t" * 32)
    with interruptible():
        started = subprocess.Popen(
            [sys.executable, "-c", SCRIPT.format(arguments=list(COMMANDS[command]))],
            cwd=shell.folder,
            env=shell.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    with started:
        try:
            assert started.stderr is not None
            for _ in range(2):
                assert f"aiting for the server {url} · " in started.stderr.readline()
            started.send_signal(signal.SIGINT)
            rest = started.stderr.read()
            assert started.wait(patient(30)) == 130
        finally:
            started.kill()
    assert "Stopped" in rest
    assert "Quit after" not in rest
