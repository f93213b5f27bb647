"""Real clients in a temporary home, against a scripted model, with `remit mcp` as their MCP server.

Nothing leaves this machine: the clients' telemetry, updates and logins are switched off, their
model is a server on localhost, and their settings are in the folder of the test.
"""

import asyncio
import base64
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from tests.crash.process import environment
from tests.modelserver import Say
from tests.outside.model import AGENTS, Asked, ScriptedModel, call
from tests.patience import patient

BIN = os.environ.get("REMIT_OUTSIDE_BIN", "")
"""The folder with the programs; `make test-outside` sets it."""
START_SECONDS = 60.0
"""How long a client may wait for `remit mcp` to start on a busy machine."""
STOP_SECONDS = 10.0
"""How long a client may take to end after a signal."""
_CALL = re.compile(r"CALL:([A-Za-z0-9+/=]+):END")


class Ended(NamedTuple):
    """How a client ended."""

    code: int
    out: str
    err: str


def program(name: str) -> str:
    """The path of a client; an error if it is not installed."""
    path = Path(BIN) / name
    assert BIN, "REMIT_OUTSIDE_BIN is not set. Run these tests with: make test-outside"
    assert path.exists(), f"{path} is missing. Run these tests with: make test-outside"
    return str(path)


def ask_for(*calls: tuple[str, Mapping[str, Any]]) -> str:
    """A prompt that makes the scripted model call tools of the client, one after the other."""
    return " ".join(
        f"CALL:{base64.b64encode(json.dumps(one).encode()).decode()}:END" for one in calls
    )


def client_rule(asked: Asked) -> Say | None:
    """What the model answers to a client; None for a request of remit's own agents."""
    if asked.agent:
        return None
    if asked.tool("create_task") is None:
        return Say(("The tools of remit are missing." if asked.tools else "A title",))
    wanted = [
        json.loads(base64.b64decode(found)) for text in asked.texts for found in _CALL.findall(text)
    ]
    if asked.results >= len(wanted):
        return Say((f"Finished after {asked.results} calls.",))
    name, arguments = wanted[asked.results]
    return call(asked.tool(name) or name, **arguments)


class Desk:
    """A folder to work in, a model, and the environment that both clients and `remit` get."""

    def __init__(self, folder: Path, model: ScriptedModel, database_url: str) -> None:
        self.folder, self.model = folder, model
        self.work, self.home = folder / "work", folder / "home"
        for path in (self.work, self.home):
            path.mkdir()
        own = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(self.home)}
        self.remit = {
            **own,
            "PYTHONPATH": environment()["PYTHONPATH"],
            "LLM_MODEL_ID": "scripted",
            "LLM_BASE_URL": f"{model.url}{AGENTS}/v1",
            "LLM_API_KEY": "none",
            **({"REMIT_DATABASE_URL": database_url} if database_url.startswith("postgres") else {}),
        }
        self.env = own | {
            f"XDG_{name}_HOME": str(self.home / name)
            for name in ("CONFIG", "DATA", "CACHE", "STATE")
        }

    @property
    def server(self) -> list[str]:
        """The command of the MCP server."""
        return [sys.executable, "-m", "remit", "mcp"]

    async def command(self, *arguments: str) -> Any:
        """What a command of remit prints as JSON."""
        ended = await finished(
            await started([sys.executable, "-m", "remit", *arguments], self.work, self.remit)
        )
        assert ended.code == 0, ended
        return json.loads(ended.out)


class Claude:
    """Claude Code in print mode."""

    name = "claude"

    def __init__(self, desk: Desk, idle_seconds: float | None = None) -> None:
        self._desk = desk
        config = {
            "mcpServers": {
                "remit": {"command": desk.server[0], "args": desk.server[1:], "env": desk.remit}
            }
        }
        self._config = desk.folder / "mcp.json"
        self._config.write_text(json.dumps(config))
        self._env = desk.env | {
            "CLAUDE_CONFIG_DIR": str(desk.home / "claude"),
            "ANTHROPIC_BASE_URL": desk.model.url,
            "ANTHROPIC_API_KEY": "sk-ant-none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_AUTOUPDATER": "1",
            "ENABLE_TOOL_SEARCH": "false",
            # The first request of a session waits for the tools of the server.
            "MCP_CONNECTION_NONBLOCKING": "0",
            "MCP_TIMEOUT": str(int(patient(START_SECONDS) * 1000)),
            "MCP_CONNECT_TIMEOUT_MS": str(int(patient(START_SECONDS) * 1000)),
        }
        if idle_seconds is not None:
            self._env["CLAUDE_CODE_MCP_TOOL_IDLE_TIMEOUT"] = str(int(idle_seconds * 1000))

    async def start(self, prompt: str) -> asyncio.subprocess.Process:
        """A session that does what a prompt says and ends."""
        arguments = [
            "-p",
            prompt,
            "--mcp-config",
            str(self._config),
            "--strict-mcp-config",
            "--output-format",
            "json",
        ]
        command = [program("claude"), *arguments, "--allowedTools", "mcp__remit"]
        return await started(command, self._desk.work, self._env)


