"""Mistakes that others have made with sub-agents, each as a behaviour that must hold here.

Others of the kind stand where they belong: errors of a model taken for success (test_model_faults),
a message that comes while a child finishes (test_updates), messages of agents that pass for
approval and spawns that are not allowed (test_authority), tools of an agent's file that come to
nothing (unit/test_agentfile).

remit makes no worktrees: agents work in the workspace itself. Three mistakes of others are about
worktrees; what stands here for them is the harm that they did, on what remit has: a workspace that
a person has made as a linked worktree, and the files that agents leave in it.
"""

import asyncio
import json
import os
import shlex
import signal
import subprocess
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from remit.domain.llm.failures import ModelFailed
from remit.domain.llm.messages import Request, Response, Tokens
from remit.domain.task.task import State
from remit.errors import Conflict
from tests.agents.endpoint import Body, RuledServer, answers, objective, wants
from tests.agents.processes import worker
from tests.agents.stage import Gate, calls, in_turn, reached, results, says, stage, texts
from tests.crash.process import environment, until
from tests.modelserver import Say
from tests.patience import patient
from tests.surfaces.shell import Shell
from tests.toolbox import BWRAP


async def test_a_continued_run_keeps_its_prompt_tools_model_and_depth(
    any_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Response:
        if request.agent == "build":
            return (
                says("Done.")
                if results(request)
                else calls(
                    (
                        "task",
                        {
                            "objective": "Ask",
                            "subagent_type": "explore",
                            "model": "main",
                            "tools": ["Read"],
                        },
                    )
                )
            )
        return says("Asked.") if results(request) else calls(("ask_user", {"question": "Which?"}))

    async with stage(any_url, tmp_path, rule) as at:
        task_id = await at.create(owner="build")
        await at.team.until(task_id, lambda task: bool(task.children) and task.run is None)
        child = await at.team.until("2", lambda task: bool(task.questions) and task.run is None)
        await at.call("respond", interaction_id=child.questions[0].id, answer="This")
        await at.team.ended(task_id)
        before, after = (request for request in at.script.asked if request.agent == "explore")
        assert (before.system, before.tools, before.model) == (
            after.system,
            after.tools,
            after.model,
        )
        assert (await at.team.task("2")).depth == 1


async def test_a_rate_limited_child_is_a_failure_and_never_an_empty_success(
    any_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Response:
        if request.agent == "explore":
            raise ModelFailed("rate_limited", "Too many requests.")
        if results(request):
            return says(results(request)[0])
        return calls(
            (
                "task",
                {"objective": "Look", "subagent_type": "explore", "limits": {"max_attempts": 1}},
            )
        )

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(owner="build")
        told = json.loads(task.final_message or "{}")
        assert (told["status"], told["result"]) == ("failed", "")
        assert "Too many requests." in told["error"]["message"]
        child = await at.team.task("2")
        assert (child.state, child.reason, child.run) == (State.FAILED, "error", None)


async def test_a_canceled_child_is_never_run_again(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [says("never")], workers=0) as at:
        task_id = await at.create()
        await at.call("cancel_task", task_id=task_id)
        await at.hire()
        await at.team.idle()
        assert (at.script.asked, (await at.team.task(task_id)).counts.runs) == ([], 0)


async def test_a_grant_of_nothing_offers_no_tool_of_the_workspace(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(
        any_url, tmp_path, [calls(("Read", {"file_path": "a"})), says("I could not.")]
    ) as at:
        task = await at.run(tools={"allow": []})
        assert task.state is State.DONE
        assert not {tool.name for tool in at.script.asked[0].tools} & {
            "Read",
            "LS",
            "Glob",
            "Grep",
            "TodoWrite",
        }
        assert "not a tool that this task may use" in results(at.script.asked[1])[0]


async def test_two_tasks_with_one_name_do_not_get_each_others_messages(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, lambda _: says("Done."), workers=0) as at:
        one, two = [await at.create(title="Twin") for _ in range(2)]
        await at.call("send_message", task_id=two, message="For the second.")
        await at.hire()
        await at.team.ended(one)
        await at.team.ended(two)
        told = {
            request.messages[-1].text.split(">")[0]: "For the second." in request.messages[0].text
            for request in at.script.asked
        }
        assert told == {f"<Task id={one}": False, f"<Task id={two}": True}


async def test_a_message_is_reported_as_sent_only_if_it_has_a_reader(
    any_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Response:
        if request.agent == "explore":
            return says("Looked.")
        found = results(request)
        if not found:
            return calls(("task", {"objective": "Look", "subagent_type": "explore"}))
        return (
            calls(("send_message", {"task_id": "2", "message": "Look again"}))
            if "Looked." in found[0]
            else says(found[0])
        )

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(owner="build")
        assert "an ended task cannot change" in (task.final_message or "")
        with pytest.raises(Conflict):
            await at.call("send_message", task_id="2", message="Look again")
        assert (await at.call("list_updates", task_id="2"))["updates"] == []


async def test_urgent_words_during_the_start_of_a_run_neither_stop_it_nor_get_lost(
    any_url: str, tmp_path: Path
) -> None:
    said = [asyncio.Event() for _ in range(20)]

    async def rule(request: Request) -> Response:
        number = int(texts(request).rpartition("Work ")[2].split()[0])
        if number % 2:
            await said[number].wait()  # half of them cannot be faster than the word
        return says(texts(request))

    async with stage(any_url, tmp_path, rule) as at:

        async def one(number: int) -> tuple[str, int]:
            task_id = await at.create(title=f"Work {number}", priority="low")
            await at.team.until(task_id, lambda task: task.in_flight or task.state.terminal)
            try:
                await at.call("send_message", task_id=task_id, message=f"Word {number}.")
                await at.call("update_task", task_id=task_id, priority="urgent")
            except Conflict:
                assert number % 2 == 0
                return "done", 1  # it was faster, and the sender was told
            finally:
                said[number].set()
            task = await at.team.ended(task_id)
            return task.state.value, (task.final_message or "").count(f"Word {number}.")

        assert set(await asyncio.gather(*map(one, range(len(said))))) == {("done", 1)}


async def test_a_caller_that_waits_never_misses_the_end(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, lambda _: says("Done."), workers=2) as at:

        async def one(number: int) -> str:
            if number % 2:
                return str((await at.call("task", objective="Go"))["data"]["status"])
            receipt = await at.call("task", objective="Go", wait=False)
            return str(
                (
                    await at.call(
                        "task_output", task_id=receipt["data"]["task_id"], wait_seconds=patient(20)
                    )
                )["data"]["status"]
            )

        async with asyncio.timeout(patient(20)):
            assert await asyncio.gather(*map(one, range(40))) == ["completed"] * 40


async def test_text_that_no_store_can_hold_never_leaves_a_task_running(
    any_url: str, tmp_path: Path
) -> None:
    odd = "a\0b\ud800c"

    def fetch() -> str:
        """Text from somewhere."""
        return odd

    def burst() -> str:
        """Never well."""
        raise RuntimeError(odd)

    script = [calls(("fetch", {}), ("burst", {})), says("Done.")]
    async with stage(any_url, tmp_path, script, functions=[fetch, burst]) as at:
        task = await at.run(tools=["fetch", "burst"])
        assert (task.state, task.counts.runs) == (State.DONE, 1)
        assert ["a" in text and "c" in text for text in results(at.script.asked[1])] == [True, True]


async def test_a_fault_of_our_own_ends_the_task_with_its_name(any_url: str, tmp_path: Path) -> None:
    def rule(_: Request) -> Response:
        raise RuntimeError("a\0fault")

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(limits={"max_attempts": 1})
        assert (task.state, task.reason, task.run) == (State.FAILED, "error", None)
        assert "RuntimeError: a" in (task.failure_reason or "")
        await at.team.idle()


async def test_the_fault_of_a_runner_is_stored_without_a_key(any_url: str, tmp_path: Path) -> None:
    def rule(_: Request) -> Response:
        raise RuntimeError("Client(api_key='hunter2hunter2') got Bearer a1b2c3d4e5 refused")

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(limits={"max_attempts": 1})
        await at.team.idle()
    assert task.failure_reason is not None
    assert (
        "RuntimeError: Client(api_key='[redacted]') got Bearer [redacted] refused"
        in task.failure_reason
    )


async def test_children_in_the_background_spend_from_the_same_budget(
    any_url: str, tmp_path: Path
) -> None:
    cap, gate = 80_000, Gate()

    async def rule(request: Request) -> Response:
        if "Waste" in request.messages[0].text:
            await gate.passed()  # until the lead has got what its own calls take
            answer = calls(("LS", {"path": "."})) if request.may_call else says("I must stop.")
        elif results(request):
            gate.open.set()
            answer = says("Let them work.")
        else:
            made = [
                {"task_id": "1", "title": f"Waste {number}", "owner": "general", "wait": "none"}
                for number in range(4)
            ]
            answer = calls(*(("create_subtask", fields) for fields in made))
        return answer._replace(tokens=Tokens(1500, 500))

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(owner="build", limits={"max_tokens": cap})
        assert task.state is State.DONE
        children = [await at.team.ended(child.id) for child in task.children]
        assert len(children) == 4
        assert {(child.state, child.reason) for child in children} == {(State.FAILED, "budget")}
        spent = sum(
            each.usage.input_tokens + each.usage.output_tokens for each in [task, *children]
        )
        assert cap // 2 < spent <= cap


async def test_outputs_that_never_fit_are_asked_for_twice_again(
    any_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Response:
        return (
            calls(("complete_task", {"outputs": {"count": "many"}}))
            if request.may_call
            else says("I cannot.")
        )

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(outputs=[{"name": "count", "kind": "url"}])
        assert (task.state, task.reason, len(at.script.asked)) == (State.FAILED, "acceptance", 3)
        assert "count" in results(at.script.asked[1])[0]


async def test_a_child_in_the_background_stays_in_sight_and_is_not_made_again(
    any_url: str, tmp_path: Path
) -> None:
    """Nothing of a conversation is ever left out, and every request says how the subtasks stand,
    in every run.
    """
    gate = Gate()

    def rule(request: Request) -> Response | Awaitable[Response]:
        if request.agent == "explore":
            return gate.then(says("Looked."))
        turn = sum(message.role == "assistant" for message in request.messages)
        if turn == 0:
            return calls(("task", {"objective": "Look", "subagent_type": "explore", "wait": False}))
        if turn == 20:
            return calls(("ask_user", {"question": "Go on?"}))
        return calls(("LS", {"path": "."})) if turn < 40 else says("Done.")

    async with stage(any_url, tmp_path, rule) as at:
        task_id = await at.create(owner="build")
        asked = await at.team.until(task_id, lambda task: bool(task.questions) and task.run is None)
        await reached(gate)
        gate.open.set()
        await at.team.ended("2")
        await at.team.until(
            task_id, lambda task: any(update.type == "subtask" for update in task.queued)
        )
        await at.call("respond", interaction_id=asked.questions[0].id, answer="Yes")
        task = await at.team.ended(task_id)
        assert (task.state, len(task.children)) == (State.DONE, 1)
        tails = [
            request.messages[-1].text for request in at.script.asked if request.agent == "build"
        ]
        assert [
            [state for state in ("pending", "running", "done") if f"- subtask 2: {state}" in tail]
            != []
            for tail in tails
        ] == [False] + [True] * 40
        assert ["- subtask 2: done" in tail for tail in tails[21:]] == [True] * 20


async def test_a_scheduled_run_does_not_count_as_input_of_a_person(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(
        any_url, tmp_path, [calls(("ask_user", {"question": "May I?"})), says("Thank you.")]
    ) as at:
        task_id = await at.create()
        asked = await at.team.until(task_id, lambda task: bool(task.questions) and task.run is None)
        await at.team.do("Tick", "system:scheduler", task_id=task_id)
        with pytest.raises(Conflict):
            await at.call("run_task", task_id=task_id)
        await at.call("send_message", task_id=task_id, message="Yes, you may.")
        still = await at.team.task(task_id)
        assert (still.state, still.questions, len(at.script.asked)) == (
            State.WAITING,
            asked.questions,
            1,
        )
        await at.call("respond", interaction_id=asked.questions[0].id, answer="No")
        await at.team.ended(task_id)
        assert "The person answered: No" in [
            part.text  # type: ignore[union-attr]
            for part in at.script.asked[1].messages[2].parts
        ]


async def test_the_folder_of_a_child_is_not_the_folder_of_its_parent(
    any_url: str, tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir()

    def rule(request: Request) -> Response:
        found = results(request)
        if "Child" in request.messages[0].text:
            return says(found[0]) if found else calls(("Bash", {"command": "cd sub && pwd"}))
        if not found:
            return calls(("task", {"objective": "Child", "tools": ["Bash"]}))
        return calls(("Bash", {"command": "pwd"})) if "task_id" in found[0] else says(found[0])

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(owner="build", tools=["Bash", "Task"])
        assert str(tmp_path / "sub") in ((await at.team.task("2")).final_message or "")
        assert [
            line for line in (task.final_message or "").splitlines() if line.startswith("/")
        ] == [str(tmp_path)]


async def test_a_taken_over_run_keeps_its_limits_and_drops_outdated_instructions(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    first = in_turn(calls(("LS", {"path": "."})), calls(("LS", {"path": "."})))
    # Answers come later.
    async with stage(any_url, tmp_path, lambda _: gate.then(first(_)), workers=0) as at:  # type: ignore[arg-type]
        worker = await at.hire()
        task_id = await at.create(
            instructions="Old words.", tools=["LS"], model="light", limits={"max_turns": 2}
        )
        await reached(gate)
        await at.call("update_task", task_id=task_id, instructions="New words.")
        worker.stop()
        gate.open.set()
        await at.team.until(task_id, lambda task: task.run is None)
        at.script._rule = lambda request: (
            calls(("LS", {"path": "."})) if request.may_call else says(texts(request))
        )
        await at.hire()
        task = await at.team.ended(task_id)
        before, after = at.script.asked[0], at.script.asked[1]
        assert (after.system, after.tools, after.model) == (
            before.system,
            before.tools,
            before.model,
        )
        assert [message.text for message in after.messages if message.role == "user"][
            1
        ] == "[Task Update: Instructions Modified]\nNew words."
        assert (task.reason, task.counts.runs, len(at.script.asked)) == ("turns", 2, 3)


# Worktrees and other programs.


def git(folder: Path, *words: str) -> str:
    """The output of git, independent of this machine's settings."""
    person = {
        f"GIT_{role}_{field}": "ann@example.org"
        for role in ("AUTHOR", "COMMITTER")
        for field in ("NAME", "EMAIL")
    }
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", **person}
    return subprocess.run(
        ["git", *words], cwd=folder, env=env, capture_output=True, text=True, check=True
    ).stdout


def linked(folder: Path) -> tuple[Path, Path]:
    """A checkout with two commits and a change that is not committed, and a workspace that is a
    linked worktree of it.
    """
    main, workspace = folder / "main", folder / "ws"
    main.mkdir(parents=True)
    git(main, "init", "-q", "-b", "trunk")
    for number in (1, 2):
        (main / "kept.txt").write_text(f"version {number}\n")
        git(main, "add", ".")
        git(main, "commit", "-q", "-m", f"Version {number}")
    git(main, "worktree", "add", "-q", "-b", "side", str(workspace))
    (main / "kept.txt").write_text("not committed\n")
    (main / "untracked.txt").write_text("mine\n")
    return main, workspace


def everything(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, git's own too."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def attacks(main: Path) -> list[str]:
    """Commands that change a checkout from the outside, each in its own way."""
    there = shlex.quote(str(main))
    user = "-c user.name=x -c user.email=x@example.org"
    return [
        f"git -C {there} {user} commit -q --allow-empty -m stolen",
        f"git -C {there} checkout -q -b stolen",
        f"git -C {there} checkout -q -- kept.txt",
        f"git -C {there} clean -q -f",
        f"GIT_DIR={there}/.git GIT_WORK_TREE={there} git reset -q --hard HEAD~1",
        f"GIT_DIR={there}/.git git update-ref refs/heads/stolen HEAD",
        f"git --git-dir={there}/.git --work-tree={there} rm -q -f kept.txt",
        f"cd {there} && echo stolen > kept.txt",
        f"ln -sfn {there} away && echo stolen > away/kept.txt",
        f"git {user} commit -q --allow-empty -m stolen",
        f"echo 'gitdir: {main}/.git' > .git && git update-ref refs/heads/stolen HEAD",
    ]


@pytest.mark.parametrize("number", range(11))
def test_each_attack_on_a_checkout_is_one(tmp_path: Path, number: int) -> None:
    """Nothing is proved by what cannot do harm anyway: without remit each of these changes the
    checkout.
    """
    main, workspace = linked(tmp_path)
    before = everything(main)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(
        ["/bin/sh", "-c", attacks(main)[number]],
        cwd=workspace,
        env=env,
        capture_output=True,
        check=True,
    )
    assert everything(main) != before
    assert len(attacks(main)) == 11


async def test_no_agent_in_a_linked_worktree_touches_the_main_checkout(
    any_url: str, tmp_path: Path
) -> None:
    """In a sandbox commands cannot reach it, and without a sandbox Bash is not granted.

    The tools for files never leave the workspace.
    """
    main, workspace = linked(tmp_path)
    before, target = everything(main), str(main / "kept.txt")
    edit = {"old_string": "version", "new_string": "stolen"}
    wanted: list[tuple[str, dict[str, Any]]] = [
        *(("Bash", {"command": command}) for command in attacks(main)),
        *(
            ("Write", {"file_path": path, "content": "x"})
            for path in (target, "../main/kept.txt", "away/kept.txt", ".git", ".git/HEAD")
        ),
        ("Edit", {"file_path": target, **edit}),
        ("MultiEdit", {"file_path": "../main/kept.txt", "edits": [edit]}),
        ("Read", {"file_path": target}),
    ]
    (workspace / "away").symlink_to(main)
    own = calls(
        ("Bash", {"command": "echo mine > mine.txt"}),
        ("Write", {"file_path": "too.txt", "content": "x"}),
    )
    async with stage(
        any_url, workspace, [calls(*wanted), own, says("Done.")], unsandboxed=False
    ) as at:
        task = await at.run(
            tools=[*(["Bash"] if BWRAP else []), "Write", "Edit", "MultiEdit", "Read"]
        )
        assert task.state is State.DONE
        assert everything(main) == before
        told = results(at.script.asked[1])
        assert all(
            "outside the workspace" in text or "inside .git" in text
            for text in told[len(attacks(main)) :]
        )
        assert (workspace / "mine.txt").exists() is bool(BWRAP), (
            "what is theirs they can change, where commands run at all"
        )
        assert (workspace / "too.txt").exists()
        assert BWRAP or all(
            "is not a tool that this task may use" in text for text in told[: len(attacks(main))]
        )


async def test_no_run_and_no_child_sees_a_stale_copy_of_the_workspace(
    any_url: str, tmp_path: Path
) -> None:
    """What a person or another run has changed is what the next one reads, and no result from
    before answers for it.
    """
    _, workspace = linked(tmp_path)
    read, look = (
        ("Read", {"file_path": "kept.txt"}),
        {"objective": "Look", "subagent_type": "explore"},
    )
    steps = [
        calls(read, ("task", look)),
        calls(("ask_user", {"question": "Go on?"})),
        calls(read, ("task", look)),
        calls(("Write", {"file_path": "kept.txt", "content": "version 3\n"})),
        calls(("task", look)),
        says("Done."),
    ]
    seen: list[str] = []

    def rule(request: Request) -> Response:
        found = results(request)
        if request.agent == "explore":
            return says(f"FileFinding: {found[0]}") if found else calls(read)
        seen.extend(text.split("version ")[1][0] for text in found if "version" in text)
        return steps[sum(message.role == "assistant" for message in request.messages)]

    async with stage(any_url, workspace, rule) as at:

        async def asked() -> tuple[str, bool]:
            data = (await at.call("task", **look, cache=True))["data"]
            return data["result"].split("version ")[1][0], data["cached"]

        assert [await asked(), await asked()] == [("2", False), ("2", True)]
        task_id = await at.create(owner="build", tools=["Read", "Write", "Task"])
        waiting = await at.team.until(
            task_id, lambda task: bool(task.questions) and task.run is None
        )
        git(workspace, "checkout", "-q", "--detach", "HEAD~1")
        assert await asked() == ("1", False)
        await at.call("respond", interaction_id=waiting.questions[0].id, answer="Yes")
        assert (await at.team.ended(task_id)).state is State.DONE
        assert seen == ["2", "2", "1", "1", "3"]
        assert await asked() == ("3", False)
        git(workspace, "checkout", "-q", "-f", "side")
        assert await asked() == ("2", False), "changed back is not what it was"


async def test_no_end_of_a_run_deletes_what_agents_left_untracked(
    durable_url: str, tmp_path: Path
) -> None:
    """Not the end of a task, not a cancel, not a killed worker with another after it, and not
    the doctor.
    """
    _, workspace = linked(tmp_path)
    (workspace / ".remit").mkdir()
    (workspace / "of-a-person.txt").write_text("mine\n")
    gate = asyncio.Event()

    async def rule(body: Body) -> Say:
        name = objective(body)
        if answers(body) == 0:
            command = (
                f"mkdir -p build/{name} && echo {name} > build/{name}/out.o && echo {name} >"
                f" .{name}"
            )
            return Say(
                calls=(
                    wants("w1", "Write", file_path=f"{name}.txt", content=f"{name}\n"),
                    wants("b1", "Bash", command=command),
                )
            )
        if name != "ended":
            await gate.wait()
        return Say(("Done.",))

    def left(*names: str) -> dict[str, bytes]:
        made = {
            path: name
            for name in names
            for path in (f"{name}.txt", f"build/{name}/out.o", f".{name}")
        }
        return {
            "of-a-person.txt": b"mine\n",
            **{path: f"{name}\n".encode() for path, name in made.items()},
        }

    def there() -> dict[str, bytes]:
        return {
            name: content
            for name, content in everything(workspace).items()
            if name not in (".git", "kept.txt") and ".remit" not in name
        }

    async with (
        RuledServer(rule).running() as server,
        stage(durable_url, workspace, [says("never")], workers=0) as at,
    ):

        async def begun(name: str) -> str:
            task_id = await at.create(instructions=name, tools=["Bash", "Write"])
            await until(lambda: sum(objective(asked.body) == name for asked in server.asked) == 2)
            return task_id

        async with worker(workspace, durable_url, server.url) as first:
            await at.team.ended(await begun("ended"))
            assert there() == left("ended")
            await at.call("cancel_task", task_id=await begun("canceled"))
            await at.team.idle()
            assert there() == left("ended", "canceled")
            killed = await begun("killed")
            os.kill(first.pid, signal.SIGKILL)
            await first.wait()
        shell = Shell(
            workspace,
            PYTHONPATH=environment()["PYTHONPATH"],
            REMIT_DATABASE_URL=durable_url,
            HOME=str(tmp_path),
        )
        mended = await asyncio.to_thread(shell.remit, "doctor", "--fix")
        assert mended.code == 0, mended.err
        assert there() == left("ended", "canceled", "killed")
        gate.set()
        async with worker(workspace, durable_url, server.url):
            assert (await at.team.ended(killed)).state is State.DONE
        assert there() == left("ended", "canceled", "killed")
        assert git(workspace, "status", "--porcelain", "--untracked-files=no") == ""
