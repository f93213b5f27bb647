"""Creates the subtasks of delegation calls, or finds the results that make them needless."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import assert_never

from remit.app.runs.run_handle import CallRecord
from remit.app.subagents.delegation_arguments import item_count
from remit.app.subagents.delegation_call import (
    DelegatingRun,
    DelegationCall,
    Note,
    raise_if_run_ends,
)
from remit.app.subagents.requested_subtasks import requested_subtask
from remit.app.subagents.result_cache import ResultCache
from remit.domain.planning.new_tasks import CALL
from remit.domain.records.record import replace
from remit.domain.records.serialize import dumps
from remit.domain.task import commands as cmd
from remit.errors import RemitError


class NewSubtasks:
    """Prepares and creates the subtasks of the calls of a run that are made together."""

    def __init__(self, run: DelegatingRun) -> None:
        self._run = run
        self._cache = ResultCache(run.store, run.agents, run.now, run.equipment)

    async def prepare(self, delegation: DelegationCall) -> None:
        """Add the subtasks that must be created for a call.

        An invalid item is noted as refused and does not fail the others.
        """
        for place in range(item_count(delegation.call)):
            if _has_result(delegation, place):
                continue
            try:
                await self._prepare_item(delegation, place)
            except RemitError as error:
                delegation.refuse(place, error)

    async def _prepare_item(self, delegation: DelegationCall, place: int) -> None:
        """Find a cached result for an item, share the work of another item, or add a subtask."""
        key, call, _, subtasks, notes = delegation
        shared = delegation.note(place, "shared")
        notes.pop(place, None)
        task_id = None if shared is None else await self._cache.find(shared.text)
        if task_id is not None:
            notes[place] = Note("found", task_id)
            return
        subtask, may_use_cache = requested_subtask(self._run, call, place)
        resolution = await self._cache.resolve(
            subtask,
            self._run.handle.actor,
            self._run.task,
            cache=may_use_cache,
            under_way=_awaited_keys(subtasks.values()) if subtask.wait == "block" else (),
        )
        mine = replace(subtask, idempotency_key=f"{CALL}{key}#{place}")
        match resolution.kind:
            case "found":
                notes[place] = Note("found", resolution.task_id)
            case "shared":
                notes[place] = Note("shared", resolution.key or "")
            case "uncached":
                subtasks[place], notes[place] = mine, Note("uncached", resolution.notice)
            case "new":
                subtasks[place] = _with_cache_key(mine, resolution.key)
            case _:
                assert_never(resolution.kind)

    async def create(self, delegations: Sequence[DelegationCall]) -> list[DelegationCall]:
        """Create all subtasks in one commit; return the calls without any subtask.

        If the commit is refused, create them one by one, so that one does not fail the others.
        """
        if not delegations:
            return []
        subtasks = chain.from_iterable(each.subtasks.values() for each in delegations)
        try:
            await self._create(subtasks, self._note_records(*delegations))
        except RemitError as error:
            raise_if_run_ends(error)
            return [each for each in delegations if not await self._create_one_by_one(each)]
        return []

    async def _create_one_by_one(self, delegation: DelegationCall) -> bool:
        """Create the subtasks of a call one by one; return False if every one was refused."""
        while delegation.subtasks:
            if await self._create_possible(delegation):
                await self._keep_notes(delegation)
                return True
            # An item that shared the work of a refused item needs its own subtask.
            delegation.subtasks.clear()
            await self.prepare(delegation)
        return False

    async def _keep_notes(self, delegation: DelegationCall) -> None:
        """Store the notes of a call; some were added while its subtasks were created."""
        records = self._note_records(delegation)
        if records:
            await self._run.handle.keep(list(map(CallRecord.row, records)))

    async def _create_possible(self, delegation: DelegationCall) -> bool:
        """Create the subtasks of a call that are not refused; return False if there are none."""
        is_created = False
        beside = self._note_records(delegation)
        for place, subtask in delegation.subtasks.items():
            try:
                await self._create([subtask], beside)
                is_created = True
            except RemitError as error:
                delegation.refuse(place, error)
        return is_created

    async def _create(
        self, subtasks: Iterable[cmd.CreateSubtask], beside: Iterable[CallRecord]
    ) -> None:
        """Create subtasks in one commit, with records of calls."""
        command = cmd.Delegate(task_id=self._run.task.id, subtasks=tuple(subtasks))
        await self._run.handle.do(command, *beside)

    def _note_records(self, *calls: DelegationCall) -> list[CallRecord]:
        """Return call records that store the notes of calls; calls without notes are left out."""
        return [
            replace(self._run.begun(each.key, each.call), result=dumps(each.notes))
            for each in calls
            if each.notes
        ]


def _has_result(delegation: DelegationCall, place: int) -> bool:
    """True for an item with a subtask or a result, and for one that was refused."""
    return place in delegation.children or delegation.note(place, "refused", "found") is not None


def _with_cache_key(subtask: cmd.CreateSubtask, key: str | None) -> cmd.CreateSubtask:
    """Return a subtask whose result is cached under a key, if there is one."""
    if key is None:
        return subtask
    return cmd.CreateCachedSubtask(**subtask.__dict__, cache_key=key)


def _awaited_keys(subtasks: Iterable[cmd.CreateSubtask]) -> set[str]:
    """Return the cache keys of the subtasks whose results a call waits for."""
    return {
        subtask.cache_key
        for subtask in subtasks
        if isinstance(subtask, cmd.CreateCachedSubtask) and subtask.wait == "block"
    }
