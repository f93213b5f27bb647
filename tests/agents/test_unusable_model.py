"""A model that cannot be used: the task fails once, says why, and says which setting to change."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remit import Remit
from tests.modelserver import Dialect, ModelServer, Raw, Say, Status, sse

KEY = "sk-wrong-0123456789abcdef0123456789"
REFUSED = {
    "error": {"type": "authentication_error", "message": f"Incorrect API key provided: {KEY}"}
}

NO_ACCESS = {
    "error": {"type": "permission_error", "message": f"The key {KEY} may not use this model."}
}


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No model and no user config."""
    for name in (
        "LLM_MODEL_ID",
        "LLM_API_KEY",
        "LLM_BASE_URL",
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "DEEPSEEK_API_KEY",
    ):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(f"LIGHT_{name}", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return iter([None])


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "notes.txt").write_text("Apples are red.\n")
    return tmp_path / "ws"


async def delegated(
    workspace: Path, url: str, **fields: Any
) -> tuple[dict[str, Any], list[dict[str, Any]], list[str]]:
    """The envelope of a delegation, its transcript, and the types of its events."""
    async with Remit.open(workspace, database_url=url) as remit:
        found = await remit.task("Go", **fields)
        transcript = await remit.get_transcript(task_id=found.task_id)
        events = await remit.get_events(task_id=found.task_id)
    return (
        found.envelope(),
        transcript.to_dict()["messages"],
        [event.type for event in events.events],
    )


def set_model(monkeypatch: pytest.MonkeyPatch, provider: str, server: ModelServer) -> None:
    """Use a provider at a server; pydantic-ai asks the ones that remit does not know."""
    owner = "OLLAMA" if provider == "ollama" else "LLM"
    monkeypatch.setenv("LLM_MODEL_ID", f"{provider}:m")
    monkeypatch.setenv(f"{owner}_API_KEY", KEY)
    monkeypatch.setenv(f"{owner}_BASE_URL", f"{server.url}/v1")


@pytest.mark.parametrize("provider", ["openai", "anthropic", "ollama"])
@pytest.mark.parametrize(
    ("status", "cause", "told"),
    [
        (401, "model_authentication", "did not accept the API key"),
        (403, "model_forbidden", "refused access"),
        (404, "model_not_found", "did not find the model"),
    ],
)
async def test_a_refused_model_names_the_setting_and_the_endpoint_and_never_the_key(
    workspace: Path,
    durable_url: str,
    monkeypatch: pytest.MonkeyPatch,
    provider: str,
    status: int,
    cause: str,
    told: str,
) -> None:
    async with ModelServer(
        "anthropic" if provider == "anthropic" else "openai"
    ).running() as server:
        server.replies = [Status(status, NO_ACCESS if status == 403 else REFUSED)]
        monkeypatch.setenv("LLM_MODEL_ID", f"{provider}:m")
        # Asked through pydantic-ai, which reads the variables of the provider.
        by_library = provider == "ollama"
        monkeypatch.setenv("OLLAMA_API_KEY" if by_library else "LLM_API_KEY", KEY)
        monkeypatch.setenv("OLLAMA_BASE_URL" if by_library else "LLM_BASE_URL", f"{server.url}/v1")
        found, messages, events = await delegated(workspace, durable_url)
        assert len(server.asked) == 1, "nothing is tried again"
    error = found["error"]
    assert (found["data"]["status"], error["code"], error["details"]) == (
        "failed",
        "UNAVAILABLE",
        {"cause": cause},
    )
    assert told in error["message"]
    assert ("ollama:m" if by_library else server.url) in error["message"]
    setting = "LLM_MODEL_ID" if status == 404 else "LLM_API_KEY"
    assert setting in error["message"] or (by_library and status != 404)
    assert KEY not in json.dumps([found, messages])
    assert events[-2:] == ["RunFailed", "TaskFailed"]
    assert events.count("RunStarted") == 1


