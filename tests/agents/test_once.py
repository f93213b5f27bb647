"""An operation of an agent happens once, even if its worker dies after the commit and before the
answer.
"""

import json
from pathlib import Path

from remit.app.maintenance.verify import verify
from remit.domain.task.task import State
from tests.agents.endpoint import Body, RuledServer, answers, objective, tool_results, wants
from tests.agents.processes import fragile
from tests.agents.stage import says, stage
from tests.modelserver import Say

CALLS = (
    wants("c1", "update_steps", steps=[{"title": "All", "done": True}]),
    wants("c2", "notify_user", message="I have begun."),
    wants("c3", "create_task", title="Aside", owner="plan", status="draft"),
    wants("c4", "create_subtask", task_id="1", title="Work, by the way", owner="explore"),
    wants("c5", "task", objective="Work ahead", subagent_type="explore", wait=False),
    wants("c6", "task", objective="Work", subagent_type="explore"),
    wants("c7", "ask_user", question="Shall I?"),
)
DEADLY = (
    "StepsReplaced",
    "UserNotified",
    "TaskCreated",
    "SubtaskLinked",
    "SubtaskLinked",
    "SubtaskAwaited",
    "UserInteractionRequested",
)
"""What each of them stores; the worker is killed when it has."""


async def lead(body: Body) -> Say:
    """One call after the other, then all that was answered."""
    if objective(body).startswith("Work"):
        return Say(("Worked.",))
    done = answers(body)
    return (
        Say(calls=(CALLS[done],)) if done < len(CALLS) else Say((json.dumps(tool_results(body)),))
    )


async def test_every_operation_is_carried_out_once(durable_url: str, tmp_path: Path) -> None:
    (tmp_path / ".remit").mkdir()
    async with (
        RuledServer(lead).running() as server,
        stage(durable_url, tmp_path, [says("never")], workers=0) as at,
    ):
        task_id = await at.create(owner="build", instructions="Lead", limits={"max_attempts": 20})
        async with fragile(tmp_path, durable_url, server.url, DEADLY):
            asking = await at.team.until(
                task_id, lambda task: bool(task.questions) and task.state is State.WAITING
            )
            await at.call("respond", interaction_id=asking.questions[0].id, answer="Yes")
            done = await at.team.ended(task_id)
        happened = await at.team.events(task_id)
        assert done.state is State.DONE, done.failure_reason
        assert {name: happened.count(name) for name in DEADLY if name != "TaskCreated"} == {
            "StepsReplaced": 1,
            "UserNotified": 1,
            "SubtaskLinked": 3,
            "SubtaskAwaited": 1,
            "UserInteractionRequested": 1,
        }
        assert happened.count("RunLost") == len(DEADLY)
        assert len((await at.call("list_tasks", limit=100, status="draft"))["tasks"]) == 1
        told = json.loads(done.final_message or "")
        assert [
            text for text in told[:3] if text != "The call succeeded, but its answer was not kept."
        ] == []
        assert json.loads(told[3])["task_id"] == done.children[0].id
        assert ["running" in told[4] or "Worked." in told[4], "Worked." in told[5], told[6]] == [
            True,
            True,
            "The person answered: Yes",
        ]
        assert (await verify(at.team.core.store)).faults == ()
