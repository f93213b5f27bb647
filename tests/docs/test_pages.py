"""Every command and code block of README, the tutorial and the how-tos, run in order as a reader
would.
"""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from remit.testing import Answer, Asked, scripted_model
from tests.docs.pages import Block, Command, blocks_of, page_names, read_blocks, read_commands
from tests.docs.shell import Said, Shell, host_kind, new_shell, pattern_of
from tests.patience import patient
from tests.postgres import PostgresForTests

NOT_RUN = {
    r"^make (try|test)$": "`.ci/run` runs both",
    r"^(python -m )?pip install ": "installs from a package index, which the tests must not need",
    r"apt-get install ": "changes the system",
    r"docker compose |localhost:8420": (
        "needs Docker; tests/surfaces/test_compose.py checks the file"
    ),
    r"GROQ_API_KEY|groq:": "needs an account of another service",
}
"""Commands that are not run, and why."""
EXAMPLE_DATABASE = "postgresql://remit@db.example.org/work"
EXAMPLE_MODEL_URL = "https://api.openai.com/v1"
EXAMPLE_PORT = "8420"
EXAMPLE_PID = "4711"
EXAMPLE_FOLDER = "/home/ann/shop"
NEEDS_MODEL = re.compile(r"output_type=|DelegationToolset|--allow ")
SHOW_CODE = "echo $?"
"""A command before this one may fail."""
READS = re.compile(r"remit (inbox|doctor$|task (updates|show|history))")
"""Commands that can be repeated until a worker has done what the page shows."""
ENDLESS = "curl -N"
"""A stream: what the page shows of it is read."""
IN_A_WORKSPACE = "docs/howto/"
"""Pages for readers who have a workspace: the tutorial makes one."""
PAGES = page_names()
LANGUAGES = ("console", "python", "toml", "json", "markdown")


@pytest.fixture
async def shell(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Shell]:
    """A reader's machine, with a model server and a database that stand for the reader's own."""
    page: str = request.param
    text = "\n".join(block.text for block in blocks_of(page))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {"REMIT_PORT": port, "XDG_STATE_HOME": str(tmp_path / "marks")}
    if EXAMPLE_DATABASE in text:
        server: PostgresForTests = request.getfixturevalue("postgres")
        with server.new_store() as url:
            async with new_shell(tmp_path, environment | {"TEST_DATABASE": url}) as opened:
                yield opened
    else:
        async with new_shell(tmp_path, environment) as opened:
            yield opened


@pytest.mark.parametrize(
    ("shell", "page"), [(page, page) for page in PAGES], ids=PAGES, indirect=["shell"]
)
async def test_a_page_works_as_typed(shell: Shell, page: str) -> None:
    blocks = blocks_of(page)
    async with scripted_model(model_of_the_reader) as model_url:
        reader = Reader(shell, model_url)
        if page.startswith(IN_A_WORKSPACE):
            await shell.run("remit init")
        for block in blocks:
            try:
                await reader.follow(block)
            except AssertionError as error:
                raise AssertionError(f"{block.place}\n{error}") from None
    assert reader.checked > 0, f"{page} has no block that is run"


def test_every_reason_is_needed() -> None:
    commands = [command.text for page in PAGES for command in commands_of(page)]
    unused = [
        pattern for pattern in NOT_RUN if not any(re.search(pattern, text) for text in commands)
    ]
    assert unused == []


def test_few_commands_are_not_run() -> None:
    commands = [command.text for page in PAGES for command in commands_of(page)]
    left_out = [text for text in commands if reason_not_to_run(text)]
    assert len(left_out) * 10 < len(commands), left_out


@pytest.mark.parametrize("page", PAGES)
def test_every_block_names_its_language(page: str) -> None:
    assert [block.place for block in blocks_of(page) if block.language not in LANGUAGES] == []


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("Created #1 Report (pending)", "Created #1 Report (pending)\n"),
        ("took 0.3 s", "took 12 s\n"),
        ("a\n…\nd", "a\nb\nc\nd\n"),
        (
            "2026-11-17T09:00:00.000000Z INFO Server started: …",
            "2027-01-01T10:11:12.345678Z INFO Server started: REST\n",
        ),
    ],
)
def test_shown_output_agrees(shown: str, said: str) -> None:
    assert pattern_of(tuple(shown.splitlines())).fullmatch(said)


