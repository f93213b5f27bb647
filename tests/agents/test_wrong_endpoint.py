"""A model endpoint that is none, as somebody meets it who has set up remit a minute ago."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from remit import Remit
from remit.adapters.models import endpoint
from tests.modelserver import ModelServer, Raw, Reply, Status

JSON = "application/json"
WRONG: dict[str, tuple[Reply | None, str, int]] = {
    "nobody": (None, "refused: {url} cannot be reached", 0),
    "half": (Raw((b'{"choices": [',), content_type=JSON), "bad_response: {url} sent JSON that is cut short or makes no sense", 10),
    "empty": (Raw((), content_type=JSON), "bad_response: {url} gave no answer", 10),
    "broken": (Status(500, "oops"), "overloaded: {url} answered 500: oops", 10),
    "page": (Raw((b"<html>Hello",), content_type="text/html"), "rejected_request: {url}/v1/chat/completions answered with a web page", 1),
    "gone": (Status(404, "no such page"), "rejected_request: {url}/v1/chat/completions answered 404: no such page", 1),
}
"""What is wrong, what the end must name, and how often it is asked."""


async def test_the_end_names_what_is_wrong_and_asks_no_more_than_it_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    """With nothing set but the address: three attempts, of which the last would come when the circuit is open."""
    monkeypatch.setattr(endpoint, "FIRST_BACKOFF", 0.001)
    monkeypatch.setenv("LLM_MODEL_ID", "m")
    servers = {name: ModelServer("openai") for name in WRONG}
    work: list[Any] = []
    async with AsyncExitStack() as stack:
        for name, (reply, _, _) in WRONG.items():
            await stack.enter_async_context(servers[name].running())
            if reply is None:
                servers[name].url = f"http://127.0.0.1:{unused_tcp_port}"
            else:
                servers[name].replies = [reply]
            monkeypatch.setenv("LLM_BASE_URL", f"{servers[name].url}/v1")
            remit = await stack.enter_async_context(Remit.open(tmp_path / name))
            work.append(remit.task("Go"))
        found = dict(zip(WRONG, await asyncio.gather(*work), strict=True))
    for name, (_, cause, asked) in WRONG.items():
        url = servers[name].url
        told = f"The model main: m at {url}/v1 gave no answer: {cause.format(url=url)}"
        assert found[name]["error"]["message"].startswith(told), found[name]["error"]
        assert (found[name]["data"]["model_used"], found[name]["stats"]["model"]) == (None, None), "none has answered"
        assert (found[name]["error"]["code"], len(servers[name].asked)) == ("INTERNAL_ERROR", asked)
