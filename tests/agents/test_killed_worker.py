"""A worker that is killed in the middle of a fan-out, with questions open at the top and below:
another goes on where it was.
"""

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path

from remit.app.maintenance.verify import verify
from remit.domain.task.task import State
from tests.agents.endpoint import Body, RuledServer, answers, objective, tool_results, wants
from tests.agents.processes import worker
from tests.agents.stage import Stage, says, stage
from tests.modelserver import Say
from tests.patience import patient

CHILDREN = 20


class Story:
    """A boss with twenty workers and a question.

    One worker asks too, and some are kept from answering until they are let.
    """

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.held = asyncio.Event()

    async def __call__(self, body: Body) -> Say:
        if objective(body) == "Lead":
            return self._lead(body)
        number = int(objective(body).removeprefix("Work "))
        if answers(body) == 0:
            return Say(calls=(wants("w1", "Bash", command=f"echo {number} >> log.txt"),))
        if number == 0 and answers(body) == 1:
            return Say(calls=(wants("q1", "ask_user", question="Which?"),))
        if number >= CHILDREN // 2 and not self.go_on.is_set():
            self.held.set()
            await self.go_on.wait()
        return Say((f"Result {number}.",))

    def _lead(self, body: Body) -> Say:
        if answers(body) == 0:
            works = [
                {"objective": f"Work {number}", "tools": ["Bash"]} for number in range(CHILDREN)
            ]
            return Say(
                calls=(
                    wants("f1", "task_parallel", tasks=works),
                    wants("q1", "ask_user", question="Shall I?"),
                )
            )
        return Say(("|".join(tool_results(body)),))


async def stored(at: Stage) -> Counter[str]:
    """How many answers of the model are stored of each piece of work."""
    found: Counter[str] = Counter()
    for task_id in range(1, CHILDREN + 2):
        said = await at.transcript(str(task_id))
        if said:
            found[said[0]["parts"][0]["text"]] = sum(
                message["role"] == "assistant" for message in said
            )
    return found


async def test_a_killed_worker_costs_nothing_that_was_stored(
    durable_url: str, tmp_path: Path
) -> None:
    story = Story()
    (tmp_path / ".remit").mkdir()
    async with (
        RuledServer(story).running() as server,
        stage(durable_url, tmp_path, [says("never")], workers=0) as at,
    ):
        async with worker(tmp_path, durable_url, server.url) as first:
            task_id = await at.create(owner="build", instructions="Lead", tools=["Bash", "Task"])
            parent = await at.waiting(task_id)
            child = await at.team.until("2", lambda task: bool(task.questions) and task.run is None)
            async with asyncio.timeout(patient(20)):
                await story.held.wait()
            os.kill(first.pid, signal.SIGKILL)
            await first.wait()
        before, asked = await stored(at), len(server.asked)
        story.go_on.set()
        async with worker(tmp_path, durable_url, server.url):
            await at.call("respond", interaction_id=parent.questions[0].id, answer="Yes")
            await at.call("respond", interaction_id=child.questions[0].id, answer="This")
            done = await at.team.ended(task_id)
        again = server.asked[asked:]
        assert done.state is State.DONE, done.failure_reason
        assert [
            item.body for item in again if answers(item.body) < before[objective(item.body)]
        ] == []
        lines = (tmp_path / "log.txt").read_text().split()
        assert len(lines) == len(set(lines))
        text = done.final_message or ""
        assert [text.count(f"Result {number}.") for number in range(CHILDREN)] == [1] * CHILDREN
        assert text.count("The person answered: Yes") == 1
        (asked_child,) = [item.body for item in again if objective(item.body) == "Work 0"]
        assert tool_results(asked_child)[1:] == ["The person answered: This"]
        assert [row["status"] for row in (await at.call("list_interactions"))["interactions"]] == []
        unknown = sum(
            "it is not known whether it took effect" in "".join(tool_results(item.body))
            for item in again
        )
        assert len(lines) + unknown >= CHILDREN
        assert (await at.team.events(task_id)).count("SubtaskSettled") == CHILDREN
        assert (await verify(at.team.core.store)).faults == ()
