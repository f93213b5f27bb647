"""The commands that hand out work, in real processes, with a person who answers from another one."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.agents.endpoint import Body, RuledServer, answers, objective, tool_results, wants
from tests.crash.process import environment
from tests.modelserver import Say
from tests.surfaces.test_command import Shell


async def _rule(body: Body) -> Say:
    if "Ask" in objective(body) and answers(body) == 0:
        return Say(calls=(wants("q1", "ask_user", question="Red or blue?"),))
    return Say((" ".join(["Did it.", *tool_results(body)]),))


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path, PYTHONPATH=environment()["PYTHONPATH"], LLM_MODEL_ID="scripted", LLM_API_KEY="none")
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
        out, _ = await asyncio.to_thread(waiting.communicate, timeout=20)
        assert (waiting.returncode, json.loads(out)["data"]["result"]) == (0, "Did it. The person answered: Blue")


async def test_a_file_of_work_is_done_in_order(shell: Shell) -> None:
    (shell.folder / "work.txt").write_text('One\n{"objective": "Two", "subagent_type": "nobody"}\nThree\n')
    async with RuledServer(_rule).running() as server:
        shell.env["LLM_BASE_URL"] = f"{server.url}/v1"
        ran = await asyncio.to_thread(shell.remit, "parallel", "work.txt", "--json")
        assert [item["data"]["status"] for item in ran.json["results"]] == ["completed", "failed", "completed"]
        assert ran.code == 1
