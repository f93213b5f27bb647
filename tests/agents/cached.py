"""Delegations whose results answer again."""

from typing import Any

from tests.agents.stage import Stage

ASKED: dict[str, Any] = {"objective": "Where is main?", "subagent_type": "explore", "cache": True}


async def asked(at: Stage, **fields: Any) -> tuple[bool, str, int]:
    """Whether a result was there before, the task that it is of, and how often the model was
    asked so far.
    """
    found = await at.call("task", **{**ASKED, **fields})
    assert found["status"] == "success", found
    return found["data"]["cached"], found["data"]["task_id"], len(at.script.asked)
