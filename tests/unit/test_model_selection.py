"""Selection of the model, and of the key for each endpoint."""

import asyncio
from pathlib import Path

import pytest

from remit import config
from remit.adapters.models.offline import OfflineGateway
from remit.adapters.models.registry import ModelRegistry
from remit.adapters.models.wires.anthropic import AnthropicGateway
from remit.adapters.models.wires.endpoint import Endpoint
from remit.adapters.models.wires.openai_chat import OpenAIChatGateway
from remit.domain.llm.failures import ModelFailed, explain
from remit.domain.llm.selection import Choices, ModelChoice
from remit.errors import InvalidParam, Unavailable

KEY = "sk-canary-000111222333444555"


def choices(tmp_path: Path, workspace: str = "", user: str = "", **env: str) -> Choices:
    home = tmp_path / "home"
    (home / ".config" / "remit").mkdir(parents=True, exist_ok=True)
    (home / ".config" / "remit" / "config.toml").write_text(user)
    config.make_workspace(tmp_path)
    (tmp_path / ".remit" / "config.toml").write_text(workspace)
    found = config.load(tmp_path, env={"HOME": str(home), **env})
    assert KEY not in repr(found)
    return found.models


def test_nothing_set_is_offline(tmp_path: Path) -> None:
    desk = ModelRegistry(choices(tmp_path, LLM_MODEL_ID="", LIGHT_LLM_MODEL_ID=""))
    chosen = desk.resolve("light")
    assert isinstance(chosen.gateway, OfflineGateway)
    assert "no language model" in chosen.shown
    assert desk.resolve() == desk.resolve("offline") == chosen


async def test_variables_set_both_tiers(tmp_path: Path) -> None:
    found = choices(
        tmp_path,
        LLM_MODEL_ID="big",
        LLM_API_KEY=KEY,
        LLM_BASE_URL="http://h/v1",
        LIGHT_LLM_MODEL_ID="small",
    )
    main = ModelChoice(
        "big",
        "http://h/v1",
        KEY,
        None,
        "LLM_MODEL_ID",
        key_origin="LLM_API_KEY",
        key_setting="LLM_API_KEY",
    )
    light = main._replace(
        model="small", origin="LIGHT_LLM_MODEL_ID", key_setting="LIGHT_LLM_API_KEY"
    )
    assert found.tiers == {"main": main, "light": light}
    desk = ModelRegistry(found)
    first, second = desk.resolve("main"), desk.resolve("light")
    assert (first.model, second.model, first.gateway is second.gateway) == ("big", "small", True)
    assert first.shown == "main: big at http://h/v1"
    assert KEY not in f"{desk!r} {first!r} {desk.states()!r}"
    assert [state.name for state in desk.states()] == ["http://h/v1"]
    await desk.close()


def test_light_falls_back_to_main(tmp_path: Path) -> None:
    found = choices(
        tmp_path,
        user=(
            f'[models.main]\nmodel = "m"\nbase_url = "http://h"\napi_key = "{KEY}"\nprice_input ='
            " 1\nprice_output = 2.5\n"
        ),
    )
    assert found.tiers["light"] == found.tiers["main"]
    assert found.tiers["main"].prices == (1.0, 2.5, None)


def test_answers_come_in_pieces_unless_said_otherwise(tmp_path: Path) -> None:
    main, light = choices(tmp_path, LLM_MODEL_ID="m", LIGHT_LLM_MODEL_ID="l").tiers.values()
    assert (main.stream, light.stream) == (True, True)
    main, light = choices(
        tmp_path, LLM_MODEL_ID="m", LLM_STREAM="false", LIGHT_LLM_MODEL_ID="l"
    ).tiers.values()
    assert (main.stream, light.stream) == (False, False)
    main, light = choices(
        tmp_path, user='[models.main]\nmodel = "m"\n[models.light]\nmodel = "l"\nstream = false\n'
    ).tiers.values()
    assert (main.stream, light.stream) == (True, False)
    assert (
        "models.main.stream"
        in choices(tmp_path, user='[models.main]\nmodel = "m"\nstream = "no"\n').ignored[0]
    )


