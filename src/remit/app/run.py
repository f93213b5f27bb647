"""The loop of an agent: ask the model, do what it calls for, and again, until the run ends or has to wait.

What was said and done is stored step by step under the run's fence. A run may stop anywhere; the next one, in any process, goes on
at that very call.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import Any, Literal, NamedTuple

from remit.app.activation import Activation, CallRecord, CallStatus, ToolDenied, ToolFailed
from remit.app.agents import Agent, AgentRegistry, role_prompt
from remit.app.cache import vouched
from remit.app.conversation import Conversation, Said
from remit.app.handover import Begun, Handover
from remit.app.purse import Purse, Roots
from remit.app.summary import Summarizer
from remit.domain import brief, offer
from remit.domain import command as cmd
from remit.domain.choice import HOW_TO_SET_A_MODEL
from remit.domain.compaction import Mark
from remit.domain.counting import counted, dollars, in_seconds
from remit.domain.due import report_seconds, time_left
from remit.domain.environment import Allowance, Environment, environment_section
from remit.domain.media import kept
from remit.domain.message import Message, ModelSettings, Request, Response, Tool, ToolCall, user, without_delimiters
from remit.domain.model import CAUSES, NO_TOOL_CALLS, UNBILLED, ModelFailed, excerpt, explain
from remit.domain.policy import MAX_TURNS, effort_of, max_attempts, must_come_to_something, needs_writing
from remit.domain.project import Change
from remit.domain.tool import ToolCallRequest, ToolOutcome, ToolSpec
from remit.domain.value import FailCause, FailReason, State, Task, ToolCount, Usage, plain_id
from remit.domain.wire import dumps, instant
from remit.domain.written import Written, written_call
from remit.errors import Forbidden, RemitError
from remit.ports import Chosen, Clock, Equipment, EventStore, Models, OperationTools, Surroundings, ToolHost

TOOL_SECONDS = 600.0
IDLE = frozenset({"no_first_byte", "stalled", "timed_out"})
"""Failures of a model that mean that nothing came for too long."""
CLAIMS = ("complete_task", "mark_task_complete")
"""Operations that claim completion."""
OFFLINE = "offline"
LEAST_SECONDS = 0.1
"""Less time than this counts as none."""


class AgentRunner:
    """Runs remit's own agents."""

    reports = True
    """A task whose time is up gets a run to say how far it came."""

    def __init__(
        self,
        store: EventStore,
        agents: AgentRegistry,
        models: Models,
        tools: Callable[[], ToolHost],
        operations: OperationTools,
        clock: Clock,
        surroundings: Surroundings | None = None,
    ) -> None:
        self._store, self._agents, self._models, self._operations, self._clock = store, agents, models, operations, clock
        self.tools = tools
        self._surroundings = surroundings
        self._sets: dict[tuple[str, frozenset[str], bool], Toolset] = {}
        self.roots = Roots(store)

    async def run(self, activation: Activation) -> None:
        """Work on a task until the run has ended."""
        task = activation.task
        agent = self._agents.get(task.owner or "")
        if agent is None:
            return await _fail(activation, f"There is no agent {task.owner} here.")
        try:
            chosen = self._models.resolve(task.model or agent.model)
        except RemitError as refused:
            return await _fail(activation, str(refused), cause=refused.details.get("cause"))
        talk = await Conversation.load(self._store, task.id) if task.counts.runs > 1 else Conversation(task.id, [], {})
        granted = frozenset(self._agents.grant(agent.id, task.tools))
        offered = granted if task.tools.offer is None else granted & frozenset(task.tools.offer)
        try:
            tools = await self.toolset(agent, offered, has_guides=bool(task.guides))
            must_come_to_something(task, offered, tools.known, self._agents.usable(agent.id, tools.known))
        except RemitError as refused:
            return await _reject(activation, str(refused))
        if chosen.offline and (needs := needs_writing(task, granted)):
            return await _fail(activation, _without_model(task, needs), cause="model_unconfigured")
        stretch = Stretch(self, activation, agent, chosen, talk, offered, tools)
        try:
            await stretch.within_time()
        except asyncio.CancelledError:
            if not activation.handed_over:
                raise
            await stretch.hand_over()
        finally:
            await stretch.close()
        return None

    async def toolset(self, agent: Agent, offered: frozenset[str], *, has_guides: bool) -> "Toolset":
        """What an agent can call and what it is shown, made once: gateways recognize the very same tools and do not
        encode them again."""
        found = self._sets.get((agent.id, offered, has_guides))
        if found is None:
            host = self.tools()
            try:
                specs, refusal = host.specs(), await host.refusal(offered)
            finally:
                await host.close()
            if refusal:
                raise Forbidden(refusal)  # not remembered: the machine may be helped
            files = {spec.name: spec for spec in specs if spec.name in offered}
            operations = {spec.name: spec for spec in self._operations.usable(agent, offered)}
            has_tasks = "tasks" in agent.capabilities
            shown = offer.offered(tuple(files), operations, has_tasks=has_tasks, has_guides=has_guides)
            tools = tuple(_tool((files | operations)[name]) for name in shown)
            known = (*(spec.name for spec in specs), "TodoWrite", "Task")
            found = self._sets[agent.id, offered, has_guides] = Toolset(files, operations, tools, known)
        return found

    def trouble(self) -> str:
        """The models that are left alone for now, as others are told of them."""
        found = self.models.trouble()
        return dumps(found) if found else ""

    @property
    def store(self) -> EventStore:
        """Where everything is kept."""
        return self._store

    @property
    def agents(self) -> AgentRegistry:
        """Everybody who can be given work."""
        return self._agents

    @property
    def models(self) -> Models:
        """Who answers for the name of a model."""
        return self._models

    @property
    def operations(self) -> OperationTools:
        """What agents may ask of remit itself."""
        return self._operations

    @property
    def clock(self) -> Clock:
        """What time it is."""
        return self._clock

    def equipment(self) -> AbstractAsyncContextManager[Equipment]:
        """What agents work with here."""
        return nullcontext(Equipment(self._models, self.tools))

    def now(self) -> str:
        """This instant as it is stored."""
        return instant(self._clock.now())

    async def environment(self) -> Environment:
        """Where the agents of this runner work."""
        return Environment() if self._surroundings is None else await self._surroundings.look()