class Opencode:
    """opencode, one prompt at a time or as a server."""

    name = "opencode"

    def __init__(self, desk: Desk, idle_seconds: float | None = None) -> None:
        self._desk = desk
        timeout = patient(START_SECONDS) if idle_seconds is None else idle_seconds
        server = {
            "type": "local",
            "command": desk.server,
            "environment": desk.remit,
            "timeout": int(timeout * 1000),
        }
        options = {"baseURL": f"{desk.model.url}/v1", "apiKey": "none"}
        models = {"scripted": {"name": "Scripted", "tool_call": True}}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Local",
            "options": options,
            "models": models,
        }
        config = {
            "model": "local/scripted",
            "small_model": "local/scripted",
            "provider": {"local": provider},
            "mcp": {"remit": server},
            "autoupdate": False,
            "share": "disabled",
        }
        self._env = desk.env | {
            "OPENCODE_CONFIG_CONTENT": json.dumps(config),
            "OPENCODE_PERMISSION": json.dumps({"*": "allow"}),
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
            "OPENCODE_DISABLE_SHARE": "1",
        }

    async def start(self, prompt: str) -> asyncio.subprocess.Process:
        """A session that does what a prompt says and ends."""
        command = [program("opencode"), "run", prompt, "--format", "json"]
        return await started(command, self._desk.work, self._env)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["OpencodeApi"]:
        """Its HTTP API, as its desktop and web programs use it."""
        command = [program("opencode"), "serve", "--port", "0"]
        process = await started(command, self._desk.work, self._env)
        assert process.stdout is not None
        try:
            address = None
            async with asyncio.timeout(patient(60)):
                while address is None:
                    line = (await process.stdout.readline()).decode()
                    assert line, "opencode serve has ended"
                    address = re.search(r"http://\S+", line)
            async with aiohttp.ClientSession(address[0]) as http:
                yield OpencodeApi(http)
        finally:
            await stopped(process, signal.SIGTERM)


class OpencodeApi:
    """A session of `opencode serve`."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    async def session(self) -> str:
        """The id of a new session, once the tools of remit are there."""

        async def connected() -> bool:
            servers = await self._ask("GET", "/mcp")
            return bool(servers.get("remit", {}).get("status") == "connected")

        await _until(connected)
        return str((await self._ask("POST", "/session", {}))["id"])

    async def say(self, session: str, prompt: str) -> str:
        """Send a prompt and wait for the last answer; the id of the prompt's message."""
        parts = [{"type": "text", "text": prompt}]
        before = _last_prompt(await self._messages(session))
        # The answer to a plain POST of a message sometimes does not end, so its messages are read
        # instead.
        await self._ask("POST", f"/session/{session}/prompt_async", {"parts": parts})

        async def answered() -> bool:
            messages = await self._messages(session)
            last = messages[-1] if _last_prompt(messages) != before else {}
            return bool(last.get("finish") == "stop" and last["time"].get("completed"))

        await _until(answered)
        return _last_prompt(await self._messages(session))

    async def undo(self, session: str, message: str) -> Any:
        """Take back a message and every change of files since, as /undo does."""
        return await self._ask("POST", f"/session/{session}/revert", {"messageID": message})

    async def _messages(self, session: str) -> list[dict[str, Any]]:
        return [
            message["info"] for message in await self._ask("GET", f"/session/{session}/message")
        ]

    async def _ask(self, method: str, path: str, body: Any = None) -> Any:
        timeout = aiohttp.ClientTimeout(total=patient(60))
        async with self._http.request(method, path, json=body, timeout=timeout) as answer:
            text = await answer.text()
            assert answer.status in (200, 204), (path, answer.status, text)
            return json.loads(text) if text else None


def _last_prompt(messages: list[dict[str, Any]]) -> str:
    """The id of the last message of the user; empty if there is none."""
    return next(
        (str(message["id"]) for message in reversed(messages) if message["role"] == "user"), ""
    )


async def _until(true: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something in another process, which tells nobody when it happens."""
    async with asyncio.timeout(patient(START_SECONDS)):
        while not await true():  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.2)


async def started(
    command: list[str], folder: Path, env: Mapping[str, str]
) -> asyncio.subprocess.Process:
    """A process without input."""
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=dict(env), stdin=nothing, stdout=pipe, stderr=pipe, limit=1 << 24
    )


async def finished(process: asyncio.subprocess.Process) -> Ended:
    """How a process ended by itself."""
    try:
        async with asyncio.timeout(patient(300)):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        raise
    return Ended(process.returncode or 0, out.decode(), err.decode())


async def stopped(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """End a process by a signal, and by force if it does not end soon.

    What it has started may keep its output open.
    """
    if process.returncode is None:
        process.send_signal(number)
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.communicate()
    except TimeoutError:
        if process.returncode is None:
            process.kill()
        await process.wait()
