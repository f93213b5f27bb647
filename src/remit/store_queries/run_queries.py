"""Queries about runs: their conversations, their calls of tools, and who works on them."""

from typing import NamedTuple

from remit.store_queries.query import Query


class LiveRun(NamedTuple):
    """A run that has not ended, and how its task stands."""

    id: int
    run_id: str
    state: str
    version: int


class RunsOfWorker(NamedTuple):
    """How many runs of a worker have not ended."""

    worker: str
    runs: int


class CallRow(NamedTuple):
    """A call of a tool."""

    task_id: int
    call_id: str
    run_id: str
    tool: str
    arguments: str
    repeatable: int
    started_at: str
    ended_at: str | None
    status: str
    result: str | None


class MessageRow(NamedTuple):
    """A message of a conversation."""

    task_id: int
    number: int
    run_id: str
    turn: int
    at: str
    doc: str


class Pulse(NamedTuple):
    """How far a task is: its version, its last message, and how many calls were denied."""

    id: int
    version: int
    number: int
    denied: int


LIVE_RUNS = Query("live_runs", ("ids",), LiveRun)
RUNNING = Query("running", (), RunsOfWorker)
CALLS = Query("calls", ("id",), CallRow)
CALL = Query("call", ("id", "call"), CallRow)
MESSAGES = Query("messages", ("id", "after", "limit"), MessageRow)
PULSE = Query("pulse", ("ids",), Pulse)
