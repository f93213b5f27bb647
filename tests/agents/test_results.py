"""Results of a delegation in the caller's format, for every end and any size."""

import json
from pathlib import Path
from typing import Any

import pytest

from remit.domain.llm.messages import Request, Response, ToolResult
from remit.domain.task.task import State
from remit.errors import InvalidParam
from tests.agents.stage import calls, results, says, stage, texts

LARGE = "0123456789" * 500_000
OFFSETS = range(200_000, len(LARGE), 200_000)
ROW = "0123456789ü"


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_five_megabytes_are_kept_whole_and_read_on_to_the_end(
    any_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Response:
        if request.agent == "explore":
            return says(LARGE)
        found = results(request)
        if not found:
            return calls(("task", {"objective": "Dump", "subagent_type": "explore"}))
        more = (("task_output", {"task_id": "2", "offset": offset}) for offset in OFFSETS)
        return says("Done.") if len(found) > 1 else calls(("get_task", {"task_id": "2"}), *more)

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(owner="build")
        assert task.state.value == "done", task.failure_reason
        assert "task_output" in {tool.name for tool in at.script.asked[0].tools}
        (cut,), (whole, *rest) = (results(request) for request in at.script.asked[2:4])
        assert all(len(part) < 201_000 for part in (cut, whole, *rest))
        assert whole.endswith(' task_output(task_id="2") returns the result in parts.]')
        begun = json.loads(cut)
        assert (
            begun["note"] == "[Characters 0 to 200,000 of 5,000,000. Next:"
            ' task_output(task_id="2", offset=200000)]'
        )
        assert begun["result"] + "".join(json.loads(part)["result"] for part in rest) == LARGE
        assert "note" not in json.loads(rest[-1])
        assert (await at.call("task_output", task_id="2"))["data"]["result"] == LARGE
        late = [
            await at.call("task_output", task_id="2", offset=4_999_990, format=form)
            for form in ("envelope", "flat")
        ]
        assert [late[0]["data"]["result"], late[0]["text"], late[1]["result"]] == [
            "0123456789",
            "Subagent (explore, light) completed.\n\n0123456789",
            "0123456789",
        ]


async def test_following_the_notes_returns_every_character_and_the_outputs(
    any_url: str, tmp_path: Path
) -> None:
    """Of a result whose characters take one to four bytes, some more in JSON, and of outputs
    that are too long to stand beside it.
    """
    told = 'Zeile "ä"\n☃ 🙂\t' * 16_000
    kept: list[str] = []

    def rule(request: Request) -> Response:
        if request.agent == "explore":
            return calls(("complete_task", {"summary": told, "outputs": {"rows": ROW * 10_000}}))
        found = results(request)
        if not found:
            return calls(("create_subtask_explore", {"title": "Dump"}))
        part = json.loads(found[0])
        text, note = (part["result"] if "result" in part else part["summary"]), part.get("note")
        kept.append(text)
        assert len(found[0].encode()) < 201_000
        if note is None:
            return says("Read.")
        offset = int(note.partition("offset=")[2].rstrip(")]"))
        return calls(("task_output", {"task_id": "2", "offset": offset}))

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(owner="build")
        assert (task.state, task.final_message) == (State.DONE, "Read."), task.failure_reason
        result, _, outputs = "".join(kept).partition("\n\nOutputs: ")
        assert (result, json.loads(outputs)) == (told, {"rows": ROW * 10_000})
        assert len(kept) > 2


async def test_outputs_reach_a_parent_through_every_operation(any_url: str, tmp_path: Path) -> None:
    wanted = {"objective": "Answer", "subagent_type": "explore", "outputs": ["answer"]}

    def rule(request: Request) -> Response:
        if request.agent == "explore":
            long = LARGE[:300_000] if "Long" in request.messages[0].text else "Done."
            return calls(("complete_task", {"outputs": {"answer": "forty-two"}, "summary": long}))
        found = results(request)
        if not found:
            return calls(
                ("task", wanted),
                ("task_parallel", {"tasks": [wanted, {**wanted, "objective": "Long"}]}),
                ("Task", {"description": "Answer", "prompt": "Answer", "subagent_type": "explore"}),
                ("create_subtask_explore", {"title": "Answer"}),
            )
        return says("Read.") if len(found) == 1 else calls(("task_output", {"task_id": "2"}))

    async with stage(any_url, tmp_path, rule) as at:
        assert (await at.run(owner="build")).state is State.DONE
        asked = [request for request in at.script.asked if request.agent == "build"]
        (one, several, launched, subtask), (output,) = (results(request) for request in asked[1:3])
        handed = {"answer": "forty-two"}
        told = json.loads(one)
        assert (told["task_id"], told["status"], told["result"], told["outputs"]) == (
            "2",
            "completed",
            "Done.",
            handed,
        )
        both = json.loads(several)["results"]
        assert [item["outputs"] for item in both] == [
            handed,
            handed,
        ], "also of the one that was cut"
        assert 'task_output(task_id="4", offset=199' in both[1]["note"]
        assert json.loads(launched)["data"]["outputs"] == handed
        assert json.loads(subtask)["outputs"] == handed
        assert json.loads(output)["outputs"] == handed


async def test_every_ending_has_its_envelope(any_url: str, tmp_path: Path) -> None:
    def rule(request: Request) -> Response:
        return (
            calls(("LS", {"path": "."}))
            if "turns" in request.messages[0].text and request.may_call
            else says("Fine.")
        )

    async with stage(any_url, tmp_path, rule) as at:
        done = await at.call("task", objective="Go")
        turns = await at.call("task", objective="turns", limits={"max_turns": 1})
        at_hand = await at.call("create_task", title="Draft", owner="general", status="draft")
        await at.call("cancel_task", task_id=at_hand["task_id"], message="Not needed.")
        canceled = await at.call("task_output", task_id=at_hand["task_id"])
        missing = await at.call("task", objective="Go", outputs=["report"])
        found = [
            (item["status"], item["data"]["status"], item.get("error", {}).get("code"))
            for item in (done, turns, canceled, missing)
        ]
        assert found == [
            ("success", "completed", None),
            ("error", "failed", "LIMIT_EXCEEDED"),
            ("error", "cancelled", "CONFLICT"),
            ("error", "failed", "INTERNAL_ERROR"),
        ]
        assert canceled["error"]["message"] == "Not needed."
        assert missing["text"].startswith(
            "Subagent (general, main) failed.\n\nRequired outputs are missing: report."
        )


# Outputs.

ROWS: dict[str, Any] = {
    "name": "rows",
    "kind": "json",
    "schema": {
        "type": "array",
        "items": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        "minItems": 1,
    },
}


def hands(**outputs: Any) -> Response:
    return calls(("complete_task", {"outputs": outputs, "summary": "Handed over."}))


async def test_a_wrong_output_is_reported_with_its_path_and_can_be_corrected(
    any_url: str, tmp_path: Path
) -> None:
    script = [hands(rows=[{"n": "one"}]), says("Here it is."), hands(rows='[{"n": 1}]')]
    async with stage(any_url, tmp_path, script) as at:
        found = await at.call("task", objective="Count", outputs=[ROWS])
        assert (found["status"], found["data"]["outputs"]) == ("success", {"rows": [{"n": 1}]})
        first, second, third = at.script.asked
        assert '"required":["n"]' in first.messages[-1].text
        refused = [
            part.text
            for part in second.messages[2].parts
            if isinstance(part, ToolResult) and part.is_error
        ]
        assert "outputs.rows[0].n: is text; expected integer." in refused[0]
        assert texts(third).count("The required output rows is missing.") == 1


async def test_an_agent_that_repeats_a_wrong_output_is_told_twice_then_the_task_fails(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, lambda _: hands(rows=[])) as at:
        found = await at.call("task", objective="Count", outputs=[ROWS])
        assert (found["status"], found["data"]["status"], found["error"]["message"]) == (
            "error",
            "failed",
            "outputs.rows: has 0 items; expected at least 1.",
        )
        task = await at.team.task(found["data"]["task_id"])
        assert (task.state, task.reason, task.counts.runs, task.usage.requests) == (
            State.FAILED,
            "acceptance",
            1,
            3,
        )
        assert len(at.script.asked) == 3


async def test_a_file_output_must_exist(any_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "ws"
    folder.mkdir()
    script = [
        hands(report="out.md"),
        calls(("Write", {"file_path": "out.md", "content": "All is well.\n"})),
        hands(report="out.md"),
    ]
    async with stage(any_url, folder, script) as at:
        task = await at.run(
            outputs=[{"name": "report", "kind": "file"}], tools={"allow": ["Write"]}
        )
        assert (task.state, task.completion_outputs, task.output_asks) == (
            State.DONE,
            {"report": "out.md"},
            1,
        )
        (refused,) = results(at.script.asked[1])
        assert (
            "\n- outputs.report: is 'out.md': does not exist; expected the path of a file in the"
            " workspace." in refused
        )


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("none.md", "does not exist"),
        ("../secret", "is outside"),
        (".remit/remit.db", "is reserved for remit"),
        (".", "is a folder"),
    ],
)
async def test_a_refusal_names_the_problem_and_the_expected_value(
    tmp_path: Path, path: str, why: str
) -> None:
    folder = tmp_path / "ws"
    (folder / ".remit").mkdir(parents=True)
    (folder / "report.md").write_text("Fine.")
    async with stage(f"sqlite:///{tmp_path / 'remit.db'}", folder, [], workers=0) as at:
        task_id = await at.create(
            outputs=[{"name": "report", "kind": "file"}, {"name": "page", "kind": "url"}]
        )
        told = (
            f"outputs: missing required output: page. .*outputs.report: .*{why}.*; expected the"
            " path of a file in the workspace"
        )
        with pytest.raises(InvalidParam, match=told):
            await at.call("complete_task", task_id=task_id, outputs={"report": path})
        assert (await at.team.events(task_id)) == ["TaskCreated"]
        given = {"report": str(folder / "report.md"), "page": "https://example.org/"}
        assert (await at.call("complete_task", task_id=task_id, outputs=given))["task"][
            "completion_outputs"
        ] == given


async def test_a_schema_that_cannot_be_checked_is_refused_by_its_place(
    any_url: str, tmp_path: Path
) -> None:
    hostile = {
        "name": "rows",
        "kind": "json",
        "schema": {"items": {"$ref": "https://example.org/schema.json"}},
    }
    async with stage(any_url, tmp_path, lambda _: says("Fine."), workers=1) as at:
        with pytest.raises(
            InvalidParam,
            match=(
                r"outputs\[0\]\.schema\.items\.\$ref: is 'https://example.org/schema.json';"
                r" expected a place in this"
            ),
        ):
            await at.call("task", objective="Count", outputs=[hostile])
        bad, good = (
            await at.call(
                "task_parallel", tasks=[{"objective": "Count", "outputs": [hostile]}, "Look"]
            )
        )["results"]
        assert (bad["error"]["code"], good["status"]) == ("INVALID_PARAM", "success")
