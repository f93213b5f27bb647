"""`make test-outside` never passes silently: where it cannot run, it says why and fails."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import patient

ROOT = Path(__file__).resolve().parents[2]


def outside(folder: Path, path: Path) -> "subprocess.CompletedProcess[str]":
    """The trial with an empty cache, and with nothing on the PATH but what is in a folder."""
    env = {"PATH": str(path), "HOME": str(folder), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "scripts.outside"]
    return subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=patient(60), check=False
    )


def programs(folder: Path, **scripts: str) -> Path:
    """A folder with programs."""
    path = folder / "bin"
    path.mkdir()
    for name, script in scripts.items():
        (path / name).write_text(f"#!/bin/sh\n{script}\n")
        (path / name).chmod(0o755)
    return path


def test_missing_programs_are_named(tmp_path: Path) -> None:
    ran = outside(tmp_path, programs(tmp_path, git="exit 0"))
    assert (ran.returncode, ran.stderr) == (
        1,
        "make test-outside cannot run: node, npm not found on the PATH.\n",
    )


@pytest.mark.parametrize(
    ("npm", "why"),
    [
        (
            "echo 'no network' >&2; exit 1",
            "npm install failed. Is the npm registry reachable?\nno network\n",
        ),
        ("exit 0", "/.bin/claude does not start: "),
    ],
)
def test_a_client_that_cannot_be_had_is_a_failure(tmp_path: Path, npm: str, why: str) -> None:
    ran = outside(tmp_path, programs(tmp_path, git="exit 0", node="exit 0", npm=npm))
    assert ran.returncode == 1
    assert ran.stderr.startswith("make test-outside cannot run: ")
    assert why in ran.stderr
    assert not (tmp_path / ".cache" / "remit-outside" / "installed.json").exists()
