"""The one table of operations: every surface follows from it."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import aclosing, contextmanager
from typing import Any, Literal, NamedTuple, cast

from remit.app import delegate, query, session
from remit.app.agents import Agent, AgentRegistry
from remit.app.attendance import unknown_agents
from remit.app.conversation import Conversation, delegates, ending, reports, transcript, unanswered
from remit.app.core import Caller, Core
from remit.app.progress import spoken
from remit.app.roles import for_grant
from remit.app.service import Outcome
from remit.app.view import hold_for_agent, of_unknown_agents
from remit.catalog.output import IN_LISTS, SHAPES, shape
from remit.domain import command as cmd
from remit.domain import delegation as give
from remit.domain import question as ask
from remit.domain.policy import agent_of
from remit.domain.record import fields
from remit.domain.shape import parse
from remit.domain.value import Task
from remit.domain.wire import plain
from remit.errors import Conflict, NotFound, RemitError, advice, invalid

Result = dict[str, Any]
Handler = Callable[[Core, Any, Caller], Awaitable[Result]]
Stream = Callable[[Core, Any, Caller, bool], AsyncGenerator[Result, None]]
Effect = Literal["read", "write", "destroy"]
Audience = Literal["everyone", "agents"]
ENVELOPED = ("task", "task_parallel", "Task")


class Operation(NamedTuple):
    """One thing that can be asked of remit, the same on every surface."""

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
    """The same for whoever wants to know what goes on while it waits."""

    @property
    def description(self) -> str:
        """What it does, in the words of its input."""
        return str(self.input.__doc__)


async def call(core: Core, name: str, fields: Mapping[str, Any], caller: Caller) -> Result:
    """Check what was sent and carry out an operation; the one way in for every surface."""
    operation = _operation(name)
    with enveloped(name, fields):
        return await operation.handler(core, parse(operation.input, fields), caller)


async def attend(core: Core, name: str, fields: Mapping[str, Any], caller: Caller) -> AsyncGenerator[Result, None]:
    """The same for an operation that may wait: progress, each result as it comes, and last `end` with the answer.

    While nothing happens, how the tasks stand is repeated every `core.progress_seconds`. An error that is
    found before that is raised before the first item. Closing the generator ends the wait, not the work.
    """
    async with aclosing(spoken(_items(core, name, fields, caller), core.progress_seconds)) as items:
        async for item in items:
            yield item


async def _items(core: Core, name: str, fields: Mapping[str, Any], caller: Caller) -> AsyncGenerator[Result, None]:
    operation = _operation(name)
    if operation.stream is None:
        waiting = ", ".join(name for name, operation in OPERATIONS.items() if operation.stream is not None)
        raise invalid("operation", f"is {name}, which never waits", f"one of {waiting}")
    with enveloped(name, fields):
        async with aclosing(operation.stream(core, parse(operation.input, fields), caller, True)) as items:
            async for item in items:
                yield item


@contextmanager
def enveloped(name: str, fields: Mapping[str, Any]) -> Generator[None, None, None]:
    """A delegation that is refused is told in the envelope of every delegation."""
    try:
        yield
    except RemitError as refused:
        if name in ENVELOPED:
            refused.around = delegate.refusal(refused, fields)
        raise


def _operation(name: str) -> Operation:
    operation = OPERATIONS.get(name)
    if operation is None:
        raise NotFound(f"There is no operation {name}.", details={"operation": name})
    return operation


# Handlers: what is returned, and nothing else. Rules are in the domain.


async def _created(core: Core, command: Any, caller: Caller) -> Result:
    outcome = await core.do(command, caller)
    return {"task_id": outcome.task_id, "task": await _task(core, outcome.task_id)}


async def _made(core: Core, command: cmd.CreateTask, caller: Caller) -> Result:
    outcome = await core.do(command, caller)
    notice = delegate.noticed(core, command, outcome, "the caller")
    return {"task_id": outcome.task_id, "task": await _task(core, outcome.task_id), **notice}


async def _changed(core: Core, command: Any, caller: Caller) -> Result:
    outcome = await core.do(command, caller)
    return {"success": True, "task": await _task(core, outcome.task_id)}


async def _updated(core: Core, command: cmd.UpdateTask, caller: Caller) -> Result:
    outcome = await core.do(command, caller)
    return {"success": True, **_update_ids(outcome), "task": await _task(core, outcome.task_id)}


def _update_ids(outcome: Outcome) -> Result:
    return {"update_id": outcome.update_ids[0], "update_ids": list(outcome.update_ids)} if outcome.update_ids else {}


async def _canceled(core: Core, command: cmd.CancelTask, caller: Caller) -> Result:
    return {"success": True, "canceled": list((await core.do(command, caller)).canceled)}


async def _succeeded(core: Core, command: Any, caller: Caller) -> Result:
    await core.do(command, caller)
    return {"success": True}


async def _sent(core: Core, command: cmd.SendMessage, caller: Caller) -> Result:
    outcome = await core.do(command, caller)
    assert outcome.task is not None
    return {"success": True, "update_id": outcome.update_ids[0], "delivery": _delivery(outcome.task)}


def _delivery(task: Task) -> str:
    """When the agent, or the session that works on a task, reads a message."""
    if task.session_id is not None:
        return f"with the next request of session {task.session_id}"
    return "with the next model request of the live run" if task.run is not None else "with the first model request of the next run"


async def _asked(core: Core, command: cmd.AskUser, caller: Caller) -> Result:
    outcome = await core.do(command, caller)
    assert outcome.task is not None
    return {"interaction_id": outcome.task.questions[-1].id}


async def _guide_created(core: Core, command: cmd.CreateGuide, caller: Caller) -> Result:
    outcome = await core.do(command, caller)
    return {"guide_id": outcome.entries[0].stream.partition("/")[2]}


async def _get_task(core: Core, request: ask.GetTask, _: Caller) -> Result:
    return await _task(core, request.task_id)


async def _task(core: Core, ref: str) -> Result:
    """A whole task; `held_by` also says whether its agent is known."""
    view = await core.task(ref)
    await _with_agents(core, [view])
    return view


async def _with_agents(core: Core, views: list[Result]) -> list[Result]:
    """Record in views that neither this process nor a live worker knows the agent of a task; those views."""
    candidates = of_unknown_agents(views, core.agents.ids())
    unknown = await unknown_agents(core, {view["owner"] for view in candidates})
    found = [view for view in candidates if view["owner"] in unknown]
    for view in found:
        hold_for_agent(view)
    return found


async def _run(core: Core, command: cmd.RunTask, caller: Caller) -> Result:
    """Run a task now, unless its agent is not known, in which case no worker would ever start it."""
    task = await core.task(command.task_id)
    owner = task["owner"]
    live = task["archived_at"] is None and task["session_id"] is None
    if live and owner and await unknown_agents(core, [owner]):
        raise Conflict(
            f"Agent {owner!r}, which owns task {task['id']}, is not known here, and no live worker works for it.",
            hint=f"Restore its file, or give the task another owner with update_task. {advice(owner, core.agents.ids())}",
            details={"task_id": task["id"], "agent": owner},
        )
    return await _changed(core, command, caller)


async def _list_tasks(core: Core, request: ask.ListTasks, caller: Caller) -> Result:
    page = await core.ask(
        query.list_tasks(
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
    return page | {"agents": sorted(core.agents.ids()), "in_flight": await core.ask(query.in_flight())}


def _owner(request: ask.ListTasks, caller: Caller, agents: AgentRegistry) -> str | None:
    """An agent sees its own tasks unless it asks for others; a person sees all."""
    agent = agent_of(caller.actor)
    if request.scope == "mine" and agent is None:
        raise invalid("scope", f"is 'mine', but {caller.actor} is no agent and owns no tasks", "all, or tree with a parent")
    named = request.parent_session is not None or request.parent is not None
    mine = request.scope == "mine" or (request.scope is None and agent is not None and not named)
    if mine and request.owner is None:
        return agent
    return None if request.owner is None else agents.meant(request.owner)


def _tree(request: ask.ListTasks) -> str | None:
    if request.scope != "tree":
        return None
    if request.parent is None:
        raise invalid("parent", "is missing", "a task of the tree that scope: tree is to show")
    return request.parent


async def _list_session_tasks(core: Core, request: ask.ListSessionTasks, _: Caller) -> Result:
    page = await core.ask(
        query.list_session_tasks(
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


async def _list_history(core: Core, request: ask.ListHistory, _: Caller) -> Result:
    return await core.ask(query.list_history(limit=request.limit, cursor=request.cursor))


async def _list_ready(core: Core, request: ask.ListReady, _: Caller) -> Result:
    page = await core.ask(query.list_ready(now=core.now(), limit=request.limit, cursor=request.cursor))
    unknown = await _with_agents(core, page["tasks"])
    return page | {"tasks": [view for view in page["tasks"] if view not in unknown]}


async def _list_updates(core: Core, request: ask.ListUpdates, _: Caller) -> Result:
    return await core.ask(query.list_updates(request.task_id, after=request.after))


async def _get_events(core: Core, request: ask.GetEvents, _: Caller) -> Result:
    return await core.ask(query.get_events(request.task_id, after=request.after, limit=request.limit))


async def _get_transcript(core: Core, request: ask.GetTranscript, _: Caller) -> Result:
    from remit.app.handover import children_by_call

    task = await core.service.load((await core.task(request.task_id))["id"])
    talk = await Conversation.load(core.store, task.id)
    said = [item for item in talk.rows if item.number > request.after]
    children = await children_by_call(task, core.service.tasks) if delegates(said) else {}
    ended = await reports(core.store, task.id, said, core.service.tasks)
    messages = transcript(said, talk.calls, children, ended)
    last = said[-1].number if said else None
    if not talk.said and request.after == 0 and (first := unanswered(task)) is not None:
        messages = [first]
    # The end stands behind the last message and counts as one, so that nobody reads it twice.
    number = (talk.rows[-1].number if talk.rows else 0) + 1
    if number > request.after and (end := ending(task, talk.rows)) is not None:
        messages, last = [*messages, end], number
    return {"messages": messages, "next": last}


async def _list_interactions(core: Core, request: ask.ListInteractions, _: Caller) -> Result:
    return await core.ask(query.list_interactions(status=request.status, task_id=request.task_id, limit=request.limit, cursor=request.cursor))


async def _list_notifications(core: Core, request: ask.ListNotifications, _: Caller) -> Result:
    return await core.ask(query.list_notifications(limit=request.limit, cursor=request.cursor))


async def _get_guide(core: Core, request: ask.GetGuide, _: Caller) -> Result:
    return await core.ask(query.get_guide(request.guide_id))


async def _list_guides(core: Core, request: ask.ListGuides, _: Caller) -> Result:
    return await core.ask(query.list_guides(limit=request.limit, cursor=request.cursor))


async def _list_agents(core: Core, _request: ask.ListAgents, _: Caller) -> Result:
    return {"agents": [_shown(agent, IN_LISTS) for agent in core.agents.all()]}


async def _get_agent(core: Core, request: ask.GetAgent, _: Caller) -> Result:
    agent = core.agents.find(request.agent_id)
    if agent is None:
        raise NotFound(f"There is no agent {request.agent_id}.", hint=advice(request.agent_id, core.agents.ids()))
    told = {"prompt": for_grant(agent.prompt, agent.tools)}
    return _shown(agent, fields(agent)) | told | {"extra": {name: _kept(value) for name, value in agent.extra.items()}}


def _shown(agent: Agent, names: Iterable[str]) -> Result:
    return {name: plain(getattr(agent, name)) for name in names}


def _kept(value: Any) -> Any:
    """What a file says beyond what remit understands; settings of servers and hooks, which may hold secrets, are not passed on."""
    inner = cast("list[Any]", value) if isinstance(value, list | tuple) else [value]
    return "(kept)" if any(isinstance(item, dict | list) for item in inner) else cast("Any", value)


# The table.

_ONE = "/api/tasks/{task_id}"
_SESSION = "/api/sessions/{session_id}"


def _read(name: str, request: type[Any], handler: Handler, path: str, output: str) -> Operation:
    return Operation(name, request, handler, SHAPES[output], "GET", path, "read", idempotent=True)


def _write(name: str, command: type[Any], handler: Handler, route: str, output: str, *, idempotent: bool = False) -> Operation:
    method, path = route.split(" ")
    return Operation(name, command, handler, SHAPES[output], method, path, "write", idempotent)


def _waiting(name: str, request: type[Any], stream: Stream, route: str, output: str) -> Operation:
    """An operation that may wait; without a listener its answer is the end of its stream."""

    async def handler(core: Core, command: Any, caller: Caller) -> Result:
        last: Result = {}
        async with aclosing(stream(core, command, caller, False)) as items:
            async for item in items:
                last = item
        answer: Result = last["answer"]
        return answer

    method, path = route.split(" ")
    effect: Effect = "read" if method == "GET" else "write"
    return Operation(name, request, handler, SHAPES[output], method, path, effect, idempotent=effect == "read", stream=stream)


_TABLE = (
    _write("create_task", cmd.CreateTask, _made, "POST /api/tasks", "created"),
    _read("get_task", ask.GetTask, _get_task, _ONE, "task"),
    _read("list_tasks", ask.ListTasks, _list_tasks, "/api/tasks", "tasks"),
    _write("update_task", cmd.UpdateTask, _updated, f"PATCH {_ONE}", "updated"),
    _write("complete_task", cmd.CompleteTask, _changed, f"POST {_ONE}/complete", "changed"),
    _write("fail_task", cmd.FailTask, _changed, f"POST {_ONE}/fail", "changed"),
    _write("waive_criterion", cmd.WaiveCriterion, _changed, f"POST {_ONE}/criteria/{{criterion_id}}/waive", "changed"),
    Operation("cancel_task", cmd.CancelTask, _canceled, SHAPES["canceled"], "POST", f"{_ONE}/cancel", "destroy"),
    _write("pause_task", cmd.PauseTask, _changed, f"POST {_ONE}/pause", "changed"),
    _write("resume_task", cmd.ResumeTask, _changed, f"POST {_ONE}/resume", "changed"),
    _write("run_task", cmd.RunTask, _run, f"POST {_ONE}/run", "changed"),
    _write("rerun_task", cmd.RerunTask, _created, f"POST {_ONE}/rerun", "created"),
    _write("assign_task", cmd.AssignTask, _succeeded, f"POST {_ONE}/assign", "success", idempotent=True),
    _write("attach_tsg", cmd.AttachTsg, _succeeded, f"POST {_ONE}/guides", "success", idempotent=True),
    _read("list_history", ask.ListHistory, _list_history, "/api/tasks/history", "history"),
    _read("list_ready", ask.ListReady, _list_ready, "/api/tasks/ready", "ready"),
    _write("update_steps", cmd.UpdateSteps, _changed, f"PUT {_ONE}/steps", "changed", idempotent=True),
    _write("update_step", cmd.UpdateStep, _changed, f"PATCH {_ONE}/steps/{{index}}", "changed", idempotent=True),
    _waiting("create_subtask", cmd.CreateSubtask, delegate.subtask, f"POST {_ONE}/subtasks", "created"),
    _write("add_resource", cmd.AddResource, _changed, f"POST {_ONE}/resources", "changed"),
    Operation("remove_resource", cmd.RemoveResource, _changed, SHAPES["changed"], "DELETE", f"{_ONE}/resources/{{index}}", "destroy"),
    _read("list_updates", ask.ListUpdates, _list_updates, f"{_ONE}/updates", "updates"),
    _read("get_events", ask.GetEvents, _get_events, f"{_ONE}/events", "events"),
    _write("send_message", cmd.SendMessage, _sent, f"POST {_ONE}/messages", "sent"),
    _read("list_interactions", ask.ListInteractions, _list_interactions, "/api/interactions", "interactions"),
    _write("respond", cmd.Respond, _succeeded, "POST /api/interactions/{interaction_id}/respond", "success"),
    _read("list_notifications", ask.ListNotifications, _list_notifications, "/api/notifications", "notifications"),
    _write("create_guide", cmd.CreateGuide, _guide_created, "POST /api/guides", "guide_created"),
    _read("get_guide", ask.GetGuide, _get_guide, "/api/guides/{guide_id}", "guide"),
    _read("list_guides", ask.ListGuides, _list_guides, "/api/guides", "guides"),
    _read("list_agents", ask.ListAgents, _list_agents, "/api/agents", "agents"),
    _read("get_agent", ask.GetAgent, _get_agent, "/api/agents/{agent_id}", "agent"),
    _read("get_transcript", ask.GetTranscript, _get_transcript, f"{_ONE}/transcript", "transcript"),
    _waiting("task", give.DelegateTask, delegate.one, "POST /api/delegate", "envelope"),
    _waiting("task_parallel", give.DelegateParallel, delegate.several, "POST /api/delegate/parallel", "results"),
    _waiting("Task", give.LaunchTask, delegate.launched, "POST /api/delegate/launch", "envelope"),
    _waiting("task_output", give.TaskOutput, delegate.output, f"GET {_ONE}/result", "envelope"),
    _read("list_session_tasks", ask.ListSessionTasks, _list_session_tasks, f"{_SESSION}/tasks", "ready"),
    _write("pre_request", give.PreRequest, session.pre_request, f"POST {_SESSION}/pre-request", "told"),
    Operation("cancel_all", give.CancelAll, delegate.cancel_all, SHAPES["canceled"], "POST", f"{_SESSION}/cancel", "destroy"),
    Operation("ask_user", cmd.AskUser, _asked, shape(interaction_id={"type": "string"}), audience="agents"),
    Operation("notify_user", cmd.NotifyUser, _succeeded, SHAPES["success"], audience="agents"),
)

OPERATIONS: dict[str, Operation] = {operation.name: operation for operation in _TABLE}
OPERATIONS["mark_task_complete"] = OPERATIONS["complete_task"]._replace(name="mark_task_complete", alias_of="complete_task")

FOR_EVERYONE: dict[str, Operation] = {name: operation for name, operation in OPERATIONS.items() if operation.audience == "everyone"}
"""What people and outside programs are offered."""
