"""Selects the model of each tier from the environment, the user's and the workspace's config.

A key never goes to an address from another source.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, cast, get_args

from remit.domain.records.json_rules import is_number
from remit.domain.records.pick import omit, pick
from remit.domain.task.task import Effort
from remit.domain.text.redaction import shown_url

TIERS = {"main": "LLM", "light": "LIGHT_LLM"}
"""Each tier and the prefix of its variables."""
FIELDS = {
    "model": "The name of the model, or `provider:name`.",
    "base_url": "The URL of an OpenAI-compatible endpoint. Default: the provider's.",
    "api_key": "The key.",
    "api_key_env": "The variable with the key.",
    "stream": (
        "Set to false if the endpoint cannot stream answers (default true; a stream shows stalls"
        " early)."
    ),
    "media": (
        "Set to true if the model accepts images and PDFs. Default: decided by its name"
        " (such as gpt-5, claude, gemini)."
    ),
    "concurrency": (
        "Maximum concurrent calls to the endpoint per process (default 1024). Tiers that share"
        " an endpoint use the smaller value."
    ),
    "effort": (
        "The reasoning effort: `low`, `medium`, `high`, or `none` to send no such parameter."
        " Tasks and agents can override it."
    ),
    "api": (
        "`chat` (chat completions, the default) or `responses` (OpenAI's Responses API), at an"
        " OpenAI-compatible URL."
    ),
    "parallel_tool_calls": (
        "Set to false if the model may call only one tool per answer (default true)."
    ),
    "strict_turns": (
        "Set to true if messages must alternate (default false; remit learns it from a refusal)."
    ),
    "price_input": "US dollars per million input tokens, for a model without a listed price.",
    "price_output": "US dollars per million output tokens.",
    "price_cached": "US dollars per million input tokens from the provider's cache.",
}
"""The fields of `[models.<tier>]`."""
APIS = ("chat", "responses")
VARIABLES = {
    "model": "MODEL_ID",
    "base_url": "BASE_URL",
    "api_key": "API_KEY",
    "stream": "STREAM",
    "media": "MEDIA",
    "concurrency": "CONCURRENCY",
}
"""The fields that can be set in the environment, and the ends of their variables."""
_MORE = ("effort", "api", "parallel_tool_calls", "strict_turns", "media")
_PRICES = ("price_input", "price_output", "price_cached")
_OWN_ENDPOINT = frozenset({"base_url", "api_key", "api_key_env"})
"""The settings that give a model its own endpoint or key."""
_MANNERS = ("api", "stream", "effort", "parallel_tool_calls", "strict_turns", "media")
"""The settings that say how to ask a model; they do not change where prompts go."""
_ORIGINS = frozenset({"origin", "key_origin"})
KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
"""The variable with the key of each provider, for tasks that name its models."""

HOW_TO_SET_A_MODEL = (
    "Set LLM_MODEL_ID and LLM_API_KEY in the environment (and LLM_BASE_URL for an endpoint other"
    " than OpenAI's), or [models.main] in the config file."
)


class ModelChoice(NamedTuple):
    """A model, its endpoint and its key."""

    model: str
    base_url: str = ""
    api_key: str = ""
    prices: tuple[float, float, float | None] | None = None
    """US dollars for a million tokens: input, output, cached input."""
    origin: str = ""
    stream: bool = True
    concurrency: int | None = None
    """The maximum of concurrent calls to its endpoint."""
    key_origin: str = ""
    """The setting with the key."""
    key_setting: str = ""
    """The variable in which to set a key for this tier."""
    missing_key: str = ""
    """The variable named by `api_key_env`, if it is not set."""
    effort: Effort | None = None
    api: str = "chat"
    parallel_tool_calls: bool = True
    strict_turns: bool = False
    media: bool | None = None
    """True if it accepts images and PDFs; None decides by the name of the model."""

    def __repr__(self) -> str:
        return f"ModelChoice({self.model!r}, {shown_url(self.base_url)!r}, from {self.origin})"

    @property
    def shown(self) -> str:
        """The model as people see it."""
        if self.base_url:
            return f"{self.model} at {shown_url(self.base_url)}"
        return self.model


class Source(NamedTuple):
    """A place with settings of a tier: a config file or the environment."""

    fields: Mapping[str, Any]
    names: Mapping[str, str]
    """What to call the place of each field."""


class InForce(NamedTuple):
    """A field of a tier, its value for display, and its origin."""

    field: str
    value: Any
    origin: str


class Choices(NamedTuple):
    """The configured tiers, the keys of providers, and ignored settings."""

    tiers: Mapping[str, ModelChoice]
    keys: Mapping[str, str]
    ignored: tuple[str, ...] = ()
    sources: Mapping[str, tuple[Source, ...]] = MappingProxyType({})
    """The sources of each tier, the strongest first."""

    def __repr__(self) -> str:
        return (
            f"Choices({dict(self.tiers)!r}, keys of {sorted(self.keys)}, ignored {self.ignored!r})"
        )

    def in_force(self, tier: str) -> list[InForce]:
        """Return the fields of a tier that are set, without its model and without secrets."""
        choice = self.tiers.get(tier)
        if choice is None:
            return []
        found: list[InForce] = []
        for field, value in _values(choice).items():
            origin = self._origin(tier, field, value)
            if origin:
                found.append(InForce(field, value, origin))
        if choice.base_url:
            origin = self._origin(tier, "base_url", choice.base_url)
            found.insert(0, InForce("base_url", shown_url(choice.base_url), origin))
        key_origin = choice.key_origin
        if not key_origin and self._has_provider_key(choice):
            key_origin = KEYS[_provider(choice.model)]
        if key_origin:
            found.append(InForce("api_key", "(set)", key_origin))
        return found

    def _origin(self, tier: str, field: str, value: Any) -> str:
        """Return the strongest source that sets a field to the value in force; empty if none
        does.
        """
        for source in self.sources.get(tier, ()):
            if source.fields.get(field) == value and value is not None:
                return source.names[field]
        return ""

    @property
    def missing_keys(self) -> list[str]:
        """A message for each unset variable that should contain the key of a tier."""
        missing: dict[str, str] = {}
        for tier, choice in self.tiers.items():
            name = choice.missing_key
            if name and not choice.api_key and not self._has_provider_key(choice):
                missing.setdefault(
                    name,
                    f"{name} is not set. It holds the API key of the {tier} model (api_key_env).",
                )
        return list(missing.values())

    def _has_provider_key(self, choice: ModelChoice) -> bool:
        """Return True if a model uses its provider, and the key of that is set."""
        return not choice.base_url and _provider(choice.model) in self.keys


class Table(NamedTuple):
    """`[models]` of a config file."""

    path: str
    values: Mapping[str, Any]


def choose(workspace: Table, user: Table, env: Mapping[str, str]) -> Choices:
    """Combine the settings: environment over the user's config over the workspace's.

    A workspace may be untrusted. It may name a model and say how to speak to it, unless the user
    has chosen another model or address; other fields count only with an address and a
    key of its own, and only if the user has set neither. The user's key never goes to an address
    that a workspace names, and a workspace cannot make the user's model look cheaper.
    """
    ignored: list[str] = []
    theirs = {tier: _workspace_fields(workspace, tier, ignored) for tier in TIERS}
    mine: dict[str, dict[str, Any]] = {}
    sources: dict[str, tuple[Source, ...]] = {}
    for tier, prefix in TIERS.items():
        of_user = _with_origins(_valid_fields(user, tier, ignored), user, tier)
        of_env = _variables(prefix, env, ignored)
        mine[tier] = of_user | of_env
        place = f"models.{tier}.{{}} in {workspace.path}"
        theirs[tier] = _fitting(theirs[tier], mine[tier], place, ignored)
        sources[tier] = (
            Source(of_env, {name: f"{prefix}_{end}" for name, end in VARIABLES.items()}),
            Source(of_user, dict.fromkeys(FIELDS, user.path)),
            Source(theirs[tier], dict.fromkeys(FIELDS, workspace.path)),
        )
    main = _choose_main(theirs["main"], mine["main"], env)
    light = _choose_light(main, theirs, mine, env)
    tiers: dict[str, ModelChoice] = {}
    for tier, found in (("main", main), ("light", light)):
        if found is not None:
            tiers[tier] = found
        elif mine[tier]:
            names = " and ".join(sorted(mine[tier].keys() - {"key_origin"}))
            ignored.append(f"{names} of the {tier} model, which has no name")
    if main is not None:
        tiers.setdefault("light", main)
    sources["light"] += sources["main"]
    return Choices(tiers, _set_variables(KEYS, env), tuple(ignored), sources)


def _values(choice: ModelChoice) -> dict[str, Any]:
    """Return the values of the fields that say how to ask a model, and of its prices."""
    values = {name: getattr(choice, name) for name in ("concurrency", *_MANNERS)}
    prices = dict(zip(_PRICES, choice.prices or (), strict=False))
    return {**values, **prices}


def _choose_main(
    theirs: Mapping[str, Any], mine: Mapping[str, Any], env: Mapping[str, str]
) -> ModelChoice | None:
    """Return the main model; None if it has no name."""
    found = _combine(theirs, mine, env)
    if found is None:
        return None
    return _with_key_setting(found, "main")


def _choose_light(
    main: ModelChoice | None,
    theirs: Mapping[str, Mapping[str, Any]],
    mine: Mapping[str, Mapping[str, Any]],
    env: Mapping[str, str],
) -> ModelChoice | None:
    """Return the light model: one of its own or a variant of the main model; None if neither."""
    light = _combine(theirs["light"], mine["light"], env)
    if light is not None:
        if main is not None:
            light = _complete(light, main, mine["main"].get("base_url", ""))
        return _with_key_setting(light, "light")
    settings = {**_variant_of_workspace(theirs["light"]), **mine["light"]}
    if main is None or not _is_variant(settings):
        return None
    variant = _combine(theirs["main"], {**mine["main"], **settings}, env) or main
    return variant._replace(key_setting=main.key_setting)


def _with_key_setting(choice: ModelChoice, tier: str) -> ModelChoice:
    """Add the variable in which to set a key for this tier."""
    setting = choice.missing_key or f"{TIERS[tier]}_API_KEY"
    return choice._replace(key_setting=setting)


def _workspace_fields(table: Table, tier: str, ignored: list[str]) -> dict[str, Any]:
    """Return the fields of a tier that the config of a workspace may set."""
    found = _valid_fields(table, tier, ignored)
    if not {"base_url", "api_key"} <= found.keys():
        dropped = omit(found, ("model", *_MANNERS))
        ignored += [
            f"models.{tier}.{name} in {table.path}, which must set base_url and api_key as well; or"
            " set it in your own config file"
            for name in dropped
        ]
        found = omit(found, dropped)
    if found.pop("api_key_env", None):
        ignored.append(
            f"models.{tier}.api_key_env in {table.path}, which cannot name a variable; set it in"
            " your own config file"
        )
    return _with_origins(found, table, tier)


def _fitting(
    theirs: dict[str, Any], mine: Mapping[str, Any], place: str, ignored: list[str]
) -> dict[str, Any]:
    """Return the fields of a workspace that hold for the model and the endpoint that the user has
    chosen; add the others to `ignored`.
    """
    has_own = not mine.keys().isdisjoint(_OWN_ENDPOINT)
    if "base_url" in theirs and not has_own:
        return theirs
    kept, why = {"model", *_ORIGINS}, "which is not for"
    if _is_same_model(theirs, mine):
        kept.update(_MANNERS)
        why = "which only your own settings set for"
    whose = f"the key in {mine.get('key_origin', 'your settings')}"
    if "model" in mine:
        whose = f"the model that {mine['origin']} names"
    dropped = theirs.keys() - kept - mine.keys()
    ignored += [f"{place.format(name)}, {why} {whose}" for name in theirs if name in dropped]
    return pick(theirs, kept)


def _is_same_model(theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> bool:
    """Return True unless a workspace names another model or another address than the user."""
    own_address = str(mine.get("base_url", ""))
    address = str(theirs.get("base_url", own_address))
    model = theirs.get("model", mine.get("model"))
    is_same_address = address.rstrip("/") == own_address.rstrip("/")
    return is_same_address and mine.get("model", model) == model


def _valid_fields(table: Table, tier: str, ignored: list[str]) -> dict[str, Any]:
    """Return the known fields of a tier with valid values; empty text is not a value."""
    given = table.values.get(tier, {})
    if not isinstance(given, Mapping):
        ignored.append(f"models.{tier} in {table.path}, which is not a table")
        return {}
    found: dict[str, Any] = {}
    for name, value in cast("Mapping[str, Any]", given).items():
        setting = f"models.{tier}.{name} in {table.path}"
        if name not in FIELDS:
            ignored.append(setting)
        elif not _RIGHT.get(name, _is_text)(value):
            ignored.append(f"{setting}: expected {_EXPECTED.get(name, 'text')}")
        elif value != "":
            found[name] = value
    return found


def _with_origins(found: dict[str, Any], table: Table, tier: str) -> dict[str, Any]:
    """Add the settings that name the model and hold its key."""
    if "api_key" in found:
        found["key_origin"] = f"api_key of [models.{tier}] in {table.path}"
    elif "api_key_env" in found:
        found["key_origin"] = found["api_key_env"]
    return _with_origin(found, table.path)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_price(value: Any) -> bool:
    return is_number(value) and value >= 0


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


_RIGHT: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(
        ("stream", "parallel_tool_calls", "strict_turns", "media"),
        lambda value: isinstance(value, bool),
    ),
    "effort": lambda value: value in get_args(Effort),
    "api": lambda value: value in APIS,
    "concurrency": _is_count,
    **dict.fromkeys(_PRICES, _is_price),
}
"""The checks of fields that are not text."""
_EXPECTED: Mapping[str, str] = {
    **dict.fromkeys(("stream", "parallel_tool_calls", "strict_turns", "media"), "true or false"),
    "effort": f"one of {', '.join(get_args(Effort))}",
    "api": f"one of {', '.join(APIS)}",
    "concurrency": "a whole number from 1",
    **dict.fromkeys(_PRICES, "a number from 0"),
}
"""What these fields accept, as text."""


def _variables(prefix: str, env: Mapping[str, str], ignored: list[str]) -> dict[str, Any]:
    """Return the fields of a tier that are set in the environment."""
    names = {field: f"{prefix}_{end}" for field, end in VARIABLES.items()}
    found: dict[str, Any] = {}
    for field, text in _set_variables(names, env).items():
        value = _READ.get(field, str)(text)
        if value is None:
            ignored.append(f"{names[field]}: expected {_EXPECTED[field]}")
        else:
            found[field] = value
    if "api_key" in found:
        found["key_origin"] = names["api_key"]
    return _with_origin(found, names["model"])


def _set_variables(names: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """Return the values of those variables that are set, by field."""
    return {field: value for field, name in names.items() if (value := env.get(name, "").strip())}


def _read_count(text: str) -> int | None:
    """Return a whole number from 1; None if the text is not one."""
    if not re.fullmatch("[0-9]{1,9}", text):
        return None
    return int(text) or None


def _read_switch(text: str) -> bool | None:
    """Return true or false; None if the text is neither."""
    return _SWITCHES.get(text.lower())


_SWITCHES = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}
_READ: Mapping[str, Callable[[str], Any]] = {
    "stream": _read_switch,
    "media": _read_switch,
    "concurrency": _read_count,
}
"""Reads the variables that are not text; the result is None if a text is not valid."""


def _with_origin(found: dict[str, Any], origin: str) -> dict[str, Any]:
    """Add the setting that names the model."""
    if "model" in found:
        found["origin"] = origin
    return found


def _combine(
    theirs: Mapping[str, Any], mine: Mapping[str, Any], env: Mapping[str, str]
) -> ModelChoice | None:
    """Return the model of a tier by the workspace's and the user's settings; None without a
    name.
    """
    both = {**theirs, **mine}
    if "model" not in both:
        return None
    model, origin = both["model"], both["origin"]
    # The user did not choose an own key or address for a model that the workspace names.
    has_own = not mine.keys().isdisjoint(_OWN_ENDPOINT)
    mine = {**pick(theirs, _MANNERS), **mine} if has_own else both
    key = _read_key(model, mine, env)
    choice = ModelChoice(
        model,
        mine.get("base_url", ""),
        key,
        _read_prices(mine),
        origin,
        mine.get("stream", True),
        mine.get("concurrency"),
        **pick(mine, _MORE),
    )
    if key:
        return choice._replace(key_origin=mine.get("key_origin", ""))
    if mine.get("api_key"):
        return choice
    return choice._replace(missing_key=str(mine.get("api_key_env", "")))


def _read_key(model: str, fields: Mapping[str, Any], env: Mapping[str, str]) -> str:
    """Return the key of a model, which is set itself or in a variable."""
    is_user_choice = fields.get("base_url") or fields.get("model")
    if ":" in model and not is_user_choice:
        return ""  # a provider named by the workspace gets only its own key
    key = fields.get("api_key") or env.get(fields.get("api_key_env", ""), "")
    return str(key).strip()  # key files end with a newline


def _read_prices(fields: Mapping[str, Any]) -> tuple[float, float, float | None] | None:
    """Return the prices for input, output and cached input; None if they are not set."""
    if not {"price_input", "price_output"} <= fields.keys():
        return None
    cached = fields.get("price_cached")
    return float(fields["price_input"]), float(fields["price_output"]), cached


def _variant_of_workspace(light: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a workspace asks the light model, unless it does so at an address of its own."""
    if "base_url" in light:
        return {}
    return {name: light[name] for name in _MANNERS if name in light}


