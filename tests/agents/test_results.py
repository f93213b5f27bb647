"""What comes of a delegation, in the form its caller knows, however it ended and however large it is."""

from pathlib import Path

from remit.domain.message import Request, Response
from tests.agents.stage import calls, results, says, stage

LARGE = "0123456789" * 500_000


async def test_five_megabytes_are_kept_whole_and_cut_for_the_parent(any_url: str, tmp_path: Path) -> None:
    def rule(request: Request) -> Response:
        if request.agent == "explore":
            return says(LARGE)
        found = results(request)
        if not found:
            return calls(("task", {"objective": "Dump", "subagent_type": "explore"}))
        return calls(("get_task", {"task_id": "2"})) if len(at.script.asked) == 3 else says("Done.")

    async with stage(any_url, tmp_path, rule) as at:
        task = await at.run(owner="build")
        assert task.state.value == "done", task.failure_reason
        cut, again = (results(request)[0] for request in at.script.asked[2:4])
        assert len(cut) < 201_000
        assert "[Cut at 200 KB. The whole result is kept: get_task with task_id 2 has it.]" in cut
        assert len(again) < 201_000
        assert (await at.call("task_output", task_id="2"))["data"]["result"] == LARGE


async def test_every_ending_has_its_envelope(any_url: str, tmp_path: Path) -> None:
    def rule(request: Request) -> Response:
        return calls(("LS", {"path": "."})) if "turns" in request.messages[0].text and request.tools else says("Fine.")

    async with stage(any_url, tmp_path, rule) as at:
        done = await at.call("task", objective="Go")
        turns = await at.call("task", objective="turns", limits={"max_turns": 1})
        at_hand = await at.call("create_task", title="Draft", owner="general", status="draft")
        await at.call("cancel_task", task_id=at_hand["task_id"], message="Not needed.")
        canceled = await at.call("task_output", task_id=at_hand["task_id"])
        missing = await at.call("task", objective="Go", outputs=["report"])
        found = [(item["status"], item["data"]["status"], item.get("error", {}).get("code")) for item in (done, turns, canceled, missing)]
        assert found == [
            ("success", "completed", None),
            ("error", "failed", "LIMIT_EXCEEDED"),
            ("error", "cancelled", "CONFLICT"),
            ("error", "failed", "INTERNAL_ERROR"),
        ]
        assert canceled["error"]["message"] == "Not needed."
        assert missing["text"].startswith("Subagent (general, main) failed.\n\nRequired outputs are missing: report.")
