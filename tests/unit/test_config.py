"""Settings: where they come from, which one wins, and what is made for its owner alone."""

import pwd
from pathlib import Path

import pytest

from remit import config
from remit.adapters.stores.high_water_mark import marks_folder
from remit.bootstrap.embedded_worker import WorkerOptions, options_of
from remit.domain.records.record import replace
from remit.errors import InvalidParam, NotFound


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home")}


def workspace(root: Path, text: str = "") -> Path:
    config.make_workspace(root)
    (root / ".remit" / "config.toml").write_text(text)
    return root


def test_a_user_without_an_account_or_a_home_can_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_account(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", no_account)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert config.load(workspace(tmp_path), env={}).workspace == tmp_path
    assert marks_folder() == Path("/.local/state/remit/marks")


def test_the_workspace_is_found_from_below(tmp_path: Path) -> None:
    workspace(tmp_path)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert config.find_workspace(below) == tmp_path


def test_the_database_is_the_workspaces_own_file_unless_one_is_named(
    tmp_path: Path, home: dict[str, str]
) -> None:
    found = config.load(workspace(tmp_path), env=home)
    assert found.database_url == f"sqlite:///{tmp_path}/.remit/remit.db"
    assert config.load(tmp_path, {"database_url": "memory:"}, home).database_url == "memory:"


def test_later_sources_override_and_each_value_records_its_source(
    tmp_path: Path, home: dict[str, str]
) -> None:
    workspace(tmp_path, "port = 1111\nhost = 'localhost'\n[models]\nmain = 1\n[colours]\n")
    user = Path(home["HOME"]) / ".config" / "remit"
    user.mkdir(parents=True)
    (user / "config.toml").write_text("port = 2222")
    assert config.load(tmp_path, env=home).get("port") == 2222
    found = config.load(tmp_path, {"token": "t"}, home | {"REMIT_PORT": "3333", "REMIT_HOST": ""})
    assert {name: found.values[name] for name in ("port", "host", "token")} == {
        "port": config.Setting(3333, "REMIT_PORT"),
        "host": config.Setting("localhost", str(tmp_path / ".remit" / "config.toml")),
        "token": config.Setting("t", "option"),
    }
    path = tmp_path / ".remit" / "config.toml"
    assert (found.unknown, found.models.ignored) == (
        (f"colours in {path}",),
        (f"models.main in {path}, which is not a table",),
    )


def test_a_workspace_cannot_say_where_the_token_goes(tmp_path: Path, home: dict[str, str]) -> None:
    found = config.load(
        workspace(tmp_path, "url = 'http://evil.example'\ntoken = 't'\n"),
        env=home | {"REMIT_TOKEN": "mine"},
    )
    assert found.get("url") is None
    assert found.get("token") == "mine"
    assert len(found.unknown) == 2


def test_without_a_workspace_the_error_says_how_to_make_one(
    tmp_path: Path, home: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFound, match="remit init"):
        _ = config.load(env=home).database_url


def test_tables_of_agents_are_merged_value_by_value(tmp_path: Path, home: dict[str, str]) -> None:
    workspace(
        tmp_path,
        "[agents.general]\ntools = ['Read']\nmodel = 'light'\n[agents.plan]\ndisabled = true\n",
    )
    user = Path(home["HOME"]) / ".config" / "remit"
    user.mkdir(parents=True)
    (user / "config.toml").write_text("[agents.general]\nmodel = 'main'\n")
    found = config.load(tmp_path, {"agents": "x"}, home | {"REMIT_AGENTS": "x"})
    assert found.get("agents") == {
        "general": {"tools": ["Read"], "model": "main"},
        "plan": {"disabled": True},
    }
    assert config.KNOWN["agents"][0] == {}


@pytest.mark.parametrize(
    "text",
    [
        "agents = 1",
        "[agents]\na = 1",
        "[agents.a]\ntools = 'Read'",
        "[agents.a]\ntools = [1]",
        "[agents.a]\ncolour = 'red'",
    ],
)
def test_a_table_of_agents_that_is_not_understood_names_the_file(
    tmp_path: Path, home: dict[str, str], text: str
) -> None:
    with pytest.raises(InvalidParam, match=r"agents.*config\.toml"):
        config.load(workspace(tmp_path, text), env=home)


@pytest.mark.parametrize(
    ("text", "field"),
    [("port = 'x'", "port"), ("port = 70000", "port"), ("host = 1", "host"), ("= broken", "TOML")],
)
def test_a_bad_value_names_the_file(
    tmp_path: Path, home: dict[str, str], text: str, field: str
) -> None:
    with pytest.raises(InvalidParam, match=field) as refused:
        config.load(workspace(tmp_path, text), env=home)
    assert "config.toml" in str(refused.value)


@pytest.mark.parametrize("value", ["-3", "true", "1_000_001", "2.5"])
def test_a_number_of_an_agent_is_within_its_range(
    tmp_path: Path, home: dict[str, str], value: str
) -> None:
    with pytest.raises(
        InvalidParam,
        match=r"agents\.general\.concurrency in .*config\.toml: is .*; expected .*0 for no limit",
    ) as refused:
        config.load(workspace(tmp_path, f"[agents.general]\nconcurrency = {value}"), env=home)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            (name, value)
            for name in (
                "port",
                "concurrency",
                "heartbeat_seconds",
                "fleet_concurrency",
                "tool_calls",
            )
            for value in ("-1", "inf", "nan")
        ),
        *((name, "0") for name in ("concurrency", "heartbeat_seconds", "tool_calls")),
        *((name, "1.5") for name in ("port", "concurrency", "fleet_concurrency", "tool_calls")),
    ],
)
def test_a_number_is_within_its_range(
    tmp_path: Path, home: dict[str, str], name: str, value: str
) -> None:
    with pytest.raises(
        InvalidParam, match=rf"{name} in .*config\.toml: is {value}; expected a .*number"
    ):
        config.load(workspace(tmp_path, f"{name} = {value}"), env=home)
    with pytest.raises(InvalidParam, match=rf"{name} in {config.variable_of(name)}: is '{value}'"):
        config.load(tmp_path / "elsewhere", env=home | {config.variable_of(name): value})


