"""Requests to the model of a run: the conversation, and the current state of the task."""

from contextlib import suppress

from remit.app.agent_loop.budget import RunBudget
from remit.app.agent_loop.current_run import CurrentRun
from remit.app.agent_loop.limits import RunLimits
from remit.app.agent_loop.toolset import RunTools
from remit.app.agents.registry import role_prompt
from remit.app.conversations.model_view import first_message, messages
from remit.domain.llm.messages import Message, ModelSettings, Request, user, without_delimiters
from remit.domain.prompts import agent_prompts, reports, task_block
from remit.domain.task.policy import effort_of
from remit.domain.task.task import Child, State, Update
from remit.errors import Forbidden
from remit.store_queries.record_queries import GUIDE
from remit.store_queries.tree_queries import STATES, TitledState


class RequestBuilder:
    """Builds the requests of a run."""

    def __init__(
        self, run: CurrentRun, tools: RunTools, limits: RunLimits, budget: RunBudget
    ) -> None:
        self._run, self._tools, self._limits, self._budget = run, tools, limits, budget
        self._role = role_prompt(run.agent, tools.offered)
        self.environment = ""
        """The description of the workspace in the system prompt."""

    async def build(
        self, last_turn_text: str, answer_seconds: float, *, has_history: bool = True
    ) -> Request:
        """Build the next request.

        With `last_turn_text`, the agent is told to report without calling a tool.
        `answer_seconds` is how long the model took for its last answer. Without a history, the
        request has only the instructions, any summary and the task block.
        """
        run = self._run
        if run.task.guides or run.task.children:  # they may be new in this run
            with suppress(Forbidden):
                await self._tools.show_for(run.task)
        is_last = bool(last_turn_text)
        read = messages(run.conversation, run.task)
        if not has_history:
            read = (first_message(run.conversation, run.task),)
        block = await self._task_block(read, answer_seconds, is_last=is_last)
        task = run.task
        tail = user(f"{last_turn_text}\n\n{block}".strip())
        sent = (*without_delimiters(read), tail)
        settings = ModelSettings(
            effort=effort_of(task, run.agent, run.chosen.effort),
            max_tokens=self._budget.max_answer_tokens(report=is_last),
        )
        return Request(
            model=run.chosen.model,
            system=agent_prompts.system_prompt(self._role, task, self.environment),
            messages=sent,
            tools=self._tools.shown,
            settings=settings,
            agent=run.agent.id,
            may_call=not is_last,
            passing=len(sent) if is_last else 1,
        )

    async def _task_block(
        self, read: tuple[Message, ...], answer_seconds: float, *, is_last: bool
    ) -> str:
        """Return the current state of the task, as the end of a request.

        `read` are the messages before it.
        """
        allowance = await self._limits.allowance()
        states, titles = await self._subtasks()
        guides = await self._guides()
        task = self._run.task
        prompts = [message.text for message in read if message.role == "user"]
        last_turn = self._run.conversation.last_turn._replace(seconds=answer_seconds)
        left = str(allowance)
        if not is_last:
            left = task_block.what_is_left(task, allowance, last_turn)
        return task_block.task_block(
            task,
            states,
            guides,
            left,
            titles=titles,
            messages=prompts,
            replaces_terms=task.terms_version > self._run.conversation.first_terms_version,
            must_end=allowance.ends_after(last_turn),
            is_last=is_last,
        )

    async def _guides(self) -> dict[str, str]:
        """Return the titles of the attached guides, by name."""
        rows = await GUIDE.among(self._run.services.store.select, names=self._run.task.guides)
        return {row.id: row.title for row in rows}

    async def _subtasks(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the states of the subtasks, and the titles of those without a step.

        The steps of a successor also link to ended subtasks of its predecessor.
        """
        task = self._run.task
        states = {step.task_id: "" for step in task.steps if step.task_id}
        states |= {child.id: child.settled or "" for child in task.children}
        unknown = {task_id for task_id, state in states.items() if not state}
        loose = set(task_block.loose_subtasks(task))
        found = await self._rows_of(unknown | loose)
        for task_id in unknown & found.keys():
            states[task_id] = found[task_id].state
        titles = {task_id: found[task_id].title for task_id in loose & found.keys()}
        for task_id in self._unreported_subtasks():
            states[task_id] = _state_before_report(states[task_id])
        return states, titles

    async def _rows_of(self, task_ids: set[str]) -> dict[str, TitledState]:
        """Return the states and titles of tasks, by id."""
        ids = sorted(map(int, task_ids))
        rows = await STATES.among(self._run.services.store.select, ids=ids)
        return {str(row.id): row for row in rows}

    def _unreported_subtasks(self) -> set[str]:
        """Return the subtasks whose end the agent has not read yet.

        A report that is still queued does not count as read.
        """
        task = self._run.task
        queued = task.queued
        unreported = {child.id for child in task.children if _is_unreported(child, queued)}
        if unreported:
            unreported -= self._run.conversation.results_read
        return unreported


def _is_unreported(child: Child, queued: tuple[Update, ...]) -> bool:
    """True for a subtask whose end its parent is told, and has not been told."""
    if child.wait != "wake":
        return False
    if child.settled is None:
        return True
    return any(reports.reports_on(update, [child.id]) for update in queued)


def _state_before_report(state: str) -> str:
    """Return the state of a subtask that its parent knows until it reads the report."""
    if State(state).terminal:
        return State.RUNNING.value
    return state
