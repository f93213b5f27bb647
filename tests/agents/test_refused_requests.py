"""What endpoints refuse in their public wordings: learned, told to the model, or explained."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from remit import Remit, TaskResult
from tests.agents.endpoint import (
    Body,
    RuledServer,
    answers,
    may_call,
    tool_results,
    wants,
    write_config,
)
from tests.modelserver import Reply, Say, Status

LOOK = Say((), (wants("c1", "LS", path="."),))
DONE = Say(("Done.",))
ALLOWED = 4
"""How many tools a model may call at once."""


def error(message: str, status: int = 400, **more: Any) -> Status:
    return Status(status, {"error": {"message": message, "type": "invalid", **more}})


def looks_once(body: Body) -> Reply:
    return DONE if answers(body) else LOOK


class Served(NamedTuple):
    """A result, and the requests that the endpoint got."""

    result: TaskResult[Any]
    asked: list[Body]


async def served(
    url: str, place: Path, monkeypatch: pytest.MonkeyPatch, answer: Callable[[Body], Reply]
) -> Served:
    """Run a task whose model answers by a rule."""

    async def rule(body: Body) -> Reply:
        return answer(body)

    async with RuledServer(rule).running() as server:
        base = f'base_url = "{server.url}/v1"'
        write_config(['model = "m"', base, 'api_key = "none"'], place / "home", monkeypatch)
        monkeypatch.setenv("REMIT_TOOL_CALLS", str(ALLOWED))
        async with Remit.open(place, url) as remit:
            result = await remit.task("Look", limits={"max_attempts": 1, "max_turns": 20})
    return Served(result, [asked.body for asked in server.asked])


def has_system(body: Body) -> bool:
    return bool(body["messages"][0]["role"] == "system")


def has_null(body: Body) -> bool:
    return any(message["content"] is None for message in body["messages"])


ROLE = "Unsupported value: 'messages[0].role' does not support 'system' with this model."
LEARNED: dict[str, tuple[Callable[[Body], bool], Status]] = {
    "OpenAI: system": (
        has_system,
        error(ROLE, param="messages[0].role", code="unsupported_value"),
    ),
    "Gemini: system": (has_system, error("Developer instruction is not enabled for models/g-3")),
    "Azure: null": (
        has_null,
        error("Invalid value for 'content': expected a string, got null."),
    ),
    "LM Studio: null": (
        has_null,
        error("Invalid 'content': 'content' field must be a string or an array of objects."),
    ),
    "Groq: null": (
        has_null,
        error(
            "'messages.2' : for 'role:assistant' the following must be satisfied"
            "[('messages.2.content' : value must be a string)]"
        ),
    ),
    "Rust: null": (has_null, error("messages[2]: invalid type: null, expected a string")),
}


@pytest.mark.parametrize("name", LEARNED)
async def test_a_refused_form_is_sent_in_another_one(
    durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    is_refused, refusal = LEARNED[name]

    def answer(body: Body) -> Reply:
        return refusal if is_refused(body) else looks_once(body)

    found = await served(durable_url, tmp_path, monkeypatch, answer)
    assert found.result.text == "Done.", found.result
    assert len(list(filter(is_refused, found.asked))) == 1
    assert "You are general" in json.dumps(found.asked[-1]["messages"][0])


GROQ = "Failed to call a function. Please adjust your prompt. See 'failed_generation' for details."
GENERATION = '<function=LS>{"path": </function>'
MISTAKE = error(GROQ, code="tool_use_failed", failed_generation=GENERATION)
TOO_MANY = Say((), tuple(wants(f"c{n}", "LS", path=".") for n in range(ALLOWED + 1)))
MISTAKES: dict[str, tuple[Reply, str]] = {
    "refused by Groq": (MISTAKE, "Failed to call a function"),
    "too many": (TOO_MANY, f"more than {ALLOWED} tools at once"),
}


@pytest.mark.parametrize("name", MISTAKES)
async def test_a_model_is_told_of_its_mistake_and_goes_on(
    durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    mistake, told = MISTAKES[name]

    def answer(body: Body) -> Reply:
        return (mistake, LOOK, DONE)[answers(body)]

    found = await served(durable_url, tmp_path, monkeypatch, answer)
    assert found.result.text == "Done.", found.result
    assert len(found.asked) == 3
    assert told in tool_results(found.asked[1])[0]


@pytest.mark.parametrize("name", MISTAKES)
async def test_a_model_that_repeats_its_mistake_fails_soon(
    durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    mistake, told = MISTAKES[name]
    found = await served(durable_url, tmp_path, monkeypatch, lambda _: mistake)
    assert found.result.status == "failed"
    assert found.result.error is not None
    assert told in found.result.error.message
    assert ("REMIT_TOOL_CALLS" in found.result.error.message) == (name == "too many")
    assert len(found.asked) == 4


async def test_a_refused_call_in_the_last_turn_is_no_report(
    durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = error("Tool choice is none, but model called a tool", code="tool_use_failed")

    def answer(body: Body) -> Reply:
        return LOOK if may_call(body) else none

    found = await served(durable_url, tmp_path, monkeypatch, answer)
    assert found.result.error is not None
    assert "20 turns" in found.result.error.message


UNABLE: dict[str, tuple[Status, str]] = {
    "OpenRouter": (error("No endpoints found that support tool use.", 404), "--jinja"),
    "Ollama": (error("registry.ollama.ai/library/gemma3:4b does not support tools"), "--jinja"),
    "vLLM": (
        error(
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
        ),
        "does not support tool calls",
    ),
    "llama.cpp": (
        error("tools param requires --jinja flag", 500),
        "does not support tool calls",
    ),
    "OpenAI": (
        error("Your organization must be verified to stream this model.", param="stream"),
        "Set stream = false in [models.main] (LLM_STREAM=false)",
    ),
}


@pytest.mark.parametrize("name", UNABLE)
async def test_what_an_endpoint_cannot_do_names_the_setting(
    durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    refusal, told = UNABLE[name]
    found = await served(durable_url, tmp_path, monkeypatch, lambda _: refusal)
    assert found.result.status == "failed"
    assert found.result.error is not None
    assert told in found.result.error.message
    assert "cannot be used: " in found.result.error.message
    assert len(found.asked) == 1
