"""Tool calls that block a run: questions to people, and work for sub-agents."""

from collections.abc import Mapping, Sequence

from remit.app.subagents import questions
from remit.app.subagents.answers import UNDER_WAY, answer_to
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
                if call.arguments.get("wait") == "block":
                    return True
                has_key = call.arguments.get("idempotency_key") is not None
                return not has_key and names_own_task(self._run.task, call.arguments)
            case "task_output":
                return bool(call.arguments.get("wait_seconds"))
            case name:
                return name in (ASK, *DELEGATING) or name.startswith(SUBTASK)

    async def begin(self, calls: Sequence[KeyedCall]) -> list[AnsweredCall]:
        """Start calls that were not started yet, and return those that have an answer.

        The run waits for the others.
        """
        run, names = self._run, {call.name for _, call in calls}
        answers: questions.Answers = {}
        if ASK in names:
            answers = await questions.answers_to(run)
        children = await run.children() if names != {ASK} else {}
        subtasks = NewSubtasks(run)
        answered: list[AnsweredCall] = []
        fresh: list[DelegationCall] = []
        for key, call in calls:
            outcome: ToolOutcome | None = None
            if call.error:
                outcome = failed(call.error)
            elif call.name == ASK:
                outcome = await questions.ask(run, key, call, answers)
            elif call.name == "task_output":
                outcome = await questions.watch(run, key, call)
            elif _can_be_answered(call, mine := children.get(key, {})):
                delegation = DelegationCall(key, call, mine, {}, run.stored_notes(key))
                await subtasks.prepare(delegation)
                if delegation.subtasks:
                    fresh.append(delegation)
                else:
                    outcome = await answer_to(run, delegation)
            if outcome is not None:
                answered.append((key, call, outcome))
        return answered + await self._create(subtasks, fresh)

    async def _create(
        self, subtasks: NewSubtasks, fresh: Sequence[DelegationCall]
    ) -> list[AnsweredCall]:
        """Create subtasks; return the answers to calls that do not wait for any of them."""
        run = self._run
        refused = await subtasks.create(fresh)
        answered = [(each.key, each.call, await answer_to(run, each)) for each in refused]
        started = [
            delegation
            for delegation in fresh
            if delegation not in refused
            and not any(is_blocking(delegation.call, place) for place in delegation.made)
        ]
        children = await run.children() if started else {}
        for delegation in started:
            known = delegation._replace(children=children[delegation.key])
            answered.append((delegation.key, delegation.call, await answer_to(run, known)))
        return answered

    async def partial_answers(self, calls: Sequence[KeyedCall]) -> list[AnsweredCall]:
        """Return the current answers of calls for which the run no longer waits."""
        run = self._run
        children = await run.children() if calls else {}
        answered: list[AnsweredCall] = []
        for key, call in calls:
            if key in children:
                delegation = DelegationCall(key, call, children[key], {}, run.stored_notes(key))
                answered.append((key, call, await answer_to(run, delegation, UNDER_WAY)))
        return answered


def _can_be_answered(call: ToolCall, children: Mapping[int, Task]) -> bool:
    """True if a call does not have to wait for any of its subtasks."""
    running = [place for place, task in children.items() if not task.state.terminal]
    return not any(is_blocking(call, place) for place in running)
