"""No test is left out: each one runs in `make test` or in `make test-long`."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.patience import patient

ROOT = Path(__file__).resolve().parents[2]


def test_every_test_runs_in_make_test_or_in_make_test_long() -> None:
    chosen = [*chosen_by("test"), *chosen_by("test-long")]
    assert set().union(*(collected(*options) for options in chosen)) == collected()


def chosen_by(target: str) -> list[list[str]]:
    """The options with which each command of a target of the Makefile selects tests."""
    command = ["make", "--dry-run", "--no-print-directory", target]
    told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [shlex.split(options) for options in re.findall(r"-m pytest (.*)", told)]


def collected(*options: str) -> set[str]:
    """The ids of the tests that options select."""
    command = [sys.executable, "-m", "pytest", *options, "--collect-only", "-q", "-n", "0"]
    told = subprocess.run(
        command,
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if "COVERAGE" not in name},
        capture_output=True,
        text=True,
        timeout=patient(120),
        check=False,
    )
    assert told.returncode == 0, told.stdout[-2000:] + told.stderr
    return {line for line in told.stdout.splitlines() if "::" in line}
