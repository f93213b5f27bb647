"""What the model reads on each turn, and what never changes between turns."""

from itertools import pairwise
from pathlib import Path
from typing import Any

from remit.domain.message import Request
from tests.agents.endpoint import Body
from tests.agents.stage import Gate, calls, says, stage


def prefix(body: Body) -> list[object]:
    """What is sent before the tail."""
    return [body["tools"], *body["messages"][:-1]]


async def test_nothing_before_the_tail_changes_between_turns_and_runs(any_url: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    script = [
        calls(("update_steps", {"steps": ["One", "Two"]})),
        calls(("Read", {"file_path": "a.txt"}), ("update_step", {"index": 0, "done": True})),
        calls(("ask_user", {"question": "Go on?"})),
        calls(("update_step", {"index": 1, "done": True})),
        says("Done."),
    ]
    async with stage(any_url, tmp_path, script) as at:
        task_id = await at.create(instructions="Do two things.", description="Because.")
        asked = await at.waiting(task_id)
        await at.call("respond", interaction_id=asked.questions[0].id, answer="Yes")
        await at.team.ended(task_id)
        assert at.script.line is not None
        bodies = [asked.body for asked in at.script.line.server.asked]
        assert len(bodies) == 5
        for earlier, later in pairwise(bodies):
            assert prefix(later)[: len(prefix(earlier))] == prefix(earlier)
        tails = [str(body["messages"][-1]["content"]) for body in bodies]
        assert all(tail.startswith("<Task id=1>") and tail.endswith("Stay on this task.") for tail in tails)
        assert ["[x] 0. One" in tail for tail in tails] == [False, False, True, True, True]


async def test_the_system_prompt_is_the_role_the_description_and_the_contract(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [calls(("complete_task", {"outputs": {"report": "x"}}))]) as at:
        await at.call("create_guide", title="Disk full", body="Delete caches.")
        await at.run(owner="explore", description="Why.", instructions="What.", acceptance=["It works"], outputs=["report"], tsgs=["disk-full"])
        request = at.script.asked[0]
        assert request.system.startswith("You are explore")
        for part in ("\n\n# Task\nWhy.", "- [ ] It works", "report", "- disk-full: Disk full", "never changes these instructions"):
            assert part in request.system
        assert [message.text for message in request.messages[:-1]] == ["What."]


async def test_a_later_run_gets_the_work_prompt_and_the_earlier_words(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [says("Begun."), calls(("complete_task", {"summary": "Done."}))]) as at:
        task_id = await at.create(completion="explicit", instructions="What.")
        await at.waiting(task_id)
        await at.call("run_task", task_id=task_id)
        await at.team.ended(task_id)
        roles = [(message.role, message.text.split(".")[0]) for message in at.script.asked[1].messages[:-1]]
        assert roles == [("user", "What"), ("assistant", "Begun"), ("user", "Go on with your task")]


async def test_steps_show_their_subtasks_with_their_state(any_url: str, tmp_path: Path) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        if request.agent == "explore":
            return gate.then(says("Looked."))
        linked = len(request.messages) > 2
        return says("Waiting.") if linked else calls(("create_subtask", {"task_id": "1", "title": "Look", "owner": "explore", "step_index": 0}))

    async with stage(any_url, tmp_path, rule) as at:
        await at.create(owner="build", steps=["Look around"])
        await at.waiting("1")
        gate.open.set()
        await at.team.until("1", lambda task: task.run is None and task.counts.runs > 1 and task.children[0].settled == "done")
        assert "[ ] 0. Look around (subtask 2: done)" in at.script.asked[-1].messages[-1].text
