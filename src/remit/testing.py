"""For tests of what is built on remit: a model that answers by rule, and a runner that follows a script instead of asking one.

With the model, remit's own agents work as they do with any other:

    async with scripted_model(lambda asked: "Red." if asked.results else [("ask_user", {"question": "Which color?"})]), Remit.open() as remit:
        await remit.task(objective="Paint the shed")

The runner's script is in the task's metadata, as a list of steps; each step is done once, however often the run is interrupted:

    remit.create_task(title="…", owner="general", metadata={"script": [["say", "Hello"], ["ask", "Which one?"], ["finish", "Done"]]})
"""

import asyncio
import inspect
import json
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, cast

from remit.app.activation import Activation, CallRecord
from remit.domain import command as cmd
from remit.domain.choice import TIERS


class Asked(NamedTuple):
    """What a scripted model is asked."""

    objective: str
    """The first thing that it was told: what it has to do."""
    turn: int
    """How often it has answered in this conversation."""
    results: tuple[str, ...]
    """Everything that tools have answered, oldest first."""
    text: str
    """Everything that it was told, from its role to how the task stands now."""
    tools: tuple[str, ...]
    """What it may call: nothing in its last turn, which is for a report."""


Answer = str | Sequence[tuple[str, Mapping[str, Any]]]
"""A last message, or calls of tools: a name and arguments each."""
Rule = Callable[[Asked], Answer | Awaitable[Answer]]


@asynccontextmanager
async def scripted_model(rule: Rule) -> AsyncGenerator[str, None]:
    """A model that answers by rule, at a local address, for the time of the block.

    Both tiers of this process and of those that it starts mean it meanwhile (`LLM_…`, `LIGHT_LLM_…`). A rule that raises is a model
    that refuses the request: its task fails, and says why.
    """
    from aiohttp import web

    async def answer(request: web.Request) -> web.Response:
        try:
            said = rule(_asked(await request.json()))
            return web.json_response(_answer(await said if inspect.isawaitable(said) else said))
        except Exception as error:  # noqa: BLE001 - whatever somebody's rule does is an answer of the model
            return web.json_response({"error": {"message": f"{type(error).__name__}: {error}"}}, status=400)

    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        with _environment(url):
            yield url
    finally:
        await runner.cleanup()


def _asked(body: Mapping[str, Any]) -> Asked:
    said: list[dict[str, Any]] = body["messages"]
    by_role = {role: [str(message["content"]) for message in said if message["role"] == role] for role in ("user", "tool", "assistant")}
    return Asked(
        objective=by_role["user"][0],
        turn=len(by_role["assistant"]),
        results=tuple(by_role["tool"]),
        text="\n".join(str(message["content"] or "") for message in said),
        tools=tuple(tool["function"]["name"] for tool in body.get("tools", ()) if body.get("tool_choice") != "none"),
    )


