"""The reasoning effort of a model: set for a task, an agent or a tier, in this order."""

import json
from pathlib import Path
from typing import Any

import pytest

from remit import Effort, Remit
from remit.app.agents.registry import Agent
from remit.domain.llm.messages import Request, Response
from remit.errors import InvalidParam
from tests.agents.endpoint import Body, RuledServer, objective, write_config
from tests.agents.stage import calls, results, says, stage
from tests.modelserver import Dialect, Reply, Say, Status

THINKER = Agent(id="thinker", description="Thinks.", effort="max")
SILENT = Agent(id="silent", description="Sends nothing.", effort="none")


def efforts(asked: list[Request]) -> dict[str, str | None]:
    return {request.agent: request.settings.effort for request in asked}


async def test_sub_agents_think_little_and_primary_agents_as_their_provider_likes(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, lambda _: says("Done."), agents=[THINKER, SILENT]) as at:
        for owner in ("general", "build", "thinker", "silent"):
            await at.run(owner=owner)
        assert efforts(at.script.asked) == {
            "general": "low",
            "build": None,
            "thinker": "high",
            "silent": "none",
        }


async def test_the_task_wins_over_its_agent_wherever_it_is_made(
    any_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Response:
        if request.agent != "build" or results(request):
            return says("Done.")
        item = {"objective": "Two", "subagent_type": "silent", "effort": "medium"}
        return calls(
            ("task", {"objective": "One", "subagent_type": "thinker", "effort": "low"}),
            ("task_parallel", {"tasks": [item]}),
            (
                "create_subtask",
                {
                    "task_id": "1",
                    "title": "Three",
                    "owner": "explore",
                    "effort": "none",
                    "wait": "block",
                },
            ),
        )

    async with stage(any_url, tmp_path, rule, agents=[THINKER, SILENT]) as at:
        await at.run(owner="build", effort="high")
        assert efforts(at.script.asked) == {
            "build": "high",
            "thinker": "low",
            "silent": "medium",
            "explore": "none",
        }


async def test_it_is_shown_kept_by_a_rerun_and_checked(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, lambda _: says("Done.")) as at:
        made = (await at.call("create_task", title="Think", owner="general", effort="high"))["task"]
        assert made["effort"] == "high"
        await at.team.ended(made["id"])
        again = (await at.call("rerun_task", task_id=made["id"]))["task"]
        assert again["effort"] == "high"
        plain = (await at.call("create_task", title="Plain"))["task"]
        assert plain["effort"] is None
        with pytest.raises(InvalidParam, match="effort"):
            await at.call("create_task", title="Think", effort="huge")
        with pytest.raises(InvalidParam, match="effort"):
            await at.call("task", objective="Think", effort="huge")
        described = {"description": "x", "prompt": "x", "subagent_type": "general"}
        with pytest.raises(InvalidParam, match="effort"):
            await at.call("Task", **described, effort="low")


USER = """\
[models.main]
model = "m"
base_url = "{url}/v1"
api_key = "none"
effort = "{effort}"

[agents.explore]
effort = "high"
"""


EFFORTS: tuple[tuple[str, Effort | None], ...] = (
    ("general", None),
    ("explore", None),
    ("plan", "low"),
)


@pytest.mark.parametrize(("effort", "sent"), [("medium", "medium"), ("none", None)])
async def test_tier_and_agent_settings_reach_the_wire(
    durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, effort: str, sent: Any
) -> None:
    async def rule(_body: Body) -> Say:
        return Say(("Done.",))

    async with RuledServer(rule).running() as server:
        home = tmp_path / "home"
        (home / ".config" / "remit").mkdir(parents=True)
        (home / ".config" / "remit" / "config.toml").write_text(
            USER.format(url=server.url, effort=effort)
        )
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
        (tmp_path / "work").mkdir()
        async with Remit.open(tmp_path / "work", durable_url) as remit:
            for agent, more in EFFORTS:
                await remit.task(f"Ask {agent}", subagent_type=agent, effort=more)
    found = {objective(asked.body): asked.body.get("reasoning_effort") for asked in server.asked}
    assert found == {"Ask general": sent, "Ask explore": "high", "Ask plan": "low"}
    assert "effort" not in json.dumps(server.asked[0].body) or sent


NOT_FOR_THIS_MODEL = (
    'think value "low" is not supported for this model',
    'invalid think value: "low" (must be true, false)',
    'invalid reasoning value: \'low\' (must be "high", "medium", "low", or "none")',
)
"""How Ollama refuses the effort of a model without levels of effort; no parameter is named."""


@pytest.mark.parametrize("said", NOT_FOR_THIS_MODEL)
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_sub_agents_work_on_models_without_levels_of_effort(
    durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: Any, said: str
) -> None:
    async def rule(body: Body) -> Reply:
        if body.keys() & {"reasoning_effort", "reasoning"}:
            error = {"message": said, "type": "invalid_request_error", "param": None}
            return Status(400, {"error": error})
        return Say(("Done.",))

    dialects: dict[str, Dialect] = {"chat": "openai", "responses": "responses"}
    async with RuledServer(rule, dialects[api]).running() as server:
        lines = ['model = "m"', f'base_url = "{server.url}/v1"', f'api = "{api}"', 'api_key = "no"']
        write_config(lines, tmp_path / "home", monkeypatch)
        async with Remit.open(tmp_path, durable_url) as remit:
            found = [await remit.task("Look") for _ in range(2)]
    assert [each.text for each in found] == ["Done."] * 2, found
    assert len(server.asked) == 3


async def test_a_delegation_of_two_items_keeps_each_effort(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, lambda _: says("Done.")) as at:
        items = [{"objective": "A", "effort": "high"}, {"objective": "B"}]
        await at.call("task_parallel", tasks=items)
        assert sorted(str(request.settings.effort) for request in at.script.asked) == [
            "high",
            "low",
        ]
