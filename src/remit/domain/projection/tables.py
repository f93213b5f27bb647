"""The tables of query rows. Keep this module free of slow imports: fast reads load it."""

from typing import NamedTuple


class Table(NamedTuple):
    """The columns of a table; the first `key` columns identify a row."""

    key: int
    columns: tuple[str, ...]


TABLES = {
    "task": Table(
        1,
        (
            "id",
            "uid",
            "title",
            "state",
            "owner",
            "parent_id",
            "root_id",
            "session_id",
            "parent_session_id",
            "priority",
            "wait",
            "not_before",
            "rerun_of",
            "started_at",
            "updated_at",
            "archived_at",
            "via",
            "version",
            "hash",
            "doc",
        ),
    ),
    "task_label": Table(2, ("task_id", "label")),
    "task_dependency": Table(2, ("task_id", "needs", "rule")),
    "task_result": Table(1, ("task_id", "key")),
    "task_update": Table(
        2, ("task_id", "number", "update_id", "type", "content", "status", "run_id", "turn", "at")
    ),
    "interaction": Table(
        2,
        (
            "task_id",
            "number",
            "interaction_id",
            "question",
            "options",
            "blocking",
            "asked_by",
            "asked_at",
            "status",
            "answer",
            "answered_by",
            "answered_at",
            "allow_other",
            "call_id",
        ),
    ),
    "notification": Table(2, ("task_id", "number", "notification_id", "message", "actor", "at")),
    "run": Table(
        2, ("task_id", "number", "run_id", "worker", "started_at", "ended_at", "outcome", "error")
    ),
    "guide": Table(1, ("id", "title", "body", "created_by", "created_at")),
}

BESIDE = {
    "call": Table(
        2,
        (
            "task_id",
            "call_id",
            "run_id",
            "tool",
            "arguments",
            "repeatable",
            "started_at",
            "ended_at",
            "status",
            "result",
        ),
    ),
    "message": Table(2, ("task_id", "number", "run_id", "turn", "at", "doc")),
    "budget": Table(1, ("root_id", "tokens", "cost")),
}
"""Tables that are not derived from events, so a replay cannot rebuild them.

Stores write them in the transactions of events.
"""