def _answer(said: Answer) -> dict[str, Any]:
    calls: Sequence[tuple[str, Mapping[str, Any]]] = () if isinstance(said, str) else said
    message = {
        "role": "assistant",
        "content": said if isinstance(said, str) else None,
        "tool_calls": [
            {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for number, (name, arguments) in enumerate(calls)
        ],
    }
    usage = {"prompt_tokens": 10, "completion_tokens": 10}
    return {"model": "scripted", "choices": [{"message": message, "finish_reason": "tool_calls" if calls else "stop"}], "usage": usage}


@contextmanager
def _environment(url: str) -> Generator[None, None, None]:
    values = {"MODEL_ID": "scripted", "API_KEY": "none", "BASE_URL": url}
    ours = {f"{prefix}_{name}": value for prefix in TIERS.values() for name, value in values.items()}
    before = {name: os.environ[name] for name in ours if name in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]
        os.environ.update(before)


class Scripted:
    """A runner that carries out the steps in a task's metadata.

    | step | what it does |
    |---|---|
    | `["say", text]` | a message to people |
    | `["write", path, text]` | appends a line to a file: an effect that must happen once |
    | `["sleep", seconds]` | works for a while, in small pieces, and can be stopped between them |
    | `["ask", question]` | asks a person and waits |
    | `["children", [fields, …]]` | makes subtasks, which wake the task when they end |
    | `["block", fields]` | makes a subtask and waits for it |
    | `["timer", seconds]` | waits for a point in time |
    | `["wait"]` | ends the run without completing; the next wake or tick goes on |
    | `["raise", text]` | a run that fails |
    | `["kill"]` | kills this process, as a crash does |
    | `["finish", text]` | the final message; without one the script ends with "done" |
    """

    async def run(self, activation: Activation) -> None:
        """Do what is left of the script."""
        steps = _script(activation)
        while not activation.over:
            if not await activation.may_go_on():
                return await activation.release()
            await self._deliver(activation)
            number = await _next(activation, len(steps))
            step = steps[number] if number < len(steps) else ["finish", "done"]
            await self._do(activation, number, step)
        return None

    async def _deliver(self, activation: Activation) -> None:
        if activation.task.queued:
            await activation.do(cmd.DeliverUpdates(task_id=activation.task.id))

    async def _do(self, activation: Activation, number: int, step: list[Any]) -> None:
        task_id, call_id = activation.task.id, f"step-{number}"
        match step:
            case ["say", str(text)]:
                await activation.do(cmd.NotifyUser(task_id=task_id, message=text), _done(activation, call_id, "say"))
            case ["write", str(path), str(text)]:
                line = f"{text} {activation.run_id}\n"
                await activation.call(call_id, "write", [path, text], lambda: asyncio.to_thread(_append, path, line), repeatable=False)
            case ["sleep", float() | int() as seconds]:
                await activation.call(call_id, "sleep", seconds, lambda: _work(activation, float(seconds)), repeatable=True)
            case ["ask", str(question)]:
                await self._wait(activation, call_id, cmd.AskUser(task_id=task_id, question=question, call_id=call_id))
            case ["timer", float() | int() as seconds]:
                due = activation.now() + timedelta(seconds=float(seconds))
                await self._wait(activation, call_id, cmd.SetTimer(task_id=task_id, due_at=due, call_id=call_id))
            case ["children", list()]:
                for index, fields in enumerate(cast("list[dict[str, Any]]", step[1])):
                    await self._child(activation, f"{call_id}-{index}", fields)
                await activation.call(call_id, "children", None, _nothing, repeatable=True)
            case ["block", dict()]:
                child = await self._child(activation, f"{call_id}-0", cast("dict[str, Any]", step[1]))
                await self._wait(activation, call_id, cmd.AwaitSubtask(task_id=task_id, child_id=child, call_id=call_id))
            case ["wait"]:
                await activation.do(cmd.FinishRun(task_id=task_id, final_message="more to come"), _done(activation, call_id, "wait"))
            case ["raise", str(text)]:
                raise RuntimeError(text)
            case ["kill"]:
                os.kill(os.getpid(), signal.SIGKILL)
            case ["finish", str(text)] if activation.task.completion == "explicit":
                await activation.do(cmd.CompleteTask(task_id=task_id, summary=text))
            case ["finish", str(text)]:
                await activation.do(cmd.FinishRun(task_id=task_id, final_message=text))
            case _:
                await activation.do(cmd.FailRun(task_id=task_id, error=f"Unknown step {step!r}.", permanent=True))

    async def _wait(self, activation: Activation, call_id: str, command: cmd.Command) -> None:
        """Begin to wait and yield; woken again, the step is behind us."""
        outcome = await activation.do(command, _done(activation, call_id, type(command).__name__))
        if outcome.entries:
            await activation.do(cmd.YieldRun(task_id=activation.task.id))

    async def _child(self, activation: Activation, key: str, fields: Mapping[str, Any]) -> str:
        from remit.domain.shape import parse

        whole = {"owner": activation.task.owner, "idempotency_key": f"{activation.task.id}/{key}", **fields, "task_id": activation.task.id}
        return (await activation.do(parse(cmd.CreateSubtask, whole))).task_id


def _script(activation: Activation) -> list[list[Any]]:
    metadata = activation.task.metadata or {}
    return [list(step) for step in metadata.get("script", [])]


async def _next(activation: Activation, length: int) -> int:
    """The first step that has not ended; a write whose end nobody saw is not made again."""
    for number in range(length):
        known = await activation.known_call(f"step-{number}")
        if known is None or known.status == "started":
            return number
    return length


def _done(activation: Activation, call_id: str, tool: str) -> CallRecord:
    return activation.ended(activation.begun(call_id, tool, None, repeatable=True), "done", None)


def _append(path: str, line: str) -> str:
    with Path(path).open("a") as file:
        file.write(line)
    return "written"


async def _work(activation: Activation, seconds: float) -> str:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await activation.stopping.wait()
    return "slept"


async def _nothing() -> str:
    return ""
