"""The model for tests of others: agents work with it as with any, and it leaves no trace."""

import os
from pathlib import Path

import pytest

from remit import Remit
from remit.testing import Answer, Asked, scripted_model


def rule(asked: Asked) -> Answer:
    if not asked.results:
        assert {"Read", "ask_user"} <= set(asked.tools)
        return [("Read", {"file_path": "stock.txt"}), ("Read", {"file_path": "none.txt"})]
    assert (asked.turn, asked.objective) == (1, "What is in stock?")
    return f"In stock: {asked.results[0]}"


@pytest.mark.parametrize(("agent", "tier"), [("general", "main"), ("explore", "light")])
async def test_agents_of_both_tiers_work_with_it(tmp_path: Path, agent: str, tier: str) -> None:
    (tmp_path / "stock.txt").write_text("3 apples")
    async with scripted_model(rule), Remit.open(tmp_path) as remit:
        found = await remit.task(objective="What is in stock?", subagent_type=agent)
    assert "3 apples" in found.text
    assert found.model_used == f"{tier} (scripted)"


async def test_a_rule_that_raises_refuses_the_request(tmp_path: Path) -> None:
    async with scripted_model(rule), Remit.open(tmp_path) as remit:
        found = await remit.task(objective="Something else", tools={"deny": ["Read"]})
    assert found.status == "failed"
    assert "AssertionError" in found.text


async def test_earlier_settings_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_MODEL_ID", "mine")
    monkeypatch.delenv("LIGHT_LLM_API_KEY", raising=False)
    async with scripted_model(rule) as url:
        assert (os.environ["LLM_MODEL_ID"], os.environ["LIGHT_LLM_BASE_URL"]) == ("scripted", url)
    assert (os.environ["LLM_MODEL_ID"], os.environ.get("LIGHT_LLM_API_KEY")) == ("mine", None)
