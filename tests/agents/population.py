"""Flows in which the simulated models of `remit.testing` are tried, and how a flow ends well."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from remit import Remit
from remit.testing import Answer, Asked, Rule, scripted_model
from tests.patience import patient

Outcome = dict[str, Any]
Flow = Callable[[Remit, "Stage"], Awaitable[Outcome]]
SECONDS = 60.0


class Stage:
    """Holds the first answer back until the flow lets it pass, and plays the parent of a
    delegation.
    """

    def __init__(self, persona: Rule) -> None:
        self._persona = persona
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()
        self.may_answer.set()
        self.parent: Rule | None = None

    async def rule(self, asked: Asked) -> Answer:
        """Answer as the persona, or as the parent."""
        if self.parent is not None and asked.messages[0][1].startswith("You are build"):
            return _answer_of(self.parent, asked)
        self.asked.set()
        await self.may_answer.wait()
        return _answer_of(self._persona, asked)


def _answer_of(rule: Rule, asked: Asked) -> Answer:
    answer = rule(asked)
    assert not isinstance(answer, Awaitable)
    return answer


ORDERS: dict[str, dict[str, Any]] = {
    "plain": {"objective": "Say RED."},
    "outputs": {"objective": "Say RED.", "outputs": ["report", {"name": "note", "kind": "text"}]},
    "checked": {
        "objective": "Say RED.",
        "outputs": ["report"],
        "acceptance": [{"text": "It says RED", "check": {"output": "report", "contains": "RED"}}],
    },
}
"""What a delegation asks of one agent."""


async def plain(remit: Remit, _: Stage) -> Outcome:
    return await _delegated(remit, **ORDERS["plain"])


async def outputs(remit: Remit, _: Stage) -> Outcome:
    return await _delegated(remit, **ORDERS["outputs"])


async def checked(remit: Remit, _: Stage) -> Outcome:
    return await _delegated(remit, **ORDERS["checked"])


async def updated(remit: Remit, stage: Stage) -> Outcome:
    stage.may_answer.clear()
    receipt = await remit.task(objective="Say BLUE.", wait=False, timeout_seconds=SECONDS)
    task_id = receipt.task_id
    await stage.asked.wait()
    await remit.update_task(task_id=task_id, instructions="Say RED.")
    stage.may_answer.set()
    return await ended(remit, task_id)


async def explicit(remit: Remit, _: Stage) -> Outcome:
    made = await remit.create_task(title="Say RED.", owner="general", completion="explicit")
    return await ended(remit, made.task_id)


async def blocked_parent(remit: Remit, stage: Stage) -> Outcome:
    stage.parent = reports_result
    return await _delegated(remit, objective="Have it said.", subagent_type="build")


async def woken_parent(remit: Remit, stage: Stage) -> Outcome:
    stage.parent = reports_subtask
    return await _delegated(remit, objective="Have it said.", subagent_type="build")


def reports_result(asked: Asked) -> Answer:
    """Delegate, wait, and report what came back."""
    return f"My sub-agent reports: {asked.results[-1]}" if asked.results else [delegation()]


def reports_subtask(asked: Asked) -> Answer:
    """Make a subtask, and report when it has ended."""
    if not asked.results:
        return [subtask()]
    told = [text for role, text in asked.messages if role == "user" and "[Subtask ended]" in text]
    return f"My sub-agent reports: {told[-1]}" if told else "I wait."


def delegation() -> tuple[str, dict[str, Any]]:
    """The call by which a parent delegates and waits."""
    return "task", {"objective": "Say RED.", "subagent_type": "general", "timeout_seconds": SECONDS}


def subtask() -> tuple[str, dict[str, Any]]:
    """The call by which a parent is woken when its subtask ends."""
    fields = {"title": "Find the word", "instructions": "Say RED.", "owner": "general"}
    return "create_subtask", {"task_id": "1", **fields}  # the report of the end shows the title


FLOWS: dict[str, Flow] = {
    flow.__name__: flow
    for flow in (plain, outputs, checked, updated, explicit, blocked_parent, woken_parent)
}


async def _delegated(remit: Remit, **fields: Any) -> Outcome:
    result = await remit.task(timeout_seconds=SECONDS, **fields)
    return await ended(remit, result.task_id)


async def ended(remit: Remit, task_id: str) -> Outcome:
    """The task once it has ended or waits for a person."""
    while True:
        await remit.task_output(task_id=task_id, wait_seconds=1)
        task: Outcome = await remit.call("get_task", task_id=task_id)
        asks = task["wait"] is not None and any(
            item["kind"] == "user" for item in task["wait"]["on"]
        )
        if asks or task["status"] in ("done", "failed", "canceled"):
            return task


def is_right(task: Outcome) -> bool:
    """True if the task was completed with the word that it asked for in all that it hands over."""
    texts = [task["summary"] or "", *map(str, (task["completion_outputs"] or {}).values())]
    return task["state"] == "done" and all("RED" in text and "BLUE" not in text for text in texts)


def is_honest(task: Outcome) -> bool:
    """True if the task failed and says why, or asks a person how to go on."""
    failed = task["state"] == "failed" and bool(task["reason"]) and bool(task["failure_reason"])
    return failed or task["state"] == "waiting"


def end_of(task: Outcome) -> Outcome:
    """The fields of a task that say how it ended."""
    names = ("state", "summary", "reason", "failure_reason", "completion_outputs")
    return {name: task[name] for name in names}


@asynccontextmanager
async def population(rule: Rule, folder: Path) -> AsyncGenerator[None, None]:
    """A workspace whose models answer by the rule; a flow that hangs ends with a timeout."""
    (folder / ".remit").mkdir()
    lines = (f"line {number} with some words on it" for number in range(400))
    (folder / "long.txt").write_text("\n".join(lines))
    async with asyncio.timeout(patient(SECONDS)), scripted_model(rule):
        yield