def _tool(spec: ToolSpec) -> Tool:
    return Tool(spec.name, spec.description, spec.parameters)


class Toolset(NamedTuple):
    """The tools of the host and of the catalogue that an agent can call, by name; those that its model is shown; and the
    names that a grant can hold here.
    """

    files: Mapping[str, ToolSpec]
    operations: Mapping[str, ToolSpec]
    tools: tuple[Tool, ...]
    known: tuple[str, ...]


class _Halted(Exception):
    """The run was told to stop while its model was not to be asked again yet."""


class Stretch:
    """One run of an agent: from where the conversation stands to where it must stop."""

    def __init__(
        self, runner: AgentRunner, activation: Activation, agent: Agent, chosen: Chosen, talk: Conversation, offered: frozenset[str], tools: Toolset
    ) -> None:
        self._runner, self._activation, self._agent, self._chosen, self._talk = runner, activation, agent, chosen, talk
        task = activation.task
        self._offered = offered
        self._host_specs, self._operation_specs, self._tools, _ = tools
        self._plan_tool: cmd.PlanTool = brief.plan_tool([tool.name for tool in tools.tools])
        self._host: ToolHost | None = None
        self._handover = self._hands(talk)
        # A run that was lost could not tell what it had used.
        self._counts = talk.tool_uses - Counter({item.tool: item.count for item in task.tool_summary})
        self._usage = talk.usage.beyond(task.usage)
        self._environment = talk.environment
        self._role = role_prompt(agent, offered)
        self._purse = Purse(activation, chosen)
        self._final_message = ""
        """The last message with which this run was to end."""
        self._unkept: list[Change] = []
        """A message that is stored with the answer to it: until there is one, it can be made again."""

    def _hands(self, talk: Conversation) -> Handover:
        runner = self._runner
        return Handover(runner.store, runner.agents, self._activation, self._agent, talk.calls, runner.operations, runner.clock.now, runner.equipment)

    async def close(self) -> None:
        """Let go of the workspace."""
        if self._host is not None:
            await self._host.close()

    async def hand_over(self) -> None:
        """Give the task back although the run was cancelled in the middle of something: the next run goes on at that very call.

        A tool call with effects stays recorded as started, so that the next run reports its outcome as unknown.
        """
        current = asyncio.current_task()
        assert current is not None
        current.uncancel()
        self._unkept.clear()  # it can be said again
        await self._write(cmd.ReleaseRun(task_id=self._task.id, tool_summary=self._summary(), usage=self._spent()))

    @property
    def _task(self) -> Task:
        return self._activation.task

    async def within_time(self) -> None:
        """Go on, but no longer than the task may take."""
        await self._open()
        limit = self._task.limits.timeout_seconds or self._agent.timeout_seconds
        if limit is None:
            return await self._go()
        while (left := self._time_left(limit)) > 0:
            clock = asyncio.timeout(left)
            try:
                async with clock:
                    return await self._go()
            except TimeoutError:
                if not clock.expired():
                    raise
            if not await self._has_time_left(limit):
                break
        return await self._time_is_up(limit)

    def _time_left(self, limit: float) -> float:
        return time_left(self._task, limit, self._runner.clock.now())

    async def _has_time_left(self, limit: float) -> bool:
        """True if the time was not up: the process stood still, which does not count. What was cut off is then done again."""
        await self._activation.exclude_silence()
        await self._activation.look()
        if self._time_left(limit) < LEAST_SECONDS:
            return False
        self._unkept.clear()
        self._talk = await Conversation.load(self._runner.store, self._task.id)
        self._handover = self._hands(self._talk)
        return True

    async def _time_is_up(self, limit: float) -> None:
        """Let the agent report, if it has begun and does not take long, and end its task; what was cut off is not known any more."""
        await self._activation.look()
        if await self._end_as_given():
            return
        message = f"The time limit of {in_seconds(limit)} is reached."
        self._unkept.clear()
        self._talk = await Conversation.load(self._runner.store, self._task.id)
        if self._talk.turns and not self._activation.halted:
            with suppress(TimeoutError, ModelFailed, _Halted):
                async with asyncio.timeout(report_seconds(limit)):
                    await self._purse.refresh()
                    await self._hear(await self._hands(self._talk).so_far(self._talk.open_calls()))
                    why = brief.LIMIT_REACHED.format(limit=in_seconds(limit))
                    message += _report_of(await self._report(why))
        await self._abort("timeout", message)

    async def _open(self) -> None:
        await self._purse.open(self._runner.roots)
        if not self._environment:
            found = await self._runner.environment()
            self._environment = environment_section(found, await self._allowance())

    async def _allowance(self) -> Allowance:
        """What the task has left: turns always, the rest where it is limited."""
        limits = self._task.limits
        seconds = limits.timeout_seconds or self._agent.timeout_seconds
        tokens, cost = await self._purse.left()
        if self._task.root_id != self._task.id:
            used = self._task.usage.plus(self._usage)
            tokens = _less(tokens, limits.max_tokens, used.input_tokens + used.output_tokens)
            cost = _less(cost, limits.max_cost, used.cost)
        return Allowance(
            turns=max(0, self._max_turns - self._talk.turns),
            seconds=None if seconds is None else self._time_left(seconds),
            tokens=tokens,
            cost=cost,
        )

    @property
    def _max_turns(self) -> int:
        return self._task.limits.max_turns or self._agent.max_turns or MAX_TURNS

    async def _go(self) -> None:
        while not self._activation.over:
            if self._activation.halted:
                return await self._write(cmd.ReleaseRun(task_id=self._task.id, tool_summary=self._summary(), usage=self._spent()))
            if calls := self._talk.open_calls():
                if await self._act(calls):
                    return await self._write(cmd.YieldRun(task_id=self._task.id, tool_summary=self._summary(), usage=self._spent()))
            elif self._task.queued and self._has_answer and await self._skip_read_reports():
                await self._finish(self._talk.last_answer)  # it was given with these reports in view
            elif not await self._prompt() or not self._activation.halted:
                with suppress(_Halted):
                    await self._answer()
        return None

    @property
    def _has_answer(self) -> bool:
        """True after a final message that did not end the task, if nothing was said since."""
        answer = self._talk.last_answer
        return self._talk.finished and bool(answer) and answer in (self._final_message, self._task.final_message)

    # What the model reads.

    async def _guides(self) -> dict[str, str]:
        if not self._task.guides:
            return {}
        rows = await self._runner.store.select("guide", {"names": list(self._task.guides)})
        return {row[0]: row[1] for row in rows}

    async def _prompt(self) -> bool:
        """Say what there is to say before the next request: the instructions, what has changed since, or to go on."""
        if self._task.queued:
            await self._skip_read_reports()
        updates = self._task.queued
        parts: list[str] = []
        if not self._talk.said:
            parts.append(brief.first_message(self._task, await self._prerequisites()))
            news = tuple(update for update in updates if brief.is_said(update))
        else:
            news = updates
        if news:
            parts.append(brief.news(news))
        if written := self._not_explained():
            parts.append(brief.how_to_call(written.tool))
        elif not parts and self._talk.finished:
            parts.append(brief.work_prompt(self._plan_tool))
        if not parts:
            return False
        said = self._talk.next(user("\n\n".join(parts)), self._activation.run_id, self._runner.now())
        if not self._talk.said:
            said = said._replace(more={"environment": self._environment})
        self._unkept.append(self._talk.row(said))
        if updates:
            ids = tuple(update.update_id for update in updates)
            await self._write(cmd.DeliverUpdates(task_id=self._task.id, turn=self._talk.turns + 1, update_ids=ids))
        self._talk.keep(said)
        return True

    async def _skip_read_reports(self) -> bool:
        """True if every queued update is a report that the agent has read as the answer to a call; these count as delivered."""
        queued, read = self._task.queued, self._talk.results_read
        ids = tuple(update.update_id for update in queued if brief.reports_on(update, read))
        if ids:
            await self._activation.do(cmd.DeliverUpdates(task_id=self._task.id, turn=self._talk.turns, update_ids=ids))
        return bool(ids) and not self._task.queued

    async def _prerequisites(self) -> list[Task]:
        """The tasks that this one depends on, as they ended."""
        ids = [dependency.task_id for dependency in self._task.depends_on]
        return await self._activation.tasks(ids) if ids else []

    async def _request(self, last_words: str = "") -> Request:
        if self._task.guides:  # one may have been attached during the run
            with suppress(Forbidden):
                self._tools = (await self._runner.toolset(self._agent, self._offered, has_guides=True)).tools
        allowance = await self._allowance()
        states, guides = await self._subtask_states(), await self._guides()
        is_last = bool(last_words)
        block = brief.task_block(self._task, states, guides, str(allowance), is_last=is_last)
        tail = user(f"{last_words}\n\n{block}".strip())
        messages = without_delimiters((*self._talk.messages(), tail))
        effort = effort_of(self._task, self._agent, self._chosen.effort)
        return Request(
            model=self._chosen.model,
            system=brief.system_prompt(self._role, self._task, self._environment),
            messages=messages,
            tools=self._tools,
            settings=ModelSettings(effort=effort, max_tokens=self._purse.most(report=bool(last_words))),
            agent=self._agent.id,
            may_call=not last_words,
            passing=len(messages) if last_words else 1,
        )

    async def _subtask_states(self) -> dict[str, str]:
        unknown = [int(child.id) for child in self._task.children if child.settled is None]
        states = {child.id: child.settled or "" for child in self._task.children}
        if unknown:
            rows = await self._runner.store.select("rows_task", {"ids": unknown})
            states |= {str(row[0]): str(row[3]) for row in rows}
        untold = self._untold()
        return {child_id: _before_end(state) if child_id in untold else state for child_id, state in states.items()}

    def _untold(self) -> set[str]:
        """The subtasks whose end the agent has not been told, or only with a report that is still queued."""
        queued = self._task.queued
        untold = {
            child.id
            for child in self._task.children
            if child.wait == "wake" and (child.settled is None or any(brief.reports_on(update, [child.id]) for update in queued))
        }
        return untold - self._talk.results_read if untold else untold

    # What the model answers.

    async def _answer(self) -> None:
        await self._purse.refresh()
        if unpriced := self._purse.unpriced:
            return await self._abort("budget", unpriced)
        most = self._max_turns
        reached = _turns_reached(most) if self._talk.turns >= most else self._over_budget()
        request = None if reached else await self._afforded("")
        if request is None and await self._end_as_given():
            return None
        try:
            if request is None:
                return await self._last_turn(reached or await self._tree_reached())
            said, response = await self._ask(request)
        except ModelFailed as failed:
            if failed.kind == "context_overflow":
                return await self._overflowed(failed)
            return await self._failed(failed)
        if response.stop == "refusal":
            await self._failed(ModelFailed("rejected_request", f"it refused to answer: {excerpt(response.text)}"))
        elif response.calls or response.stop == "length" or not (response.text.strip() or self._talk.silent):
            await self._keep()  # who was cut off, or said nothing, is told to go on
        elif written := self._written(response.text):
            await self._not_called(written, response.text)
        elif not response.text.strip():
            if not await self._end_as_before():
                await self._failed(ModelFailed("bad_response", "it said nothing, and nothing again when told to go on"))
        else:
            await self._finish(response.text)
        self._talk.keep(said)
        return None

    def _written(self, text: str) -> Written | None:
        """The call that a text makes instead of the model; None if the text is an answer."""
        asked = f"{self._task.instructions}\n{self._task.description}"
        return written_call(text, [tool.name for tool in self._tools], asked)

    def _not_explained(self) -> Written | None:
        """The call in the last message, if the agent was not told yet how to call tools."""
        if not self._talk.finished or self._talk.knows_how_to_call:
            return None
        return self._written(self._talk.last_answer)

    async def _not_called(self, written: Written, text: str) -> None:
        """Explain once how to call a tool; the second time, accept an answer and fail the rest."""
        if not self._talk.knows_how_to_call:
            await self._keep()
        elif written.has_prose:
            await self._finish(text)
        else:
            message = NO_TOOL_CALLS.format(tool=written.tool)
            await self._failed(ModelFailed("tool_calls_as_text", message))

    async def _finish(self, final_message: str) -> None:
        """End the run with a final message, unless its task has something to say to that."""
        self._final_message = final_message
        await self._vouch()
        summary, usage = self._summary(), self._spent()
        command = cmd.FinishRun(
            task_id=self._task.id,
            final_message=final_message,
            plan_tool=self._plan_tool,
            tool_summary=summary,
            usage=usage,
        )
        await self._write(command)

    async def _end_as_before(self) -> bool:
        """True if the run could end with the final message before the reminder.

        The model has nothing to add to it.
        """
        return await self._end_with(self._task.final_message if self._task.reminded else None)

    async def _end_as_given(self) -> bool:
        """True if the run could end with the final message before the reminder.

        No turn is left to answer the reminder.
        """
        is_answered = not self._talk.said or self._talk.said[-1] is not self._talk.reminder
        return False if is_answered else await self._end_as_before()

    async def _end_despite(self, failed: ModelFailed) -> bool:
        """True if the run could end with the final message before the reminder.

        The model failed for good before it had completed its answer to the reminder.
        """
        last_attempt = self._task.attempts + 1 >= max_attempts(self._task.limits)
        says_nothing = failed.kind == "bad_response"
        is_final = failed.permanent or failed.lasting or last_attempt or says_nothing
        if not is_final or self._talk.reminder is None:
            return False
        return await self._end_as_before()

    async def _end_with(self, answer: str | None) -> bool:
        if answer:
            await self._finish(answer)
        return bool(answer) and self._activation.over

    async def _overflowed(self, overflow: ModelFailed) -> None:
        """Make the conversation shorter, so that the model is asked again; end the task if that is impossible."""
        mark = self._talk.next_mark()
        if mark is not None:
            return await self._compact(mark)
        if await self._end_despite(overflow):
            return None
        error = explain(overflow, self._chosen.shown, self._chosen.origin)
        error += _report_of(await self._report_without_history())
        failed = cmd.FailRun(
            task_id=self._task.id,
            error=error,
            permanent=True,
            cause=CAUSES[overflow.cause],
            tool_summary=self._summary(),
            usage=self._spent(),
        )
        return await self._write(failed)

    async def _compact(self, mark: Mark) -> None:
        """Store a mark; messages that a summary replaces are summarized first."""
        text, response = "", None
        if mark.kind == "summarized":
            runner = self._runner
            summarizer = Summarizer(runner.models, runner.roots, self._activation, self._agent.id, self._pause)
            text, response = await summarizer.summarize(self._talk.replaced_by(mark))
            if response is not None:
                self._count(response)
        message = user(text) if text else Message("user", ())
        said = self._talk.next(message, self._activation.run_id, self._runner.now(), response)
        said = said._replace(more={**said.more, "mark": mark._asdict()})
        self._unkept.append(self._talk.row(said))
        await self._keep()
        self._talk.keep(said)

    async def _report_without_history(self) -> str | None:
        """What the agent says in a last turn that shows it only its instructions and any summary."""
        await self._purse.refresh()
        why = brief.LIMIT_REACHED.format(limit="the context of the model")
        request = await self._request(brief.LAST_TURN.format(why=why))
        short = request._replace(messages=(request.messages[0], request.messages[-1]))
        if not await self._purse.reserve(short, report=True):
            return None
        try:
            return (await self._ask(short))[1].text
        except ModelFailed:
            return None

    async def _last_turn(self, reached: "Reached") -> None:
        """Let the agent report, and end its task; it ends at its limit even if the model can never be asked for a report.

        An agent that was only reminded of open steps has answered before: its answer stands.
        """
        if self._talk.reminder is not None and await self._end_as_before():
            return None
        try:
            report = _report_of(await self._report(reached.told))
        except ModelFailed as failed:
            if not failed.permanent:
                raise
            report = f" It could not report: {failed}"
        if (reached.reason, reached.scope) == ("budget", "own"):
            reached = self._over_budget() or reached  # the report counts too
        if report:
            return await self._abort(reached.reason, f"{reached.why}{report}")
        short = await self._purse.shortage()
        is_tree = reached.scope == "tree"
        return await self._abort(reached.reason, short if is_tree else f"{reached.why} It could not report: {short}")

    async def _tree_reached(self) -> "Reached":
        """The budget of the whole tree, which does not cover the request that was refused last."""
        purse = self._purse
        return Reached("budget", "tree", await purse.used_up(), await purse.shortage(is_reported=True))

    async def _report(self, why: str) -> str | None:
        """What the agent says in one more turn; tools that it calls are not used. None if the tree cannot pay for it."""
        while request := await self._afforded(brief.LAST_TURN.format(why=why)):
            try:
                return (await self._ask(request))[1].text
            except ModelFailed as failed:
                mark = self._talk.next_mark() if failed.kind == "context_overflow" else None
                if mark is None:
                    raise
            await self._compact(mark)
        return None

    async def _ask(self, request: Request) -> tuple[Said, Response]:
        """What the model answers; it is stored with whatever is written next."""
        try:
            response = self._priced(await self._chosen.gateway.request(request, pause=self._pause))
        except (_Halted, ModelFailed) as error:
            if not isinstance(error, ModelFailed) or error.kind in UNBILLED:
                await self._purse.free()
            raise
        self._count(response)
        await self._purse.settle(response)
        said = self._talk.next(response.message, self._activation.run_id, self._runner.now(), response)
        self._unkept.append(self._talk.row(said))
        return said, response

    async def _pause(self, waiting: Awaitable[None]) -> None:
        """Wait before the model is asked again; a run that should stop does so now, and one that is not live any more asks nothing."""
        either = [asyncio.ensure_future(waiting), asyncio.ensure_future(self._activation.stopping.wait())]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in either:
                one.cancel()
        if not await self._activation.may_go_on():
            raise _Halted

    def _priced(self, response: Response) -> Response:
        """An answer with what it cost; where nobody knows the name that the endpoint gives its model, by the name it was asked for."""
        if response.cost is not None:
            return response
        return response._replace(cost=self._chosen.gateway.cost(self._chosen.model, response.tokens))

    async def _afforded(self, last_words: str) -> Request | None:
        """The next request, if the tree can pay for it."""
        request = await self._request(last_words)
        return request if await self._purse.reserve(request, report=bool(last_words)) else None

    def _over_budget(self) -> "Reached | None":
        """What a subtask was given for itself and has used up; the budget of the whole tree is kept by its root."""
        if self._task.root_id == self._task.id:
            return None
        limits, used = self._task.limits, self._task.usage.plus(self._usage)
        tokens = used.input_tokens + used.output_tokens
        if limits.max_tokens is not None and tokens >= limits.max_tokens:
            return _own_reached(counted(limits.max_tokens, "token"), counted(tokens, "token"))
        if limits.max_cost is not None and used.cost >= limits.max_cost:
            return _own_reached(dollars(limits.max_cost), dollars(used.cost))
        return None

    async def _failed(self, failed: ModelFailed) -> None:
        if await self._end_despite(failed):
            return None
        error = explain(failed, self._chosen.shown, self._chosen.origin)
        if failed.kind == "circuit_open":
            return await self._turned_away(failed, error)
        if failed.kind in IDLE:
            return await self._write(cmd.TimeOutRun(task_id=self._task.id, error=error, tool_summary=self._summary(), usage=self._spent()))
        command = cmd.FailRun(
            task_id=self._task.id,
            error=error,
            permanent=failed.permanent,
            cause=CAUSES.get(failed.cause),
            retry_seconds=failed.retry_after,
            tool_summary=self._summary(),
            usage=self._spent(),
        )
        return await self._write(command)

    async def _turned_away(self, failed: ModelFailed, error: str) -> None:
        """Come back when the model may be asked again, which is no attempt; or end, if that has failed too often, for others or for us."""
        if failed.lasting or 0 < self._task.attempts == max_attempts(self._task.limits) - 1:
            reason: FailReason = "timeout" if failed.cause in IDLE else "error"
            return await self._abort(reason, error, cause=CAUSES.get(failed.cause))
        command = cmd.ReleaseRun(task_id=self._task.id, retry_seconds=failed.retry_after, tool_summary=self._summary(), usage=self._spent())
        return await self._write(command)

    def _count(self, response: Response) -> None:
        used = Usage(requests=1, input_tokens=response.tokens.input, output_tokens=response.tokens.output, cost=response.cost or 0.0)
        self._usage = self._usage.plus(used)

    # What the model calls for.

    async def _act(self, calls: Sequence[tuple[str, ToolCall]]) -> bool:
        """Do every call that was made; True if the run now has to wait for the answers to some."""
        plain: list[tuple[str, ToolCall]] = []
        waits: list[tuple[str, ToolCall]] = []
        for key, call in calls:
            handed = call.name in self._operation_specs and self._handover.takes(call)
            (waits if handed else plain).append((key, call))
        harmless = [(key, call) for key, call in plain if self._repeatable(call.name)]
        if harmless:
            first, *others = [self._harmless(key, call) for key, call in harmless]
            records = await asyncio.gather(first, *others) if others else [await first]  # one alone needs no task of its own
            if self._activation.stopping.is_set():
                return False  # they were told to stop too, and are made again by the next run
            await self._record(records)
        for key, call in plain:
            if not self._repeatable(call.name):
                if self._activation.halted:
                    return False
                await self._effect(key, call)
                if self._activation.over:
                    return False
        if not waits or self._activation.halted:
            return False
        results = await self._handover.begin(waits)
        await self._hear(results)
        return len(results) < len(waits)

    async def _hear(self, answers: Sequence[Begun]) -> None:
        """Keep what others answered."""
        await self._record([self._done(key, call, outcome) for key, call, outcome in answers])
        self._counts.update(call.name for _, call, outcome in answers if not outcome.denied)

    def _repeatable(self, name: str) -> bool:
        spec = self._host_specs.get(name)
        return (spec is None and name not in self._operation_specs) or (spec is not None and spec.repeatable)

    async def _harmless(self, key: str, call: ToolCall) -> CallRecord:
        outcome = await self._do(call)
        self._counts[call.name] += not outcome.denied
        return self._done(key, call, outcome)

    async def _effect(self, key: str, call: ToolCall) -> None:
        """A call that changes something: recorded before and after, and never made twice."""
        self._counts[call.name] += 1
        if call.name in self._operation_specs and key not in self._talk.calls:
            # That it was carried out lands in its own commit, so that it is never carried out twice; what it answers comes after.
            claims = await self._flush_before(call)
            outcome = await self._do(call, self._done(key, call, ToolOutcome(brief.CLAIMED if claims else brief.CARRIED_OUT)))
            self._counts[call.name] -= outcome.denied
            if not self._activation.over:
                await self._record([self._done(key, call, outcome)])
            return

        async def action() -> str:
            outcome = await self._do(call)
            self._counts[call.name] -= outcome.denied
            if outcome.is_error:
                raise (ToolDenied if outcome.denied else ToolFailed)(outcome.text)
            return outcome.text

        self._talk.calls[key] = await self._activation.call(key, call.name, call.arguments, action, repeatable=False)

    async def _flush_before(self, call: ToolCall) -> bool:
        """True for a call that claims completion; what the run used must be told before it."""
        named = call.arguments.get("task_id")
        if call.name not in CLAIMS or (named is not None and plain_id(named) not in (self._task.id, self._task.uid)):
            return False
        run_id, tools = self._activation.run_id, self._summary()
        self._counts.clear()
        await self._activation.do(cmd.SettleBudget(task_id=self._task.id, reservation_id=run_id, usage=self._spent(), tool_summary=tools))
        await self._vouch()
        return True

    async def _vouch(self) -> None:
        """Say that the result may answer for identical tasks, if it may; the word is given last, just before the claim."""
        if self._task.cache_key is None:
            return
        if await vouched(self._task, self._runner.agents, self._runner.models, self._tool_host()):
            await self._activation.do(cmd.VouchResult(task_id=self._task.id))

    async def _do(self, call: ToolCall, *beside: CallRecord) -> ToolOutcome:
        if call.error:
            return ToolOutcome(f"The arguments are no JSON object: {call.error}", is_error=True)
        if call.name in self._operation_specs:
            return await self._runner.operations.call(call.name, call.arguments, self._activation, [record.row() for record in beside])
        request = ToolCallRequest(
            call.name,
            call.arguments,
            self._offered,
            TOOL_SECONDS,
            self._activation.stopping,
            tuple(self._operation_specs),
            self._chosen.takes_media,
        )
        return await self._tool_host().call(request)

    def _tool_host(self) -> ToolHost:
        """The tools of the workspace, from when they are first wanted."""
        self._host = self._host or self._runner.tools()
        return self._host

    def _done(self, key: str, call: ToolCall, outcome: ToolOutcome) -> CallRecord:
        begun = self._activation.begun(key, call.name, call.arguments, repeatable=True)
        return self._activation.ended(begun, _status(outcome), kept(outcome.text, outcome.media))

    async def _record(self, records: Sequence[CallRecord]) -> None:
        if records:
            self._unkept += [record.row() for record in records]
            await self._keep()
            self._talk.calls |= {record.call_id: record for record in records}

    # How the run ends.

    async def _abort(self, reason: FailReason, message: str, *, cause: FailCause | None = None) -> None:
        command = cmd.AbortTask(
            task_id=self._task.id,
            reason=reason,
            message=message,
            cause=cause,
            tool_summary=self._summary(),
            usage=self._spent(),
        )
        await self._write(command)

    async def _write(self, command: cmd.Command) -> None:
        rows, self._unkept = self._unkept, []
        await self._activation.write(command, rows)

    async def _keep(self) -> None:
        rows, self._unkept = self._unkept, []
        await self._activation.keep(rows)

    def _summary(self) -> tuple[ToolCount, ...]:
        return tuple(ToolCount(tool=tool, count=count) for tool, count in sorted(self._counts.items()) if count > 0)

    def _spent(self) -> Usage:
        spent, self._usage = self._usage, Usage()
        return spent


