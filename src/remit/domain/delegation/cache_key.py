"""The cache key of a task: a hash of everything that a read-only result depends on."""

import hashlib
import json
from collections.abc import Iterable

from remit.domain.agents.agent import Agent
from remit.domain.agents.tools import ToolSpec
from remit.domain.records.pick import beyond, omit
from remit.domain.records.serialize import plain
from remit.domain.task.task import Task

IGNORED_FIELDS = ("description", "source", "hidden", "extra")
"""Fields of an agent that do not affect its results."""

PLAN_TOOL = "TodoWrite"
"""The tool that changes only the plan of the task, on which no result depends."""


def result_cache_key(
    task: Task, agent: Agent, prompt: str, model: str, tools: Iterable[str], files: str
) -> str:
    """Return the cache key of a task as it is now; `files` is the fingerprint of the workspace.

    Updates, questions and notifications after creation change the key.
    """
    definition = omit(plain(agent), IGNORED_FIELDS)
    request = {
        "title": task.title,
        "description": task.description,
        "instructions": task.instructions,
        "metadata": task.given_metadata,
        "acceptance": [[item.text, item.check] for item in task.acceptance],
        "outputs": plain(task.outputs),
        "guides": task.guides,
        "resources": plain(task.resources),
        "completion": task.completion,
        "subtasks": [child.id for child in task.children],
        **({"effort": task.effort} if task.effort else {}),
    }
    messages = [
        task.counts.updates - task.output_asks - task.rounds,
        task.counts.interactions,
        task.counts.notifications,
    ]
    parts = [request, messages, definition, prompt, model, sorted(tools), task.tools.offer, files]
    return hashlib.sha256(
        json.dumps(parts, sort_keys=True, ensure_ascii=False).encode()
    ).hexdigest()


def tools_with_effects(
    agent: Agent, granted: Iterable[str], specs: Iterable[ToolSpec]
) -> list[str]:
    """Return the tools and capabilities of a grant that may have effects or are unknown."""
    harmless = {PLAN_TOOL, *(spec.name for spec in specs if not spec.effects)}
    return [
        *beyond(granted, harmless),
        *(f"the capability {name}" for name in agent.capabilities),
    ]