def test_how_many_call_at_once_is_set_for_each_tier(tmp_path: Path) -> None:
    main, light = choices(tmp_path, LLM_MODEL_ID="m", LIGHT_LLM_MODEL_ID="l").tiers.values()
    assert (main.concurrency, light.concurrency) == (None, None)
    main, light = choices(
        tmp_path,
        user='[models.main]\nmodel = "m"\nconcurrency = 7\n',
        LIGHT_LLM_MODEL_ID="l",
        LIGHT_LLM_CONCURRENCY="3",
    ).tiers.values()
    assert (main.concurrency, light.concurrency) == (7, 3)
    assert (
        choices(tmp_path, user='[models.main]\nmodel = "m"\nconcurrency = 7\n', LLM_CONCURRENCY="2")
        .tiers["main"]
        .concurrency
        == 2
    )


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "true", '"4"'])
def test_a_number_of_calls_that_is_none_is_ignored_and_said(tmp_path: Path, value: str) -> None:
    found = choices(
        tmp_path,
        user=f'[models.main]\nmodel = "m"\nconcurrency = {value}\n',
        LIGHT_LLM_MODEL_ID="l",
        LIGHT_LLM_CONCURRENCY=value,
    )
    assert [choice.concurrency for choice in found.tiers.values()] == [None, None]
    assert found.ignored[0].startswith("models.main.concurrency in ")
    assert found.ignored[1:] == ("LIGHT_LLM_CONCURRENCY: expected a whole number from 1",)


HERE, THERE = ModelChoice("m", "http://here/v1", concurrency=3), ModelChoice("l", "http://there/v1")


@pytest.mark.parametrize(
    ("light", "shared", "most"),
    [
        (THERE, False, (3, 99)),
        (THERE._replace(concurrency=5), False, (3, 5)),
        (HERE._replace(concurrency=2), True, (2, 2)),
        (HERE._replace(concurrency=None, base_url="http://here/v1/"), True, (3, 3)),
        (HERE._replace(concurrency=5, api_key="another"), True, (3, 3)),
        (ModelChoice("groq:l", concurrency=4), False, (3, 4)),
    ],
)
async def test_tiers_at_one_endpoint_share_the_smaller_number_of_calls(
    light: ModelChoice, shared: bool, most: tuple[int, int]
) -> None:
    desk = ModelRegistry(Choices({"main": HERE, "light": light}, {}), concurrent=99)
    # Each has one.
    endpoints: list[Endpoint] = [desk.resolve(tier).gateway.endpoint for tier in ("main", "light")]  # type: ignore[attr-defined]
    assert (endpoints[0] is endpoints[1]) is shared
    assert (
        tuple(
            [
                await _peak(endpoint, number + 1)
                for endpoint, number in zip(endpoints, most, strict=True)
            ]
        )
        == most
    )
    await desk.close()


async def _peak(endpoint: Endpoint, calls: int) -> int:
    """How many of so many calls are under way at once, where none ends before all others had
    their chance.
    """
    seen: list[int] = []

    async def attempt(_seconds: float | None) -> None:
        seen.append(endpoint.state().running)
        for _ in range(calls):
            await asyncio.sleep(0)

    await asyncio.gather(*[endpoint.call(attempt) for _ in range(calls)])
    return max(seen)


def test_settings_of_light_count_without_a_name(tmp_path: Path) -> None:
    main = '[models.main]\nmodel = "m"\nbase_url = "http://127.0.0.1:1/v1"\neffort = "high"\n'
    light = '[models.light]\neffort = "none"\nconcurrency = 2\n'
    found = choices(tmp_path, user=main + light, LLM_API_KEY="k")
    assert found.tiers["light"] == found.tiers["main"]._replace(effort="none", concurrency=2)
    assert (found.tiers["main"].effort, found.ignored) == ("high", ())


def test_an_address_of_light_without_a_name_is_ignored(tmp_path: Path) -> None:
    light = '[models.light]\nbase_url = "http://127.0.0.1:2/v1"\n'
    found = choices(tmp_path, user=light, LLM_MODEL_ID="m", LLM_API_KEY=KEY)
    assert found.tiers["light"] == found.tiers["main"]
    assert found.ignored == ("base_url of the light model, which has no name",)