def _status(outcome: ToolOutcome) -> CallStatus:
    if outcome.denied:
        return "denied"
    return "failed" if outcome.is_error else "done"


def _less(left: float | None, limit: float | None, used: float) -> Any:
    """The smaller of what the tree and the task itself have left; None if neither is limited."""
    own = None if limit is None else max(0, limit - used)
    known = [amount for amount in (left, own) if amount is not None]
    return min(known) if known else None


def _before_end(state: str) -> str:
    """The state of a subtask as its parent knows it until it is told the end."""
    return State.RUNNING.value if State(state).terminal else state


async def _fail(activation: Activation, error: str, *, cause: FailCause | None = None) -> None:
    """End a task that no further run can help."""
    await activation.do(cmd.FailRun(task_id=activation.task.id, error=error, permanent=True, cause=cause))


def _without_model(task: Task, needs: str) -> str:
    """Why the offline model does not take a task, and what to do."""
    why = "This task asks for the offline model, and it needs" if task.model == OFFLINE else "No model is configured, and this task needs"
    return f"{why} {needs}. The offline model only searches and reads. {HOW_TO_SET_A_MODEL}"


async def _reject(activation: Activation, why: str) -> None:
    """End a task that cannot be carried out as it was asked for; another try would change nothing."""
    await activation.do(cmd.AbortTask(task_id=activation.task.id, reason="rejected", message=why))


class Reached(NamedTuple):
    """A limit that ends a task: why the task fails, what its agent is told, and what its record says."""

    reason: Literal["turns", "budget"]
    scope: Literal["own", "tree"]
    told: str
    why: str


def _turns_reached(most: int) -> Reached:
    limit = counted(most, "turn")
    told = brief.LIMIT_REACHED.format(limit=limit)
    return Reached("turns", "own", told, f"The limit of {limit} is reached.")


def _own_reached(limit: str, used: str) -> Reached:
    told = brief.LIMIT_REACHED.format(limit=limit)
    return Reached("budget", "own", told, f"The limit of {limit} for this task is reached: it used {used}.")


def _report_of(text: str | None) -> str:
    return "" if text is None else f" Its report: {text or '(none)'}"
