"""Composition: opens stores, agents, workers and servers from the settings."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remit.bootstrap.store_opening import open_core, open_service, open_store

__all__ = ["open_core", "open_service", "open_store"]


def __getattr__(name: str) -> Any:
    """Import a part on first use: commands that only read do not need most of them."""
    if name not in __all__:
        raise AttributeError(name)
    from remit.bootstrap import store_opening

    return getattr(store_opening, name)
