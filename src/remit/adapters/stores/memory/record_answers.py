"""Answers of the memory store to queries about events, runs and the records of tasks."""

from collections import Counter
from collections.abc import Iterator

from remit.adapters.stores.memory.data import Answer, MemoryData, Params
from remit.adapters.stores.memory.records import Record, Records


def _heads(data: MemoryData, params: Params) -> Iterator[Record]:
    """Yield the last event of each stream."""
    for name in sorted(data.streams.keys() & params["streams"]):
        yield data.streams[name][-1]._asdict()


def _streams(data: MemoryData, params: Params) -> Records:
    """Return a page of the names of streams."""
    names = Records({"stream": name} for name in data.streams)
    return names.after(stream=params["after_id"]).first(params["limit"])


def _events(data: MemoryData, params: Params) -> Records:
    """Return a page of the events of a stream, each with its position among all."""
    found = Records(
        {**event._asdict(), "position": str(position)}
        for position, event in enumerate(data.events, 1)
        if event.stream == params["stream"]
    )
    return found.after(version=params["after"]).first(params["limit"])


def _events_of(data: MemoryData, params: Params) -> Iterator[Record]:
    """Yield all events of some streams, stream by stream."""
    for name in sorted(data.streams.keys() & params["streams"]):
        for event in data.streams[name]:
            yield event._asdict()


def _output_events(data: MemoryData, params: Params) -> Records:
    """Return the events of a stream that set outputs."""
    stream = data.streams.get(params["stream"], ())
    events = Records(event._asdict() for event in stream)
    return events.among("type", ("TaskCreated", "OutputsUpdated"))


def _updates(data: MemoryData, params: Params) -> Records:
    return _numbered(data, "task_update", params)


def messages(data: MemoryData, params: Params) -> Records:
    """Return a page of the messages of a task."""
    return _numbered(data, "message", params)


def _numbered(data: MemoryData, table: str, params: Params) -> Records:
    """Return a page of the records of a task that have numbers."""
    found = data.records(table).where(task_id=params["id"])
    return found.after(number=params["after"]).first(params["limit"])


def _interactions(data: MemoryData, params: Params) -> Records:
    found = data.records("interaction").among("status", params["statuses"])
    if params["task"] is not None:
        found = found.where(task_id=params["task"])
    later = found.after(task_id=params["after"], number=params["number"])
    return later.first(params["limit"])


def _interaction(data: MemoryData, params: Params) -> Records:
    return data.records("interaction").where(interaction_id=params["interaction"])


def _call_answers(data: MemoryData, params: Params) -> Records:
    asked = data.records("interaction").where(task_id=params["id"])
    return Records(record for record in asked if record["call_id"] is not None)


def _notifications(data: MemoryData, params: Params) -> Records:
    """Return a page of notifications, the oldest first."""
    found = data.records("notification")
    later = found.after(at=params["after_at"], notification_id=params["after_id"])
    return later.first(params["limit"])


def _guides(data: MemoryData, params: Params) -> Records:
    return data.records("guide").after(id=params["after_id"]).first(params["limit"])


def _guide(data: MemoryData, params: Params) -> Records:
    return data.records("guide").among("id", params["names"])


def _live_runs(data: MemoryData, params: Params) -> Iterator[Record]:
    """Yield runs that have not ended, with their tasks."""
    runs = data.records("run").where(outcome=None)
    for run in runs.among("task_id", params["ids"]):
        task = data.task(run["task_id"]) or {}
        yield {**task, **run}


def _running(data: MemoryData, _: Params) -> list[Record]:
    """Return the number of runs of each worker."""
    runs = Counter(data.records("run").where(outcome=None).column("worker"))
    return [{"worker": worker, "runs": count} for worker, count in sorted(runs.items())]


def _calls(data: MemoryData, params: Params) -> Records:
    return data.records("call").where(task_id=params["id"])


def _call(data: MemoryData, params: Params) -> Records:
    return _calls(data, params).where(call_id=params["call"])


def _pulse(data: MemoryData, params: Params) -> Iterator[Record]:
    """Yield the last message of each task, and how many of its calls were denied."""
    last = {record["task_id"]: record["number"] for record in data.records("message")}
    denied = Counter(data.records("call").where(status="denied").column("task_id"))
    for task in data.records("task").among("id", params["ids"]):
        yield {**task, "number": last.get(task["id"], 0), "denied": denied[task["id"]]}


ANSWERS: dict[str, Answer] = {
    "heads": _heads,
    "streams": _streams,
    "events": _events,
    "events_of": _events_of,
    "output_events": _output_events,
    "updates": _updates,
    "messages": messages,
    "interactions": _interactions,
    "interaction": _interaction,
    "call_answers": _call_answers,
    "notifications": _notifications,
    "guides": _guides,
    "guide": _guide,
    "live_runs": _live_runs,
    "running": _running,
    "calls": _calls,
    "call": _call,
    "pulse": _pulse,
}
