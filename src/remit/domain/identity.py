"""When two tasks ask for the same: everything that a read-only result depends on, in one key."""

import hashlib
import json
from collections.abc import Iterable

from remit.domain.agent import Agent
from remit.domain.tool import ToolSpec
from remit.domain.value import Task
from remit.domain.wire import plain

BESIDES = ("description", "source", "hidden", "extra")
"""What is said of an agent and is no part of how it works."""

OWN_PLAN = "TodoWrite"
"""It changes the plan of the task itself, on which no result depends."""


def identity(task: Task, agent: Agent, prompt: str, model: str, tools: Iterable[str], files: str) -> str:
    """The key of a task as it is now; the files of the workspace are given by their fingerprint.

    A task that was told, asked or given anything after it was made has another key than it had.
    """
    definition = {name: value for name, value in plain(agent).items() if name not in BESIDES}
    asked = {
        "title": task.title,
        "description": task.description,
        "instructions": task.instructions,
        "metadata": task.metadata or {},
        "acceptance": [[item.text, item.check] for item in task.acceptance],
        "outputs": plain(task.outputs),
        "guides": task.guides,
        "resources": plain(task.resources),
        "completion": task.completion,
        "subtasks": [child.id for child in task.children],
        **({"effort": task.effort} if task.effort else {}),
    }
    heard = [task.counts.updates - task.output_asks - task.rounds, task.counts.interactions, task.counts.notifications]
    whole = [asked, heard, definition, prompt, model, sorted(tools), task.tools.offer, files]
    return hashlib.sha256(json.dumps(whole, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def changing(agent: Agent, granted: Iterable[str], specs: Iterable[ToolSpec]) -> list[str]:
    """What of a grant could change something; a tool that nobody knows could."""
    harmless = {OWN_PLAN, *(spec.name for spec in specs if not spec.effects)}
    return [*(tool for tool in granted if tool not in harmless), *(f"the capability {name}" for name in agent.capabilities)]
