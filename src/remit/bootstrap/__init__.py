"""Puts the parts together."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remit.bootstrap.store import open_core, open_service, open_store

__all__ = ["open_core", "open_service", "open_store"]


def __getattr__(name: str) -> Any:
    """Load a part when it is first asked for: commands that only read do without most of them."""
    if name not in __all__:
        raise AttributeError(name)
    from remit.bootstrap import store

    return getattr(store, name)
