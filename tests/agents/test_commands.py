"""The commands that hand out work, in real processes, with a person who answers from another
one.
"""

import asyncio
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.agents.endpoint import Body, RuledServer, answers, objective, tool_results, wants
from tests.crash.process import environment
from tests.modelserver import ModelServer, Raw, Say
from tests.patience import patient
from tests.surfaces.shell import Shell


async def _rule(body: Body) -> Say:
    if "Ask" in objective(body) and answers(body) == 0:
        return Say(calls=(wants("q1", "ask_user", question="Red or blue?"),))
    return Say((" ".join(["Did it.", *tool_results(body)]),))


@pytest.fixture
def shell(tmp_path: Path, durable_url: str) -> Shell:
    made = Shell(
        tmp_path,
        PYTHONPATH=environment()["PYTHONPATH"],
        LLM_MODEL_ID="scripted",
        LLM_API_KEY="none",
        REMIT_DATABASE_URL=durable_url,
    )
    assert made.remit("init").code == 0
    return made


async def test_a_person_answers_from_another_process_while_the_first_waits(shell: Shell) -> None:
    async with RuledServer(_rule).running() as server:
        shell.env["LLM_BASE_URL"] = f"{server.url}/v1"
        waiting = shell.started("run", "Ask me", "--json")
        assert waiting.stderr is not None
        seen = ""
        while "it asks" not in seen:
            line = await asyncio.to_thread(waiting.stderr.readline)
            assert line, seen
            seen += line
        answered = await asyncio.to_thread(shell.remit, "interact", "respond", "1", "Blue")
        assert answered.code == 0, answered.err
        out, _ = await asyncio.to_thread(waiting.communicate, timeout=patient(20))
        assert (waiting.returncode, json.loads(out)["data"]["result"]) == (
            0,
            "Did it. The person answered: Blue",
        )


async def test_a_file_of_work_is_done_in_order(shell: Shell) -> None:
    (shell.folder / "work.txt").write_text(
        'One\n{"objective": "Two", "subagent_type": "nobody"}\nThree\n'
    )
    async with RuledServer(_rule).running() as server:
        shell.env["LLM_BASE_URL"] = f"{server.url}/v1"
        ran = await asyncio.to_thread(shell.remit, "parallel", "work.txt", "--json")
        assert [item["data"]["status"] for item in ran.json["results"]] == [
            "completed",
            "failed",
            "completed",
        ]
        assert ran.code == 1


async def test_an_invalid_address_is_reported_at_once_without_a_model(shell: Shell) -> None:
    async with ModelServer("openai").running() as server:
        server.replies = [Raw((b"<html>Welcome",), content_type="text/html")]
        shell.env["LLM_BASE_URL"] = server.url
        ran = await asyncio.to_thread(shell.remit, "run", "Do it")
    assert (ran.code, len(server.asked)) == (1, 1)
    assert (
        f"{server.url}/chat/completions answered with a web page instead of a model response:"
        " Welcome" in ran.out
    )
    assert "#1 general: failed" in ran.err


async def test_a_model_of_another_provider_is_asked_where_its_own_variables_say(
    shell: Shell,
) -> None:
    async with RuledServer(_rule).running() as server:
        shell.env |= {"OLLAMA_BASE_URL": f"{server.url}/v1", "OLLAMA_API_KEY": "key-of-ollama"}
        ran = await asyncio.to_thread(
            shell.remit, "run", "Do it", "--model", "ollama:qwen3:8b", "--json"
        )
        assert (ran.code, ran.json["data"]["result"], ran.json["data"]["model_used"]) == (
            0,
            "Did it.",
            "ollama:qwen3:8b (really)",
        ), ran.err
        (asked,) = server.asked
        assert (asked.body["model"], asked.headers["authorization"]) == (
            "qwen3:8b",
            "Bearer key-of-ollama",
        )


def _lead(drawn: asyncio.Event) -> Callable[[Body], Awaitable[Say]]:
    async def rule(body: Body) -> Say:
        if objective(body) == "Lead":
            works = [
                {"objective": f"Work {number}", "subagent_type": "explore"} for number in (1, 2)
            ]
            return (
                Say(("All done.",))
                if answers(body)
                else Say(calls=(wants("f1", "task_parallel", tasks=works),))
            )
        if not answers(body):
            return Say(calls=(wants("l1", "LS", path="."),))
        await drawn.wait()
        return Say(("Done.",))

    return rule


async def test_at_a_terminal_the_tree_shows_the_activity_and_use_of_each_child(
    shell: Shell,
) -> None:
    settings = shell.folder / "home" / ".config" / "remit"
    settings.mkdir(parents=True)
    loop, drawn = asyncio.get_running_loop(), asyncio.Event()
    async with RuledServer(_lead(drawn)).running() as server:
        model = (
            f'model = "scripted"\nbase_url = "{server.url}/v1"\napi_key = "none"\nprice_input ='
            " 100\nprice_output = 200\n"
        )
        (settings / "config.toml").write_text(f"[models.main]\n{model}")
        for name in ("LLM_MODEL_ID", "LLM_API_KEY", "XDG_CONFIG_HOME"):
            shell.env.pop(name, None)

        def look(seen: str) -> None:
            if "explore · running · LS · 1 tool call" in seen:
                loop.call_soon_threadsafe(drawn.set)

        seen = await asyncio.to_thread(
            _at_a_terminal, look, shell, "run", "Lead", "--agent", "build"
        )
    pictures = [
        picture.splitlines()
        for picture in re.split(r"\x1b\[\d+F", re.sub(r"\r|\x1b\[[KJ]", "", seen))
    ]
    lead, *children, last = pictures[-1]
    assert re.fullmatch(
        r"✓ #1 Lead · build · done · \d+ tool calls? · 300 tokens · \$0\.036 · \d+\.\d s elapsed",
        lead,
    )
    assert (len(children), last.startswith("#1 build, main (really): completed")) == (2, True)
    for number, line in enumerate(children, 1):
        wanted = (
            rf"  ✓ #{number + 1} Work {number} · explore · done · 1 tool call · 300 tokens ·"
            r" \$0\.036 · \d+\.\d s elapsed"
        )
        assert re.fullmatch(wanted, line), line


def _at_a_terminal(look: Callable[[str], None], shell: Shell, *words: str) -> str:
    """The output of a command at a terminal of 200 columns."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, True)
    env = shell.env | {"COLUMNS": "200", "TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-m", "remit", *words],
        cwd=shell.folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    drawn = b""
    with suppress(OSError):  # the other end is closed when the command has ended
        while piece := os.read(ours, 65_536):
            drawn += piece
            look(drawn.decode(errors="replace"))
    os.close(ours)
    assert process.wait(patient(20)) == 0, drawn
    return drawn.decode()
