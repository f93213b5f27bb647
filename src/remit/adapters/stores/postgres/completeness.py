"""Checks that a database has every part of the schema: a restore creates them one after the
other.
"""

from typing import Any

from remit.adapters.stores.postgres import statements
from remit.errors import RolledBack

TABLES = (
    "attendance",
    "budget",
    "call",
    "commit_count",
    "event",
    "guide",
    "interaction",
    "job",
    "message",
    "notification",
    "old_head",
    "run",
    "schema_version",
    "store",
    "task",
    "task_dependency",
    "task_label",
    "task_result",
    "task_update",
    "worker",
)
INDEXES = (
    "attendance_pkey",
    "budget_pkey",
    "call_pkey",
    "commit_count_pkey",
    "event_id_key",
    "event_pkey",
    "event_stream_version_key",
    "guide_pkey",
    "interaction_interaction_id_key",
    "interaction_open",
    "interaction_pkey",
    "job_claimed",
    "job_key",
    "job_later",
    "job_later_root",
    "job_pkey",
    "job_queued",
    "job_ready_queue",
    "job_ready_root",
    "message_pkey",
    "notification_at",
    "notification_pkey",
    "old_head_pkey",
    "run_live",
    "run_pkey",
    "store_pkey",
    "task_dependency_needs",
    "task_dependency_pkey",
    "task_ended",
    "task_history",
    "task_label_pkey",
    "task_label_task",
    "task_live",
    "task_live_owner",
    "task_live_via",
    "task_parent",
    "task_parent_session",
    "task_pkey",
    "task_ready",
    "task_rerun",
    "task_result_key",
    "task_result_pkey",
    "task_session",
    "task_tree",
    "task_uid_key",
    "task_update_pkey",
    "task_waiting",
    "worker_pkey",
)
SEQUENCES = ("commit_count_slot_seq", "event_pos_seq", "job_id_seq", "task_id")
TRIGGERS = ("event_is_never_changed", "event_is_never_emptied", "task_moves")
PROTECTION = frozenset(TRIGGERS[:2])
"""The triggers that every version of the schema has."""
RELATIONS = [*TABLES, *INDEXES, *SEQUENCES]
PARTS = len(RELATIONS) + len(TRIGGERS)
NAMED = 3
"""The maximum number of missing parts that a message names."""

WAIT_FOR_IT = """\
Wait until the restore has ended, and running processes continue. If it failed, restore the \
database again."""


async def missing_parts(connection: Any) -> list[str]:
    """Return the tables, indexes, sequences and triggers of the schema that the database lacks."""
    found = await connection.fetch(statements.STATE["missing"], RELATIONS, list(TRIGGERS))
    return [row[0] for row in found]


async def must_be_complete(connection: Any, place: str) -> None:
    """Raise RolledBack if the schema lacks a part, or the store its identity."""
    if missing := await missing_parts(connection):
        raise incomplete(place, _list_names(missing))
    if not await connection.fetchval(statements.STATE["any_store"]):
        raise incomplete(place, "the table store is empty")


async def can_upgrade(connection: Any, version: int) -> bool:
    """Return True if no restore is under way: it creates tables first, their content next, and
    triggers last.
    """
    missing = await missing_parts(connection)
    if version:
        return "event" in missing or PROTECTION.isdisjoint(missing)
    return {*TABLES} - {"schema_version"} <= {*missing}


def incomplete(place: str, lack: str) -> RolledBack:
    """Return the error for a database that is being restored, or whose restore failed."""
    message = (
        f"The store {place} is incomplete: {lack}. It is being restored, or a restore failed;"
        " nothing is written."
    )
    return RolledBack(message, hint=WAIT_FOR_IT)


def _list_names(missing: list[str]) -> str:
    names = ", ".join(missing[:NAMED])
    if len(missing) > NAMED:
        names += f", and {len(missing) - NAMED} more"
    return f"{len(missing)} of {PARTS} tables, indexes and triggers are missing ({names})"
