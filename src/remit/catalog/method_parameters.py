"""The parameters of operations as Python methods."""

from typing import Any

from remit.domain.records.record import MISSING, fields

HIDDEN = frozenset({"format"})
"""Fields that methods do not take: a result object has a method for each form."""
TYPED = frozenset({"task", "task_parallel", "Task", "task_output"})
"""Operations whose methods take an `output_type`."""


def positional(kind: type[Any]) -> list[str]:
    """Return the positional fields: the required ones with the task first, or else the
    first field.
    """
    known = fields(kind)
    required = [name for name, default in known.items() if default is MISSING]
    return sorted(required, key=lambda name: name != "task_id") or list(known)[:1]