@pytest.mark.parametrize("provider", ["openai", "anthropic", "ollama"])
@pytest.mark.parametrize(
    "refused",
    [
        {
            "error": {
                "type": "invalid_request_error",
                "code": "invalid_api_key",
                "message": "Incorrect API key provided.",
            }
        },
        {"error": {"code": "invalid_api_key", "message": "The request was refused."}},
        {
            "error": {
                "code": 400,
                "message": "API key not valid. Please pass a valid API key.",
                "status": "INVALID_ARGUMENT",
            }
        },
        [
            {
                "error": {
                    "code": 400,
                    "message": "API key not valid. Please pass a valid API key.",
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
        {
            "error": {
                "code": 400,
                "message": "API key expired. Please renew the API key.",
                "status": "INVALID_ARGUMENT",
            }
        },
        {
            "error": {
                "code": 400,
                "message": "API Key not found. Please pass a valid API key.",
                "status": "INVALID_ARGUMENT",
            }
        },
        {"error": {"message": "No API key provided"}},
        {"error": {"message": "Missing or invalid Authorization header."}},
        {"error": {"message": "Invalid API key"}},
    ],
    ids=[
        "OpenAI",
        "code",
        "Gemini",
        "Gemini list",
        "expired",
        "unknown",
        "none",
        "header",
        "words",
    ],
)
async def test_a_wrong_key_that_is_answered_with_400_is_explained_like_401(
    workspace: Path, durable_url: str, monkeypatch: pytest.MonkeyPatch, provider: str, refused: Any
) -> None:
    async with ModelServer(
        "anthropic" if provider == "anthropic" else "openai"
    ).running() as server:
        server.replies = [Status(400, refused)]
        set_model(monkeypatch, provider, server)
        found, _, events = await delegated(workspace, durable_url)
        assert len(server.asked) == 1, "nothing is tried again"
    error = found["error"]
    assert (error["code"], error["details"]) == ("UNAVAILABLE", {"cause": "model_authentication"})
    assert "did not accept the API key" in error["message"]
    assert (
        provider == "ollama"
        or "The key comes from LLM_API_KEY; set a valid one there." in error["message"]
    )
    assert events.count("RunStarted") == 1


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
@pytest.mark.parametrize("is_frame", [False, True])
async def test_a_wrong_key_that_is_answered_with_200_is_explained_like_401(
    workspace: Path,
    durable_url: str,
    monkeypatch: pytest.MonkeyPatch,
    provider: str,
    is_frame: bool,
) -> None:
    refused = {"code": 401, "msg": "no access"}
    data = sse(refused) if is_frame else json.dumps(refused).encode()
    async with ModelServer(
        "anthropic" if provider == "anthropic" else "openai"
    ).running() as server:
        server.replies = [Raw((data,))]
        set_model(monkeypatch, provider, server)
        found, _, events = await delegated(workspace, durable_url)
        assert len(server.asked) == 1, "nothing is tried again"
    error = found["error"]
    assert (error["code"], error["details"]) == ("UNAVAILABLE", {"cause": "model_authentication"})
    assert "did not accept the API key" in error["message"]
    assert "reported error 401: no access" in error["message"]
    assert "answered" not in error["message"], "the status of the answer was 200"
    assert "The key comes from LLM_API_KEY; set a valid one there." in error["message"]
    assert events.count("RunStarted") == 1


@pytest.mark.parametrize("provider", ["openai", "ollama"])
async def test_a_key_made_of_words_is_never_shown(
    workspace: Path, durable_url: str, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    key = "correcthorse"
    async with ModelServer("openai").running() as server:
        server.replies = [Status(401, {"error": {"message": f"The token {key} is not known."}})]
        monkeypatch.setenv("LLM_MODEL_ID", f"{provider}:m")
        by_library = provider == "ollama"
        monkeypatch.setenv("OLLAMA_API_KEY" if by_library else "LLM_API_KEY", key)
        monkeypatch.setenv("OLLAMA_BASE_URL" if by_library else "LLM_BASE_URL", f"{server.url}/v1")
        found, messages, _ = await delegated(workspace, durable_url)
    assert "The token [redacted] is not known" in found["error"]["message"]
    assert key not in json.dumps([found, messages])


@pytest.mark.parametrize("provider", ["openai", "anthropic", "ollama"])
@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "This API key has been revoked."),
        (403, "Your API key was reported as leaked. Please use another API key."),
        (500, "litellm.AuthenticationError: Incorrect API key provided."),
    ],
)
async def test_the_words_about_a_key_decide_before_the_status(
    workspace: Path,
    durable_url: str,
    monkeypatch: pytest.MonkeyPatch,
    provider: str,
    status: int,
    message: str,
) -> None:
    async with ModelServer(
        "anthropic" if provider == "anthropic" else "openai"
    ).running() as server:
        server.replies = [Status(status, {"error": {"message": message}})]
        set_model(monkeypatch, provider, server)
        found, _, events = await delegated(workspace, durable_url)
        assert len(server.asked) == 1, "nothing is tried again"
    error = found["error"]
    assert (error["code"], error["details"]) == ("UNAVAILABLE", {"cause": "model_authentication"})
    assert "did not accept the API key" in error["message"]
    assert events.count("RunStarted") == 1


async def test_a_key_from_a_config_file_is_named_by_its_place(
    workspace: Path, durable_url: str
) -> None:
    async with ModelServer("openai").running() as server:
        server.replies = [Status(401, REFUSED)]
        _write_config(
            f'[models.main]\nmodel = "m"\nbase_url = "{server.url}/v1"\napi_key = "{KEY}"\n'
        )
        found, _, _ = await delegated(workspace, durable_url)
    config = Path.home() / ".config" / "remit" / "config.toml"
    assert f"api_key of [models.main] in {config}" in found["error"]["message"]


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
async def test_a_missing_key_says_which_variable_to_set(
    workspace: Path, durable_url: str, monkeypatch: pytest.MonkeyPatch, dialect: Dialect
) -> None:
    async with ModelServer(dialect).running() as server:
        server.replies = [Status(401, REFUSED)]
        monkeypatch.setenv("LLM_MODEL_ID", f"{dialect}:m")
        monkeypatch.setenv("LLM_BASE_URL", f"{server.url}/v1")
        found, _, _ = await delegated(workspace, durable_url)
    error = found["error"]
    assert (error["code"], error["details"]) == ("UNAVAILABLE", {"cause": "model_authentication"})
    assert "No API key is set. Set LLM_API_KEY" in error["message"]


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("openai:m", "OPENAI_API_KEY"),
        ("anthropic:m", "ANTHROPIC_API_KEY"),
        ("deepseek:m", "DEEPSEEK_API_KEY"),
    ],
)
async def test_a_provider_without_a_key_says_which_variable_to_set(
    workspace: Path, durable_url: str, model: str, variable: str
) -> None:
    found, _, events = await delegated(workspace, durable_url, model=model)
    error = found["error"]
    assert (error["code"], error["details"]) == ("UNAVAILABLE", {"cause": "model_authentication"})
    assert variable in error["message"]
    assert events.count("RunStarted") == 1


