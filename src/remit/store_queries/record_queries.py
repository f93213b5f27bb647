"""Queries about what belongs to a task: updates, questions, notifications, guides."""

from typing import NamedTuple

from remit.store_queries.query import Query


class UpdateRow(NamedTuple):
    """Something that the agent of a task is told."""

    update_id: str
    type: str
    content: str
    status: str
    run_id: str | None
    turn: int | None
    at: str


class InteractionRow(NamedTuple):
    """A question to a person."""

    interaction_id: str
    task_id: int
    question: str
    options: str | None
    blocking: int
    asked_by: str
    asked_at: str
    status: str
    answer: str | None
    answered_by: str | None
    answered_at: str | None
    allow_other: int


class CallAnswer(NamedTuple):
    """The answer to a question that a tool call asked; None while the question is open."""

    call_id: str
    answer: str | None


class NotificationRow(NamedTuple):
    """Something that an agent told people."""

    notification_id: str
    task_id: int
    message: str
    actor: str
    at: str


class GuideTitle(NamedTuple):
    """A guide in a list."""

    id: str
    title: str
    created_by: str
    created_at: str


class GuideRow(NamedTuple):
    """A guide with its text."""

    id: str
    title: str
    body: str
    created_by: str
    created_at: str


UPDATES = Query("updates", ("id", "after", "limit"), UpdateRow)
INTERACTIONS = Query(
    "interactions", ("statuses", "task", "after", "number", "limit"), InteractionRow
)
INTERACTION = Query("interaction", ("interaction",), InteractionRow)
CALL_ANSWERS = Query("call_answers", ("id",), CallAnswer)
NOTIFICATIONS = Query("notifications", ("after_at", "after_id", "limit"), NotificationRow)
GUIDES = Query("guides", ("after_id", "limit"), GuideTitle)
GUIDE = Query("guide", ("names",), GuideRow)
