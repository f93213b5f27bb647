"""The check that a workspace or a connection to a server was not closed."""

from remit.errors import RemitError, Unavailable


class Closable:
    """Something with operations that refuses them after it was closed."""

    def _require_open(self) -> None:
        """Raise `Unavailable` if this was closed; called before arguments are validated."""
        raise NotImplementedError


def closed_error() -> RemitError:
    """Return the error of every call after closing."""
    return Unavailable("This Remit is closed.", hint="Open a new one.")
