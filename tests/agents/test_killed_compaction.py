"""A worker that is killed while the light model summarizes: the next one loses nothing that is
open.
"""

import asyncio
import json
import os
import signal
from pathlib import Path

from remit.app.maintenance.verify import verify
from remit.domain.prompts.compaction import SUMMARY_SYSTEM
from remit.domain.task.task import State
from tests.agents.endpoint import Body, RuledServer, answers, wants
from tests.agents.processes import worker
from tests.agents.stage import says, stage
from tests.modelserver import Reply, Say, Status
from tests.patience import patient

CONTEXT = 26_000
FILES = 6
TOO_LONG = {
    "error": {"message": "maximum context length exceeded", "code": "context_length_exceeded"}
}


class Story:
    """A model with a small context that plans, hands out a part, asks a person and reads files."""

    def __init__(self) -> None:
        self.summarizing = asyncio.Event()
        self.go_on = asyncio.Event()
        self.last: Body = {}

    async def __call__(self, body: Body) -> Reply:
        text = json.dumps(body["messages"])
        if SUMMARY_SYSTEM[:60] in text:
            self.summarizing.set()
            await self.go_on.wait()
            return Say(("The files hold words.",))
        if len(text) > CONTEXT:
            return Status(400, TOO_LONG)
        self.last = body
        return self._lead(body, text)

    def _lead(self, body: Body, text: str) -> Say:
        if "[Summary of your earlier work]" in text:
            return Say(("Done.",))
        done = answers(body)
        if done == 0:
            return Say(calls=(wants("s1", "update_steps", steps=["Read", "Report"]),))
        if done == 1:
            part = {"task_id": "1", "title": "Part", "owner": "general", "status": "draft"}
            return Say(calls=(wants("p1", "create_subtask", wait="none", **part),))
        if done == 2:
            return Say(calls=(wants("q1", "ask_user", question="Which units?"),))
        return Say(calls=(wants(f"r{done}", "Read", file_path=f"{done % FILES}.txt"),))


async def test_a_kill_during_a_summary_loses_nothing(durable_url: str, tmp_path: Path) -> None:
    story = Story()
    (tmp_path / ".remit").mkdir()
    for number in range(FILES):
        (tmp_path / f"{number}.txt").write_text("some words on a line\n" * 700)
    server = RuledServer(story)
    async with server.running(), stage(durable_url, tmp_path, [says("never")], workers=0) as at:
        async with worker(tmp_path, durable_url, server.url) as first:
            task_id = await at.create(owner="build", instructions="Read the files.")
            asked = await at.waiting(task_id)
            await at.call("send_message", task_id=task_id, message="Be brief.")
            await at.call("respond", interaction_id=asked.questions[0].id, answer="Metric")
            async with asyncio.timeout(patient(30)):
                await story.summarizing.wait()
            os.kill(first.pid, signal.SIGKILL)
            await first.wait()
        await at.call("update_task", task_id=task_id, instructions="Read two files.")
        story.go_on.set()
        async with worker(tmp_path, durable_url, server.url):
            task = await at.team.until(task_id, lambda task: task.final_message is not None)
        text = "\n".join(str(message["content"]) for message in story.last["messages"])
        assert "> The files hold words." in text
        assert "[Task Update: Message]\nBe brief." in text
        assert "You asked: Which units?\nThe person answered: Metric" in text
        assert "[Task Update: Instructions Modified]\nRead two files." in text
        assert "[ ] 0. Read" in text
        assert "- subtask 2: draft" in text
        updates = (await at.call("list_updates", task_id=task_id))["updates"]
        delivered = [item for item in updates if item["type"] != "steps"]
        assert [item["status"] for item in delivered] == ["delivered", "delivered"]
        assert task.state is not State.FAILED, task.failure_reason
        assert (await verify(at.team.core.store)).faults == ()