@pytest.mark.parametrize("tool", ["Write", "Edit", "MultiEdit", "Bash"])
async def test_without_a_model_a_call_that_grants_a_writing_tool_fails(
    workspace: Path, durable_url: str, tool: str
) -> None:
    found, messages, events = await delegated(
        workspace, durable_url, tools={"allow": ["Read", "Grep", tool]}
    )
    _must_lack_a_model(found, events)
    assert tool in found["error"]["message"]
    assert messages[-1]["parts"][-1]["text"].endswith(found["error"]["message"])


async def test_without_a_model_a_required_file_fails(workspace: Path, durable_url: str) -> None:
    found, _, events = await delegated(
        workspace, durable_url, outputs=[{"name": "report", "kind": "file"}]
    )
    _must_lack_a_model(found, events)
    assert "report" in found["error"]["message"]


@pytest.mark.parametrize(
    ("name", "need"), [("report.md", "the output report.md"), ("output", "the required output")]
)
async def test_without_a_model_a_required_text_fails_and_says_how_to_set_one(
    name: str, need: str, workspace: Path, durable_url: str
) -> None:
    found, _, events = await delegated(workspace, durable_url, outputs=[name])
    _must_lack_a_model(found, events)
    message = found["error"]["message"]
    assert message.startswith(f"No model is configured, and this task needs {need}. ")


