"""The loop of an agent: ask the model, do what it calls for, and again, until the run ends or has to wait.

What was said and done is stored step by step under the run's fence. A run may stop anywhere; the next one, in any process, goes on
at that very call.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import NamedTuple

from remit.app.activation import Activation, CallRecord, ToolFailed
from remit.app.agents import Agent, AgentRegistry, role_prompt
from remit.app.cache import vouched
from remit.app.conversation import Conversation, Said
from remit.app.handover import Begun, Handover
from remit.app.purse import Purse, Roots
from remit.domain import brief
from remit.domain import command as cmd
from remit.domain.due import report_seconds, time_left
from remit.domain.message import Effort, ModelSettings, Request, Response, Tool, ToolCall, user
from remit.domain.model import UNBILLED, ModelFailed, excerpt
from remit.domain.policy import MAX_TURNS, max_attempts, must_come_to_something
from remit.domain.project import Change
from remit.domain.tool import ToolCallRequest, ToolOutcome, ToolSpec
from remit.domain.value import FailReason, Task, ToolCount, Usage
from remit.domain.wire import dumps, instant
from remit.errors import Forbidden, RemitError
from remit.ports import Chosen, Clock, Equipment, EventStore, Models, OperationTools, ToolHost

TOOL_SECONDS = 600.0
IDLE = frozenset({"no_first_byte", "stalled", "timed_out"})
"""Failures of a model that mean that nothing came for too long."""


class AgentRunner:
    """Runs remit's own agents."""

    reports = True
    """A task whose time is up gets a run to say how far it came."""

    def __init__(
        self, store: EventStore, agents: AgentRegistry, models: Models, tools: Callable[[], ToolHost], operations: OperationTools, clock: Clock
    ) -> None:
        self._store, self._agents, self._models, self._operations, self._clock = store, agents, models, operations, clock
        self.tools = tools
        self._sets: dict[tuple[str, frozenset[str]], Toolset] = {}
        self.roots = Roots(store)

    async def run(self, activation: Activation) -> None:
        """Work on a task until the run has ended."""
        task = activation.task
        agent = self._agents.get(task.owner or "")
        if agent is None:
            return await _fail(activation, f"There is no agent {task.owner} here.", permanent=True)
        try:
            chosen = self._models.resolve(task.model or agent.model)
        except RemitError as refused:
            return await _fail(activation, str(refused), permanent=True)
        talk = await Conversation.load(self._store, task.id) if task.counts.runs > 1 else Conversation(task.id, [], {})
        granted = frozenset(self._agents.grant(agent.id, task.tools))
        offered = granted if task.tools.offer is None else granted & frozenset(task.tools.offer)
        try:
            tools = await self._toolset(agent, offered)
            must_come_to_something(task, offered, tools.known)
        except RemitError as refused:
            return await _reject(activation, str(refused))
        stretch = Stretch(self, activation, agent, chosen, talk, offered, tools)
        try:
            await stretch.within_time()
        finally:
            await stretch.close()
        return None

    async def _toolset(self, agent: Agent, offered: frozenset[str]) -> "Toolset":
        """What an agent is offered, made once: gateways recognise the very same tools and do not encode them again."""
        found = self._sets.get((agent.id, offered))
        if found is None:
            host = self.tools()
            try:
                specs, refusal = host.specs(), await host.refusal(offered)
            finally:
                await host.close()
            if refusal:
                raise Forbidden(refusal)  # not remembered: the machine may be helped
            files = {spec.name: spec for spec in specs if spec.name in offered}
            operations = {spec.name: spec for spec in self._operations.offered(agent, offered)}
            tools = tuple(Tool(spec.name, spec.description, spec.parameters) for spec in (*files.values(), *operations.values()))
            found = self._sets[agent.id, offered] = Toolset(files, operations, tools, (*(spec.name for spec in specs), "Task"))
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