def test_the_key_of_main_does_not_go_to_the_address_of_light(tmp_path: Path) -> None:
    found = choices(
        tmp_path,
        LLM_MODEL_ID="m",
        LLM_API_KEY=KEY,
        LIGHT_LLM_MODEL_ID="l",
        LIGHT_LLM_BASE_URL="http://localhost:11434/v1",
    )
    assert found.tiers["light"].api_key == ""
    own = choices(
        tmp_path,
        LLM_MODEL_ID="m",
        LLM_API_KEY=KEY,
        LLM_BASE_URL="http://h",
        LIGHT_LLM_MODEL_ID="l",
        LIGHT_LLM_API_KEY="other",
    )
    assert own.tiers["light"][1:3] == ("http://h", "other")


def test_a_key_may_be_in_a_variable_that_the_users_config_names(tmp_path: Path) -> None:
    found = choices(
        tmp_path,
        user='[models.main]\nmodel = "m"\nbase_url = "http://h"\napi_key_env = "MY_KEY"\n',
        MY_KEY=KEY,
    )
    assert found.tiers["main"].api_key == KEY


@pytest.mark.parametrize(
    "workspace",
    [
        'model = "m"\nbase_url = "http://evil.example"\n',
        'model = "m"\nbase_url = "http://evil.example"\napi_key = "theirs"\n',
        'model = "m"\nbase_url = "http://evil.example"\napi_key_env = "LLM_API_KEY"\n',
        'model = "anthropic:m"\napi_key_env = "LLM_API_KEY"\n',
        'model = "anthropic:m"\n',
        'base_url = "http://evil.example"\napi_key = ""\n',
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_no_key_of_the_user_goes_where_a_workspace_says(
    tmp_path: Path, workspace: str, named: bool
) -> None:
    tables = f"[models.main]\n{workspace}[models.light]\n{workspace}"
    for where in (
        {"LLM_API_KEY": KEY},
        {"LLM_API_KEY": KEY, "LIGHT_LLM_MODEL_ID": "l"},
        {"LLM_API_KEY": KEY, "LIGHT_LLM_API_KEY": KEY},
    ):
        found = choices(
            tmp_path, tables, LLM_MODEL_ID="mine" if named else "", OPENAI_API_KEY=KEY, **where
        )
        for choice in found.tiers.values():
            assert "evil" not in choice.base_url or choice.api_key != KEY
            assert "anthropic:" not in choice.model or choice.api_key != KEY
        for tier in found.tiers:
            try:
                shown = ModelRegistry(found).resolve(tier).shown
            except Unavailable:
                continue
            assert "evil" not in shown or found.tiers[tier].api_key == "theirs"


def test_a_workspace_may_bring_its_own_address_and_key(tmp_path: Path) -> None:
    table = (
        '[models.main]\nmodel = "m"\nbase_url = "http://theirs.example/v1"\napi_key = "theirs"\n'
    )
    assert choices(tmp_path, table).tiers["main"][1:3] == ("http://theirs.example/v1", "theirs")
    assert choices(tmp_path, table, LLM_API_KEY=KEY).tiers["main"][1:3] == ("", KEY)


def test_a_workspace_does_not_set_the_price_of_the_users_model(tmp_path: Path) -> None:
    table = '[models.main]\nmodel = "m"\nprice_input = 0\nprice_output = 0\n'
    assert choices(tmp_path, table, LLM_API_KEY=KEY).tiers["main"].prices is None


RESPONSES = 'api = "responses"\nstream = false\nstrict_turns = true\neffort = "high"\n'
ENDPOINT = 'base_url = "http://h/v1"\napi_key = "theirs"\nconcurrency = 3\n'
MINE = {"LLM_MODEL_ID": "m", "LLM_API_KEY": KEY, "LLM_BASE_URL": "http://h/v1/"}


@pytest.mark.parametrize("table", ["", 'model = "m"\n', f'model = "m"\n{ENDPOINT}', ENDPOINT])
def test_a_workspace_sets_the_api_of_a_model_named_by_variables(tmp_path: Path, table: str) -> None:
    found = choices(tmp_path, f"[models.main]\n{table}{RESPONSES}", **MINE)
    main = found.tiers["main"]
    assert (main.api, main.stream, main.strict_turns) == ("responses", False, True)
    assert (main.model, main.base_url, main.api_key) == ("m", "http://h/v1/", KEY)
    assert (main.effort, main.concurrency) == ("high", None)
    assert len(found.ignored) == ("concurrency" in table)
    for said in found.ignored:
        assert said.startswith("models.main.concurrency in ")
        assert said.endswith(
            ", which only your own settings set for the model that LLM_MODEL_ID names"
        )


@pytest.mark.parametrize("table", ['model = "other"\n', f"{ENDPOINT}".replace("//h", "//i")])
def test_settings_for_another_model_or_address_are_reported_as_ignored(
    tmp_path: Path, table: str
) -> None:
    found = choices(tmp_path, f"[models.main]\n{table}{RESPONSES}", **MINE)
    main = found.tiers["main"]
    assert (main.api, main.stream, main.strict_turns, main.effort) == ("chat", True, False, None)
    (said,) = [text for text in found.ignored if text.startswith("models.main.api in ")]
    assert said.endswith(", which is not for the model that LLM_MODEL_ID names")
    assert KEY not in str(found.ignored)
    assert "theirs" not in str(found.ignored)


def test_settings_of_a_workspace_endpoint_are_reported_if_the_user_has_a_key(
    tmp_path: Path,
) -> None:
    table = f'[models.main]\nmodel = "m"\n{ENDPOINT}{RESPONSES}'
    found = choices(tmp_path, table, LLM_API_KEY=KEY)
    assert found.tiers["main"][1:3] == ("", KEY)
    names = [text.partition(" in ")[0] for text in found.ignored]
    assert names == [
        f"models.main.{name}"
        for name in ("base_url", "concurrency", "api", "stream", "strict_turns", "effort")
    ]
    assert found.ignored[0].endswith(", which is not for the key in LLM_API_KEY")


def test_ignored_settings_are_reported(tmp_path: Path) -> None:
    table = '[models.main]\nmodel = 5\nbase_url = "http://h"\ncolour = "red"\nprice_input = -1\n'
    ignored = choices(tmp_path, table, LLM_API_KEY=KEY).ignored
    assert [text.partition(" in ")[0] for text in ignored[:4]] == [
        f"models.main.{name}" for name in ("model", "colour", "price_input", "base_url")
    ]
    assert ignored[4] == "api_key of the main model, which has no name"
    assert KEY not in str(ignored)


@pytest.mark.parametrize(
    ("model", "kind", "name"),
    [
        ("openai:gpt-x", OpenAIChatGateway, "gpt-x"),
        ("anthropic:claude-x", AnthropicGateway, "claude-x"),
    ],
)
def test_a_task_may_name_a_provider(model: str, kind: type[object], name: str) -> None:
    desk = ModelRegistry(Choices({}, {"openai": KEY, "anthropic": KEY}))
    chosen = desk.resolve(model)
    assert (type(chosen.gateway), chosen.model) == (kind, name)
    with pytest.raises(Unavailable, match=r"(OPENAI|ANTHROPIC)_API_KEY"):
        ModelRegistry(Choices({}, {})).resolve(model)


@pytest.mark.parametrize(
    ("choice", "kind", "name"),
    [
        (ModelChoice("qwen3:8b", "http://127.0.0.1:11434/v1"), OpenAIChatGateway, "qwen3:8b"),
        (ModelChoice("anthropic:claude-x", "http://proxy", "k"), AnthropicGateway, "claude-x"),
        (ModelChoice("anthropic:claude-x", "", "k"), AnthropicGateway, "claude-x"),
        (ModelChoice("gpt-x", "", "k"), OpenAIChatGateway, "gpt-x"),
    ],
)
def test_a_tier_may_name_a_provider_or_an_address(
    choice: ModelChoice, kind: type[object], name: str
) -> None:
    chosen = ModelRegistry(Choices({"main": choice}, {})).resolve("main")
    assert (type(chosen.gateway), chosen.model) == (kind, name)


@pytest.mark.parametrize("model", ["nonsense", "openai:"])
def test_a_name_that_is_none_is_refused(model: str) -> None:
    with pytest.raises(InvalidParam, match="provider:name"):
        ModelRegistry(Choices({}, {})).resolve(model)


def test_another_provider_needs_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit.adapters.models.pydantic_ai.LIBRARY", "no_such_library")
    with pytest.raises(InvalidParam, match=r"remit\[providers\]"):
        ModelRegistry(Choices({}, {})).resolve("groq:llama")


@pytest.mark.parametrize("address", ["", 'base_url = "http://h/v1"\n'], ids=["provider", "address"])
def test_a_variable_that_should_hold_the_key_is_named_if_it_is_not_set(
    tmp_path: Path, address: str
) -> None:
    user = f'[models.main]\nmodel = "anthropic:claude-x"\n{address}api_key_env = "MY_KEY"\n'
    found = choices(tmp_path, user=user)
    assert found.missing_keys == [
        "MY_KEY is not set. It holds the API key of the main model (api_key_env)."
    ]
    for tier in ("main", "light"):
        if address:
            refused = explain(
                ModelFailed("authentication", "HTTP 401"),
                "claude-x",
                ModelRegistry(found).resolve(tier).origin,
            )
        else:
            with pytest.raises(Unavailable) as raised:
                ModelRegistry(found).resolve(tier)
            refused = str(raised.value)
            assert "MY_KEY, which holds its API key (api_key_env), is not set." in refused
        assert refused.endswith("Set MY_KEY in the environment.")
        assert "LLM_API_KEY" not in refused
    assert choices(tmp_path, user=user, MY_KEY=KEY).missing_keys == []


def test_a_missing_variable_is_accepted_if_another_key_is_used(tmp_path: Path) -> None:
    user = '[models.main]\nmodel = "anthropic:claude-x"\napi_key_env = "MY_KEY"\n'
    for name in ("LLM_API_KEY", "ANTHROPIC_API_KEY"):
        found = choices(tmp_path, user=user, **{name: KEY})
        assert found.missing_keys == []
        assert ModelRegistry(found).resolve("main").origin.key == name


DIALECT = """\
[models.main]
model = "m"
base_url = "http://h/v1"
effort = "medium"
api = "responses"
parallel_tool_calls = false
strict_turns = true
"""


async def test_how_an_endpoint_is_spoken_to_is_set_for_each_tier(tmp_path: Path) -> None:
    found = choices(tmp_path, user=DIALECT, LIGHT_LLM_MODEL_ID="l")
    main, light = found.tiers["main"], found.tiers["light"]
    assert (main.effort, main.api, main.parallel_tool_calls, main.strict_turns) == (
        "medium",
        "responses",
        False,
        True,
    )
    assert (light.effort, light.api, light.parallel_tool_calls, light.strict_turns) == (
        None,
        "responses",
        False,
        True,
    )
    desk = ModelRegistry(found)
    assert (desk.resolve("main").effort, desk.resolve("light").effort) == ("medium", None)
    await desk.close()


@pytest.mark.parametrize(
    "line", ['effort = "huge"', 'api = "soap"', "parallel_tool_calls = 1", 'strict_turns = "yes"']
)
def test_an_unknown_api_is_ignored_and_reported(tmp_path: Path, line: str) -> None:
    found = choices(tmp_path, user=f'[models.main]\nmodel = "m"\n{line}\n')
    name = line.partition(" ")[0]
    assert found.ignored[0].startswith(f"models.main.{name} in ")
    assert found.tiers["main"] == found.tiers["main"]._replace(
        effort=None, api="chat", parallel_tool_calls=True, strict_turns=False
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('effort = "extreme"', "one of none, low, medium, high"),
        ('strict_turns = "yes"', "true or false"),
        ("parallel_tool_calls = 0", "true or false"),
        ('api = "completions"', "one of chat, responses"),
        ("concurrency = 0", "a whole number from 1"),
        ("price_input = -1", "a number from 0"),
        ("base_url = 7", "text"),
        ("colour = 1", ""),
    ],
)
def test_a_value_that_is_wrong_is_ignored_with_what_would_be_right(
    tmp_path: Path, line: str, expected: str
) -> None:
    (ignored,) = choices(tmp_path, user=f'[models.main]\nmodel = "m"\n{line}\n').ignored
    assert ignored.partition(": expected ")[2] == expected


@pytest.mark.parametrize("name", ["STREAM", "MEDIA"])
@pytest.mark.parametrize("prefix", ["LLM", "LIGHT_LLM"])
def test_a_switch_in_the_environment_that_is_neither_true_nor_false_is_ignored_and_reported(
    tmp_path: Path, prefix: str, name: str
) -> None:
    user = '[models.main]\nmodel = "m"\nmedia = false\nstream = false\n'
    found = choices(tmp_path, user=user, **{f"{prefix}_{name}": "maybe"})
    assert [(choice.media, choice.stream) for choice in found.tiers.values()] == [
        (False, False)
    ] * 2
    assert found.ignored == (f"{prefix}_{name}: expected true or false",)
    for text, value in (("Yes", True), ("1", True), ("OFF", False), ("no", False)):
        found = choices(tmp_path, LLM_MODEL_ID="m", LLM_MEDIA=text, LLM_STREAM=text)
        assert (found.tiers["main"].media, found.tiers["main"].stream) == (value, value)


def test_a_workspace_sets_how_the_light_model_of_the_user_is_asked(tmp_path: Path) -> None:
    found = choices(tmp_path, '[models.light]\neffort = "high"\nconcurrency = 1\n', **MINE)
    assert (found.tiers["main"].effort, found.tiers["light"].effort) == (None, "high")
    assert found.tiers["light"].concurrency is None
    (said,) = found.ignored
    assert said.endswith(
        ", which must set base_url and api_key as well; or set it in your own config file"
    )


def test_each_field_in_force_has_its_value_and_origin(tmp_path: Path) -> None:
    found = choices(
        tmp_path,
        '[models.main]\napi = "chat"\nstrict_turns = true\n',
        '[models.main]\nbase_url = "http://u:secret@h/v1?k=secret"\napi_key_env = "MY_KEY"\n'
        'api = "responses"\nmedia = true\nprice_input = 1\nprice_output = 2\n'
        '[models.light]\nmodel = "l"\neffort = "none"\n',
        LLM_MODEL_ID="m",
        LLM_MEDIA="no",
        LLM_STREAM="off",
        LIGHT_LLM_CONCURRENCY="2",
        MY_KEY=KEY,
    )
    user, workspace = tmp_path / "home/.config/remit/config.toml", tmp_path / ".remit/config.toml"
    address = "http://[redacted]@h/v1?k=[redacted]"
    assert found.in_force("main") == [
        ("base_url", address, str(user)),
        ("api", "responses", str(user)),
        ("stream", False, "LLM_STREAM"),
        ("strict_turns", True, str(workspace)),
        ("media", False, "LLM_MEDIA"),
        ("price_input", 1.0, str(user)),
        ("price_output", 2.0, str(user)),
        ("api_key", "(set)", "MY_KEY"),
    ]
    assert found.in_force("light") == [
        ("base_url", address, str(user)),
        ("concurrency", 2, "LIGHT_LLM_CONCURRENCY"),
        ("api", "responses", str(user)),
        ("stream", False, "LLM_STREAM"),
        ("effort", "none", str(user)),
        ("strict_turns", True, str(workspace)),
        ("api_key", "(set)", "MY_KEY"),
    ]
    assert "secret" not in repr(found.tiers)
    assert choices(tmp_path).in_force("main") == []
    provider = choices(tmp_path, LLM_MODEL_ID="m", OPENAI_API_KEY=KEY).in_force("light")
    assert provider == [("api_key", "(set)", "OPENAI_API_KEY")]
