"""The last line of a process that is stopped. Imports nothing slow."""


def stopped_line() -> str:
    """Return the last line of a process that has no other message."""
    return "Stopped."
