"""The table of operations from which every surface is built."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any, Literal, NamedTuple, cast

from remit.app.agents.registry import Agent, AgentRegistry
from remit.app.agents.role_prompts import for_grant
from remit.app.context import AppContext, Caller
from remit.app.conversations.conversation import Conversation
from remit.app.conversations.transcript import (
    ending_entry,
    may_have_subtasks,
    reported_subtasks,
    transcript,
    unanswered_prompt,
)
from remit.app.delegation import delegate, sessions
from remit.app.delegation.cancellation import cancel_all
from remit.app.delegation.envelopes import refusal
from remit.app.delegation.progress import with_heartbeats
from remit.app.reading import query_handlers
from remit.app.reading.views import hold_for_agent, with_unknown_agent
from remit.app.runs.live_workers import unknown_agents
from remit.app.service import Outcome
from remit.catalog.output_schemas import IN_LISTS, SHAPES, shape
from remit.domain import queries as ask
from remit.domain.delegation import requests as give
from remit.domain.records.pick import beyond
from remit.domain.records.record import fields, summary
from remit.domain.records.serialize import plain
from remit.domain.records.validate import parse
from remit.domain.task import commands as cmd
from remit.domain.task.policy import agent_of
from remit.domain.task.task import Task
from remit.errors import Conflict, NotFound, RemitError, advice, invalid

Result = dict[str, Any]
Handler = Callable[[AppContext, Any, Caller], Awaitable[Result]]
Stream = Callable[[AppContext, Any, Caller, bool], AsyncGenerator[Result, None]]
Effect = Literal["read", "write", "destroy"]
Audience = Literal["everyone", "agents"]
ENVELOPED = ("task", "task_parallel", "Task")


class Operation(NamedTuple):
    """One operation, the same on every surface."""

    name: str
    input: type[Any]
    handler: Handler
    output: dict[str, Any]
    method: str = ""
    path: str = ""
    effect: Effect = "write"
    idempotent: bool = False
    audience: Audience = "everyone"
    alias_of: str = ""
    stream: Stream | None = None
    """Yields the progress of the operation while it waits."""

    @property
    def has_route(self) -> bool:
        """True if REST has its own path for it."""
        return bool(self.path) and not self.alias_of

    @property
    def description(self) -> str:
        """The description, which is the docstring of the input."""
        return summary(self.input)


async def call(core: AppContext, name: str, fields: Mapping[str, Any], caller: Caller) -> Result:
    """Validate the fields and run an operation; the entry point of every surface."""
    operation = find_operation(name, OPERATIONS)
    with refusal_in_envelope(name, fields):
        async with _checking_absence(core):
            return await operation.handler(core, parse(operation.input, fields), caller)


async def attend(
    core: AppContext, name: str, fields: Mapping[str, Any], caller: Caller
) -> AsyncGenerator[Result, None]:
    """Run an operation that may wait: yield progress, each result, and finally `end` with the
    answer.

    While nothing changes, the progress of the tasks is repeated every `core.progress_seconds`.
    Errors found before the wait are raised before the first item. Closing the generator ends the
    wait, not the work.
    """
    async with aclosing(
        with_heartbeats(_items(core, name, fields, caller), core.progress_seconds)
    ) as items:
        async for item in items:
            yield item


async def _items(
    core: AppContext, name: str, fields: Mapping[str, Any], caller: Caller
) -> AsyncGenerator[Result, None]:
    """Yield the items of an operation that may wait, without heartbeats."""
    operation = find_operation(name, OPERATIONS)
    stream = stream_of(operation, OPERATIONS)
    with refusal_in_envelope(name, fields):
        async with (
            _checking_absence(core),
            aclosing(stream(core, parse(operation.input, fields), caller, True)) as items,
        ):
            async for item in items:
                yield item


@asynccontextmanager
async def _checking_absence(core: AppContext) -> AsyncGenerator[None, None]:
    """Check the store before a call says that something does not exist.

    It can be missing only because the store was rolled back or is being restored.
    """
    try:
        yield
    except NotFound:
        await core.store.check()
        raise


@contextmanager
def refusal_in_envelope(name: str, fields: Mapping[str, Any]) -> Generator[None, None, None]:
    """Return the refusal of a delegation in the envelope that every delegation returns."""
    try:
        yield
    except RemitError as refused:
        if name not in ENVELOPED:
            raise
        raise refused.for_call(around=refusal(refused, fields)) from refused


def find_operation(name: str, known: Mapping[str, Operation]) -> Operation:
    """Return an operation by its name; raise NotFound for another name."""
    operation = known.get(name)
    if operation is None:
        raise NotFound(f"Unknown operation {name}.", details={"operation": name})
    return operation


def stream_of(operation: Operation, known: Mapping[str, Operation]) -> Stream:
    """Return the stream of an operation; refuse one that does not wait."""
    if operation.stream is None:
        waiting = [name for name, other in known.items() if other.stream is not None]
        expected = f"one of {', '.join(waiting)}"
        raise invalid("operation", f"is {operation.name}, which does not wait", expected)
    return operation.stream


# Handlers only build the answers; rules are in the domain.


async def _create(core: AppContext, command: Any, caller: Caller) -> Result:
    """Apply a command that creates a task; return the task."""
    outcome = await core.do(command, caller)
    return {"task_id": outcome.task_id, "task": await _task_after(core, outcome)}


async def _create_task(core: AppContext, command: cmd.CreateTask, caller: Caller) -> Result:
    """Create a task; say which tools it was to have and does not."""
    outcome = await core.do(command, caller)
    notice = delegate.grant_notice(core, command, outcome, "the caller")
    return {"task_id": outcome.task_id, "task": await _task_after(core, outcome), **notice}


async def _change(core: AppContext, command: Any, caller: Caller) -> Result:
    """Apply a command; return the changed task."""
    outcome = await core.do(command, caller)
    return {"success": True, "task": await _task_after(core, outcome)}


async def _update(core: AppContext, command: cmd.UpdateTask, caller: Caller) -> Result:
    """Apply an update; return the task and the ids of the updates for its agent."""
    outcome = await core.do(command, caller)
    return {"success": True, **_update_ids(outcome), "task": await _task_after(core, outcome)}


def _update_ids(outcome: Outcome) -> Result:
    """Return the ids of the updates that an agent will be told of, if there are any."""
    if not outcome.update_ids:
        return {}
    return {"update_id": outcome.update_ids[0], "update_ids": list(outcome.update_ids)}


async def _cancel(core: AppContext, command: cmd.CancelTask, caller: Caller) -> Result:
    """Cancel a task and those below it; return their ids."""
    return {"success": True, "canceled": list((await core.do(command, caller)).canceled)}


async def _acknowledge(core: AppContext, command: Any, caller: Caller) -> Result:
    """Apply a command; return only that it was applied."""
    await core.do(command, caller)
    return {"success": True}


async def _send_message(core: AppContext, command: cmd.SendMessage, caller: Caller) -> Result:
    outcome = await core.do(command, caller)
    assert outcome.task is not None
    return {
        "success": True,
        "update_id": outcome.update_ids[0],
        "delivery": _delivery(outcome.task),
    }


def _delivery(task: Task) -> str:
    """Return when the agent or session that works on a task reads a message."""
    if task.session_id is not None:
        return f"with the next request of session {task.session_id}"
    if task.run is not None:
        return "with the next model request of the live run"
    return "with the first model request of the next run"


async def _ask_user(core: AppContext, command: cmd.AskUser, caller: Caller) -> Result:
    outcome = await core.do(command, caller)
    assert outcome.task is not None
    return {"interaction_id": outcome.task.questions[-1].id}


async def _create_guide(core: AppContext, command: cmd.CreateGuide, caller: Caller) -> Result:
    outcome = await core.do(command, caller)
    return {"guide_id": outcome.entries[0].stream.partition("/")[2]}


async def _get_task(core: AppContext, request: ask.GetTask, _: Caller) -> Result:
    return await _task(core, request.task_id)


async def _task(core: AppContext, ref: str) -> Result:
    """Return a whole task; `held_by` also says whether its agent is known."""
    view = await core.task(ref)
    await _with_agents(core, [view])
    return view


async def _task_after(core: AppContext, outcome: Outcome) -> Result:
    """Return the whole task that a command created or changed."""
    view = await core.task_after(outcome)
    await _with_agents(core, [view])
    return view


async def _with_agents(core: AppContext, views: list[Result]) -> list[Result]:
    """Mark views of tasks whose agent neither this process nor a live worker knows, and return the
    views.
    """
    candidates = with_unknown_agent(views, core.agents.ids())
    unknown = await unknown_agents(core, {view["owner"] for view in candidates})
    found = [view for view in candidates if view["owner"] in unknown]
    for view in found:
        hold_for_agent(view)
    return found


async def _run_task(core: AppContext, command: cmd.RunTask, caller: Caller) -> Result:
    """Run a task now; refuse if its agent is unknown, because no worker would start it."""
    task = await core.task(command.task_id)
    owner = task["owner"]
    live = task["archived_at"] is None and task["session_id"] is None
    if live and owner and await unknown_agents(core, [owner]):
        raise Conflict(
            f"Unknown agent {owner!r}: it owns task {task['id']}, but neither this process nor a"
            " live worker knows it.",
            hint=(
                "Restore its file, or give the task another owner with update_task."
                f" {advice(owner, core.agents.ids())}"
            ),
            details={"task_id": task["id"], "agent": owner},
        )
    return await _change(core, command, caller)


async def _list_tasks(core: AppContext, request: ask.ListTasks, caller: Caller) -> Result:
    page = await core.ask(
        query_handlers.list_tasks(
            status=request.status,
            state=request.state,
            owner=_owner(request, caller, core.agents),
            parent_session=request.parent_session,
            parent=None if request.scope == "tree" else request.parent,
            label=request.label,
            tree=_tree(request),
            limit=request.limit,
            cursor=request.cursor,
            now=core.now(),
        )
    )
    await _with_agents(core, page["tasks"])
    return page | {
        "agents": sorted(core.agents.ids()),
        "in_flight": await core.ask(query_handlers.in_flight()),
    }


def _owner(request: ask.ListTasks, caller: Caller, agents: AgentRegistry) -> str | None:
    """Return the owner to filter by: an agent sees its own tasks by default, a person sees all."""
    agent = agent_of(caller.actor)
    if request.scope == "mine" and agent is None:
        raise invalid(
            "scope",
            f"is 'mine', but {caller.actor} is not an agent and owns no tasks",
            "all, or tree with a parent",
        )
    if request.owner is not None:
        return agents.id_for_filter(request.owner)
    is_plain = (request.scope, request.parent_session, request.parent) == (None, None, None)
    if request.scope == "mine" or is_plain:
        return agent
    return None


def _tree(request: ask.ListTasks) -> str | None:
    """Return the task whose whole tree is listed; None if no tree is."""
    if request.scope != "tree":
        return None
    if request.parent is None:
        raise invalid("parent", "is required with scope tree", "a task of that tree")
    return request.parent


async def _list_session_tasks(core: AppContext, request: ask.ListSessionTasks, _: Caller) -> Result:
    page = await core.ask(
        query_handlers.list_session_tasks(
            request.session_id,
            role=request.role,
            status=request.status,
            limit=request.limit,
            cursor=request.cursor,
            now=core.now(),
        )
    )
    await _with_agents(core, page["tasks"])
    return page


async def _list_history(core: AppContext, request: ask.ListHistory, _: Caller) -> Result:
    return await core.ask(query_handlers.list_history(limit=request.limit, cursor=request.cursor))


async def _list_ready(core: AppContext, request: ask.ListReady, _: Caller) -> Result:
    page = await core.ask(
        query_handlers.list_ready(now=core.now(), limit=request.limit, cursor=request.cursor)
    )
    unknown = await _with_agents(core, page["tasks"])
    return page | {"tasks": beyond(page["tasks"], unknown)}


async def _list_updates(core: AppContext, request: ask.ListUpdates, _: Caller) -> Result:
    return await core.ask(query_handlers.list_updates(request.task_id, after=request.after))


async def _get_events(core: AppContext, request: ask.GetEvents, _: Caller) -> Result:
    return await core.ask(
        query_handlers.get_events(request.task_id, after=request.after, limit=request.limit)
    )


async def _get_transcript(core: AppContext, request: ask.GetTranscript, _: Caller) -> Result:
    from remit.app.subagents.children import children_by_call

    task = await core.service.load((await core.task(request.task_id))["id"])
    conversation = await Conversation.load(core.store, task.id)
    rows = [row for row in conversation.rows if row.number > request.after]
    children = await children_by_call(task, core.service.tasks) if may_have_subtasks(rows) else {}
    ended = await reported_subtasks(core.store, task.id, rows, core.service.tasks)
    messages = transcript(rows, conversation.calls, children, ended)
    last = rows[-1].number if rows else None
    if (
        not conversation.history
        and request.after == 0
        and (first := unanswered_prompt(task)) is not None
    ):
        messages = [first]
    # The end comes after the last message and counts as one, so that it is read only once.
    number = (conversation.rows[-1].number if conversation.rows else 0) + 1
    if number > request.after and (end := ending_entry(task, conversation.rows)) is not None:
        messages, last = [*messages, end], number
    return {"messages": messages, "next": last}


async def _list_interactions(core: AppContext, request: ask.ListInteractions, _: Caller) -> Result:
    return await core.ask(
        query_handlers.list_interactions(
            status=request.status,
            task_id=request.task_id,
            limit=request.limit,
            cursor=request.cursor,
        )
    )


async def _list_notifications(
    core: AppContext, request: ask.ListNotifications, _: Caller
) -> Result:
    return await core.ask(
        query_handlers.list_notifications(limit=request.limit, cursor=request.cursor)
    )


async def _get_guide(core: AppContext, request: ask.GetGuide, _: Caller) -> Result:
    return await core.ask(query_handlers.get_guide(request.guide_id))


async def _list_guides(core: AppContext, request: ask.ListGuides, _: Caller) -> Result:
    return await core.ask(query_handlers.list_guides(limit=request.limit, cursor=request.cursor))


async def _list_agents(core: AppContext, request: ask.ListAgents, _: Caller) -> Result:
    return query_handlers.list_agents(
        core.agents.all(),
        lambda agent: _agent_fields(agent, IN_LISTS),
        limit=request.limit,
        cursor=request.cursor,
    )


async def _get_agent(core: AppContext, request: ask.GetAgent, _: Caller) -> Result:
    agent = core.agents.find(request.agent_id)
    if agent is None:
        raise NotFound(
            f"Unknown agent {request.agent_id}.",
            hint=advice(request.agent_id, core.agents.ids()),
        )
    prompt = for_grant(agent.prompt, agent.tools)
    extra = {name: _extra_value(value) for name, value in agent.extra.items()}
    return _agent_fields(agent, fields(agent)) | {"prompt": prompt, "extra": extra}


def _agent_fields(agent: Agent, names: Iterable[str]) -> Result:
    """Return some fields of an agent as plain JSON."""
    return {name: plain(getattr(agent, name)) for name in names}


def _extra_value(value: Any) -> Any:
    """Return an unknown value of an agent file.

    Nested settings of servers and hooks, which may hold secrets, are hidden.
    """
    inner = cast("list[Any]", value) if isinstance(value, list | tuple) else [value]
    if any(isinstance(item, dict | list) for item in inner):
        return "(kept)"
    return cast("Any", value)


# Table of operations

_ONE = "/api/tasks/{task_id}"
_SESSION = "/api/sessions/{session_id}"


def _read(name: str, request: type[Any], handler: Handler, path: str, output: str) -> Operation:
    """Return an operation that changes nothing."""
    return Operation(name, request, handler, SHAPES[output], "GET", path, "read", idempotent=True)


def _write(
    name: str,
    command: type[Any],
    handler: Handler,
    route: str,
    output: str,
    *,
    idempotent: bool = False,
) -> Operation:
    """Return an operation that changes something."""
    method, path = route.split(" ")
    return Operation(name, command, handler, SHAPES[output], method, path, "write", idempotent)


def _waiting_operation(
    name: str, request: type[Any], stream: Stream, route: str, output: str
) -> Operation:
    """Return an operation that may wait; without a listener its answer is the end of its stream."""

    async def handler(core: AppContext, command: Any, caller: Caller) -> Result:
        last: Result = {}
        async with aclosing(stream(core, command, caller, False)) as items:
            async for item in items:
                last = item
        answer: Result = last["answer"]
        return answer

    method, path = route.split(" ")
    effect: Effect = "read" if method == "GET" else "write"
    return Operation(
        name,
        request,
        handler,
        SHAPES[output],
        method,
        path,
        effect,
        idempotent=effect == "read",
        stream=stream,
    )


_TABLE = (
    _write("create_task", cmd.CreateTask, _create_task, "POST /api/tasks", "created"),
    _read("get_task", ask.GetTask, _get_task, _ONE, "task"),
    _read("list_tasks", ask.ListTasks, _list_tasks, "/api/tasks", "tasks"),
    _write("update_task", cmd.UpdateTask, _update, f"PATCH {_ONE}", "updated"),
    _write("complete_task", cmd.CompleteTask, _change, f"POST {_ONE}/complete", "changed"),
    _write("fail_task", cmd.FailTask, _change, f"POST {_ONE}/fail", "changed"),
    _write(
        "waive_criterion",
        cmd.WaiveCriterion,
        _change,
        f"POST {_ONE}/criteria/{{criterion_id}}/waive",
        "changed",
    ),
    Operation(
        "cancel_task",
        cmd.CancelTask,
        _cancel,
        SHAPES["canceled"],
        "POST",
        f"{_ONE}/cancel",
        "destroy",
    ),
    _write("pause_task", cmd.PauseTask, _change, f"POST {_ONE}/pause", "changed"),
    _write("resume_task", cmd.ResumeTask, _change, f"POST {_ONE}/resume", "changed"),
    _write("run_task", cmd.RunTask, _run_task, f"POST {_ONE}/run", "changed"),
    _write("rerun_task", cmd.RerunTask, _create, f"POST {_ONE}/rerun", "created"),
    _write(
        "assign_task",
        cmd.AssignTask,
        _acknowledge,
        f"POST {_ONE}/assign",
        "success",
        idempotent=True,
    ),
    _write(
        "attach_tsg", cmd.AttachTsg, _acknowledge, f"POST {_ONE}/guides", "success", idempotent=True
    ),
    _read("list_history", ask.ListHistory, _list_history, "/api/tasks/history", "history"),
    _read("list_ready", ask.ListReady, _list_ready, "/api/tasks/ready", "ready"),
    _write(
        "update_steps", cmd.UpdateSteps, _change, f"PUT {_ONE}/steps", "changed", idempotent=True
    ),
    _write(
        "update_step",
        cmd.UpdateStep,
        _change,
        f"PATCH {_ONE}/steps/{{index}}",
        "changed",
        idempotent=True,
    ),
    _waiting_operation(
        "create_subtask",
        cmd.CreateSubtask,
        delegate.create_subtask,
        f"POST {_ONE}/subtasks",
        "created",
    ),
    _write("add_resource", cmd.AddResource, _change, f"POST {_ONE}/resources", "changed"),
    Operation(
        "remove_resource",
        cmd.RemoveResource,
        _change,
        SHAPES["changed"],
        "DELETE",
        f"{_ONE}/resources/{{index}}",
        "destroy",
    ),
    _read("list_updates", ask.ListUpdates, _list_updates, f"{_ONE}/updates", "updates"),
    _read("get_events", ask.GetEvents, _get_events, f"{_ONE}/events", "events"),
    _write("send_message", cmd.SendMessage, _send_message, f"POST {_ONE}/messages", "sent"),
    _read(
        "list_interactions",
        ask.ListInteractions,
        _list_interactions,
        "/api/interactions",
        "interactions",
    ),
    _write(
        "respond",
        cmd.Respond,
        _acknowledge,
        "POST /api/interactions/{interaction_id}/respond",
        "success",
    ),
    _read(
        "list_notifications",
        ask.ListNotifications,
        _list_notifications,
        "/api/notifications",
        "notifications",
    ),
    _write("create_guide", cmd.CreateGuide, _create_guide, "POST /api/guides", "guide_created"),
    _read("get_guide", ask.GetGuide, _get_guide, "/api/guides/{guide_id}", "guide"),
    _read("list_guides", ask.ListGuides, _list_guides, "/api/guides", "guides"),
    _read("list_agents", ask.ListAgents, _list_agents, "/api/agents", "agents"),
    _read("get_agent", ask.GetAgent, _get_agent, "/api/agents/{agent_id}", "agent"),
    _read("get_transcript", ask.GetTranscript, _get_transcript, f"{_ONE}/transcript", "transcript"),
    _waiting_operation(
        "task", give.DelegateTask, delegate.delegate_task, "POST /api/delegate", "envelope"
    ),
    _waiting_operation(
        "task_parallel",
        give.DelegateParallel,
        delegate.delegate_parallel,
        "POST /api/delegate/parallel",
        "results",
    ),
    _waiting_operation(
        "Task", give.LaunchTask, delegate.launch, "POST /api/delegate/launch", "envelope"
    ),
    _waiting_operation(
        "task_output", give.TaskOutput, delegate.task_output, f"GET {_ONE}/result", "envelope"
    ),
    _read(
        "list_session_tasks",
        ask.ListSessionTasks,
        _list_session_tasks,
        f"{_SESSION}/tasks",
        "ready",
    ),
    _write(
        "pre_request",
        give.PreRequest,
        sessions.pre_request,
        f"POST {_SESSION}/pre-request",
        "told",
    ),
    Operation(
        "cancel_all",
        give.CancelAll,
        cancel_all,
        SHAPES["canceled"],
        "POST",
        f"{_SESSION}/cancel",
        "destroy",
    ),
    Operation(
        "ask_user",
        cmd.AskUser,
        _ask_user,
        shape(interaction_id={"type": "string"}),
        audience="agents",
    ),
    Operation("notify_user", cmd.NotifyUser, _acknowledge, SHAPES["success"], audience="agents"),
)

OPERATIONS: dict[str, Operation] = {operation.name: operation for operation in _TABLE}
OPERATIONS["mark_task_complete"] = OPERATIONS["complete_task"]._replace(
    name="mark_task_complete", alias_of="complete_task"
)

FOR_EVERYONE: dict[str, Operation] = {
    name: operation for name, operation in OPERATIONS.items() if operation.audience == "everyone"
}
"""The operations for people and outside programs."""
