"""Test remit with real clients: install them from npm into a cache, and run `tests/outside`.

If node, npm, git or the registry is missing, this says so and fails: a skipped test proves nothing.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINS = ROOT / "tests" / "outside" / "package.json"
NEEDED = ("node", "npm", "git")
PROGRAMS = {
    "claude": "node_modules/@anthropic-ai/claude-code/install.cjs",
    "opencode": "node_modules/opencode-ai/postinstall.mjs",
}
"""Each client, and the install script of its package."""
INSTALL_SECONDS, START_SECONDS = 900, 120


class Impossible(Exception):
    """The tests cannot run on this machine."""


def main(arguments: list[str]) -> int:
    """Install the clients and run the tests.

    Returns the exit code of pytest, or 1 if the tests cannot run.
    """
    try:
        programs = install(cache())
    except Impossible as why:
        print(f"make test-outside cannot run: {why}", file=sys.stderr)
        return 1
    print(f"Clients in {programs.parent.parent}: {versions()}", flush=True)
    env = os.environ | {"REMIT_OUTSIDE_BIN": str(programs)}
    options = ["-o", "addopts=--strict-markers --strict-config -ra", "-p", "no:randomly"]
    command = [sys.executable, "-m", "pytest", "tests/outside", *options, *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode


def cache() -> Path:
    """The cache folder of the clients."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "remit-outside"


def versions() -> str:
    """The clients with their pinned versions."""
    pinned: dict[str, str] = json.loads(PINS.read_text())["dependencies"]
    return ", ".join(f"{name} {version}" for name, version in pinned.items())


def install(folder: Path) -> Path:
    """Install the pinned clients if needed; return the folder of their programs."""
    if missing := [name for name in NEEDED if shutil.which(name) is None]:
        raise Impossible(f"{', '.join(missing)} not found on the PATH.")
    programs = folder / "node_modules" / ".bin"
    done = folder / "installed.json"
    if not done.exists() or done.read_text() != PINS.read_text():
        _install(folder)
    for name, script in PROGRAMS.items():
        _must_start(programs / name, folder / script)
    done.write_text(PINS.read_text())
    return programs


def _install(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(PINS, folder / "package.json")
    print(f"Installing {versions()} into {folder} …", flush=True)
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    try:
        ran = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Impossible(f"npm install did not end within {INSTALL_SECONDS} seconds.") from None
    if ran.returncode:
        raise Impossible(
            f"npm install failed. Is the npm registry reachable?\n{ran.stderr.strip()[-2000:]}"
        )


def _must_start(program: Path, script: Path) -> None:
    """Check that a client starts.

    Newer versions of npm do not run install scripts, so this does.
    """
    if _starts(program) is not None and script.exists():
        subprocess.run(
            ["node", script.name],
            cwd=script.parent,
            capture_output=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    if (problem := _starts(program)) is not None:
        raise Impossible(f"{program} does not start: {problem}")


def _starts(program: Path) -> str | None:
    """The reason why a program does not start, or None."""
    try:
        ran = subprocess.run(
            [program, "--version"],
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if ran.returncode == 0 else (ran.stderr or ran.stdout).strip()[-2000:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
