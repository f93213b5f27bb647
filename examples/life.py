"""The life of a task on the embedded store: planned, delegated, changed in flight, asked about, killed, completed, proved."""

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from remit.app.query import ask, get_events, get_task, list_history, list_interactions
from remit.app.verify import verify
from remit.bootstrap import open_service, open_store
from remit.domain import command as cmd
from remit.errors import Conflict, InvalidParam

ANN, NOW = "user:ann", "9999-12-31T00:00:00.000000Z"


async def first_process(url: str) -> None:
    """Make a plan, delegate a step, ask a person, and be killed without warning."""
    async with open_service(url) as remit:
        created = await remit.do(
            cmd.CreateTask,
            {
                "title": "Write the release notes",
                "instructions": "Summarise what changed since the last release.",
                "owner": "build",
                "steps": ["Find what changed", "Write it down"],
                "acceptance": ["Every change is named."],
                "outputs": ["notes"],
            },
            ANN,
        )
        task = created.task_id
        print(f"  task {task} is {created.task.state if created.task else '?'}")

        looked = await remit.do(
            cmd.CreateSubtask, {"task_id": task, "title": "Find what changed", "owner": "explore", "step_index": 0}, "agent:build"
        )
        print(f"  task {looked.task_id} was delegated for its first step")

        started = await remit.do(cmd.StartRun, {"task_id": looked.task_id, "worker": "here"}, "system:engine")
        run = started.task.run.id if started.task and started.task.run else ""
        question = {"task_id": looked.task_id, "question": "Since which tag?", "options": ["v1", "v2"], "call_id": "call-1"}
        await remit.do(cmd.AskUser, question, "agent:explore", run)
        await remit.do(cmd.YieldRun, {"task_id": looked.task_id}, "agent:explore", run)
        await remit.do(cmd.UpdateTask, {"task_id": task, "instructions": "Summarise what changed, in English and German."}, ANN)
        print("  a question is open, new instructions are queued, and now: kill -9", flush=True)
        os.kill(os.getpid(), 9)


async def second_process(url: str) -> None:
    """Go on where the other one was killed."""
    async with open_store(url) as store, open_service(url) as remit:
        (question,) = (await ask(list_interactions(), store.select))["interactions"]
        print(f"  still there: {question['id']} asks {question['question']!r} (from task {' > '.join(question['path'])})")
        await remit.do(cmd.Respond, {"interaction_id": question["id"], "answer": "v2"}, ANN)
        try:
            await remit.do(cmd.Respond, {"interaction_id": question["id"], "answer": "v1"}, "user:bob")
        except Conflict as refused:
            print(f"  a second answer is refused: {refused}")

        await remit.do(cmd.CompleteTask, {"task_id": question["task_id"], "summary": "12 changes since v2."}, "agent:explore")
        parent = question["path"][0]
        try:
            await remit.do(cmd.CompleteTask, {"task_id": parent}, ANN)
        except InvalidParam as refused:
            print(f"  not done yet: {refused}")
        await remit.do(cmd.CompleteTask, {"task_id": parent, "outputs": {"notes": "..."}, "summary": "Written in both languages."}, ANN)

        shown = await ask(get_task(parent, now=NOW), store.select)
        print(f"  task {parent} is {shown['state']}; its criterion is {shown['acceptance'][0]['status']}, so it counts as {shown['verification']}")
        print("  its history:")
        for event in (await ask(get_events(parent), store.select))["events"]:
            print(f"    {event['version']:>2}  {event['type']:<20} {event['actor']}")
        print(f"  in the archive: {[item['title'] for item in (await ask(list_history(), store.select))['tasks']]}")

        report = await verify(store)
        print(f"  verified: {report.events} events in {report.streams} streams, {report.rows} rows equal to a replay, {len(report.faults)} faults")
        assert not report.faults


def main() -> None:
    """Run one half in a process of its own, the other here."""
    if len(sys.argv) > 1:
        asyncio.run(first_process(sys.argv[1]))
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'remit.db'}"
        print("One process:", flush=True)
        killed = subprocess.run([sys.executable, __file__, url], check=False)
        print(f"It ended with {killed.returncode}. Another process:")
        asyncio.run(second_process(url))


if __name__ == "__main__":
    main()