@pytest.mark.parametrize(
    ("shown", "said"), [("Created #1", "Created #2\n"), ("a\nc", "a\nb\nc\n"), ("a", "a\nb\n")]
)
def test_other_output_does_not_agree(shown: str, said: str) -> None:
    assert not pattern_of(tuple(shown.splitlines())).fullmatch(said)


def test_a_page_is_read_block_by_block() -> None:
    page = (
        "In `a/b.py`:\n\n```python\nx\n```\n\n```console\n$ cat <<END\n$ 1\nEND\n$ 1\n$ b \\\n "
        " c\n```\n"
    )
    python, console = read_blocks("page.md", page)
    assert (python.path, python.text, console.path) == ("a/b.py", "x\n", None)
    expected = [Command("cat <<END\n$ 1\nEND", ()), Command("1", ()), Command("b \\\n  c", ())]
    assert list(read_commands(console.text)) == expected


class Reader:
    """Does what each block of a page says."""

    def __init__(self, shell: Shell, model_url: str) -> None:
        self._shell, self._model_url = shell, model_url
        tiers = {"LLM_MODEL_ID": "scripted", "LLM_API_KEY": "none", "LLM_BASE_URL": model_url}
        self._model = tiers | {"OPENAI_BASE_URL": model_url, "OPENAI_API_KEY": "none"}
        self._tests = ""
        self.checked = 0

    async def follow(self, block: Block) -> None:
        """Run a block, and check what the page says about it."""
        text = self._localize(block.text)
        if block.path:
            self._write(block.path, text)
        match block.language:
            case "console":
                commands = list(read_commands(text))
                for command, following in zip(commands, [*commands[1:], None], strict=True):
                    code_is_shown = following is not None and following.text == SHOW_CODE
                    await self._type(command, code_is_shown=code_is_shown)
            case "python" if not block.path:
                await self._run_python(text)
            case "python":
                await self._succeed(f"python -m py_compile {block.path}")
            case "toml" if block.path != "pyproject.toml":
                await self._check_settings(text)
            case "json":
                await self._check_json(json.loads(text))
            case "toml" | "markdown":
                assert block.path, "name the file in the line before the block"
            case other:
                raise AssertionError(f"blocks of {other or 'no language'} are not run")

    async def _type(self, command: Command, *, code_is_shown: bool) -> None:
        if reason_not_to_run(command.text):
            return
        self.checked += 1
        if host_kind(command.text):
            await self._shell.host(command.text)
            for line in command.shown:
                await self._shell.logged(pattern_of((line,)))
            return
        said = (
            await self._repeat(command) if READS.match(command.text) else await self._say(command)
        )
        described = f"$ {command.text}\nexit code {said.code}\n{said.out}{said.err}"
        fails = bool(command.shown) and command.shown[0].startswith("error: ")
        if not code_is_shown and (said.code != 0) != fails:
            raise AssertionError(described)
        if not agrees(command, said):
            raise AssertionError(described)

    async def _say(self, command: Command) -> Said:
        text = command.text
        if EXAMPLE_PID in text:
            text = text.replace(EXAMPLE_PID, str(self._shell.last_pid))
        if text.startswith(ENDLESS):
            text = f"{{ {text}; }} 2> /dev/null | head -n {max(1, len(command.shown))}"
        model = self._model if NEEDS_MODEL.search(text) else {}
        return await self._shell.run(text, **model)

    async def _repeat(self, command: Command) -> Said:
        """Read until the output is what the page shows: a worker may still be busy."""
        said = await self._say(command)
        limit = asyncio.get_running_loop().time() + patient(30)
        while (
            said.code == 0
            and not agrees(command, said)
            and asyncio.get_running_loop().time() < limit
        ):
            said = await self._say(command)
        return said

    async def _run_python(self, text: str) -> None:
        model = self._model if NEEDS_MODEL.search(text) else {}
        if "def test_" in text:
            self._tests += text
            self._write("test_page.py", self._tests)
            await self._succeed(
                "python -m pytest -q -p no:cacheprovider -p no:randomly test_page.py"
            )
        else:
            self._write("page.py", text)
            await self._succeed("python page.py", **model)

    async def _check_settings(self, text: str) -> None:
        path = self._write("~/.config/remit/config.toml", text)
        said = await self._shell.run("remit doctor --json")
        path.unlink()
        self.checked += 1
        report = json.loads(said.out)
        assert (report["faults"], report["unknown"]) == ([], []), said.out

    async def _check_json(self, value: dict[str, Any]) -> None:
        for server in value.get("mcpServers", {}).values():
            assert "remit" in await self._served_by(server)
        for event, groups in value.get("hooks", {}).items():
            told = json.dumps({"session_id": "SESSION", "hook_event_name": event})
            for command in [hook["command"] for group in groups for hook in group["hooks"]]:
                await self._succeed(f"{command} <<< '{told}'")

    async def _served_by(self, server: Mapping[str, Any]) -> str:
        self.checked += 1
        if "url" in server:
            await self._shell.host("remit serve")
            token = (await self._shell.run("remit token show")).out.strip()
            headers = [
                f"-H '{name}: {text.replace('TOKEN', token)}'"
                for name, text in server["headers"].items()
            ]
            request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
            more = (
                "-H 'Accept: application/json, text/event-stream' -H 'Content-Type:"
                " application/json'"
            )
            sent = f"{' '.join(headers)} {more} -d '{json.dumps(request)}'"
            return await self._succeed(f"curl -sf {server['url']} {sent}")
        environment = {"PATH": self._shell.path, "HOME": str(self._shell.home)}
        command, folder = server["command"], str(self._shell.folder)
        parameters = StdioServerParameters(
            command=command, args=server["args"], env=environment, cwd=folder
        )
        async with Client(parameters) as client:
            tools = (await client.list_tools()).tools
            assert "task" in [tool.name for tool in tools]
            return "remit"

    async def _succeed(self, command: str, **more: str) -> str:
        said = await self._shell.run(command, **more)
        self.checked += 1
        assert said.code == 0, f"{command}\nexit code {said.code}\n{said.out}{said.err}"
        return said.out

    def _localize(self, text: str) -> str:
        database = self._shell.environment.get("TEST_DATABASE", EXAMPLE_DATABASE)
        port = self._shell.environment["REMIT_PORT"]
        values = {
            EXAMPLE_DATABASE: database,
            EXAMPLE_MODEL_URL: self._model_url,
            EXAMPLE_FOLDER: str(self._shell.folder),
            f"127.0.0.1:{EXAMPLE_PORT}": f"127.0.0.1:{port}",
            '["sleep", 40]': f'["sleep", {patient(8):.0f}]',
            "LLM_MODEL_ID=…": "LLM_MODEL_ID=scripted",
            "LLM_API_KEY=…": "LLM_API_KEY=none",
            "LLM_BASE_URL=…": f"LLM_BASE_URL={self._model_url}",
        }
        for example, local in values.items():
            text = text.replace(example, local)
        return text

    def _write(self, path: str, text: str) -> Path:
        at_home = path.startswith("~/")
        target = self._shell.home / path[2:] if at_home else self._shell.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target


INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "page", "version": "1"},
}


def model_of_the_reader(asked: Asked) -> Answer:
    """A model that delegates if it can, fills in the schema of the typed example, and otherwise
    answers in a sentence.
    """
    if "task_parallel" in asked.tools and not asked.results:
        return [("task_parallel", {"tasks": ["How do retries work?", "How do limits work?"]})]
    if '"endpoints"' in asked.text and not asked.results:
        endpoints = [{"method": "GET", "path": "/api/tasks"}]
        return [
            (
                "complete_task",
                {"outputs": {"output": {"endpoints": endpoints}}, "summary": "One endpoint."},
            )
        ]
    return "The retry policy is in one file."


def commands_of(page: str) -> list[Command]:
    """Every command of a page."""
    consoles = [block for block in blocks_of(page) if block.language == "console"]
    return [command for block in consoles for command in read_commands(block.text)]


def agrees(command: Command, said: Said) -> bool:
    """Whether a command printed what the page shows."""
    if not command.shown:
        return True
    pattern = pattern_of(command.shown)
    return any(pattern.fullmatch(text) for text in (said.out, said.err, said.out + said.err))


def reason_not_to_run(command: str) -> str | None:
    """Why a command is not run, or None."""
    return next(
        (reason for pattern, reason in NOT_RUN.items() if re.search(pattern, command)), None
    )