def _is_variant(light: Mapping[str, Any]) -> bool:
    """Return True for light settings without a model name that modify the main model.

    An address or a key belongs to a separate model.
    """
    return bool(light) and light.keys().isdisjoint(_OWN_ENDPOINT)


def _complete(light: ModelChoice, main: ModelChoice, users_url: str) -> ModelChoice:
    """Give the light model the endpoint of the main one unless it has its own.

    An address, a key or another provider makes it independent.
    """
    if _has_other_endpoint(light, main):
        return light
    if light.api_key:
        return light._replace(base_url=light.base_url or users_url)
    missing = ""
    if not main.api_key:
        missing = light.missing_key or main.missing_key
    api = main.api if light.api == "chat" else light.api
    return light._replace(
        base_url=main.base_url,
        api_key=main.api_key,
        key_origin=main.key_origin,
        missing_key=missing,
        stream=light.stream and main.stream,
        api=api,
        parallel_tool_calls=light.parallel_tool_calls and main.parallel_tool_calls,
        strict_turns=light.strict_turns or main.strict_turns,
    )


def _has_other_endpoint(light: ModelChoice, main: ModelChoice) -> bool:
    """Return True if the light model has another address than the main one, or another provider."""
    if light.base_url or main.base_url:
        return light.base_url not in ("", main.base_url)
    return _provider(light.model) != _provider(main.model)


def _provider(model: str) -> str:
    return model.rpartition(":")[0].partition(":")[0] or "openai"
