"""Delegation for agents that are built with pydantic-ai: their model is scripted, and so is that
of remit's own agents.
"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, ToolDefinition, capture_run_messages
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from remit import Remit
from remit.catalog import OPERATIONS
from remit.client import RemitClient
from remit.errors import InvalidParam
from remit.testing import Answer, Asked, Rule, scripted_model
from remit.toolset import RETRIES, TOOLS, DelegationToolset
from tests.patience import patient
from tests.surfaces.http import TOKEN, house, site

Call = tuple[str, dict[str, Any]]
Turn = Sequence[Call] | Callable[[list[ToolReturnPart]], Sequence[Call]]


class Script:
    """A model outside of remit: it makes the calls of each turn, one turn after the other, and
    then says that it is done.
    """

    def __init__(self, *turns: Turn) -> None:
        self._turns = turns
        self.offered: dict[str, ToolDefinition] = {}
        self.model = FunctionModel(self._answer)

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.offered = {tool.name: tool for tool in info.function_tools}
        number = sum(isinstance(message, ModelResponse) for message in messages)
        if number == len(self._turns):
            return ModelResponse([TextPart("Done.")])
        turn = self._turns[number]
        calls = turn(returns(messages)) if callable(turn) else turn
        # As some endpoints do, calls are numbered anew in each answer.
        return ModelResponse(
            [
                ToolCallPart(name, arguments, tool_call_id=f"call_{place}")
                for place, (name, arguments) in enumerate(calls)
            ]
        )


def returns(messages: Sequence[ModelMessage]) -> list[ToolReturnPart]:
    """Everything that tools have answered."""
    return [
        part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)
    ]


def echo(asked: Asked) -> Answer:
    """An agent of remit that says what it was told to do, or fails at it."""
    if "fail" in asked.objective:
        raise ValueError("I will not.")
    return f"Did: {asked.objective}"


@asynccontextmanager
async def opened(folder: Path, rule: Rule = echo) -> AsyncIterator[Remit]:
    async with asyncio.timeout(patient(60)), scripted_model(rule), Remit.open(folder) as remit:
        yield remit


async def ran(
    script: Script, toolset: DelegationToolset[Any], **options: Any
) -> list[ToolReturnPart]:
    """The tool results of a run that has ended."""
    result = await Agent(script.model, toolsets=[toolset]).run("Go.", **options)
    assert result.output == "Done."
    return returns(result.all_messages())


class Held:
    """An agent of remit that does not answer until it is let."""

    def __init__(self) -> None:
        self.reached, self.open = asyncio.Event(), asyncio.Event()

    async def __call__(self, asked: Asked) -> Answer:
        self.reached.set()
        await self.open.wait()
        return f"Did: {asked.text}"


async def test_a_model_delegates_and_reads_the_result(tmp_path: Path) -> None:
    async with opened(tmp_path) as remit:
        script = Script(
            [("task", {"objective": "Look", "subagent_type": "explore", "model": None})]
        )
        (found,) = await ran(script, DelegationToolset(remit), conversation_id="talk")
        assert (found.content, found.outcome) == (
            "Task 1. Subagent (explore, light) completed.\n\nDid: Look",
            "success",
        )
        assert found.metadata["data"]["model_used"] == "light (scripted)"
        task = await remit.get_task(task_id="1")
        assert (task.owner, task.parent_session_id, task.state) == ("explore", "talk", "done")


async def test_a_model_is_shown_the_catalogue_and_whom_there_is(tmp_path: Path) -> None:
    async with opened(tmp_path) as remit:
        script = Script()
        await ran(
            script, DelegationToolset(remit, tools=[*TOOLS, "list_interactions"], agent="explore")
        )
        assert list(script.offered) == [*TOOLS, "list_interactions"]
        assert {name: script.offered[name].description for name in TOOLS[2:]} == {
            name: OPERATIONS[name].description for name in TOOLS[2:]
        }
        task = script.offered["task"].parameters_json_schema
        assert task["required"] == ["objective"]
        assert task["properties"]["subagent_type"]["default"] == "explore"
        assert {"general", "plan"} < set(task["properties"]["subagent_type"]["enum"])
        assert task["properties"]["wait"]["default"] is True
        assert not {"session_id", "idempotency_key", "format", "cache"} & task["properties"].keys()
        assert "- plan: " in str(script.offered["task"].description)


async def test_several_tasks_run_at_once_and_a_failure_affects_only_its_task(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as remit:
        items = [
            "Look",
            {"objective": "Please fail"},
            {"objective": "Plan", "subagent_type": "plan", "session_id": "another"},
            {"objektive": "?"},
        ]
        (found,) = await ran(
            Script([("task_parallel", {"tasks": items})]),
            DelegationToolset(remit, session_id="mine", agent="explore"),
        )
        first, second, third, fourth = str(found.content).split("\n\n[")
        assert first == "[0] Task 1. Subagent (explore, light) completed.\n\nDid: Look"
        assert second.startswith("1] Task 2. Subagent (explore, light) failed.\n\n")
        assert "ValueError: I will not." in second
        assert third == "2] Task 3. Subagent (plan, main) completed.\n\nDid: Plan"
        assert fourth.startswith(
            "3] This task was not accepted. tasks[3].objektive: is not a field here. Did you mean"
            " objective?"
        )
        assert [one["status"] for one in found.metadata["results"]] == [
            "success",
            "error",
            "success",
            "error",
        ]
        assert {(await remit.get_task(task_id=n)).parent_session_id for n in "123"} == {"mine"}


async def test_outputs_are_part_of_what_is_read(tmp_path: Path) -> None:
    def rule(asked: Asked) -> Answer:
        return (
            "All done."
            if asked.turn
            else [("complete_task", {"outputs": {"report": "Short."}, "summary": "Written."})]
        )

    async with opened(tmp_path, rule) as remit:
        (found,) = await ran(
            Script([("task", {"objective": "Write", "outputs": ["report"]})]),
            DelegationToolset(remit),
        )
        assert (
            found.content == "Task 1. Subagent (general, main) completed.\n\nWritten.\n\nOutputs:"
            ' {"report":"Short."}'
        )


@pytest.mark.parametrize("offered", [TOOLS, ("task",)])
async def test_a_result_that_is_cut_can_be_read_on(tmp_path: Path, offered: Sequence[str]) -> None:
    whole = "0123456789" * 45_000
    parts: list[str] = []

    def on(found: list[ToolReturnPart]) -> list[Call]:
        _, text, *note = str(found[-1].content).split("\n")[1:]
        parts.append(text)
        if not note:
            return []
        assert note[0].startswith(
            f"[Characters {len(''.join(parts)) - len(text):,} to {len(''.join(parts)):,}"
            " of 450,000."
        )
        assert ("task_output" in note[0]) == (len(offered) > 1)
        return (
            [("task_output", {"task_id": "1", "offset": len("".join(parts))})]
            if len(offered) > 1
            else []
        )

    async with opened(tmp_path, lambda _: whole) as remit:
        turns = [on, on] if len(offered) > 1 else []
        found = await ran(
            Script([("task", {"objective": "Dump"})], *turns),
            DelegationToolset(remit, tools=offered),
        )
        on(found)
        assert "".join(parts) == (whole if len(offered) > 1 else whole[:200_000])
        assert found[0].metadata["data"]["result"] == whole


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (("task", {}), "objective: is missing; expected what the sub-agent has to do, as text."),
        (("task", {"objective": "x", "subagent_type": "nobody"}), "unknown agent 'nobody'"),
        (
            ("task", {"objective": "x", "self": 1}),
            "self: is not a field here; expected one of objective, prompt",
        ),
        (("task", {"objective": "x", "session_id": "another"}), "session_id: is not a field here"),
        (("task_parallel", {"tasks": "x"}), "tasks: "),
        (("send_message", {"message": "x"}), "task_id: is missing"),
    ],
)
async def test_an_invalid_field_is_reported_and_retried(
    tmp_path: Path, call: Call, told: str
) -> None:
    async with opened(tmp_path) as remit:
        wrong, right = await ran(
            Script([call], [("task", {"objective": "Look"})]), DelegationToolset(remit)
        )
        assert wrong.outcome == "retried"
        assert told in str(wrong.content)
        assert right.content == "Task 1. Subagent (general, main) completed.\n\nDid: Look"


async def test_a_model_that_never_gets_it_right_does_not_end_its_agents_run(tmp_path: Path) -> None:
    async with opened(tmp_path) as remit:
        turns = [[("task", {"objektive": "x"})]] * (RETRIES + 2)
        outcomes = [found.outcome for found in await ran(Script(*turns), DelegationToolset(remit))]
        assert outcomes == ["retried"] * RETRIES + ["failed"] * 2


async def test_a_refusal_is_returned_with_its_code(tmp_path: Path) -> None:
    async with opened(tmp_path) as remit:
        theirs = (await remit.create_task(title="Somebody's", status="draft")).task_id
        below = (await remit.create_subtask(task_id=theirs, title="Below", owner="general")).task_id
        turn = [
            ("update_task", {"task_id": theirs, "title": "Mine"}),
            ("cancel_task", {"task_id": below}),
            ("task_output", {"task_id": "99"}),
        ]
        first, second, third = await ran(Script(turn), DelegationToolset(remit))
        assert {found.outcome for found in (first, second, third)} == {"failed"}
        assert str(first.content).startswith(f"FORBIDDEN: Task {theirs} was not delegated")
        assert f"Task {below} was not delegated in this conversation." in str(second.content)
        assert third.content == "NOT_FOUND: There is no task 99."
        assert (await remit.get_task(task_id=theirs)).title == "Somebody's"


@pytest.mark.parametrize("more", [(), ("list_tasks", "list_history")])
async def test_a_refusal_names_only_offered_tools(tmp_path: Path, more: tuple[str, ...]) -> None:
    async with opened(tmp_path) as remit:
        turns = [[("task", {"objective": "Look"})], [("cancel_task", {"task_id": "1"})]]
        toolset = DelegationToolset[Any](remit, tools=[*TOOLS, *more])
        *_, refused = await ran(Script(*turns), toolset)
        assert refused.outcome == "failed"
        assert refused.content == "CONFLICT: Task 1 is done; an ended task cannot change."


async def test_a_session_finds_its_work_again_without_the_conversation(tmp_path: Path) -> None:
    call = ToolCallPart("task", {"objective": "Look"}, tool_call_id="call_0")
    kept: list[ModelMessage] = [ModelRequest([UserPromptPart("Go.")]), ModelResponse([call])]
    async with opened(tmp_path) as remit:
        found: list[str] = []
        for talk in ("one", "another"):
            agent = Agent(
                Script().model, toolsets=[DelegationToolset[Any](remit, session_id="mine")]
            )
            script = Script([("task", {"objective": "Look"})])
            result = await agent.run(message_history=kept, model=script.model, conversation_id=talk)
            found += [part.metadata["data"]["task_id"] for part in returns(result.all_messages())]
        assert found == ["1", "1"]
        fresh = await ran(
            Script([("task", {"objective": "Look"})]), DelegationToolset(remit, session_id="mine")
        )
        assert fresh[0].metadata["data"]["task_id"] == "2", (
            "another conversation has work of its own"
        )


async def test_a_running_task_can_be_messaged_changed_and_canceled(tmp_path: Path) -> None:
    held = Held()
    async with opened(tmp_path, held) as remit:

        def change(_: list[ToolReturnPart]) -> list[Call]:
            return [
                ("send_message", {"task_id": "1", "message": "Mind the gap."}),
                ("update_task", {"task_id": "#1", "instructions": "Do less."}),
                ("task_output", {"task_id": "1"}),
                ("cancel_task", {"task_id": "2", "message": "Not needed."}),
            ]

        begin = [
            ("task", {"objective": "Do it", "wait": False}),
            ("task", {"objective": "Leave it", "wait": False}),
        ]
        script = Script(begin, change)
        toolset = DelegationToolset(remit, session_id="mine")
        one, _, message, update, state, canceled = await ran(script, toolset)
        assert one.content == "Task 1. Subagent (general, main) running."
        assert message.metadata["success"]
        assert update.metadata["task"]["instructions"] == "Do less."
        assert state.metadata["data"]["status"] == "running"
        assert canceled.content == {"success": True, "canceled": ["2"]}
        await held.reached.wait()
        held.open.set()
        # Another conversation of the same session goes on with it.
        (end,) = await ran(
            Script([("task_output", {"task_id": "1", "wait_seconds": patient(60)})]), toolset
        )
        assert "Mind the gap." in str(end.content)
        assert "Do less." in str(end.content)


async def test_a_person_answers_during_the_call(tmp_path: Path) -> None:
    def rule(asked: Asked) -> Answer:
        return asked.results[-1] if asked.results else [("ask_user", {"question": "Which color?"})]

    async def person() -> None:
        async with Remit.open(tmp_path, actor="user:ann", worker=False) as ann:
            async for event in ann.events(after="0"):
                if event.type == "UserInteractionRequested":
                    await ann.respond(interaction_id=event.data["interaction_id"], answer="Red.")
                    return

    async with opened(tmp_path, rule) as remit, asyncio.TaskGroup() as group:
        group.create_task(person())
        (found,) = await ran(
            Script([("task", {"objective": "Paint the shed"})]), DelegationToolset(remit)
        )
        assert str(found.content).endswith("The person answered: Red.")


async def test_a_run_that_is_cut_off_stops_waiting_and_finds_its_work_again(tmp_path: Path) -> None:
    held = Held()
    async with opened(tmp_path, held) as remit:
        script = Script(
            [("task", {"objective": "Look"}), ("task_parallel", {"tasks": ["One", "Two"]})]
        )
        agent = Agent(script.model, toolsets=[DelegationToolset(remit)])
        with capture_run_messages() as messages:
            run = asyncio.create_task(agent.run("Go."))
            started = 0
            async for event in remit.events(after="0"):
                started += event.type == "RunStarted"
                if started == 3:
                    break
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
        assert len((await remit.list_tasks(status="active")).tasks) == 3, "the work itself goes on"
        held.open.set()
        # What a process that was killed has kept ends with the calls; one that is canceled closes
        # them itself.
        result = await agent.run(message_history=messages[:2])
        found = {part.tool_name: part for part in returns(result.all_messages())}
        one, several = found["task"], found["task_parallel"]
        assert {
            one.metadata["data"]["task_id"],
            *(each["data"]["task_id"] for each in several.metadata["results"]),
        } == {"1", "2", "3"}
        assert len((await remit.list_history()).tasks) == 3


async def test_the_same_call_in_a_later_answer_is_new_work(tmp_path: Path) -> None:
    async with opened(tmp_path) as remit:
        again = [("task", {"objective": "Look"})]
        first, second = await ran(Script(again, again), DelegationToolset(remit))
        assert (first.metadata["data"]["task_id"], second.metadata["data"]["task_id"]) == ("1", "2")


async def test_the_test_model_of_the_library_can_call_everything(tmp_path: Path) -> None:
    async with opened(tmp_path) as remit:
        result = await Agent(TestModel(), toolsets=[DelegationToolset(remit)]).run("Go.")
        assert {found.tool_name for found in returns(result.all_messages())} == set(TOOLS)
        assert (await remit.list_history()).tasks


async def test_an_agent_can_be_made_before_remit_is_open(tmp_path: Path) -> None:
    script = Script([("task", {"objective": "Look"})])
    agent = Agent(
        script.model,
        deps_type=Remit,
        toolsets=[DelegationToolset[Remit](lambda ctx: ctx.deps, id="later")],
    )
    async with opened(tmp_path) as remit:
        result = await agent.run("Go.", deps=remit)
        assert returns(result.all_messages())[0].metadata["status"] == "success"


async def test_it_works_through_a_server_as_well() -> None:
    async with (
        asyncio.timeout(patient(60)),
        house() as home,
        site(home.store) as served,
        RemitClient(served.url, TOKEN) as client,
    ):
        turn: list[Call] = [
            ("task", {"objective": "Look", "wait": False}),
            ("get_task", {"task_id": "9"}),
        ]
        made, missing = await ran(
            Script(turn), DelegationToolset(client, tools=["task", "get_task"], session_id="s")
        )
        assert made.metadata["data"]["status"] == "running"
        assert (missing.outcome, missing.content) == ("failed", "NOT_FOUND: There is no task 9.")
        assert (await served.call("get_task", task_id=made.metadata["data"]["task_id"]))[
            "parent_session_id"
        ] == "s"


@pytest.mark.parametrize(
    "name", ["respond", "waive_criterion", "ask_user", "create_task", "Task", "nothing"]
)
async def test_a_model_cannot_be_given_what_is_for_people(name: str) -> None:
    async with Remit.open(database_url="memory:", worker=False) as remit:
        with pytest.raises(
            InvalidParam,
            match=f"tools: '{name}' cannot be offered to a model; expected some of task",
        ):
            DelegationToolset(remit, tools=[name])


async def test_an_unknown_agent_is_refused_with_the_known_ones() -> None:
    async with Remit.open(database_url="memory:", worker=False) as remit:
        with pytest.raises(
            InvalidParam, match="agent: is 'nobody'; expected one of build, explore"
        ):
            await ran(Script(), DelegationToolset(remit, agent="nobody"))


def test_only_the_toolset_needs_the_library() -> None:
    checks = (
        "import sys; sys.modules['pydantic_ai'] = None; import remit; remit.Remit\n"
        "try:\n    import remit.toolset\nexcept ImportError as error:\n    print(error)"
    )
    said = subprocess.run(
        [sys.executable, "-c", checks], check=True, capture_output=True, text=True
    ).stdout
    assert said == "remit.toolset needs pydantic-ai: pip install 'remit[providers]'\n"
