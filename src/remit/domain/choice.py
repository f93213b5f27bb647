"""Which model a tier means: from the environment, the user's config and the workspace's, without mixing up whose key goes where."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

TIERS = {"main": "LLM", "light": "LIGHT_LLM"}
"""Each tier, and what its variables begin with."""
FIELDS = {
    "model": "The name of the model, or `provider:name`.",
    "base_url": "Where it is asked: an OpenAI-compatible address; without it, the provider's own.",
    "api_key": "The key.",
    "api_key_env": "The variable that holds the key.",
    "stream": "Whether its answers come piece by piece (default true), so that a stall shows at once; false where an endpoint cannot.",
    "concurrency": "How many calls there may be at once, of all who ask that endpoint from one process (default 1024); of two tiers at one endpoint"
    " the smaller number holds for both.",
    "price_input": "US dollars for a million tokens of input, where no price list knows the model.",
    "price_output": "US dollars for a million tokens of output.",
    "price_cached": "US dollars for a million tokens of input that came from the provider's cache.",
}
"""What `[models.<tier>]` can hold."""
KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
"""Where the key of a provider is looked for when a task names one of its models."""


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
    for tier in TIERS:
        found = _chosen(theirs[tier], mine[tier], env)
        if found is not None and tier == "light" and "main" in tiers:
            found = _completed(found, tiers["main"], mine["main"].get("base_url", ""))
        if found is not None:
            tiers[tier] = found
        elif mine[tier]:
            ignored.append(f"{' and '.join(sorted(mine[tier]))} of the {tier} model, which has no name")
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
            ignored.append(f"models.{tier}.{name} in {table.path}")
    if not trusted and not {"base_url", "api_key"} <= found.keys():
        for name in [name for name in found if name != "model"]:
            del found[name]
            ignored.append(f"models.{tier}.{name} in {table.path}, which has no address with a key of its own")
    if not trusted and found.pop("api_key_env", None):
        ignored.append(f"models.{tier}.api_key_env in {table.path}: a workspace does not read variables")
    return _placed(found, table.path)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_price(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


_RIGHT: Mapping[str, Callable[[Any], bool]] = {
    "stream": lambda value: isinstance(value, bool),
    "concurrency": _is_count,
    **dict.fromkeys(("price_input", "price_output", "price_cached"), _is_price),
}
"""What a field must be that is no text."""


def _variables(prefix: str, env: Mapping[str, str], ignored: list[str]) -> dict[str, Any]:
    names = {"model": f"{prefix}_MODEL_ID", "base_url": f"{prefix}_BASE_URL", "api_key": f"{prefix}_API_KEY"}
    found: dict[str, Any] = {field: env[name].strip() for field, name in names.items() if env.get(name, "").strip()}
    if streams := env.get(f"{prefix}_STREAM", "").strip():
        found["stream"] = streams.lower() not in ("0", "false", "no", "off")
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
    price = (
        (float(mine["price_input"]), float(mine["price_output"]), mine.get("price_cached"))
        if {"price_input", "price_output"} <= mine.keys()
        else None
    )
    return ModelChoice(model, mine.get("base_url", ""), key, price, origin, mine.get("stream", True), mine.get("concurrency"))


def _completed(light: ModelChoice, main: ModelChoice, users_url: str) -> ModelChoice:
    """The light model is asked where the main one is, unless it has an address, a key or a provider of its own."""
    if light.base_url and light.base_url != main.base_url:
        return light
    if not main.base_url and _provider(light.model) != _provider(main.model):
        return light
    if light.api_key:
        return light._replace(base_url=light.base_url or users_url)
    return light._replace(base_url=main.base_url, api_key=main.api_key, stream=light.stream and main.stream)


def _provider(model: str) -> str:
    return model.rpartition(":")[0].partition(":")[0] or "openai"
