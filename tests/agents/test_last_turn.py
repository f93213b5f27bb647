"""The one last turn of a task that has used up what it may use, at endpoints that are as strict
as the real ones.
"""

from pathlib import Path

import pytest

from tests.agents.delegating import delegated
from tests.agents.endpoint import Body, RuledServer, answers, may_call, wants
from tests.modelserver import Dialect, Say


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
@pytest.mark.parametrize("obeys", [True, False])
async def test_an_agent_that_used_tools_can_report(
    durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dialect: Dialect, obeys: bool
) -> None:
    """The tools are the same as ever, and none may be called: what a model calls all the same is
    not done, and its words are the report.
    """

    async def rule(body: Body) -> Say:
        if may_call(body):
            return Say(calls=(wants(f"c{answers(body)}", "LS", path="."),))
        return Say(
            ("Half of it.",),
            () if obeys else (wants("w", "Write", file_path="late.txt", content="late"),),
        )

    async with RuledServer(rule, dialect).running() as server:
        found = await delegated(
            server,
            durable_url,
            tmp_path,
            monkeypatch,
            tools=["LS", "Write"],
            limits={"max_turns": 2},
        )
    bodies = [asked.body for asked in server.asked]
    assert [may_call(body) for body in bodies] == [True, True, False]
    assert all(body["tools"] == bodies[0]["tools"] for body in bodies)
    assert (found["error"]["code"], found["data"]["result"]) == (
        "LIMIT_EXCEEDED",
        "The limit of 2 turns is reached. Its report: Half of it.",
    )
    assert (found["data"]["tool_summary"], (tmp_path / "late.txt").exists()) == (
        [{"tool": "LS", "count": 2}],
        False,
    )
