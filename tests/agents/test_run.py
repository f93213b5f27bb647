"""Runs of an agent: its conversation, its tools, its questions, its children."""

import json
from pathlib import Path

from remit.domain.llm.messages import Request, Response
from remit.domain.task.task import State
from tests.agents.stage import calls, results, says, stage, texts


async def test_an_agent_reads_and_answers(any_url: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("The answer is 42.\n")
    async with stage(
        any_url, tmp_path, [calls(("Read", {"file_path": "notes.txt"})), says("It is 42.")]
    ) as at:
        found = await at.call(
            "task",
            objective="What is the answer?",
            subagent_type="explore",
            context={"hint": "notes"},
        )
        assert (found["status"], found["data"]["result"]) == ("success", "It is 42.")
        assert found["data"]["tool_summary"] == [{"tool": "Read", "count": 1}]
        assert found["text"] == "Subagent (explore, light) completed.\n\nIt is 42."
        assert found["stats"]["tokens"] == 30
        first, second = at.script.asked
        assert first.messages[0].text == 'What is the answer?\n\nContext:\n{"hint": "notes"}'
        assert first.system.startswith("You are explore")
        assert "\n\n# Task\nWhat is the answer?" in first.system
        assert "<Task id=1>" in first.messages[-1].text
        assert "The answer is 42." in results(second)[0]
        said = await at.transcript("1")
        assert [message["role"] for message in said] == ["user", "assistant", "tool", "assistant"]


async def test_a_question_goes_to_a_person_and_the_answer_to_the_very_call(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(
        any_url, tmp_path, [calls(("ask_user", {"question": "Red or blue?"})), says("Blue it is.")]
    ) as at:
        task_id = await at.team.create(instructions="Paint it.", metadata={})
        waiting = await at.team.until(task_id, lambda task: task.state is State.WAITING)
        await at.call("respond", interaction_id=waiting.questions[0].id, answer="Blue")
        task = await at.team.ended(task_id)
        assert (task.state, task.final_message, task.counts.runs) == (State.DONE, "Blue it is.", 2)
        assert results(at.script.asked[1]) == ["The person answered: Blue"]


async def test_delegation_suspends_the_parent_even_with_one_slot(
    any_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Response:
        if "Find the file" in request.messages[0].text:
            return says("It is in src/.")
        if not results(request):
            return calls(
                ("task", {"objective": "Find the file A", "subagent_type": "explore"}),
                ("task", {"objective": "Find the file B", "subagent_type": "Explore"}),
                ("task", {"objective": "Nobody", "subagent_type": "nobody"}),
            )
        return says(" | ".join(results(request)))

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.team.ended(
            await at.team.create(owner="build", instructions="Find two files.", metadata={})
        )
        assert task.state is State.DONE
        told = (task.final_message or "").split(" | ")
        ends = [json.loads(text) for text in told[:2]]
        assert [(end["status"], end["result"]) for end in ends] == [
            ("completed", "It is in src/.")
        ] * 2
        assert "one of build, explore, general" in told[2]
        assert len(task.children) == 2


async def test_a_thousand_words_of_updates_arrive_once_and_in_order(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(
        any_url, tmp_path, [calls(("ask_user", {"question": "Ready?"})), says("Done.")]
    ) as at:
        task_id = await at.team.create(instructions="Wait.", metadata={})
        waiting = await at.team.until(task_id, lambda task: task.state is State.WAITING)
        for text in ("first", "second"):
            await at.call("send_message", task_id=task_id, message=text)
        await at.call("update_task", task_id=task_id, instructions="Do it well.")
        await at.call("respond", interaction_id=waiting.questions[0].id, answer="Yes")
        await at.team.ended(task_id)
        told = texts(at.script.asked[1])
        places = [
            told.index(word)
            for word in (
                "[Task Update: Message]\nfirst",
                "[Task Update: Message]\nsecond",
                "[Task Update: Instructions Modified]",
            )
        ]
        assert places == sorted(places)
        updates = (await at.call("list_updates", task_id=task_id))["updates"]
        assert [(item["status"], item["turn"]) for item in updates] == [("delivered", 2)] * 3


async def test_tools_that_are_not_granted_are_refused(any_url: str, tmp_path: Path) -> None:
    wanted = calls(("Write", {"file_path": "x.txt", "content": "x"}), ("Bash", {"command": "true"}))
    async with stage(any_url, tmp_path, [wanted, says("I could not.")]) as at:
        await at.team.ended(await at.team.create(instructions="Write x.", metadata={}))
        assert all(
            "not a tool that this task may use" in text for text in results(at.script.asked[1])
        )
        assert not (tmp_path / "x.txt").exists()


async def test_a_plan_is_kept_and_completion_is_claimed(any_url: str, tmp_path: Path) -> None:
    steps = calls(("update_steps", {"steps": ["Look", "Write"]}))
    done = calls(
        ("update_step", {"index": 0, "done": True}), ("update_step", {"index": 1, "done": True})
    )
    end = calls(("complete_task", {"summary": "All done.", "outputs": {"report": "fine"}}))
    async with stage(any_url, tmp_path, [steps, done, end]) as at:
        task = await at.team.ended(
            await at.team.create(instructions="Plan it.", outputs=["report"], metadata={})
        )
        assert (task.state, task.summary, task.completion_outputs) == (
            State.DONE,
            "All done.",
            {"report": "fine"},
        )
        assert "[x] 0. Look" in at.script.asked[2].messages[-1].text
        assert task.usage.requests == 3
        await at.team.idle()


async def test_the_last_turn_is_for_a_report(any_url: str, tmp_path: Path) -> None:
    def rule(request: Request) -> Response:
        return calls(("LS", {"path": "."})) if request.may_call else says("Half of it is done.")

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.team.ended(
            await at.team.create(instructions="Loop.", limits={"max_turns": 3}, metadata={})
        )
        assert (task.state, task.reason) == (State.FAILED, "turns")
        assert "Half of it is done." in (task.failure_reason or "")
        assert len(at.script.asked) == 4
