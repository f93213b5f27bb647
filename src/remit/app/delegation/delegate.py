"""Delegation from outside a run: create tasks for sub-agents and wait for their results.

Each waiting operation is a generator of items: progress if the caller asks for it
(`app/delegation/progress.py`), a `result` for each item of work, and finally `end` with the answer
of the operation. Disconnecting ends the wait; the tasks continue.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from remit.app.context import AppContext, Caller
from remit.app.delegation.envelopes import refusal, task_envelope
from remit.app.delegation.progress import Item, watch_tasks
from remit.app.delegation.waiting import (
    begin_wait,
    last_successor,
    must_have_workers,
    wait_for_ends,
)
from remit.app.reading.waits import with_all_task_ids, with_task_ids
from remit.app.service import Outcome
from remit.app.subagents.delegation_arguments import TIMEOUT_SECONDS, requested_work
from remit.app.subagents.result_cache import Resolution, ResultCache
from remit.domain.decisions.context import task_of_run
from remit.domain.delegation import requests as ask
from remit.domain.delegation.result_envelope import Envelope
from remit.domain.records.pick import in_order, omit, omit_empty, omit_none
from remit.domain.records.serialize import plain
from remit.domain.records.validate import parse
from remit.domain.task import commands as cmd
from remit.domain.task.task import TERMINAL, Task, Tools
from remit.errors import InvalidParam, Problem, RemitError, Unavailable, unknown

Result = dict[str, Any]
Items = AsyncGenerator[Item, None]
FORMATS = ("envelope", "flat")
"""The forms of a result that a request can ask for."""
ENDED = frozenset(state.value for state in TERMINAL)


class WorkItem(NamedTuple):
    """One item of work: its position, its task, and how it gets its result."""

    place: int
    work: ask.DelegateTask
    params: Mapping[str, Any]
    """The parameters of the request, which its result repeats."""
    task_id: str = ""
    resolution: Resolution = Resolution("new")

    @property
    def cached(self) -> bool:
        """True if the result comes from the cache."""
        return self.resolution.kind == "found"


def delegate_task(
    core: AppContext, request: ask.DelegateTask, caller: Caller, progress: bool
) -> Items:
    """Delegate one item of work; answer with its result, or a receipt."""
    return _delegate(core, request, plain(request), caller, progress)


def launch(core: AppContext, request: ask.LaunchTask, caller: Caller, progress: bool) -> Items:
    """Delegate one item of work with the parameters of the `Task` tool of other programs."""
    work = ask.DelegateTask(
        prompt=request.prompt,
        description=request.description,
        subagent_type=request.subagent_type,
        model=request.model,
        timeout_seconds=TIMEOUT_SECONDS["Task"],
    )
    return _delegate(core, work, plain(request), caller, progress)


async def _delegate(
    core: AppContext,
    work: ask.DelegateTask,
    params: Mapping[str, Any],
    caller: Caller,
    progress: bool,
) -> Items:
    """Start one item of work and, if the caller waits, yield until it has ended."""
    work_item = await _start(core, WorkItem(0, work, params), caller, _cache(core), {})
    answer: Envelope | None = None
    with with_task_ids([work_item.task_id]):
        if work.wait and not work_item.cached:
            await must_have_workers(core, [work_item.task_id])
            async with aclosing(_results(core, [work_item], progress)) as items:
                async for item in items:
                    if item["type"] == "result":
                        answer = item["result"]
                    yield item
        answer = answer or await _answer(core, work_item)
    yield _end(answer)


async def delegate_parallel(
    core: AppContext, request: ask.DelegateParallel, caller: Caller, progress: bool
) -> Items:
    """Delegate several items of work; answer with the results in the order of the request."""
    group = _Group(core, request, caller)
    results: dict[int, Result] = {}
    with with_all_task_ids(group.created):
        early = await group.begin_all()
        if group.waiting:
            await must_have_workers(core, group.waiting)
        for item in early:
            results[item["index"]] = item["result"]
            yield item
        async with aclosing(group.results(progress)) as items:
            async for item in items:
                if item["type"] == "result":
                    results[item["index"]] = item["result"]
                yield item
    yield _end({"results": in_order(results)})


async def task_output(
    core: AppContext, request: ask.TaskOutput, caller: Caller, progress: bool
) -> Items:
    """Answer with the state of a delegated task, or its result.

    A caller outside a run counts as waiting, even without wait_seconds, and so does a run whose
    task created this one.
    """
    task = await last_successor(core, (await core.task(request.task_id))["id"])
    with with_task_ids([task.id]):
        if not task.state.terminal and _counts_as_waiting(task, caller):
            await core.adopt([task.id])
            await begin_wait(core, task, caller)
        if not task.state.terminal and request.wait_seconds:
            until = asyncio.get_running_loop().time() + request.wait_seconds
            async with aclosing(_wait(core, task.id, progress, until)) as items:
                async for item in items:
                    yield item
        answer = await task_envelope(core, task.id, request.format, plain(request), request.offset)
    yield _end(answer)


def _counts_as_waiting(task: Task, caller: Caller) -> bool:
    """Return whether the task must not wait for a tick once this caller asks for its result.

    Other runs may read every task, but only its creator depends on it.
    """
    if caller.run_id is None:
        return True
    return task.creator_task_id == task_of_run(caller.run_id)


async def create_subtask(
    core: AppContext, command: cmd.CreateSubtask, caller: Caller, progress: bool
) -> Items:
    """Create a subtask; a caller outside a run that wants its result waits here.

    The parent task is not blocked by that wait.
    """
    outcome = await core.do(command, caller)
    task_id, notice = outcome.task_id, grant_notice(core, command, outcome, "its parent task")
    with with_task_ids([task_id]):
        if command.wait == "block" and caller.run_id is None:
            await must_have_workers(core, [task_id])
            async with aclosing(_wait(core, task_id, progress)) as items:
                async for item in items:
                    yield item
            task_id = (await last_successor(core, task_id)).id
            task = await core.task(task_id)
        else:
            task = await core.task_after(outcome)
    yield _end({"task_id": task_id, "task": task, **notice})


def grant_notice(
    core: AppContext, command: cmd.CreateTask | cmd.CreateSubtask, outcome: Outcome, lacking: str
) -> Result:
    """Return the field of an answer that lists requested tools that a new task did not get.

    Empty if it got all of them.
    """
    if outcome.task is None:
        return {}
    notice = core.agents.not_granted(outcome.task, command.tools, lacking)
    return omit_empty({"notice": notice})


class _Group:
    """Items of work that one caller waits for together.

    Of identical items that may share a result, only one does the work.
    """

    def __init__(self, core: AppContext, request: ask.DelegateParallel, caller: Caller) -> None:
        self._core, self._request, self._caller = core, request, caller
        self._cache = _cache(core)
        self.waiting: dict[str, list[WorkItem]] = {}
        """Items without a result yet, by the task that does the work."""
        self.created: set[str] = set()
        """All tasks of this group, ended or not."""

    async def begin_all(self) -> list[Item]:
        """Start all items; return what is known of their results at once, as `begin` does."""
        early: list[Item] = []
        for index, asked in enumerate(self._request.tasks):
            item = await self.begin(index, asked)
            if item is not None:
                early.append(item)
        return early

    async def begin(self, index: int, item: Mapping[str, Any] | ask.DelegateTask) -> Item | None:
        """Start one item.

        Return its result if it is cached or was refused, its receipt if the caller does not wait
        for it, else None.
        """
        try:
            work = self._work(index, item)
            work_item = WorkItem(index, work, plain(work))
            work_item = await _start(self._core, work_item, self._caller, self._cache, self.waiting)
        except Unavailable:
            raise
        except RemitError as refused:
            return self._refused(index, item, refused)
        if not work_item.cached:
            self.created.add(work_item.task_id)
            if work.wait:
                self.waiting.setdefault(work_item.task_id, []).append(work_item)
                return None
        return await _result_of(self._core, work_item)

    def _work(self, index: int, item: Mapping[str, Any] | ask.DelegateTask) -> ask.DelegateTask:
        """Return an item as a request of its own."""
        if isinstance(item, ask.DelegateTask):
            return item
        return _parse_item(item, index, self._request)

    def _refused(
        self, index: int, item: Mapping[str, Any] | ask.DelegateTask, refused: RemitError
    ) -> Item:
        """Return the result of an item that was refused, in the form that it asks for.

        An item without a valid form gets that of the whole request.
        """
        if isinstance(item, ask.DelegateTask):
            sent, form = plain(item), item.format
        else:
            sent, named = item, item.get("format")
            form = named if named in FORMATS else self._request.format
        return _result(index, None, refusal(_in_item(index, refused), sent).shown(form))

    async def results(self, progress: bool) -> Items:
        """Yield each result as it arrives.

        If an identical item could not provide a result, the next one is started.
        """
        while self.waiting:
            working = [work_items[0] for work_items in self.waiting.values()]
            async with aclosing(_results(self._core, working, progress)) as items:
                async for item in items:
                    yield item
                    if item["type"] != "result":
                        continue
                    for work_item in self.waiting.pop(item["task_id"])[1:]:
                        again = await self.begin(work_item.place, work_item.work)
                        if again is not None:
                            yield again


def _results(core: AppContext, work_items: Iterable[WorkItem], progress: bool) -> Items:
    """Yield the result of each item of work as it arrives, and progress if it is wanted."""
    left = {work_item.task_id: work_item for work_item in work_items}
    if progress:
        return _results_with_progress(core, left)
    return _bare_results(core, left)


async def _bare_results(core: AppContext, left: Mapping[str, WorkItem]) -> Items:
    """Yield the result of each item of work, given by task, as it arrives."""
    async with aclosing(wait_for_ends(core, list(left))) as found:
        async for task_id in found:
            yield await _result_of(core, left[task_id])


async def _results_with_progress(core: AppContext, left: dict[str, WorkItem]) -> Items:
    """Yield the progress and the result of each item of work, given by task.

    After a handoff, the item gets the result of the successor.
    """
    places = {task_id: work_item.place for task_id, work_item in left.items()}
    async with aclosing(watch_tasks(core, places)) as items:
        async for item in items:
            yield item
            if item["state"] not in ENDED or item["task_id"] not in left:
                continue
            work_item = left.pop(item["task_id"])
            successor = item.get("superseded_by")
            if successor:
                left[successor] = work_item
            else:
                yield await _result_of(core, work_item)


async def _wait(core: AppContext, task_id: str, progress: bool, until: float = math.inf) -> Items:
    """Wait for a task; yield its progress if it is wanted."""
    if progress:
        async with aclosing(watch_tasks(core, {task_id: 0}, until=until)) as items:
            async for item in items:
                yield item
    else:
        async with aclosing(wait_for_ends(core, [task_id], until)) as found:
            async for _ in found:
                pass


async def _result_of(core: AppContext, work_item: WorkItem) -> Item:
    return _result(work_item.place, work_item.task_id, await _answer(core, work_item))


def _result(index: int, task_id: str | None, result: Envelope) -> Item:
    """Return the item that tells the result of one item of work."""
    return {
        "type": "result",
        "index": index,
        "task_id": task_id,
        "result": result,
        "about": result.about,
    }


def _end(answer: Result) -> Item:
    """Return the last item, with the answer of the operation."""
    item: Item = {"type": "end", "answer": answer}
    if isinstance(answer, Envelope):
        item["about"] = answer.about
    return item


async def _start(
    core: AppContext,
    work_item: WorkItem,
    caller: Caller,
    cache: ResultCache,
    waiting: Mapping[str, Sequence[WorkItem]],
) -> WorkItem:
    """Find the result of an item, share the work of an identical one, or create its task."""
    command = _command(work_item.work)
    if core.agents.find(command.owner or "") is None:
        raise unknown("subagent_type", "agent", str(command.owner), core.agents.ids())
    under_way = _tasks_by_key(waiting)
    resolution = await cache.resolve(
        command, caller.actor, cache=work_item.work.cache, under_way=under_way
    )
    work_item = work_item._replace(resolution=resolution)
    if resolution.kind == "found":
        return work_item._replace(task_id=resolution.task_id)
    if resolution.kind == "shared":
        return work_item._replace(task_id=under_way[resolution.key or ""])
    if resolution.key is not None:
        command = cmd.CreateCached(**command.__dict__, cache_key=resolution.key)
    task_id = await _create(core, command, caller, wait=work_item.work.wait)
    return work_item._replace(task_id=task_id)


def _tasks_by_key(waiting: Mapping[str, Sequence[WorkItem]]) -> dict[str, str]:
    """Return the tasks that work, by the cache key of their first item."""
    found: dict[str, str] = {}
    for task_id, work_items in waiting.items():
        key = work_items[0].resolution.key or ""
        found[key] = task_id
    return found


async def _create(core: AppContext, command: cmd.CreateTask, caller: Caller, *, wait: bool) -> str:
    """Create the task of an item and return its id.

    An idempotency key may find a task without a waiting caller.
    """
    outcome = await core.do(command, caller)
    if wait:
        with with_task_ids([outcome.task_id]):
            await begin_wait(core, outcome.task, caller)
    return outcome.task_id


def _cache(core: AppContext) -> ResultCache:
    """Return a result cache for the items of one call."""
    return ResultCache(core.store, core.agents, core.clock.now, core.equipment)


async def _answer(core: AppContext, work_item: WorkItem) -> Envelope:
    """Return the answer for an item; if the cache was requested, say whether it was used."""
    result = await task_envelope(core, work_item.task_id, work_item.work.format, work_item.params)
    data = result.get("data", result)
    task = await core.service.load(work_item.task_id)
    notice = core.agents.not_granted(task, work_item.work.tools or Tools(), "the caller")
    data |= omit_empty({"notice": notice})
    if work_item.work.cache:
        data["cached"] = work_item.cached
        data |= omit_empty({"not_cached": work_item.resolution.notice})
    return result


def _command(work: ask.DelegateTask) -> cmd.CreateDelegated:
    """Return the command that creates the task of an item."""
    own = {"session_id", "wait", "format", "idempotency_key"}
    item = omit(plain(work), own)
    fields = requested_work(item, seconds=work.timeout_seconds).fields
    asked = {**fields, "parent_session": work.session_id, "idempotency_key": work.idempotency_key}
    return parse(cmd.CreateDelegated, omit_none(asked))


def _in_item(place: int, error: RemitError) -> RemitError:
    """Return the error with its fields prefixed by the position of the item."""
    if not isinstance(error, InvalidParam):
        return error
    return InvalidParam([_in_place(problem, place) for problem in error.problems])


def _in_place(problem: Problem, place: int) -> Problem:
    """Return a problem whose field names the position of its item."""
    if problem.field.startswith("tasks["):
        return problem
    return problem._replace(field=f"tasks[{place}].{problem.field}")


def _parse_item(
    item: Mapping[str, Any], number: int, request: ask.DelegateParallel
) -> ask.DelegateTask:
    """Parse an item; fields that it lacks come from the whole request."""
    common = {
        "timeout_seconds": request.timeout_seconds,
        "session_id": request.session_id,
        "format": request.format,
    }
    try:
        return parse(ask.DelegateTask, common | omit_none(item))
    except RemitError as refused:
        raise _in_item(number, refused) from refused
