"""Run a command beside busy loops, to simulate a busy machine.

Usage: `python -m scripts.busy make test`.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

LOOPS = 4
# A loop ends if its parent is gone, so that none is left after `kill -9`.
LOOP = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
while os.getppid() == int(sys.argv[1]):
    for _ in range(1_000_000):
        pass
"""


def main(command: Sequence[str]) -> int:
    """Run the command beside the loops; return its exit code."""
    if not command:
        print("usage: python -m scripts.busy COMMAND [ARGUMENT ...]", file=sys.stderr)
        return 2
    with busy_loops(LOOPS):
        print(f"{LOOPS} busy loops run beside: {' '.join(command)}", flush=True)
        code = run(command)
        load = os.getloadavg()[0]
    print(
        f"The {LOOPS} busy loops have ended; the load average was {load:.1f}. The command exited"
        f" with {code}.",
        flush=True,
    )
    return code


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Run this many busy loops, each in its own process."""
    loop_command = [sys.executable, "-S", "-c", LOOP, str(os.getpid())]
    loops = [subprocess.Popen(loop_command) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
        for loop in loops:
            loop.wait()


def run(command: Sequence[str]) -> int:
    """Run the command to its end. The terminal sends it Ctrl-C; SIGTERM is forwarded."""
    process: subprocess.Popen[bytes] | None = None
    terminated = False

    def terminate(*_: object) -> None:
        nonlocal terminated
        terminated = True
        if process is not None:
            process.terminate()

    signal.signal(signal.SIGINT, lambda *_: None)  # not SIG_IGN, which the command would inherit
    signal.signal(signal.SIGTERM, terminate)
    process = subprocess.Popen(command)
    if terminated:
        process.terminate()
    code = process.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
