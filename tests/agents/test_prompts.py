"""The request of each turn, and the parts that never change between turns."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from remit.domain.llm.messages import Request
from remit.domain.task.commands import CheckCriteria
from tests.agents.shown import prefix
from tests.agents.stage import Gate, calls, results, says, stage, texts


async def test_nothing_before_the_tail_changes_between_turns_and_runs(
    any_url: str, tmp_path: Path
) -> None:
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
        assert all(
            tail.startswith("<Task id=1>") and tail.endswith("Stay on this task.") for tail in tails
        )
        assert ["[x] 0. One" in tail for tail in tails] == [False, False, True, True, True]


async def test_the_system_prompt_is_the_role_and_the_description_and_the_block_has_the_rest(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(
        any_url, tmp_path, [calls(("complete_task", {"outputs": {"report": "x"}}))]
    ) as at:
        await at.call("create_guide", title="Disk full", body="Delete caches.")
        await at.run(
            owner="explore",
            description="Why.",
            instructions="What.",
            acceptance=["It works"],
            outputs=["report"],
            tsgs=["disk-full"],
        )
        request = at.script.asked[0]
        assert request.system.startswith("You are explore")
        assert "\n\n# Task\nWhy.\n\n" in request.system
        for part in (
            "Description: Why.",
            "- [ ] c1: It works",
            "complete_task: report",
            "- disk-full: Disk full",
        ):
            assert part in request.messages[-1].text
            assert part not in request.system
        assert [message.text for message in request.messages[:-1]] == ["What."]


async def test_a_later_run_gets_the_work_prompt_and_the_earlier_words(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(
        any_url, tmp_path, [says("Begun."), calls(("complete_task", {"summary": "Done."}))]
    ) as at:
        task_id = await at.create(completion="explicit", instructions="What.")
        await at.waiting(task_id)
        await at.call("run_task", task_id=task_id)
        await at.team.ended(task_id)
        roles = [
            (message.role, message.text.split(".")[0])
            for message in at.script.asked[1].messages[:-1]
        ]
        assert roles == [
            ("user", "What"),
            ("assistant", "Begun"),
            ("user", "[Continue]\nContinue your task"),
        ]


async def test_steps_show_their_subtasks_with_their_state(any_url: str, tmp_path: Path) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        if request.agent == "explore":
            return gate.then(says("Looked."))
        linked = len(request.messages) > 2
        return (
            says("Waiting.")
            if linked
            else calls(
                (
                    "create_subtask",
                    {"task_id": "1", "title": "Look", "owner": "explore", "step_index": 0},
                )
            )
        )

    async with stage(any_url, tmp_path, rule) as at:
        await at.create(owner="build", steps=["Look around"])
        await at.waiting("1")
        gate.open.set()
        await at.team.until(
            "1",
            lambda task: (
                task.run is None and task.counts.runs > 1 and task.children[0].settled == "done"
            ),
        )
        assert "[ ] 0. Look around (subtask 2: done)" in at.script.asked[-1].messages[-1].text


# Current terms, and authoritative messages.


def shown(request: Request) -> str:
    """All that a model reads in a request, the words of its own aside."""
    return "\n".join(
        [request.system, *(message.text for message in request.messages if message.role == "user")]
    )


async def test_no_replaced_text_follows_an_update(any_url: str, tmp_path: Path) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        if len(request.messages) == 2:
            return gate.then(calls(("LS", {"path": "."})))
        return calls(("complete_task", {"outputs": {"list": "x"}}))

    async with stage(any_url, tmp_path, rule) as at:
        task_id = await at.create(
            title="Survey",
            instructions="Count the apples.",
            acceptance=["Apples only"],
            outputs=["number"],
        )
        await gate.reached.wait()
        await at.call(
            "update_task",
            task_id=task_id,
            instructions="List the pears.",
            acceptance=["Pears only"],
            outputs=["list"],
        )
        gate.open.set()
        await at.team.ended(task_id)
        first, second = at.script.asked
        assert "\n\n# Task\nSurvey\n\n" in first.system, (
            "there is no description, so the title stands for it"
        )
        assert first.system == second.system
        before, _, after = shown(second).partition("[Task Update: Instructions Modified]")
        assert "Count the apples." in before
        for old in ("apples", "Apples only", "number"):
            assert old not in after
        block = second.messages[-1].text
        terms = block.partition(
            "Current terms (version 2). They replace all earlier instructions, criteria and"
            " outputs:\n"
        )[2]
        assert terms.startswith("Instructions: List the pears.\n")
        assert "Acceptance criteria, which the result must meet:\n- [ ] c2: Pears only" in terms
        assert "Required outputs, handed over with complete_task: list" in terms
        assert (await at.call("get_task", task_id=task_id))["description"] == "List the pears.", (
            "it was given for both, and still is"
        )


async def test_a_title_that_stood_for_old_instructions_is_not_shown_to_the_model(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        return (
            gate.then(calls(("LS", {"path": "."}))) if len(request.messages) == 2 else says("Done.")
        )

    async with stage(any_url, tmp_path, rule) as at:
        made = await at.call("create_task", title="Count the apples.", owner="general")
        await gate.reached.wait()
        for text in ("List the plums. " * 10, "List the pears."):
            await at.call("update_task", task_id=made["task_id"], instructions=text)
        gate.open.set()
        await at.team.ended(made["task_id"])
        second = at.script.asked[1]
        assert "\n\n# Task\nList the pears.\n\n" in second.system
        assert second.messages[-1].text.startswith("<Task id=1>\nCurrent terms (version 3). They ")
        assert "\nInstructions: List the pears.\n" in second.messages[-1].text
        task = await at.call("get_task", task_id=made["task_id"])
        assert (task["title"], task["description"]) == (
            "Count the apples.",
            "List the pears.",
        ), "people know it by its title"


async def test_long_instructions_are_referred_to(any_url: str, tmp_path: Path) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        return (
            gate.then(calls(("LS", {"path": "."}))) if len(request.messages) == 2 else says("Done.")
        )

    async with stage(any_url, tmp_path, rule) as at:
        task_id = await at.create(title="Survey", instructions="Count. " * 500)
        await gate.reached.wait()
        await at.call("update_task", task_id=task_id, instructions="List. " * 500)
        gate.open.set()
        await at.team.ended(task_id)
        first, second = [request.messages[-1].text for request in at.script.asked]
        assert ("Count." in first, "Instructions: see your first message." in first) == (
            False,
            True,
        )
        assert (
            "Instructions: see the newest message headed [Task Update: Instructions Modified]"
            in second
        )
        assert "List." not in second


async def test_the_system_prompt_says_whose_word_counts(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [says("Done.")]) as at:
        await at.run(owner="explore", instructions="Look.")
        system = at.script.asked[0].system
    assert (
        "Messages headed [Task Update: …] or [Not accepted yet], and the result of complete_task,"
        " come from the person or agent that gave you" in system
    )
    assert (
        "messages headed [Continue], [Cut off], [No tool called], [Open steps], [Not completed] or"
        " [Last turn], are from remit." in system
    )
    assert "never changes these instructions" not in system
    assert "messages is material" not in system


async def test_missing_outputs_are_named_with_the_call_that_gives_them(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(
        any_url,
        tmp_path,
        [says("Done."), calls(("complete_task", {"outputs": {"report": "x", "rows": [1]}}))],
    ) as at:
        task = await at.run(
            instructions="Look.", outputs=["report", {"name": "rows", "kind": "json"}]
        )
        told = at.script.asked[1].messages[-2].text
        assert (
            told
            == "[Not accepted yet]\nThe task is not complete. These required outputs are missing or"
            " wrong:\n- The required output report is missing.\n- The required output rows is"
            ' missing.\nCall complete_task with {"outputs": {"report": "<the text>", "rows": <a'
            " JSON value>}}, replacing each <…> with your own value."
            " A message alone does not hand over an output."
        )
        assert task.state.value == "done"


STEPS = [{"title": "Look"}, {"title": "Write"}]


async def test_open_steps_are_named_by_what_finishes_the_task(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [says("More at the next tick.")] * 2) as at:
        task_id = await at.create(instructions="Look.", steps=STEPS)
        await at.waiting(task_id)
        assert (
            "\nTo finish: do or mark steps 0, 1, then end with one message that holds the whole"
            " result.\n"
        ) in at.script.asked[0].messages[-1].text


async def test_a_reminder_of_open_steps_names_missing_outputs(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [says("More at the next tick.")] * 2) as at:
        task_id = await at.create(instructions="Look.", steps=STEPS, outputs=["report"])
        await at.waiting(task_id)
        told = at.script.asked[1].messages[-2].text
        assert told.startswith("[Open steps]\n")
        assert '\nThen call complete_task with {"outputs": {"report": "<the text>"}}. ' in told


async def test_a_message_is_not_offered_where_it_would_not_complete(
    any_url: str, tmp_path: Path
) -> None:
    check = {"output": "report", "contains": "8420"}
    fields = {
        "instructions": "Look.",
        "steps": STEPS,
        "outputs": ["report"],
        "acceptance": [{"text": "port", "check": check}, "Short"],
    }
    async with stage(any_url, tmp_path, [says("More.")] * 4, workers=0) as at:
        task_id = await at.create(**fields)
        await at.call("complete_task", task_id=task_id, outputs={"report": "none"})
        await at.team.core.service.execute(CheckCriteria(task_id=task_id), "system:engine")
        await at.call("waive_criterion", task_id=task_id, criterion_id="c1", reason="Fine.")
        await at.hire()
        await at.waiting(task_id)
        assert "\nTo finish: call complete_task.\n" in at.script.asked[0].messages[-1].text


async def test_an_empty_answer_is_named(any_url: str, tmp_path: Path) -> None:
    async with stage(any_url, tmp_path, [says(""), says("Done.")]) as at:
        await at.run()
        told = at.script.asked[1].messages[-2].text
        assert told.startswith("[Continue]\nYour last message was empty. Continue your task.")


async def test_bookkeeping_fills_no_context(any_url: str, tmp_path: Path) -> None:
    steps = [f"Step {number}" for number in range(8)]
    script = [
        calls(("update_steps", {"steps": steps})),
        *(calls(("update_step", {"index": index, "done": True})) for index in range(8)),
        says("Done."),
    ]
    async with stage(any_url, tmp_path, script) as at:
        await at.run(instructions="Count the apples. " * 350)
        answers = [results(request)[0] for request in at.script.asked[1:]]
        assert answers == ['{"success":true}'] * 9


async def test_a_change_of_another_task_returns_a_few_fields(any_url: str, tmp_path: Path) -> None:
    made = {"title": "Another", "instructions": "Look at it. " * 100}

    def rule(request: Request) -> Any:
        return (
            calls(("create_task", made))
            if request.messages[0].text == "Go." and not results(request)
            else says("Done.")
        )

    async with stage(any_url, tmp_path, rule) as at:
        await at.run(owner="build", instructions="Go.")
        (told,) = [json.loads(answer) for request in at.script.asked for answer in results(request)]
        assert (told["task_id"], set(told["task"])) == ("2", {"id", "state", "version"})


async def test_an_update_that_removes_terms_says_so(any_url: str, tmp_path: Path) -> None:
    gate = Gate()

    def rule(request: Request) -> Any:
        if len(request.messages) == 2:
            return gate.then(calls(("LS", {"path": "."})))
        return says("Done.")

    async with stage(any_url, tmp_path, rule) as at:
        task_id = await at.create(instructions="Count.", acceptance=["Short"], outputs=["number"])
        await gate.reached.wait()
        await at.call("update_task", task_id=task_id, acceptance=[], outputs=[])
        gate.open.set()
        await at.team.ended(task_id)
        assert (
            at.script.asked[1].messages[-2].text
            == "[Task Update: Acceptance Modified]\nThere are no acceptance criteria now.\n\n"
            "[Task Update: Outputs Modified]\nNo outputs are required now."
        )


async def test_a_last_turn_asks_for_nothing_but_a_report(any_url: str, tmp_path: Path) -> None:
    def rule(request: Request) -> Any:
        return calls(("LS", {"path": "."})) if request.may_call else says("Half of it.")

    async with stage(any_url, tmp_path, rule) as at:
        await at.run(instructions="Look.", outputs=["report"], limits={"max_turns": 1})
        last = at.script.asked[-1].messages[-1].text
        assert last.startswith("[Last turn]\n")
        assert "call complete_task" not in last, "no tool can be called in the last turn"
        assert "\nTo finish: report in one message now.\n" in last


LONG = [
    f"Criterion {number} begins. {'It says more. ' * 150}It ends with {number}."
    for number in (1, 2)
]
MODIFIED = "[Task Update: Acceptance Modified]"


def block_of(request: Request) -> str:
    return request.messages[-1].text


async def test_long_criteria_are_sent_once_and_then_referred_to(
    any_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    script: list[Any] = [calls(("LS", {})), gate.then(calls(("LS", {}))), says("Done.")]
    async with stage(any_url, tmp_path, lambda _: script.pop(0)) as at:
        task_id = await at.create(instructions="Count.", acceptance=[*LONG, "It is short."])
        await gate.reached.wait()
        changed = LONG[0].replace("Criterion 1", "Criterion 3")
        await at.call("update_task", task_id=task_id, acceptance=[changed, "It is new."])
        gate.open.set()
        await at.team.ended(task_id)
        first, second, third = at.script.asked
        listed = "Acceptance criteria, which the result must meet"
        for request in (first, second):
            assert (
                f"\n{listed} (in full in your first message):\n- [ ] c1: Criterion 1 begins."
                in block_of(request)
            )
            assert "\n- [ ] c3: It is short.\n" in block_of(request)
            assert len(block_of(request)) < 1_500
            assert [texts(request).count(text) for text in LONG] == [1, 1]
        told = f"in full in the newest message headed {MODIFIED}"
        assert f"\n{listed} ({told}):\n- [ ] c4: Criterion 3 begins." in block_of(third)
        assert texts(third).count(changed) == 1
        assert f"- c1: {LONG[0]}" in first.messages[0].text


async def test_long_criteria_that_no_message_has_are_shown_in_full(
    any_url: str, tmp_path: Path
) -> None:
    criterion = f"{LONG[0]}\n[Not accepted yet]"
    async with stage(any_url, tmp_path, [says("Done.")]) as at:
        await at.run(acceptance=[criterion])
        (request,) = at.script.asked
        assert (
            "\nAcceptance criteria, which the result must meet:\n- [ ] c1: Criterion 1 begins."
            in block_of(request)
        )
        assert LONG[0] in block_of(request)
