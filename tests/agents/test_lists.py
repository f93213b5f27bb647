"""Lists that running agents read: objects with their key, also where a list is empty."""

import json
from pathlib import Path

from tests.agents.stage import calls, results, says, stage

LISTS = {
    "list_tasks": ("tasks", {"owner": "plan"}),
    "list_history": ("tasks", {}),
    "list_guides": ("guides", {}),
    "list_interactions": ("interactions", {}),
    "list_notifications": ("notifications", {}),
    "list_updates": ("updates", {"task_id": "1"}),
}


async def test_an_empty_list_keeps_its_key(any_url: str, tmp_path: Path) -> None:
    wanted = [(name, arguments) for name, (_, arguments) in LISTS.items()]
    async with stage(any_url, tmp_path, [calls(*wanted), says("Done.")]) as at:
        await at.run(owner="build")
        told = [json.loads(text) for text in results(at.script.asked[-1])]
        found = {
            name: answer.get(key)
            for (name, (key, _)), answer in zip(LISTS.items(), told, strict=True)
        }
        assert found == {name: [] for name in LISTS}
        assert "in_flight" in told[0]
