"""What carries out runs: remit's own agents, or what the operator names instead."""

from importlib import import_module
from typing import Any, cast

from remit.config import Settings
from remit.errors import invalid
from remit.ports import Runner


def runner_of(settings: Settings) -> Runner | None:
    """The runner in force; nothing if there is none, and then a worker only carries news between tasks."""
    name = settings.get("runner")
    return _named(str(name)) if name else None


def _named(name: str) -> Runner:
    module, colon, attribute = name.partition(":")
    try:
        found: Any = getattr(import_module(module), attribute) if colon else None
    except (ImportError, AttributeError, ValueError):
        found = None
    runner = found() if isinstance(found, type) else found
    if not hasattr(runner, "run"):
        raise invalid("runner", f"is {name!r}, which is no runner", "module:name of a class or object with an async method run(activation)")
    return cast("Runner", runner)
