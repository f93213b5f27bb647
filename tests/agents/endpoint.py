"""A model endpoint on this machine that answers by rule, and remembers what it was asked."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.modelserver import Dialect, ModelServer, Reply, Status

Body = dict[str, Any]
Answer = Callable[[Body], Awaitable[Reply]]


class RuledServer(ModelServer):
    """Its answer follows from the request."""

    def __init__(self, rule: Answer, dialect: Dialect = "openai") -> None:
        super().__init__(dialect)
        self._rule = rule

    async def _choose(self, body: Body) -> Reply:
        said = asyncio.ensure_future(self._rule(body))
        over = asyncio.ensure_future(self._over.wait())
        await asyncio.wait({said, over}, return_when=asyncio.FIRST_COMPLETED)
        if not said.done():
            said.cancel()
            return Status(503)
        over.cancel()
        return said.result()


def wants(call_id: str, name: str, **arguments: Any) -> tuple[str, str, tuple[str, ...]]:
    """A call as the endpoint makes it."""
    return (call_id, name, (json.dumps(arguments),))


def objective(body: Body) -> str:
    """The objective in the first message."""
    return str(
        next(message["content"] for message in body["messages"] if message["role"] == "user")
    )


def answers(body: Body) -> int:
    """How often the model has answered in a conversation."""
    return sum(message["role"] == "assistant" for message in body["messages"])


def may_call(body: Body) -> bool:
    """Whether the model may call tools in its answer."""
    return "tool_choice" not in body


def tool_results(body: Body) -> list[str]:
    """Everything that tools have answered in a conversation."""
    return [str(message["content"]) for message in body["messages"] if message["role"] == "tool"]


def write_config(lines: list[str], home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the main model into the configuration of the user."""
    config = home / ".config" / "remit"
    config.mkdir(parents=True)
    (config / "config.toml").write_text("\n".join(["[models.main]", *lines, ""]))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
