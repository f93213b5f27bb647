"""Which model a tier means: from the environment, the user's config and the workspace's, without mixing up whose key goes where."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast, get_args

from remit.domain.value import Effort

TIERS = {"main": "LLM", "light": "LIGHT_LLM"}
"""Each tier, and what its variables begin with."""
FIELDS = {
    "model": "The name of the model, or `provider:name`.",
    "base_url": "Where it is asked: an OpenAI-compatible address; without it, the provider's own.",
    "api_key": "The key.",
    "api_key_env": "The variable that holds the key.",
    "stream": "Whether its answers come piece by piece (default true), so that a stall shows at once; false where an endpoint cannot.",
    "media": "Whether it takes images and PDFs; without it, that is decided by the name of the model (such as gpt-5, claude, gemini).",
    "concurrency": "How many calls there may be at once, of all who ask that endpoint from one process (default 1024); of two tiers at one endpoint"
    " the smaller number holds for both.",
    "effort": "How much it thinks: `low`, `medium`, `high`, or `none` to send no such parameter. A task or an agent that sets it wins.",
    "api": "`chat` (chat completions, the default) or `responses` (OpenAI's Responses API), at an OpenAI-compatible address.",
    "parallel_tool_calls": "Whether it may call several tools in one answer (default true, which sends nothing).",
    "strict_turns": "true where user and assistant messages must alternate strictly (default false; found out from the first refusal).",
    "price_input": "US dollars for a million tokens of input, where no price list knows the model.",
    "price_output": "US dollars for a million tokens of output.",
    "price_cached": "US dollars for a million tokens of input that came from the provider's cache.",
}
"""What `[models.<tier>]` can hold."""
APIS = ("chat", "responses")
_MORE = ("effort", "api", "parallel_tool_calls", "strict_turns", "media")
KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
"""Where the key of a provider is looked for when a task names one of its models."""

HOW_TO_SET_A_MODEL = (
    "Set LLM_MODEL_ID and LLM_API_KEY in the environment (and LLM_BASE_URL for an endpoint other than OpenAI's), or [models.main] in the config file."
)


class ModelChoice(NamedTuple):
    """A model, where it is asked, and by what right."""

    model: str
    base_url: str = ""
    api_key: str = ""
    prices: tuple[float, float, float | None] | None = None
    """US dollars for a million tokens: input, output, cached input."""
    origin: str = ""
    stream: bool = True
    concurrency: int | None = None
    """How many calls of its endpoint there may be at once."""
    key_origin: str = ""
    """The setting that holds the key."""
    key_setting: str = ""
    """The variable that a key of this tier is to be set with."""
    missing_key: str = ""
    """The variable that the settings name for the key (`api_key_env`), if it is not set."""
    effort: Effort | None = None
    api: str = "chat"
    parallel_tool_calls: bool = True
    strict_turns: bool = False
    media: bool | None = None
    """Whether it takes images and PDFs; None leaves that to the name of the model."""

    def __repr__(self) -> str:
        return f"ModelChoice({self.model!r}, {self.base_url!r}, from {self.origin})"

    @property
    def shown(self) -> str:
        """What a person sees of it."""
        return f"{self.model} at {self.base_url}" if self.base_url else self.model


class Choices(NamedTuple):
    """The tiers that are set, the keys of providers, and what was ignored."""

    tiers: Mapping[str, ModelChoice]
    keys: Mapping[str, str]
    ignored: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Choices({dict(self.tiers)!r}, keys of {sorted(self.keys)}, ignored {self.ignored!r})"

    @property
    def missing_keys(self) -> list[str]:
        """What is wrong with the tiers whose key is in a variable that is not set."""
        missing: dict[str, str] = {}
        for tier, choice in self.tiers.items():
            uses_providers = not choice.base_url and _provider(choice.model) in self.keys
            if choice.missing_key and not choice.api_key and not uses_providers:
                missing.setdefault(choice.missing_key, f"{choice.missing_key} is not set. It holds the API key of the {tier} model (api_key_env).")
        return list(missing.values())


class Table(NamedTuple):
    """`[models]` of a config file."""

    path: str
    values: Mapping[str, Any]


def choose(workspace: Table | None, user: Table | None, env: Mapping[str, str]) -> Choices:
    """What is in force: the environment over the user's config over the workspace's.

    A workspace is often somebody else's. It may name a model; more than that only with an address and a key of its own, which
    count where the user has set neither: no key of the user's ever goes to an address that a workspace names, and no workspace
    makes the user's model look cheaper than it is.
    """
    ignored: list[str] = []
    theirs = {tier: _fields(workspace, tier, ignored, trusted=False) for tier in TIERS}
    mine = {tier: _fields(user, tier, ignored, trusted=True) | _variables(prefix, env, ignored) for tier, prefix in TIERS.items()}
    tiers: dict[str, ModelChoice] = {}
    for tier, prefix in TIERS.items():
        found = _chosen(theirs[tier], mine[tier], env)
        if found is not None and tier == "light" and "main" in tiers:
            found = _completed(found, tiers["main"], mine["main"].get("base_url", ""))
        if found is not None:
            tiers[tier] = found._replace(key_setting=found.missing_key or f"{prefix}_API_KEY")
        elif mine[tier]:
            ignored.append(f"{' and '.join(sorted(mine[tier].keys() - {'key_origin'}))} of the {tier} model, which has no name")
    if "main" in tiers:
        tiers.setdefault("light", tiers["main"])
    keys = {provider: env[name].strip() for provider, name in KEYS.items() if env.get(name, "").strip()}
    return Choices(tiers, keys, tuple(ignored))


def _fields(table: Table | None, tier: str, ignored: list[str], *, trusted: bool) -> dict[str, Any]:
    if table is None:
        return {}
    found: dict[str, Any] = {}
    given = table.values.get(tier, {})
    if not isinstance(given, Mapping):
        ignored.append(f"models.{tier} in {table.path}, which is no table")
        return found
    for name, value in cast("Mapping[str, Any]", given).items():
        if name in FIELDS and _RIGHT.get(name, _is_text)(value):
            found |= {name: value} if value != "" else {}
        else:
            expected = f": expected {_EXPECTED.get(name, 'text')}" if name in FIELDS else ""
            ignored.append(f"models.{tier}.{name} in {table.path}{expected}")
    if not trusted and not {"base_url", "api_key"} <= found.keys():
        for name in [name for name in found if name != "model"]:
            del found[name]
            ignored.append(f"models.{tier}.{name} in {table.path}, which has no address with a key of its own")
    if not trusted and found.pop("api_key_env", None):
        ignored.append(f"models.{tier}.api_key_env in {table.path}: a workspace does not read variables")
    if "api_key" in found:
        found["key_origin"] = f"api_key of [models.{tier}] in {table.path}"
    elif "api_key_env" in found:
        found["key_origin"] = found["api_key_env"]
    return _placed(found, table.path)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_price(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


_RIGHT: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("stream", "parallel_tool_calls", "strict_turns", "media"), lambda value: isinstance(value, bool)),
    "effort": lambda value: value in get_args(Effort),
    "api": lambda value: value in APIS,
    "concurrency": _is_count,
    **dict.fromkeys(("price_input", "price_output", "price_cached"), _is_price),
}
"""What a field must be that is no text."""
_EXPECTED: Mapping[str, str] = {
    **dict.fromkeys(("stream", "parallel_tool_calls", "strict_turns", "media"), "true or false"),
    "effort": f"one of {', '.join(get_args(Effort))}",
    "api": f"one of {', '.join(APIS)}",
    "concurrency": "a whole number from 1",
    **dict.fromkeys(("price_input", "price_output", "price_cached"), "a number from 0"),
}
"""The same in words."""


def _variables(prefix: str, env: Mapping[str, str], ignored: list[str]) -> dict[str, Any]:
    names = {"model": f"{prefix}_MODEL_ID", "base_url": f"{prefix}_BASE_URL", "api_key": f"{prefix}_API_KEY"}
    found: dict[str, Any] = {field: env[name].strip() for field, name in names.items() if env.get(name, "").strip()}
    if "api_key" in found:
        found["key_origin"] = names["api_key"]
    if streams := env.get(f"{prefix}_STREAM", "").strip():
        found["stream"] = streams.lower() not in ("0", "false", "no", "off")
    if media := env.get(f"{prefix}_MEDIA", "").strip():
        found["media"] = media.lower() not in ("0", "false", "no", "off")
    if most := env.get(f"{prefix}_CONCURRENCY", "").strip():
        number = int(most) if most.isascii() and most.isdigit() and len(most) < 10 else 0
        if _is_count(number):
            found["concurrency"] = number
        else:
            ignored.append(f"{prefix}_CONCURRENCY, which is no whole number from 1")
    return _placed(found, names["model"])


def _placed(found: dict[str, Any], origin: str) -> dict[str, Any]:
    return {**found, "origin": origin} if "model" in found else found


def _chosen(theirs: Mapping[str, Any], mine: Mapping[str, Any], env: Mapping[str, str]) -> ModelChoice | None:
    model = mine.get("model") or theirs.get("model")
    if not model:
        return None
    origin = mine.get("origin") or theirs["origin"]
    if not mine.keys() & {"base_url", "api_key", "api_key_env"}:
        mine = {**theirs, **mine}
    key = (mine.get("api_key") or env.get(mine.get("api_key_env", ""), "")).strip()  # files that hold a key end in a line break
    if not mine.get("model") and ":" in model and not mine.get("base_url"):
        key = ""  # a provider that the workspace names is asked with that provider's key or none
    key_origin = mine.get("key_origin", "") if key else ""
    missing = "" if key or mine.get("api_key") else str(mine.get("api_key_env", ""))
    price = (
        (float(mine["price_input"]), float(mine["price_output"]), mine.get("price_cached"))
        if {"price_input", "price_output"} <= mine.keys()
        else None
    )
    streams, most = mine.get("stream", True), mine.get("concurrency")
    more = {name: mine[name] for name in _MORE if name in mine}
    return ModelChoice(model, mine.get("base_url", ""), key, price, origin, streams, most, key_origin, missing_key=missing, **more)


def _completed(light: ModelChoice, main: ModelChoice, users_url: str) -> ModelChoice:
    """The light model is asked where the main one is, unless it has an address, a key or a provider of its own."""
    if light.base_url and light.base_url != main.base_url:
        return light
    if not main.base_url and _provider(light.model) != _provider(main.model):
        return light
    if light.api_key:
        return light._replace(base_url=light.base_url or users_url)
    missing = "" if main.api_key else light.missing_key or main.missing_key
    return light._replace(
        base_url=main.base_url,
        api_key=main.api_key,
        key_origin=main.key_origin,
        missing_key=missing,
        stream=light.stream and main.stream,
        api=main.api if light.api == "chat" else light.api,
        parallel_tool_calls=light.parallel_tool_calls and main.parallel_tool_calls,
        strict_turns=light.strict_turns or main.strict_turns,
    )


def _provider(model: str) -> str:
    return model.rpartition(":")[0].partition(":")[0] or "openai"
