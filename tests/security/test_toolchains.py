"""Commands see the user's programs, cannot change them, and see nothing else of the user's."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from remit import config
from remit.adapters.tools import WorkspaceTools
from remit.adapters.tools.shell.toolchains import (
    MAX_MASKED,
    NONE,
    Toolchains,
    find_toolchains,
)
from remit.bootstrap.runner_selection import open_equipment
from remit.bootstrap.workspace import open_workspace
from remit.domain.agents.tools import ToolCallRequest, ToolOutcome
from remit.errors import InvalidParam
from tests.patience import patient
from tests.toolbox import BWRAP

needs_bubblewrap = pytest.mark.skipif(
    not BWRAP, reason="that commands are refused without bubblewrap is tested in test_toolhost.py"
)
GRANTED = frozenset({"Bash"})


def program(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {says}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    program(folder / ".pyenv" / "shims" / "python9", "from-pyenv")
    program(folder / ".cargo" / "bin" / "cargo9", "from-cargo")
    program(folder / "tools" / "bin" / "mine9", "from-tools")
    (folder / ".rustup").mkdir()
    for name in (
        ".ssh/id",
        ".aws/credentials",
        ".config/gh/token",
        ".cargo/credentials.toml",
        "tools/notes",
    ):
        secret = folder / name
        secret.parent.mkdir(parents=True, exist_ok=True)
        secret.write_text(f"canary of {name}")
    return folder


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    (folder / ".remit").mkdir(parents=True)
    (folder / ".remit" / "token").write_text("canary of remit")
    return folder


@pytest.fixture
def env(home: Path) -> dict[str, str]:
    places = (".pyenv/shims", ".cargo/bin", "tools/bin", ".ssh", "missing")
    path = ":".join(["/usr/bin", *(str(home / place) for place in places), "relative/bin"])
    return {"HOME": str(home), "PATH": path}


@asynccontextmanager
async def tools(workspace: Path, toolchains: Toolchains) -> AsyncIterator[WorkspaceTools]:
    host = WorkspaceTools(workspace, bwrap=BWRAP, find_programs=False, toolchains=toolchains)
    yield host
    await host.close()


async def bash(workspace: Path, toolchains: Toolchains, command: str) -> ToolOutcome:
    async with tools(workspace, toolchains) as host:
        request = ToolCallRequest(
            "Bash", {"command": command}, GRANTED, patient(30), asyncio.Event()
        )
        return await host.call(request)


def test_programs_on_the_path_are_found_with_what_they_need(
    workspace: Path, home: Path, env: Mapping[str, str]
) -> None:
    found = find_toolchains(workspace, env)
    shown = {str(home / name) for name in (".pyenv", ".cargo", ".rustup", "tools/bin")}
    assert set(found.folders) == shown
    assert found.path == tuple(str(home / name) for name in (".pyenv/shims", ".cargo/bin"))
    assert found.late_path == (str(home / "tools/bin"),), "~/tools stays hidden"
    assert found.variables == {
        "PYENV_ROOT": str(home / ".pyenv"),
        "RUSTUP_HOME": str(home / ".rustup"),
    }
    assert found.masked() == (str(home / ".cargo" / "credentials.toml"),)
    assert not found.network


def test_an_active_virtual_environment_brings_its_interpreter(
    workspace: Path, home: Path, env: dict[str, str]
) -> None:
    base = program(home / ".pyenv" / "versions" / "9" / "bin" / "python", "base").parent
    outside, inside = home / "envs" / "one", workspace / ".venv"
    for folder in (outside, inside):
        (folder / "bin").mkdir(parents=True)
        (folder / "pyvenv.cfg").write_text(f"home = {base}\n")
    for folder in (outside, inside):
        active = {"HOME": str(home), "PATH": f"{folder}/bin:/usr/bin", "VIRTUAL_ENV": str(folder)}
        found = find_toolchains(workspace, active)
        assert found.variables["VIRTUAL_ENV"] == str(folder)
        assert found.path == (f"{folder}/bin",)
        own = [str(folder)] if folder is outside else []
        assert list(found.folders) == [*own, str(home / ".pyenv")], "the workspace is seen anyway"


@pytest.mark.parametrize(
    "name",
    ["~", "~/.ssh", "~/.ssh/id", "~/.aws", "~/.config", "/", "~/x/.remit", "relative", "{ws}"],
)
def test_settings_cannot_show_secrets(workspace: Path, env: dict[str, str], name: str) -> None:
    with pytest.raises(InvalidParam, match=r"sandbox\.read_only"):
        find_toolchains(workspace, env, [name.format(ws=workspace.parent)])


def test_a_path_in_the_wrong_place_shows_nothing_more(workspace: Path, home: Path) -> None:
    """A home folder, a folder with secrets or the folder above all of them is never shown for a
    PATH.
    """
    for folder in (home, home / ".ssh", home.parent, Path("/")):
        found = find_toolchains(workspace, {"HOME": str(home), "PATH": str(folder)})
        assert found == NONE._replace(variables={})


def shim(root: Path, name: str, says: str) -> Path:
    """Install a program as pyenv does; return its shim."""
    target = program(root / "versions" / "9" / "bin" / name, says)
    path = program(root / "shims" / name, "unused")
    path.write_text(f"#!/bin/sh\nexec {target}\n")
    return path


@needs_bubblewrap
@pytest.mark.parametrize("variable", ["", "PYENV_ROOT"])
async def test_shims_outside_the_home_folder_run(
    workspace: Path, home: Path, env: dict[str, str], variable: str
) -> None:
    root = workspace.parent / "opt" / "pyenv"
    path = shim(root, "python3", "from-shim").parent
    named = {variable: str(root)} if variable else {}
    found = find_toolchains(workspace, {"HOME": str(home), "PATH": f"{path}:/usr/bin", **named})
    assert (found.folders, found.variables) == ((str(root),), named)
    outcome = await bash(workspace, found, "python3")
    assert outcome.text == "from-shim"


@needs_bubblewrap
async def test_a_named_root_in_the_home_folder_is_shown(workspace: Path, home: Path) -> None:
    root = home / "lib" / "py"
    path = shim(root, "python9", "from-shim").parent
    env = {"HOME": str(home), "PATH": str(path), "PYENV_ROOT": str(root)}
    outcome = await bash(workspace, find_toolchains(workspace, env), "python9; echo $PYENV_ROOT")
    assert outcome.text == f"from-shim\n{root}"


@needs_bubblewrap
async def test_a_shim_without_its_target_does_not_hide_a_program_of_the_system(
    workspace: Path, home: Path
) -> None:
    path = shim(home / "lib" / "py", "true", "from-shim").parent
    program(path / "only9", "from-shims")
    found = find_toolchains(workspace, {"HOME": str(home), "PATH": f"{path}:/usr/bin"})
    assert (found.path, found.late_path) == ((), (str(path),))
    outcome = await bash(workspace, found, "env true && only9")
    assert outcome.text == "from-shims"


@pytest.mark.parametrize("place", ["", ".ssh", "..", ".aws/x"])
def test_a_variable_cannot_show_secrets(workspace: Path, home: Path, place: str) -> None:
    root = home / place
    path = program(root / "bin" / "own9", "own").parent
    for own in (home, workspace.parent / "service"):
        env = {"HOME": str(own), "PATH": str(path), "PYENV_ROOT": str(root)}
        found = find_toolchains(workspace, env)
        assert str(root.resolve()) not in found.folders
        assert "PYENV_ROOT" not in found.variables


@needs_bubblewrap
async def test_a_folder_of_the_settings_is_also_below_the_home_of_commands(
    workspace: Path, home: Path
) -> None:
    cache = home / ".cache" / "pip"
    cache.mkdir(parents=True)
    (cache / "wheel").write_text("cached")
    (cache / ".env").write_text("canary of a token")
    env = {"HOME": str(home), "PATH": ""}
    for settings in (["~/.cache/pip"], [str(cache)], ["~/.cache/pip", "~/.cache/pip/wheel"]):
        found = find_toolchains(workspace, env, settings)
        tried = "cat ~/.cache/pip/wheel ~/.cache/pip/.env; (echo x >~/.cache/pip/x) 2>/dev/null"
        outcome = await bash(workspace, found, f"{tried} || echo; echo $?")
        assert "cached" in outcome.text
        assert "canary" not in outcome.text
        assert not (cache / "x").exists()


NESTED = (
    ["~/.cache/pip", "~/.cache"],
    ["~/.cache", "~/.cache/a"],
    ["~/.cache"],
    ["~/.cargo/registry"],
)
"""Folders of the settings, alone and inside of others."""


@needs_bubblewrap
@pytest.mark.parametrize("settings", NESTED, ids=str)
async def test_credentials_are_hidden_at_every_depth_of_a_folder_of_the_settings(
    workspace: Path, home: Path, env: Mapping[str, str], settings: list[str]
) -> None:
    folders = [home / settings[0].removeprefix("~/"), home / settings[0].removeprefix("~/") / "a/b"]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "wheel").write_text("cached")
    found = find_toolchains(workspace, env, settings)
    for folder in folders:
        for name in (".env", "credentials", ".remit/token"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text("canary")
        (folder / ".netrc").symlink_to(".env")
        (folder / ".npmrc").symlink_to("/nowhere/.npmrc")
    outcome = await bash(workspace, found, f"grep -r 'cached\\|canary' {folders[0]} /tmp")
    assert ("cached" in outcome.text, "canary" in outcome.text) == (True, False)


def test_a_folder_with_too_many_credentials_is_refused(
    workspace: Path, home: Path, env: Mapping[str, str]
) -> None:
    for number in range(MAX_MASKED + 1):
        (home / ".cache" / str(number)).mkdir(parents=True)
        (home / ".cache" / str(number) / ".env").touch()
    found = find_toolchains(workspace, env, ["~/.cache"])
    with pytest.raises(InvalidParam, match="more than 1,000 files with credentials"):
        found.shown()


@pytest.mark.parametrize("place", ["bin", ".local/bin", "sbin"])
def test_the_home_of_another_user_is_not_shown(workspace: Path, home: Path, place: str) -> None:
    """A service has a home folder of its own and often the PATH of the person who starts it."""
    program(home / place / "other9", "from-other")
    (home / ".local" / "share" / "keyrings").mkdir(parents=True)
    service = workspace.parent / "service"
    service.mkdir()
    found = find_toolchains(workspace, {"HOME": str(service), "PATH": str(home / place)})
    assert found.folders == (str(home / place),)
    with pytest.raises(InvalidParam, match=r"sandbox\.read_only"):
        find_toolchains(workspace, {"HOME": str(service), "PATH": ""}, [str(home)])


@needs_bubblewrap
async def test_tokens_in_a_folder_that_is_shown_are_hidden(
    workspace: Path, home: Path, env: Mapping[str, str]
) -> None:
    cache = home / ".cache" / "huggingface"
    cache.mkdir(parents=True)
    (cache / "model").write_text("weights")
    (cache / "token").write_text("canary of a token")
    found = find_toolchains(workspace, env, ["~/.cache"])
    outcome = await bash(
        workspace, found, f"cat {cache}/model {cache}/token; grep -r canary {home}"
    )
    assert ("weights" in outcome.text, "canary of" in outcome.text) == (True, False)


@needs_bubblewrap
@pytest.mark.parametrize("name", [".npmrc", ".netrc", ".pypirc", ".git-credentials"])
async def test_credentials_at_the_top_of_an_installation_hide_only_themselves(
    workspace: Path, home: Path, name: str
) -> None:
    node = program(home / ".nvm" / "versions" / "v1" / "bin" / "node9", "from-nvm")
    (home / ".nvm" / name).write_text("canary of a token")
    found = find_toolchains(workspace, {"HOME": str(home), "PATH": str(node.parent)})
    outcome = await bash(workspace, found, f"node9; cat {home}/.nvm/{name}; grep -r canary {home}")
    assert ("from-nvm" in outcome.text, "canary of" in outcome.text) == (True, False)


@needs_bubblewrap
async def test_commands_use_the_programs_of_the_user(
    workspace: Path, home: Path, env: Mapping[str, str]
) -> None:
    (home / ".cache").mkdir()
    (home / ".cache" / "wheel").write_text("cached")
    found = find_toolchains(workspace, env, ["~/.cache"])
    outcome = await bash(workspace, found, f"python9; cargo9; mine9; cat {home}/.cache/wheel")
    assert outcome.text.split("\n") == ["from-pyenv", "from-cargo", "from-tools", "cached"]


@needs_bubblewrap
async def test_commands_cannot_change_the_programs_of_the_user(
    workspace: Path, home: Path, env: Mapping[str, str]
) -> None:
    found = find_toolchains(workspace, env)
    places = [
        home / ".pyenv" / "x",
        home / ".cargo" / "bin" / "cargo9",
        home / "tools" / "bin" / "x",
    ]
    tried = "; ".join(f"( echo x >{place} ) 2>&1 && echo ESCAPED" for place in places)
    outcome = await bash(workspace, found, f"{tried}; touch {home}/x || mkdir {home}/.ssh/x")
    assert "ESCAPED" not in outcome.text
    assert "from-cargo" in (home / ".cargo" / "bin" / "cargo9").read_text()
    assert not (home / "x").exists()


@needs_bubblewrap
async def test_commands_see_no_secret_of_the_user(
    workspace: Path, home: Path, env: Mapping[str, str]
) -> None:
    found = find_toolchains(workspace, env)
    looked = (
        f"ls -aR {home} .remit; grep -r canary {home} .remit /tmp; cat"
        f" {home}/.cargo/credentials.toml"
    )
    outcome = await bash(workspace, found, f"( {looked} ) 2>&1")
    assert "canary" not in outcome.text
    for name in (".ssh", ".aws", ".config", "notes", "token"):
        assert name not in outcome.text.split()


@needs_bubblewrap
@pytest.mark.parametrize("granted", [False, True])
async def test_commands_have_a_network_only_by_grant(workspace: Path, granted: bool) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connect = f"( exec 3<>/dev/tcp/127.0.0.1/{port} ) 2>/dev/null && echo connected || echo none"
    outcome = await bash(workspace, NONE._replace(network=granted), connect)
    assert outcome.text == ("connected" if granted else "none")
    async with tools(workspace, NONE._replace(network=granted)) as host:
        said = next(spec.description for spec in host.specs() if spec.name == "Bash")
    assert ("It has no network." in said) != granted
    server.close()


async def test_the_settings_of_the_operator_count_and_those_of_the_workspace_do_not(
    workspace: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = '[sandbox]\nread_only = ["~/tools"]\nnetwork = true\n'
    (workspace / ".remit" / "config.toml").write_text(table)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "settings"))
    ignored = config.load(workspace, {})
    assert (ignored.get("sandbox.read_only"), ignored.get("sandbox.network")) == ((), False)
    own_file = home / "settings" / "remit" / "config.toml"
    told = f"expected in your own settings ({own_file}), not in those of a workspace"
    path = workspace / ".remit" / "config.toml"
    assert ignored.unknown == (
        f"sandbox.read_only in {path}: {told}",
        f"sandbox.network in {path}: {told}",
    )
    (home / "settings" / "remit").mkdir(parents=True)
    (home / "settings" / "remit" / "config.toml").write_text(table)
    own = config.load(workspace, {"database_url": "memory:"})
    assert (own.get("sandbox.read_only"), own.get("sandbox.network")) == (("~/tools",), True)
    monkeypatch.setenv("REMIT_SANDBOX_READ_ONLY", "~/.ssh:~/tools")
    named = config.load(workspace, {"database_url": "memory:"})
    assert named.get("sandbox.read_only") == ("~/.ssh", "~/tools")
    async with open_workspace(named) as core:
        with pytest.raises(InvalidParam, match="is or contains secrets"):
            async with open_equipment(core.folder, named):
                pass


@pytest.mark.parametrize("written", ["read_only = 7", "read_only = [7]", 'network = "perhaps"'])
def test_settings_that_cannot_be_read_are_refused(
    workspace: Path, home: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "settings"))
    (home / "settings" / "remit").mkdir(parents=True)
    (home / "settings" / "remit" / "config.toml").write_text(f"[sandbox]\n{written}\n")
    with pytest.raises(InvalidParam, match=r"sandbox\."):
        config.load(workspace, {})
