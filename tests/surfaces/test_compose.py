"""The compose file says only what remit understands."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from remit import config
from remit.domain.llm.selection import TIERS
from remit.surfaces.cli.parser import parse

FILE = Path(__file__).resolve().parents[2] / "compose.yaml"


@pytest.fixture
def services() -> dict[str, dict[str, Any]]:
    """What is started, without the database: that is not ours."""
    found: dict[str, dict[str, Any]] = import_module("yaml").safe_load(FILE.read_text())["services"]
    return {name: service for name, service in found.items() if name != "database"}


def test_a_server_and_workers_are_started_with_commands_that_there_are(
    services: dict[str, dict[str, Any]],
) -> None:
    started = {name: parse(service["command"]) for name, service in services.items()}
    assert {name: command.path for name, (command, _) in started.items()} == {
        "server": "serve",
        "worker": "worker",
    }
    assert started["server"][1]["no_worker"] is True, "so that workers can be as many as are wanted"


def test_their_settings_are_settings(services: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    for service in services.values():
        given: dict[str, str] = service["environment"]
        settings = config.load(
            str(tmp_path),
            env={"HOME": str(tmp_path), "REMIT_DATABASE_URL": given["REMIT_DATABASE_URL"]},
        )
        assert settings.database_url == "postgresql://remit:remit@database/remit"
        known = {f"REMIT_{name.upper().replace('.', '_')}" for name in settings.values}
        models = {
            f"{tier}_{part}"
            for tier in TIERS.values()
            for part in ("MODEL_ID", "API_KEY", "BASE_URL")
        }
        assert set(given) <= known | models
        assert models <= set(given)
