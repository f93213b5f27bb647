"""Queries that find mismatches between tasks and the job queue."""

from typing import NamedTuple

from remit.store_queries.query import BATCH, Query, TaskNumber


class TaskAndDocument(NamedTuple):
    """A task as its document."""

    id: int
    doc: str


class RunWithoutJob(NamedTuple):
    """A run that has not ended although no job of it is claimed."""

    id: int
    run_id: str
    worker: str


DOCUMENTS = Query("documents", BATCH, TaskAndDocument)
UNHEARD = Query("unheard", BATCH, TaskNumber)
ALARMED = Query("alarmed", BATCH, TaskNumber)
RUNLESS = Query("runless", BATCH, RunWithoutJob)
UNTOLD = Query("untold", BATCH, TaskNumber)
UNRELEASED = Query("unreleased", BATCH, TaskNumber)
UNCHECKED = Query("unchecked", BATCH, TaskNumber)
