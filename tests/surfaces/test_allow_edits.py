"""The permission of built-in agents to edit a workspace: the operator grants it once, and a copy of
the folder does not have it.
"""

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remit import config
from remit.adapters.tools.shell.bash import first_program
from remit.app.agents.registry import AgentRegistry, role_prompt
from remit.bootstrap.agent_loading import open_agents
from remit.bootstrap.local_host import WorkspaceHost
from remit.config import FOLDER
from tests.patience import patient

READING = {"LS", "Glob", "Grep", "Read", "TodoWrite"}
EDITING = {"Write", "Edit", "Bash"} if first_program("bwrap") else {"Write", "Edit"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of a person who has allowed nothing yet."""
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home" / name))
    return tmp_path / "home"


def agents(folder: Path) -> AgentRegistry:
    return open_agents(config.load(folder))


def tools(folder: Path) -> dict[str, set[str]]:
    return {agent.id: set(agent.tools) for agent in agents(folder).all()}


def init(folder: Path, allow_edits: bool | None = None) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    return WorkspaceHost({"workspace": str(folder)}).init(allow_edits)


def test_without_a_yes_no_agent_can_change_files(tmp_path: Path) -> None:
    made = init(tmp_path / "a")
    assert (made["created"], made["allow_edits"], made["granted"]) == (True, None, [])
    assert not any(
        names & {"Write", "Edit", "MultiEdit", "Bash"} for names in tools(tmp_path / "a").values()
    )


def test_a_yes_gives_only_build_and_general_the_tools(tmp_path: Path) -> None:
    made = init(tmp_path / "a", True)
    assert (made["allow_edits"], set(made["granted"])) == (True, EDITING)
    found = tools(tmp_path / "a")
    assert (found["general"], found["build"]) == (READING | EDITING, READING | EDITING | {"Task"})
    assert (found["explore"], found["plan"], found["summary"]) == (READING, READING, READING)


def test_without_a_working_sandbox_they_get_no_bash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "bwrap").write_text("#!/bin/sh\nexit 1\n")
    (programs / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    assert init(tmp_path / "a", True)["granted"] == ["Write", "Edit"]
    assert tools(tmp_path / "a")["general"] == READING | {"Write", "Edit"}


def test_a_no_takes_it_back_and_is_remembered(tmp_path: Path) -> None:
    init(tmp_path / "a", True)
    assert init(tmp_path / "a", False)["allow_edits"] is False
    assert init(tmp_path / "a")["allow_edits"] is False
    assert tools(tmp_path / "a")["general"] == READING


def test_a_copy_of_the_folder_brings_no_permission_along(tmp_path: Path) -> None:
    init(tmp_path / "a", True)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert tools(tmp_path / "b")["general"] == READING
    settings = config.load(tmp_path / "b")
    assert settings.get("allow_edits") is False
    (told,) = settings.unknown
    assert told.endswith(
        "which was not confirmed on this machine; confirm it with: `remit init --allow-edits`"
    )
    assert init(tmp_path / "b")["allow_edits"] is None, "it is asked for"


def test_another_person_has_allowed_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    init(tmp_path / "a", True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    assert tools(tmp_path / "a")["general"] == READING


def test_a_change_of_what_agents_may_do_must_be_confirmed_again_and_no_other_change(
    tmp_path: Path,
) -> None:
    init(tmp_path / "a", True)
    path = tmp_path / "a" / FOLDER / "config.toml"
    path.write_text(f"{path.read_text()}concurrency = 2\n")
    assert tools(tmp_path / "a")["general"] == READING | EDITING
    path.write_text(f'{path.read_text()}[agents.summary]\ntools = ["Bash"]\n')
    assert tools(tmp_path / "a")["general"] == READING


def test_the_settings_of_a_person_need_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    init(tmp_path / "a")
    monkeypatch.setenv("REMIT_ALLOW_EDITS", "true")
    assert tools(tmp_path / "a")["general"] == READING | EDITING


def test_settings_with_tables_stay_readable(tmp_path: Path) -> None:
    init(tmp_path / "a")
    path = tmp_path / "a" / FOLDER / "config.toml"
    path.write_text('[agents.general]\nmodel = "light"\n')
    for _ in range(2):
        init(tmp_path / "a", True)
    settings = config.load(tmp_path / "a")
    assert (settings.get("allow_edits"), settings.get("agents")) == (
        True,
        {"general": {"model": "light"}},
    )
    assert path.read_text().count("allow_edits =") == 1


@pytest.mark.parametrize("agent_id", ["build", "general"])
def test_a_role_prompt_speaks_only_of_what_the_agent_can_do(agent_id: str) -> None:
    agent = AgentRegistry().get(agent_id)
    assert agent is not None
    reads, edits, everything = (
        role_prompt(agent, agent.tools + more)
        for more in ((), ("Write", "Edit"), ("Write", "Edit", "Bash"))
    )
    assert "you cannot change it" in reads
    assert not any(
        word in reads
        for word in ("You can change files", "Bash", "smallest change", "You can run commands")
    )
    assert (
        "You can change files" in edits,
        "Bash" in edits,
        "You cannot run commands here" in edits,
    ) == (True, False, True)
    assert (
        "You can change files" in everything,
        "with Bash" in everything,
        "cannot change" in everything,
    ) == (True, True, False)


def test_the_prompt_of_build_mentions_delegation_only_if_it_can_delegate() -> None:
    agent = AgentRegistry().get("build")
    assert agent is not None
    assert "When to delegate." in role_prompt(agent, agent.tools)
    assert "When to delegate." not in role_prompt(agent, ("Read",))


@pytest.mark.parametrize(
    ("typed", "allowed"), [("y\n", True), ("yes\n", True), ("\n", False), ("n\n", False)]
)
def test_init_asks_once_at_a_terminal(tmp_path: Path, typed: str, allowed: bool) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    first, second = at_a_terminal(folder, typed), at_a_terminal(folder, "")
    question = (
        "Allow sub-agents build and general to change files and run sandboxed commands in this"
        " folder? [y/N]"
    )
    assert (question in first, question in second) == (True, False)
    assert ("build and general may change files here" in first) is allowed
    assert (tools(folder)["general"] != READING) is allowed


def test_init_asks_nothing_without_a_terminal(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "remit", "init"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=True,
    )
    assert ran.stdout == f"Workspace {tmp_path}\n"
    assert (
        ran.stderr
        == "Agents can only read here. Allow build and general to change files with: remit init"
        " --allow-edits\n"
    )


def test_yes_and_no_at_once_are_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "remit", "init", "--allow-edits", "--no-allow-edits"]
    ran = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert (ran.returncode, "cannot be combined" in ran.stderr) == (2, True)


def at_a_terminal(folder: Path, typed: str) -> str:
    """What `remit init` says at a terminal."""
    ours, theirs = pty.openpty()
    try:
        if typed:
            os.write(ours, typed.encode())
        running = subprocess.Popen(
            [sys.executable, "-m", "remit", "init"],
            cwd=folder,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        assert running.wait(patient(30)) == 0
        return os.read(ours, 10_000).decode()
    finally:
        os.close(ours)
        os.close(theirs)
