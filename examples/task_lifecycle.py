"""A whole task on SQLite, step by step.

It is planned, delegated, asks a question, is updated, survives a killed process, completes and is
verified.
"""

import asyncio
import os
import subprocess
import sys
import tempfile

from remit import Answer, Asked, Conflict, InvalidParam, Remit, scripted_model


def rule(asked: Asked) -> Answer:
    """The model of the sub-agent: it asks a person, then reports."""
    if not asked.results:
        return [("ask_user", {"question": "Since which tag?", "options": ["v1", "v2"]})]
    return "12 changes since v2."


async def first_process(folder: str) -> None:
    """Create a task, delegate a step, wait for a question, and kill this process."""
    async with scripted_model(rule), Remit.open(folder, actor="user:ann") as remit:
        created = await remit.create_task(
            "Write the release notes",
            instructions="Summarize what changed since the last release.",
            steps=["Find what changed", "Write it down"],
            acceptance=["Every change is named."],
            outputs=["notes"],
        )
        print(f"  Task {created.task_id} is {created.task.state}.")
        looked = await remit.create_subtask(
            created.task_id, "Find what changed", "explore", step_index=0
        )
        print(f"  Task {looked.task_id} was created for its first step.")
        async for event in remit.events(after="", task_id=looked.task_id):
            if event.type == "RunYielded":
                break
        await remit.update_task(
            created.task_id, instructions="Summarize what changed, in English and German."
        )
        print("  A question is open and an update is queued. Now: kill -9", flush=True)
        os.kill(os.getpid(), 9)


async def second_process(folder: str) -> None:
    """Continue after the first process was killed."""
    async with scripted_model(rule), Remit.open(folder, actor="user:ann") as remit:
        (question,) = (await remit.list_interactions()).interactions
        print(
            f"  Still open: {question.id} asks {question.question!r} (task"
            f" {' > '.join(question.path)})"
        )
        await remit.respond(question.id, "v2")
        try:
            await remit.respond(question.id, "v1")
        except Conflict as refused:
            print(f"  A second answer is refused: {refused}")
        found = await remit.task_output(question.task_id, wait_seconds=60)
        print(f"  Task {found.task_id} reports: {found.raise_for_status().text}")

        parent = question.path[0]
        try:
            await remit.complete_task(parent)
        except InvalidParam as refused:
            print(f"  Not complete yet: {refused}")
        done = await remit.complete_task(
            parent, outputs={"notes": "…"}, summary="Written in both languages."
        )
        (criterion,) = done.task.acceptance
        print(
            f"  Task {parent} is {done.task.state}. Its criterion is {criterion.status}, so it is"
            f" {done.task.verification}."
        )
        print("  Its events:")
        for event in (await remit.get_events(parent)).events:
            print(f"    {event.version:>2}  {event.type:<20} {event.actor}")
        archived = (await remit.list_history()).tasks
        print(f"  Archived tasks: {[task.title for task in archived]}")
        assert done.task.state == "done"


def main() -> None:
    """Run the first half in a separate process, the second here, and verify the store."""
    if len(sys.argv) > 1:
        asyncio.run(first_process(sys.argv[1]))
    with tempfile.TemporaryDirectory() as folder:
        print("First process:", flush=True)
        killed = subprocess.run([sys.executable, __file__, folder], check=False)
        print(f"It ended with exit code {killed.returncode}. Second process:")
        asyncio.run(second_process(folder))
        print("Verify the store:", flush=True)
        subprocess.run(
            [sys.executable, "-m", "remit", "--workspace", folder, "doctor", "--verify"], check=True
        )


if __name__ == "__main__":
    main()
