"""Wrong model endpoints, as a new user of remit sets them up."""

import asyncio
import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from remit import Remit
from remit.adapters.models.wires import endpoint
from tests.modelserver import ModelServer, Raw, Reply, Status

JSON = "application/json"
ADVICE = (
    " Check that the address is right (LLM_BASE_URL, or base_url in the config file), that a server"
    " listens there, and that this machine can reach it."
)
WRONG: dict[str, tuple[Reply | None, str, int]] = {
    "nobody": (None, "cannot be used: it cannot be reached. {url} refused the connection", 0),
    "half": (
        Raw((b'{"choices": [',), content_type=JSON),
        "sent an unusable answer: {url} sent invalid or incomplete JSON",
        10,
    ),
    "empty": (
        Raw((), content_type=JSON),
        "sent an unusable answer: {url} gave no answer",
        10,
    ),
    "broken": (
        Status(500, "oops"),
        "is overloaded or has an internal error: {url} answered 500: oops",
        10,
    ),
    "page": (
        Raw((b"<html>Hello",), content_type="text/html"),
        "rejected the request: {url}/v1/chat/completions answered with a web page",
        1,
    ),
}
"""What is wrong, what the end must name, and how often it is asked."""


async def test_the_end_names_what_is_wrong_and_asks_no_more_than_it_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    """With nothing set but the address: three attempts, of which the last would come when the
    circuit is open.
    """
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
            (tmp_path / name).mkdir()
            remit = await stack.enter_async_context(Remit.open(tmp_path / name))
            work.append(remit.task("Go"))
        found = {
            name: result.envelope()
            for name, result in zip(WRONG, await asyncio.gather(*work), strict=True)
        }
    for name, (_, cause, asked) in WRONG.items():
        url = servers[name].url
        unreachable = name == "nobody"
        told = f"The model main: m at {url}/v1 {cause.format(url=url)}"
        error = found[name]["error"]
        assert error["message"].startswith(told), error
        assert error["message"].endswith(ADVICE) == unreachable
        assert re.search(r"\. [A-Z][^.]+\.$", error["message"]), "it ends with what to do"
        assert error.get("details") == ({"cause": "model_unreachable"} if unreachable else None)
        assert (found[name]["data"]["model_used"], found[name]["stats"]["model"]) == (
            None,
            None,
        ), "none has answered"
        code = "UNAVAILABLE" if unreachable else "INTERNAL_ERROR"
        assert (error["code"], len(servers[name].asked)) == (code, asked)


@pytest.mark.parametrize(
    ("address", "told"),
    [
        (
            "http://nowhere.invalid/v1",
            "http://nowhere.invalid has a host name that cannot be resolved",
        ),
        ("http://127.0.0.1:{closed}/v1", "http://127.0.0.1:{closed} refused the connection"),
        ("https://127.0.0.1:{plain}/v1", "https://127.0.0.1:{plain} cannot be reached"),
    ],
)
async def test_a_model_that_cannot_be_reached_is_tried_again_and_has_its_own_error(
    tmp_path: Path,
    durable_url: str,
    monkeypatch: pytest.MonkeyPatch,
    unused_tcp_port: int,
    address: str,
    told: str,
) -> None:
    monkeypatch.setattr(endpoint, "FIRST_BACKOFF", 0.001)
    async with ModelServer("openai").running() as server:
        ports = {"closed": unused_tcp_port, "plain": server.url.rpartition(":")[2]}
        monkeypatch.setenv("LLM_MODEL_ID", "m")
        monkeypatch.setenv("LLM_BASE_URL", address.format(**ports))
        async with Remit.open(tmp_path, database_url=durable_url) as remit:
            found = await remit.task("Go")
            events = await remit.get_events(task_id=found.task_id)
    error = found.error
    assert error is not None
    assert (error.code, error.details) == ("UNAVAILABLE", {"cause": "model_unreachable"})
    assert told.format(**ports) in error.message
    assert error.message.endswith(ADVICE)
    assert "Error" not in error.message, "no names of classes"
    assert [event.type for event in events.events].count("RunStarted") > 1
