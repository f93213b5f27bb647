"""The real clock, and ids that sort by time."""

from datetime import UTC, datetime

from uuid_utils import uuid7


class SystemClock:
    """Time from the system, names from UUIDv7."""

    def now(self) -> datetime:
        """This instant, in UTC."""
        return datetime.now(UTC)

    def uid(self) -> str:
        """A UUIDv7."""
        return str(uuid7())
