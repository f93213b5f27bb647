"""Tool calls that block a run: questions to people, and work for sub-agents."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from remit.app.subagents import questions
from remit.app.subagents.answers import RECEIPT, UNDER_WAY, answer_to
from remit.app.subagents.children import ChildrenByCall
from remit.app.subagents.delegation_arguments import DELEGATING, is_blocking, names_own_task
from remit.app.subagents.delegation_call import (
    AnsweredCall,
    DelegatingRun,
    DelegationCall,
    KeyedCall,
    failed,
)
from remit.app.subagents.new_subtasks import NewSubtasks
from remit.domain.agents.tools import ToolOutcome
from remit.domain.llm.messages import ToolCall
from remit.domain.prompts.offered_tools import SUBTASK
from remit.domain.records.pick import beyond
from remit.domain.task.task import Task

ASK = "ask_user"


class BlockingCalls:
    """Starts the blocking calls of a run and collects their answers when the run continues."""

    def __init__(self, run: DelegatingRun) -> None:
        self._run = run

    def handles(self, call: ToolCall) -> bool:
        """True for calls that may block, and for calls that create subtasks of this task."""
        match call.name:
            case "create_subtask":
                return self._handles_creation(call)
            case "task_output":
                return bool(call.arguments.get("wait_seconds"))
            case name:
                return name in (ASK, *DELEGATING) or name.startswith(SUBTASK)

    def _handles_creation(self, call: ToolCall) -> bool:
        """True if `create_subtask` blocks, or creates a subtask of this task without a key."""
        if call.arguments.get("wait") == "block":
            return True
        if call.arguments.get("idempotency_key") is not None:
            return False
        return names_own_task(self._run.task, call.arguments)

    async def begin(self, calls: Sequence[KeyedCall]) -> list[AnsweredCall]:
        """Start calls that were not started yet, and return those that have an answer.

        The run waits for the others.
        """
        run, names = self._run, {call.name for _, call in calls}
        answers: questions.Answers = {}
        if ASK in names:
            answers = await questions.answers_to(run)
        children: ChildrenByCall = {}
        if names != {ASK}:
            children = await run.children()
        subtasks = NewSubtasks(run)
        answered: list[AnsweredCall] = []
        fresh: list[DelegationCall] = []
        for key, call in calls:
            if call.error:
                outcome: ToolOutcome | None = failed(call.error)
            elif call.name == ASK:
                outcome = await questions.ask(run, key, call, answers)
            elif call.name == "task_output":
                outcome = await questions.watch(run, key, call)
            else:
                outcome = await self._delegate(key, call, children.get(key, {}), subtasks, fresh)
            if outcome is not None:
                answered.append((key, call, outcome))
        return answered + await self._create(subtasks, fresh)

    async def _delegate(
        self,
        key: str,
        call: ToolCall,
        children: Mapping[int, Task],
        subtasks: NewSubtasks,
        fresh: list[DelegationCall],
    ) -> ToolOutcome | None:
        """Return the answer to a delegation; None if it waits or needs new subtasks.

        A call that needs new subtasks is added to `fresh`.
        """
        if _waits_for_children(call, children):
            return None
        delegation = self._delegation(key, call, children)
        await subtasks.prepare(delegation)
        if delegation.subtasks:
            fresh.append(delegation)
            return None
        return await answer_to(self._run, delegation)

    async def _create(
        self, subtasks: NewSubtasks, fresh: Sequence[DelegationCall]
    ) -> list[AnsweredCall]:
        """Create subtasks; return the answers to calls that do not wait for any of them."""
        refused = await subtasks.create(fresh)
        answered = [await self._answered(each) for each in refused]
        created = beyond(fresh, refused)
        started = [each for each in created if not _blocks_on(each.call, each.made)]
        if not started:
            return answered
        children = await self._run.children()
        for delegation in started:
            known = delegation._replace(children=children[delegation.key])
            answered.append(await self._answered(known))
        return answered

    async def _answered(self, delegation: DelegationCall, unended: str = RECEIPT) -> AnsweredCall:
        """Return a call with its answer; `unended` is the note on items that have not ended."""
        outcome = await answer_to(self._run, delegation, unended)
        return delegation.key, delegation.call, outcome

    async def partial_answers(self, calls: Sequence[KeyedCall]) -> list[AnsweredCall]:
        """Return the current answers of calls for which the run no longer waits."""
        if not calls:
            return []
        children = await self._run.children()
        answered: list[AnsweredCall] = []
        for key, call in calls:
            if key in children:
                delegation = self._delegation(key, call, children[key])
                answered.append(await self._answered(delegation, UNDER_WAY))
        return answered

    def _delegation(self, key: str, call: ToolCall, children: Mapping[int, Task]) -> DelegationCall:
        """Return a call as it was left: with its subtasks and its stored notes."""
        return DelegationCall(key, call, children, {}, self._run.stored_notes(key))


def _waits_for_children(call: ToolCall, children: Mapping[int, Task]) -> bool:
    """True if a call has to wait for one of its subtasks."""
    running = [place for place, task in children.items() if not task.state.terminal]
    return _blocks_on(call, running)


def _blocks_on(call: ToolCall, places: Iterable[int]) -> bool:
    """True if a call waits for the result at one of these positions."""
    return any(map(partial(is_blocking, call), places))
