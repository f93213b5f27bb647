"""Agents at work in tests: real runs on a real store, with a model that follows a script.

What it is asked and what it answers goes through an OpenAI-compatible endpoint on this machine; a
failure that a rule raises is one that the gateway would have told.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from inspect import isawaitable
from itertools import count
from pathlib import Path
from typing import Any

from remit.adapters.tools import WorkspaceTools
from remit.adapters.tools.functions import FunctionTools, by_name
from remit.app.agent_loop.runner import AgentRunner
from remit.app.agents.registry import Agent
from remit.catalog import Caller, call
from remit.domain.llm.failures import ModelFailed, Price
from remit.domain.llm.messages import Request, Response, TextPart, Tokens, ToolCall
from remit.domain.task.task import State, Task
from remit.ports import AgentEquipment, Models, ResolvedModel, ToolHost
from remit.surfaces.agent_tools import CatalogTools
from tests.agents.line import Line
from tests.engine.fleet import ANN, Fleet, fleet
from tests.patience import patient

Rule = Callable[[Request], Response | Awaitable[Response]]
_NUMBERS = count(1)


def says(text: str) -> Response:
    """A last message."""
    return Response((TextPart(text),), "end", Tokens(10, 5), "scripted")


def calls(*wanted: tuple[str, dict[str, Any]]) -> Response:
    """Calls of tools."""
    parts = tuple(ToolCall(f"c{next(_NUMBERS)}", name, arguments) for name, arguments in wanted)
    return Response(parts, "tool_calls", Tokens(10, 5), "scripted")


def results(request: Request) -> list[str]:
    """The results that a model was given after its last answer."""
    after = next(
        (message for message in reversed(request.messages) if message.role == "tool"), None
    )
    return [part.text for part in after.parts] if after and request.messages[-2] is after else []  # type: ignore[union-attr]


def texts(request: Request) -> str:
    """Everything that a model read, as one text."""
    return "\n".join([request.system, *(message.text for message in request.messages)])


class Script:
    """A model that answers by rule, and remembers what it was asked."""

    def __init__(self, rule: Rule, price: Price | None = None, unpriced: str = "") -> None:
        self._rule, self._price, self._unpriced = rule, price, unpriced
        self.asked: list[Request] = []
        self.line: Line | None = None
        self._open: set[asyncio.Future[Response]] = set()
        self._over = False

    def trouble(self) -> list[dict[str, Any]]:
        return []

    def resolve(self, model: str | None = None) -> ResolvedModel:
        """Itself, whatever is asked for."""
        return ResolvedModel(self, model or "main", "scripted")

    async def request(self, request: Request, *, pause: Any = None) -> Response:
        """The answer of the rule."""
        self.asked.append(request)
        answer = self._rule(request)
        given = await self._awaited(answer) if isawaitable(answer) else answer
        return given if self.line is None else await self.line.carry(request, given)

    def cost(self, model: str, tokens: Tokens) -> float | None:
        """By the price that the test sets, for all models but one."""
        return (
            None if self._price is None or model == self._unpriced else self._price.of(*tokens[:3])
        )

    def hang_up(self) -> None:
        """Answer nobody any more: a test that has failed must not wait for a model that it keeps
        waiting.
        """
        self._over = True
        for answer in self._open:
            answer.cancel()

    async def _awaited(self, answer: Awaitable[Response]) -> Response:
        coming = asyncio.ensure_future(answer)
        self._open.add(coming)
        try:
            if self._over:
                coming.cancel()
            return await coming
        except asyncio.CancelledError:
            if self._over:
                raise ModelFailed("rejected_request", "The test is over.") from None
            raise
        finally:
            self._open.discard(coming)

    async def close(self) -> None:
        """Nothing to close."""


def in_turn(*answers: Response) -> Rule:
    """Answers one after the other."""
    left = list(answers)
    return lambda _: left.pop(0)


class Gate:
    """A gate at which a model or a tool waits until it is opened."""

    def __init__(self) -> None:
        self.reached, self.open = asyncio.Event(), asyncio.Event()

    async def then(self, answer: Response) -> Response:
        """An answer that comes once the gate is open."""
        await self.passed()
        return answer

    async def passed(self) -> None:
        """Return once the gate is open."""
        self.reached.set()
        await self.open.wait()


def noting(made: list[str], gate: Gate | None = None) -> Callable[[str], Awaitable[str]]:
    """A tool with an effect, which is seen in `made`.

    With a gate, it does not end before that is open.
    """

    async def note(text: str) -> str:
        """Write it down."""
        made.append(text)
        if gate is not None:
            await gate.passed()
        return "noted"

    return note


class Stage:
    """A fleet whose workers run agents."""

    def __init__(
        self,
        team: Fleet,
        folder: Path,
        script: Script,
        functions: Sequence[Callable[..., Any]] = (),
        *,
        unsandboxed: bool = True,
        programs: bool = True,
    ) -> None:
        self.team, self.folder, self.script, self._functions = (
            team,
            folder,
            script,
            by_name(functions),
        )
        self._host = lambda: WorkspaceTools(
            folder, allow_unsandboxed=unsandboxed, find_programs=programs
        )
        team.core.equipment = self._equipment

    @asynccontextmanager
    async def _equipment(self) -> AsyncIterator[AgentEquipment]:
        yield AgentEquipment(self.script, self._tools)

    def _tools(self) -> ToolHost:
        return FunctionTools(self._host, self._functions)

    async def hire(self, models: Models | None = None, **options: Any) -> Any:
        """One more worker for agents."""
        core = self.team.core
        runner = AgentRunner(
            core.store,
            core.agents,
            models or self.script,
            self._tools,
            CatalogTools(core),
            core.clock,
        )
        return await self.team.hire(runner, **options)

    async def call(self, operation: str, **fields: Any) -> dict[str, Any]:
        """Carry out an operation as a person."""
        return await call(self.team.core, operation, fields, Caller(actor=ANN))

    async def run(self, **fields: Any) -> Task:
        """A task from its creation to its end."""
        return await self.team.ended(await self.create(**fields))

    async def create(self, **fields: Any) -> str:
        """A new task for an agent."""
        return await self.team.create(**{"instructions": "Do it.", "metadata": {}, **fields})

    async def waiting(self, task_id: str) -> Task:
        """Wait until a task waits."""
        return await self.team.until(task_id, lambda task: task.state is State.WAITING)

    async def transcript(self, task_id: str) -> list[dict[str, Any]]:
        """The conversation of a task."""
        found: list[dict[str, Any]] = (await self.call("get_transcript", task_id=task_id))[
            "messages"
        ]
        return found


@asynccontextmanager
async def stage(
    url: str,
    folder: Path,
    rule: Rule | Sequence[Response],
    *,
    agents: Sequence[Agent] = (),
    functions: Sequence[Callable[..., Any]] = (),
    workers: int = 1,
    unsandboxed: bool = True,
    price: Price | None = None,
    unpriced: str = "",
    programs: bool = True,
    **options: Any,
) -> AsyncIterator[Stage]:
    """A stage with a worker on the store that a URL names.

    Agents and functions are there beside the built-in ones.

    Commands run without a sandbox where there is none, unless that is not allowed. Without
    `programs`, nothing that is installed is used.
    """
    async with Line().opened() as line, fleet(url, agents) as team:
        team.core.folder = str(folder)
        script = Script(rule if callable(rule) else in_turn(*rule), price, unpriced)
        play = Stage(team, folder, script, functions, unsandboxed=unsandboxed, programs=programs)
        play.script.line = line
        for _ in range(workers):
            await play.hire(**options)
        try:
            yield play
        except BaseException:
            play.script.hang_up()
            raise


async def reached(gate: Gate) -> None:
    async with asyncio.timeout(patient(20)):
        await gate.reached.wait()