class Toolset(NamedTuple):
    """The tools of the host and of the catalogue that an agent is offered, by name, all of them as a model reads them, and the names that a
    grant can hold here.
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
        self._host: ToolHost | None = None
        self._handover = self._hands(talk)
        self._counts: Counter[str] = Counter()
        self._usage = talk.usage.beyond(task.usage)  # a run that was lost could not tell what it had used
        self._system = ""
        self._purse = Purse(activation, chosen)
        self._unkept: list[Change] = []
        """A message that is stored with the answer to it: until there is one, it can be made again."""

    def _hands(self, talk: Conversation) -> Handover:
        runner = self._runner
        return Handover(runner.store, runner.agents, self._activation, self._agent, talk.calls, runner.operations, runner.clock.now, runner.equipment)

    async def close(self) -> None:
        """Let go of the workspace."""
        if self._host is not None:
            await self._host.close()

    @property
    def _task(self) -> Task:
        return self._activation.task

    async def within_time(self) -> None:
        """Go on, but no longer than the task may take."""
        await self._open()
        limit = self._task.limits.timeout_seconds or self._agent.timeout_seconds
        if limit is None:
            return await self._go()
        left = time_left(self._task, limit)
        clock = asyncio.timeout(left)
        try:
            if left > 0:
                async with clock:
                    return await self._go()
        except TimeoutError:
            if not clock.expired():
                raise
        return await self._time_is_up(limit)

    async def _time_is_up(self, limit: float) -> None:
        """Let the agent report, if it has begun and does not take long, and end its task; what was cut off is not known any more."""
        await self._activation.look()
        message = f"The time limit of {limit:g} seconds is reached."
        self._unkept.clear()
        self._talk = await Conversation.load(self._runner.store, self._task.id)
        if self._talk.turns and not self._activation.halted:
            with suppress(TimeoutError, ModelFailed, _Halted):
                async with asyncio.timeout(report_seconds(limit)):
                    await self._hear(await self._hands(self._talk).so_far(self._talk.open_calls()))
                    message += _report_of(await self._report(f"{limit:g} seconds"))
        await self._abort("timeout", message)

    async def _open(self) -> None:
        self._system = brief.system_prompt(role_prompt(self._agent), self._task, await self._guides())
        await self._purse.open(self._runner.roots)

    async def _go(self) -> None:
        while not self._activation.over:
            if self._activation.halted:
                return await self._write(cmd.ReleaseRun(task_id=self._task.id, tool_summary=self._summary(), usage=self._spent()))
            if calls := self._talk.open_calls():
                if await self._act(calls):
                    return await self._write(cmd.YieldRun(task_id=self._task.id, tool_summary=self._summary(), usage=self._spent()))
            elif not await self._prompt() or not self._activation.halted:
                with suppress(_Halted):
                    await self._answer()
        return None

    # What the model reads.

    async def _guides(self) -> dict[str, str]:
        if not self._task.guides:
            return {}
        rows = await self._runner.store.select("guide", {"names": list(self._task.guides)})
        return {row[0]: row[1] for row in rows}

    async def _prompt(self) -> bool:
        """Say what there is to say before the next request: the instructions, what has changed since, or to go on."""
        updates = self._task.queued
        parts: list[str] = []
        if not self._talk.said:
            parts.append(brief.first_message(self._task))
            news = tuple(update for update in updates if update.type == "message")
        else:
            news = updates
        if news:
            parts.append(brief.news(news))
        if not parts and self._talk.finished:
            parts.append(brief.WORK)
        if not parts:
            return False
        said = self._talk.next(user("\n\n".join(parts)), self._activation.run_id, self._runner.now())
        self._unkept.append(self._talk.row(said))
        if updates:
            ids = tuple(update.update_id for update in updates)
            await self._write(cmd.DeliverUpdates(task_id=self._task.id, turn=self._talk.turns + 1, update_ids=ids))
        self._talk.keep(said)
        return True

    async def _request(self, last_words: str = "") -> Request:
        states = await self._subtask_states()
        tail = user(f"{last_words}\n\n{brief.task_block(self._task, states)}".strip())
        messages = (*self._talk.messages(), tail)
        return Request(
            model=self._chosen.model,
            system=self._system,
            messages=messages,
            tools=self._tools,
            settings=ModelSettings(effort=_effort(self._agent), max_tokens=self._purse.most(report=bool(last_words))),
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
        return states

    # What the model answers.

    async def _answer(self) -> None:
        if unpriced := self._purse.unpriced:
            return await self._abort("budget", unpriced)
        most = self._task.limits.max_turns or self._agent.max_turns or MAX_TURNS
        limit = f"{most} turns" if self._talk.turns >= most else self._over_budget()
        request = None if limit else await self._afforded("")
        try:
            if request is None:
                return await self._last_turn(limit or self._purse.shown)
            said, response = await self._ask(request)
        except ModelFailed as failed:
            return await self._failed(failed)
        if response.stop == "refusal":
            await self._failed(ModelFailed("rejected_request", f"it refused to answer: {excerpt(response.text)}"))
        elif response.calls or response.stop == "length" or not (response.text.strip() or self._talk.silent):
            await self._keep()  # who was cut off, or said nothing, is told to go on
        elif not response.text.strip():
            await self._failed(ModelFailed("bad_response", "it said nothing, and nothing again when told to go on"))
        else:
            await self._vouch()
            await self._write(cmd.FinishRun(task_id=self._task.id, final_message=response.text, tool_summary=self._summary(), usage=self._spent()))
        self._talk.keep(said)
        return None

    async def _last_turn(self, limit: str) -> None:
        """Let the agent report, and end its task; it ends at its limit even if the model can never be asked for a report."""
        try:
            report = _report_of(await self._report(limit))
        except ModelFailed as failed:
            if not failed.permanent:
                raise
            report = f" It could not report: {failed}"
        if not report:
            return await self._abort("budget", f"The budget of the whole tree is used up: {self._purse.shown}.")
        return await self._abort("turns" if limit.endswith("turns") else "budget", f"The limit of {limit} is reached.{report}")

    async def _report(self, limit: str) -> str | None:
        """What the agent says in one more turn; tools that it calls are not used. Nothing if the tree cannot pay for it."""
        request = await self._afforded(brief.LAST_TURN.format(limit=limit))
        return None if request is None else (await self._ask(request))[1].text

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

    def _over_budget(self) -> str:
        """What a subtask was given for itself and has used up; the budget of the whole tree is kept by its root."""
        if self._task.root_id == self._task.id:
            return ""
        limits, used = self._task.limits, self._task.usage.plus(self._usage)
        if limits.max_tokens is not None and used.input_tokens + used.output_tokens >= limits.max_tokens:
            return f"{limits.max_tokens:,} tokens"
        if limits.max_cost is not None and used.cost >= limits.max_cost:
            return f"${limits.max_cost:g}"
        return ""

    async def _failed(self, failed: ModelFailed) -> None:
        error = f"The model {self._chosen.shown} gave no answer: {failed.cause}: {failed.text}"
        if failed.kind == "circuit_open":
            return await self._turned_away(failed, error)
        if failed.kind in IDLE:
            return await self._write(cmd.TimeOutRun(task_id=self._task.id, error=error, tool_summary=self._summary(), usage=self._spent()))
        command = cmd.FailRun(
            task_id=self._task.id,
            error=error,
            permanent=failed.permanent,
            retry_seconds=failed.retry_after,
            tool_summary=self._summary(),
            usage=self._spent(),
        )
        return await self._write(command)

    async def _turned_away(self, failed: ModelFailed, error: str) -> None:
        """Come back when the model may be asked again, which is no attempt; or end, if that has failed too often, for others or for us."""
        if failed.lasting or 0 < self._task.attempts == max_attempts(self._task.limits) - 1:
            return await self._abort("timeout" if failed.cause in IDLE else "error", error)
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
        self._counts.update(call.name for _, call, _ in answers)

    def _repeatable(self, name: str) -> bool:
        spec = self._host_specs.get(name)
        return (spec is None and name not in self._operation_specs) or (spec is not None and spec.repeatable)

    async def _harmless(self, key: str, call: ToolCall) -> CallRecord:
        outcome = await self._do(call)
        self._counts[call.name] += 1
        return self._done(key, call, outcome)

    async def _effect(self, key: str, call: ToolCall) -> None:
        """A call that changes something: recorded before and after, and never made twice."""
        self._counts[call.name] += 1
        if call.name in self._operation_specs and key not in self._talk.calls:
            # That it was carried out lands in its own commit, so that it is never carried out twice; what it answers comes after.
            await self._flush_before(call)
            outcome = await self._do(call, self._done(key, call, ToolOutcome(brief.CARRIED_OUT)))
            if not self._activation.over:
                await self._record([self._done(key, call, outcome)])
            return

        async def action() -> str:
            outcome = await self._do(call)
            if outcome.is_error:
                raise ToolFailed(outcome.text)
            return outcome.text

        self._talk.calls[key] = await self._activation.call(key, call.name, call.arguments, action, repeatable=False)

    async def _flush_before(self, call: ToolCall) -> None:
        """What the run used must be told before a call that ends it."""
        if call.name == "complete_task":
            run_id, tools = self._activation.run_id, self._summary()
            self._counts.clear()
            await self._activation.do(cmd.SettleBudget(task_id=self._task.id, reservation_id=run_id, usage=self._spent(), tool_summary=tools))
            await self._vouch()

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
        request = ToolCallRequest(call.name, call.arguments, self._offered, TOOL_SECONDS, self._activation.stopping)
        return await self._tool_host().call(request)

    def _tool_host(self) -> ToolHost:
        """The tools of the workspace, from when they are first wanted."""
        self._host = self._host or self._runner.tools()
        return self._host

    def _done(self, key: str, call: ToolCall, outcome: ToolOutcome) -> CallRecord:
        begun = self._activation.begun(key, call.name, call.arguments, repeatable=True)
        return self._activation.ended(begun, "failed" if outcome.is_error else "done", outcome.text)

    async def _record(self, records: Sequence[CallRecord]) -> None:
        if records:
            self._unkept += [record.row() for record in records]
            await self._keep()
            self._talk.calls |= {record.call_id: record for record in records}

    # How the run ends.

    async def _abort(self, reason: FailReason, message: str) -> None:
        usage, tools = self._spent(), self._summary()
        await self._write(cmd.AbortTask(task_id=self._task.id, reason=reason, message=message, tool_summary=tools, usage=usage))

    async def _write(self, command: cmd.Command) -> None:
        rows, self._unkept = self._unkept, []
        await self._activation.write(command, rows)

    async def _keep(self) -> None:
        rows, self._unkept = self._unkept, []
        await self._activation.keep(rows)

    def _summary(self) -> tuple[ToolCount, ...]:
        return tuple(ToolCount(tool=tool, count=count) for tool, count in sorted(self._counts.items()))

    def _spent(self) -> Usage:
        spent, self._usage = self._usage, Usage()
        return spent


async def _fail(activation: Activation, error: str, *, permanent: bool) -> None:
    await activation.do(cmd.FailRun(task_id=activation.task.id, error=error, permanent=permanent))


async def _reject(activation: Activation, why: str) -> None:
    """End a task that cannot be carried out as it was asked for; another try would change nothing."""
    await activation.do(cmd.AbortTask(task_id=activation.task.id, reason="rejected", message=why))


def _report_of(text: str | None) -> str:
    return "" if text is None else f" Its report: {text or '(none)'}"


_EFFORTS: dict[str | None, Effort] = {None: "low", "low": "low", "medium": "medium"}


def _effort(agent: Agent) -> Effort:
    return _EFFORTS.get(agent.effort, "high")
