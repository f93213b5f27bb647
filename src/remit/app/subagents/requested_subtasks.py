"""The subtasks that the items of a delegation call ask for."""

from typing import Any

from remit.app.subagents.delegation_arguments import (
    item_at,
    names_own_task,
    requested_work,
    resource_from,
    wait_mode,
)
from remit.app.subagents.delegation_call import DelegatingRun
from remit.domain.delegation.requests import LaunchSubtask
from remit.domain.llm.messages import ToolCall
from remit.domain.prompts.offered_tools import SUBTASK
from remit.domain.records.validate import parse
from remit.domain.task import commands as cmd
from remit.errors import invalid


def requested_subtask(
    run: DelegatingRun, call: ToolCall, place: int
) -> tuple[cmd.CreateSubtask, bool]:
    """Return the subtask that an item asks for, and whether it may use the cache."""
    if call.name == "create_subtask":
        return _from_command(run, call), False
    if call.name.startswith(SUBTASK):
        return _for_agent(run, call), False
    item, at, seconds = item_at(call, place)
    wait = wait_mode(call, place)
    work = requested_work(item, at, seconds)
    owner = _assignee(run, item.get("subagent_type"), f"{at}subagent_type")
    own = {"task_id": run.task.id, "owner": owner, "wait": wait}
    return parse(cmd.CreateSubtask, {**work.fields, **own}), work.cache


def _for_agent(run: DelegatingRun, call: ToolCall) -> cmd.CreateSubtask:
    """Return the subtask of a `create_subtask_<agent>` call."""
    references = call.arguments.get("artifactRefs") or ()
    resources = [resource_from(item, run.operations.folder) for item in references]
    part = parse(LaunchSubtask, {**call.arguments, "artifactRefs": resources})
    owner = _assignee(run, call.name.removeprefix(SUBTASK), "subagent_type")
    return cmd.CreateSubtask(
        task_id=run.task.id,
        title=part.title,
        instructions=part.intent,
        owner=owner,
        priority=part.priority,
        resources=part.artifactRefs,
        wait="block",
    )


def _from_command(run: DelegatingRun, call: ToolCall) -> cmd.CreateSubtask:
    """Return the subtask of a `create_subtask` call."""
    if not names_own_task(run.task, call.arguments):
        named = call.arguments["task_id"]
        raise invalid("wait", f"is 'block', but task {named} is not yours", "wake or none")
    if call.arguments.get("idempotency_key") is not None:
        raise invalid(
            "idempotency_key",
            "cannot be combined with wait: block, which never repeats a call",
            "no key",
        )
    fields = {**call.arguments, "task_id": run.task.id}
    if fields.get("owner"):
        fields["owner"] = _assignee(run, fields["owner"], "owner")
    return parse(cmd.CreateSubtask, fields)


def _assignee(run: DelegatingRun, name: Any, field: str) -> str:
    """Return the id of the agent that gets the work; refuse one that the agent may not use."""
    known = _possible_assignees(run)
    if name is None:
        name = known[0] if len(known) == 1 else "general"
    found = run.agents.find(str(name))
    if found is None or found.id not in known:
        raise invalid(
            field, f"is {name!r}, which you cannot assign work to", f"one of {', '.join(known)}"
        )
    return found.id


def _possible_assignees(run: DelegatingRun) -> list[str]:
    """Return the ids of the agents that the agent of a run may delegate to."""
    allowed = run.agents.ids()
    if run.agent.spawnable is not None:
        allowed &= set(run.agent.spawnable)
    return sorted(allowed)
