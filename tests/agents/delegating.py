"""Models that delegate, tasks that are delegated, and their results."""

import json
from pathlib import Path
from typing import Any

import pytest

from remit import Remit
from remit.domain.llm.messages import Request
from remit.domain.task.task import Task
from tests.agents.stage import Rule, calls, results, says
from tests.modelserver import ModelServer


def boss(
    *wanted: tuple[str, dict[str, Any]],
    workers: Rule = lambda request: says(f"Did: {request.messages[0].text}"),
) -> Rule:
    """One that makes some calls and then repeats their results.

    Everybody else follows another rule.
    """

    def rule(request: Request) -> Any:
        if "Lead" not in request.messages[0].text:
            return workers(request)
        return says(json.dumps(results(request))) if results(request) else calls(*wanted)

    return rule


def told(task: Task) -> list[str]:
    """The results that the boss repeated."""
    found: list[str] = json.loads(task.final_message or "[]")
    return found


async def delegated(
    server: ModelServer, url: str, folder: Path, monkeypatch: pytest.MonkeyPatch, **fields: Any
) -> dict[str, Any]:
    """The result of a task whose model is a server."""
    base = f"{server.url}/v1" if server.dialect == "openai" else server.url
    for name, value in {
        "MODEL_ID": f"{server.dialect}:m",
        "API_KEY": "none",
        "BASE_URL": base,
    }.items():
        monkeypatch.setenv(f"LLM_{name}", value)
    async with Remit.open(folder, url) as remit:
        return await remit.call("task", objective="Go on for ever", **fields)