def test_the_limit_of_an_agent_is_found_however_its_name_is_written(
    tmp_path: Path, home: dict[str, str]
) -> None:
    found = config.load(workspace(tmp_path, '[agents."Code Reviewer"]\nconcurrency = 2'), env=home)
    assert options_of(found).agent_limits == {"code-reviewer": 2}


def test_the_token_is_made_once_and_is_its_owners_alone(
    tmp_path: Path, home: dict[str, str]
) -> None:
    settings = config.load(workspace(tmp_path), env=home)
    made = config.token(settings)
    assert len(made) >= 32
    assert config.token(settings) == made
    assert (tmp_path / ".remit" / "token").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / ".remit").stat().st_mode & 0o777 == 0o700
    assert config.token(config.load(tmp_path, env=home | {"REMIT_TOKEN": "mine"})) == "mine"


def test_a_workspace_is_made_once(tmp_path: Path) -> None:
    assert config.make_workspace(tmp_path) is True
    assert config.make_workspace(tmp_path) is False
    assert (tmp_path / ".remit" / "config.toml").read_text().startswith("#")


IN_FILE = """
concurrency = 3
heartbeat_seconds = 4
fleet_concurrency = 5
[scheduler]
cron = "*/30 8-18 * * 1-5"
[agents.general]
concurrency = 2
"""


def test_the_worker_uses_the_configured_settings(tmp_path: Path, home: dict[str, str]) -> None:
    here = workspace(tmp_path / "here", IN_FILE)
    said = WorkerOptions(
        concurrency=3,
        heartbeat_seconds=4,
        fleet_limit=5,
        agent_limits={"general": 2},
        cron="*/30 8-18 * * 1-5",
    )
    assert options_of(config.load(here, env=home)) == said
    env = {
        "REMIT_CONCURRENCY": "6",
        "REMIT_FLEET_CONCURRENCY": "7",
        "REMIT_HEARTBEAT_SECONDS": "8",
        "REMIT_SCHEDULER_CRON": "0 7 * * *",
    }
    chosen = replace(
        said, agents=("plan",), concurrency=6, heartbeat_seconds=8, fleet_limit=7, cron="0 7 * * *"
    )
    assert options_of(config.load(here, env=home | env), ["plan"]) == chosen
    assert options_of(config.load(workspace(tmp_path / "new"), env=home)) == WorkerOptions(), (
        "both know the same defaults"
    )