def _must_lack_a_model(found: dict[str, Any], events: list[str]) -> None:
    error = found["error"]
    assert (found["data"]["status"], error["code"], error["details"]) == (
        "failed",
        "UNAVAILABLE",
        {"cause": "model_unconfigured"},
    )
    assert error["message"].startswith("No model is configured")
    assert "LLM_MODEL_ID" in error["message"]
    assert events.count("RunStarted") == 1


WRITERS = '[agents.general]\ntools = ["Read", "Grep", "LS", "Glob", "Edit", "Write"]\n'


def _write_config(text: str) -> None:
    config = Path.home() / ".config" / "remit" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(text)


DEFAULTS = ["Read", "Grep", "LS", "Glob", "Edit", "Write"]
"""The tools of `general` under this config."""
LISTS = [
    DEFAULTS,
    [*DEFAULTS, "Task"],
    ["Task", *DEFAULTS],
    ["Task", "Edit"],
    ["Edit", "TodoWrite"],
]


@pytest.mark.parametrize("allowed", LISTS)
async def test_a_call_that_names_the_default_tools_grants_them(
    workspace: Path, durable_url: str, allowed: list[str]
) -> None:
    _write_config(WRITERS)
    found, _, events = await delegated(workspace, durable_url, tools={"allow": allowed})
    _must_lack_a_model(found, events)


@pytest.mark.parametrize("allowed", LISTS)
async def test_every_way_to_create_a_task_with_a_writing_tool_fails_without_a_model(
    workspace: Path, durable_url: str, allowed: list[str]
) -> None:
    _write_config(WRITERS)
    async with Remit.open(workspace, database_url=durable_url) as remit:
        parent = (
            await remit.create_task(
                title="Hold it", tools={"allow": [*DEFAULTS, "TodoWrite", "Task"]}
            )
        ).task_id
        created = (await remit.create_task(title="Mend it", owner="general", tools=allowed)).task_id
        part = (
            await remit.create_subtask(
                task_id=parent, title="Mend it", owner="general", tools=allowed
            )
        ).task_id
        several = await remit.task_parallel([{"objective": "Mend it", "tools": {"allow": allowed}}])
        ends = [
            await remit.task_output(task_id=task_id, wait_seconds=60) for task_id in (created, part)
        ]
    for found in (*several.results, *ends):
        error = found.error
        assert error is not None
        assert (error.code, error.details) == (
            "UNAVAILABLE",
            {"cause": "model_unconfigured"},
        ), found


@pytest.mark.parametrize("held", [["Read", "Grep", "Edit"], [*DEFAULTS, "Task"]])
async def test_a_subtask_that_inherits_writing_tools_still_searches(
    workspace: Path, durable_url: str, held: list[str]
) -> None:
    _write_config(WRITERS)
    async with Remit.open(workspace, database_url=durable_url) as remit:
        parent = (await remit.create_task(title="Hold it", tools={"allow": held})).task_id
        part = (
            await remit.create_subtask(task_id=parent, title="Find apples", owner="general")
        ).task_id
        found = await remit.task_output(task_id=part, wait_seconds=60)
    assert found.status == "completed", found.error


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tools": {"allow": ["Read", "Grep"]}},
        {"subagent_type": "explore", "tools": {"allow": ["Read", "Edit"]}},
        {"outputs": [{"name": "report", "kind": "file", "required": False}]},
    ],
)
async def test_without_a_model_reading_works_also_where_writing_is_a_default(
    workspace: Path, durable_url: str, fields: dict[str, Any]
) -> None:
    _write_config(WRITERS)
    found, _, _ = await delegated(workspace, durable_url, **fields)
    assert found["data"]["status"] == "completed", found["error"]


