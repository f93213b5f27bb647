"""A store in plain dictionaries, for tests: the reference that the real ones are compared with.

Its queries are answered by one function each in the modules `*_answers`.
"""

from remit.adapters.stores.memory.store import MemoryEventStore

__all__ = ["MemoryEventStore"]