# How a transcript ends.


async def test_the_transcript_of_a_failed_task_ends_with_why(
    workspace: Path, durable_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ModelServer("openai").running() as server:
        server.replies = [Say(calls=(("c1", "LS", ('{"path": "."}',)),)), Status(401, REFUSED)]
        monkeypatch.setenv("LLM_MODEL_ID", "m")
        monkeypatch.setenv("LLM_BASE_URL", f"{server.url}/v1")
        found, messages, _ = await delegated(workspace, durable_url)
    last = messages[-1]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "system"]
    assert {name: type(last[name]) for name in ("role", "parts", "run_id", "turn", "at")} == {
        "role": str,
        "parts": list,
        "run_id": str,
        "turn": int,
        "at": str,
    }
    assert last["parts"] == [
        {
            "type": "task_result",
            "task_id": found["data"]["task_id"],
            "status": "failed",
            "state": "failed",
            "reason": "error",
            "text": f"[Task failed: error] {found['error']['message']}",
        }
    ]
    assert last["at"] >= messages[-2]["at"]


async def test_the_transcript_of_a_timeout_a_limit_and_a_cancel_ends_with_why(
    workspace: Path, durable_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        ModelServer("openai").running() as server,
        Remit.open(workspace, database_url=durable_url, worker=False) as remit,
    ):
        server.replies = [Say(calls=(("c1", "LS", ('{"path": "."}',)),))]
        monkeypatch.setenv("LLM_MODEL_ID", "m")
        monkeypatch.setenv("LLM_BASE_URL", f"{server.url}/v1")
        canceled = (await remit.create_task(title="Cancel me", owner="general")).task_id
        await remit.cancel_task(task_id=canceled, message="Not needed.")
        silent = (await remit.create_task(title="Cancel me too", owner="general")).task_id
        await remit.cancel_task(task_id=silent)
        async with Remit.open(workspace, database_url=durable_url) as worker:
            limited = (await worker.task("Go", limits={"max_turns": 1})).task_id
            server.replies = [Say(("Done.",))]
            done = (await worker.task("Go")).task_id
        ends = {
            task_id: await _end_of(remit, task_id) for task_id in (canceled, silent, limited, done)
        }
    assert ends[canceled]["parts"][0]["text"] == "[Task canceled: user] Not needed."
    assert (ends[canceled]["run_id"], ends[canceled]["turn"]) == ("", 0)
    assert ends[silent]["parts"][0]["text"] == "[Task canceled: user]"
    assert ends[limited]["parts"][0]["text"].startswith(
        "[Task failed: turns] The limit of 1 turn is reached."
    )
    assert ends[done]["role"] == "assistant", "a task that is done ends with what its agent said"


async def _end_of(remit: Remit, task_id: str) -> dict[str, Any]:
    return (await remit.get_transcript(task_id=task_id)).messages[-1].to_dict()


async def test_a_transcript_read_in_parts_reports_the_end_once(
    workspace: Path, durable_url: str
) -> None:
    async with Remit.open(workspace, database_url=durable_url) as remit:
        found = await remit.task("Go", tools={"allow": ["Edit"]})
        task_id = found.task_id
        first = await remit.get_transcript(task_id=task_id)
        rest = await remit.get_transcript(task_id=task_id, after=first.next or 0)
    assert (
        len([message for message in first.messages if message.parts[0].type == "task_result"]) == 1
    )
    assert rest.messages == ()
