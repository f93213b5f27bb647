"""Given, when, then: tasks out of events, commands carried out in memory, nothing stored."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar, assert_never, cast

from remit.app.agents.registry import AgentRegistry
from remit.domain.decisions.context import Context
from remit.domain.decisions.creation import NewIds
from remit.domain.decisions.decide import TaskCommand, decide
from remit.domain.decisions.evolve import apply_events, evolve
from remit.domain.outputs.criteria import files_to_check
from remit.domain.outputs.required_outputs import FileFinding
from remit.domain.planning import lookups as ask
from remit.domain.planning.plan import plan
from remit.domain.projection.stored_usage import StoredUsage
from remit.domain.task import commands as cmd
from remit.domain.task import events as ev
from remit.domain.task.task import Child, Criterion, State, Step, Task, Tools

NOW = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)
ANN, BOB = "user:ann", "user:bob"
BUILD, PLAN, SCHEDULER = "agent:build", "agent:plan", "system:scheduler"
AGENTS = frozenset({"build", "explore", "general", "plan"})

T = TypeVar("T")


def created(task_id: str = "1", **fields: Any) -> ev.TaskCreated:
    """A task of the agent `build`."""
    known: dict[str, Any] = {
        "id": task_id,
        "uid": uid(task_id),
        "thread_id": f"thread-{task_id}",
        "title": "Fix the build",
        "description": "It is red",
        "instructions": "Make it green",
        "owner": "build",
        "root_id": task_id,
    }
    return ev.TaskCreated(**{**known, **fields})


def uid(number: str) -> str:
    """A uid that shows whose it is."""
    return f"00000000-0000-7000-8000-{int(number):012d}"


CREATED = created()
STARTED = ev.TaskStarted()
RUN = ev.RunStarted(run_id="1-r000001", worker="w1")
STARTED_RUN = (STARTED, RUN)
RUNNING = (CREATED, *STARTED_RUN)
YIELDED = ev.RunYielded(run_id="1-r000001")
IDLE = ev.RunYielded(run_id="1-r000001", tick=True)
QUESTION = ev.UserInteractionRequested(
    interaction_id="1-q1", question="Which one?", call_id="call-1"
)
CHILD = ev.SubtaskLinked(child_id="2")
AWAITED = ev.SubtaskAwaited(child_id="2", call_id="call-2")
TIMER = ev.TimerSet(timer_id="1-t1", due_at=NOW + timedelta(hours=1))
CHECKED = Criterion(id="c1", text="The tests pass", check={"file": "green"})
STATED = Criterion(id="c2", text="It reads well")

DRAFT = (created(draft=True),)
PENDING = (CREATED,)
SESSION = (created(session_id="s1"),)
SESSION_RUNNING = (*SESSION, STARTED, ev.UpdateDelivered(update_ids=(), session_id="s1"))
WAITING_USER = (*RUNNING, QUESTION, YIELDED)
WAITING_CALL = (*RUNNING, CHILD, AWAITED, YIELDED)
WAITING_TICK = (*RUNNING, IDLE)
WAITING_TIMER = (*RUNNING, TIMER, YIELDED)
WAITING_WAKE = (*RUNNING, CHILD, IDLE)
PAUSED = (CREATED, ev.TaskPaused())
VERIFYING = (
    created(acceptance=(CHECKED,)),
    *STARTED_RUN,
    ev.CompletionClaimed(run_id="1-r000001", summary="Green again"),
)
DONE = (*RUNNING, ev.CompletionClaimed(run_id="1-r000001"), ev.TaskCompleted(verification="none"))
FAILED = (*RUNNING, ev.TaskFailed(reason="error", message="No way"))
CANCELED = (*RUNNING, ev.TaskCanceled(reason="user"))

LIVE: Mapping[str, tuple[ev.Event, ...]] = {
    "draft": DRAFT,
    "pending": PENDING,
    "running": RUNNING,
    "running for a session": SESSION_RUNNING,
    "waiting for a person": WAITING_USER,
    "waiting for a call": WAITING_CALL,
    "waiting for a tick": WAITING_TICK,
    "waiting for a timer": WAITING_TIMER,
    "waiting for wake children": WAITING_WAKE,
    "paused": PAUSED,
    "verifying": VERIFYING,
}
ENDED: Mapping[str, tuple[ev.Event, ...]] = {"done": DONE, "failed": FAILED, "canceled": CANCELED}


class Later(NamedTuple):
    """An event some seconds after the beginning."""

    seconds: float
    event: ev.Event


def given(*events: ev.Event | Later, actor: str = ANN) -> Task:
    """The task that these events add up to."""
    task: Task | None = None
    for version, (seconds, event) in enumerate(
        (item if isinstance(item, Later) else Later(0, item) for item in events), 1
    ):
        at = NOW + timedelta(seconds=seconds)
        stream = task.id if task else cast("ev.TaskCreated", event).id
        task = evolve(
            task, ev.Entry(id="", stream=stream, version=version, at=at, actor=actor, event=event)
        )
    assert task is not None
    return task


def events(
    task: Task,
    command: TaskCommand,
    actor: str = ANN,
    run_id: str | None = None,
    seconds: float = 0,
) -> list[ev.Event]:
    """The events that a command on one task causes."""
    return decide(
        task, command, Context(actor=actor, now=NOW + timedelta(seconds=seconds), run_id=run_id)
    )


def then(
    task: Task,
    *commands: TaskCommand,
    actor: str = ANN,
    run_id: str | None = None,
    seconds: float = 0,
) -> Task:
    """The task after some commands."""
    for command in commands:
        for event in events(task, command, actor, run_id, seconds):
            at = NOW + timedelta(seconds=seconds)
            task = evolve(
                task,
                ev.Entry(
                    id="", stream=task.id, version=task.version + 1, at=at, actor=actor, event=event
                ),
            )
    return task


def judged(task: Task, *found: bool | None, why: str = "2 failed") -> Task:
    """The task after its criteria were checked: the files that are looked for are there, or not,
    or nobody can tell.
    """
    files = {
        wanted: FileFinding(there, "" if there else why)
        for wanted, there in zip(files_to_check(task), found, strict=True)
    }
    checked = decide(
        task, cmd.CheckCriteria(task_id=task.id), Context(actor=SCHEDULER, now=NOW, files=files)
    )
    return apply_events(task, checked, SCHEDULER, NOW)


def by_run(task: Task, *commands: TaskCommand, seconds: float = 0) -> Task:
    """The task after what its live run, which its agent is in, says."""
    for command in commands:
        assert task.run is not None, "no run is live"
        task = then(task, command, actor=f"agent:{task.owner}", run_id=task.run.id, seconds=seconds)
    return task


def run_once(task: Task, *said: TaskCommand) -> Task:
    """The task after a new run that says some things."""
    return by_run(then(task, cmd.StartRun(task_id=task.id, worker="w1"), actor=SCHEDULER), *said)


def finish(text: str = "All green", **fields: Any) -> cmd.FinishRun:
    """A final message."""
    return cmd.FinishRun(task_id="1", final_message=text, **fields)


def finish_twice(text: str = "All green") -> tuple[TaskCommand, ...]:
    """A final message, the reminder of what it left open, and a final message again."""
    return finish(text), cmd.DeliverUpdates(task_id="1"), finish(text)


def plan_of(*titles: str) -> tuple[Step, ...]:
    """Open steps."""
    return tuple(Step(title=title) for title in titles)


def only(kind: type[T], found: Iterable[object]) -> T:
    """The one event of a kind."""
    (event,) = (item for item in found if isinstance(item, kind))
    return event


@dataclass
class World:
    """A small forest of tasks in memory that answers whatever `plan` asks."""

    tasks: dict[str, Task] = field(default_factory=dict[str, Task])
    entries: list[ev.Entry] = field(default_factory=list[ev.Entry])
    guides: set[str] = field(default_factory=set[str])
    keys: dict[str, ev.KeyClaimed] = field(default_factory=dict[str, ev.KeyClaimed])
    lost: dict[str, str] = field(default_factory=dict[str, str])
    answers: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    last_id: int = 0
    now: datetime = NOW

    def plan(self, command: cmd.Command, actor: str = ANN, run_id: str | None = None) -> ask.Plan:
        """The plan of a command."""
        return asked(command, Context(actor=actor, now=self.now, run_id=run_id), self)

    def do(self, command: cmd.Command, actor: str = ANN, run_id: str | None = None) -> Task:
        """Carry a command out; the task it was about, or the new one."""
        decided = self.plan(command, actor, run_id)
        for stream, happened in decided.events.items():
            known = self.tasks.get(stream)
            by = decided.actors.get(stream, actor)
            signers = ev.signers(happened, by, known.owner if known else None)
            for event, signer in zip(happened, signers, strict=True):
                self.happen(stream, event, signer)
        self.tell(decided)
        return self.tasks[decided.task_id] if decided.task_id else next(iter(self.tasks.values()))

    def tell(self, decided: ask.Plan) -> None:
        """Inform the parent of an ended task, as the queue does."""
        ended = [
            stream
            for stream in decided.events
            if stream in self.tasks and self.tasks[stream].state.terminal
        ]
        for parent in sorted({self.tasks[task_id].parent_id or "" for task_id in ended} - {""}):
            self.do(cmd.SettleSubtasks(task_id=parent), SCHEDULER)

    def by_run(self, command: cmd.Command) -> Task:
        """Carry out what the live run of a task says."""
        task = self.tasks[cast("Any", command).task_id]
        assert task.run is not None, "no run is live"
        return self.do(command, f"agent:{task.owner}", task.run.id)

    def start(self, task_id: str) -> Task:
        """Start a run, as a worker does."""
        return self.do(cmd.StartRun(task_id=task_id, worker="w1"), SCHEDULER)

    def add(
        self,
        title: str = "Fix the build",
        *,
        under: str | None = None,
        actor: str = ANN,
        **fields: Any,
    ) -> str:
        """A new task, below another if one is named; its id."""
        whole = {"title": title, "owner": "build", **fields}
        return self.do(
            cmd.CreateSubtask(task_id=under, **whole) if under else cmd.CreateTask(**whole), actor
        ).id

    def has(self, *happened: ev.Event) -> Task:
        """Put a task there as it came to be elsewhere."""
        task = given(*happened)
        self.tasks[task.id] = task
        self.last_id = max(self.last_id, int(task.id))
        return task

    def happen(self, stream: str, event: Any, actor: str) -> None:
        """One more event in a stream."""
        before = self.tasks.get(stream)
        version = before.version + 1 if before else 1
        entry = ev.Entry(
            id=f"e{len(self.entries) + 1}",
            stream=stream,
            version=version,
            at=self.now,
            actor=actor,
            event=event,
        )
        self.entries.append(entry)
        if isinstance(event, ev.KeyClaimed):
            self.keys[stream] = event
        elif isinstance(event, ev.GuideCreated):
            self.guides.add(event.id)
        else:
            self.tasks[stream] = evolve(before, entry)
            self._remember(before, event, actor)

    def _remember(self, before: Task | None, event: Any, actor: str) -> None:
        if isinstance(event, ev.UserInteractionRequested):
            self.answers[event.interaction_id] = {
                "status": "open",
                "answer": None,
                "answered_by": None,
                "answered_at": None,
            }
        if isinstance(event, ev.UserInteractionResponded):
            self.answers[event.interaction_id] |= {
                "status": "answered",
                "answer": event.answer,
                "answered_by": actor,
            }
        if (
            isinstance(event, ev.TaskCompleted | ev.TaskFailed | ev.TaskCanceled)
            and before is not None
        ):
            self.answers |= {
                question.id: {"status": "closed", "answer": None, "answered_by": None}
                for question in before.questions
            }


def asked(command: cmd.Command, context: Context, world: World) -> ask.Plan:
    """Drive `plan` to its end with what a world knows."""
    deciding = plan(command, context)
    answer: Any = None
    while True:
        try:
            need = deciding.send(answer)
        except StopIteration as decided:
            return cast("ask.Plan", decided.value)
        answer = _answer(need, world)


def _answer(need: ask.Lookup, world: World) -> Any:
    tasks = world.tasks
    match need:
        case ask.Load(refs=refs):
            by_uid = {task.uid: task for task in tasks.values()}
            return {ref: tasks.get(ref) or by_uid.get(ref) for ref in refs}
        case ask.Dependents(task_id=task_id):
            return tuple(
                task
                for task in tasks.values()
                if any(item.task_id == task_id for item in task.depends_on)
            )
        case ask.EndedChildren(task_id=task_id):
            return frozenset(
                task.id
                for task in tasks.values()
                if task.parent_id == task_id and task.state.terminal
            )
        case ask.TaskEnds(ids=ended_ids):
            return {task_id: ask.End.of(tasks[task_id]) for task_id in ended_ids}
        case ask.KnownGuides(ids=guide_ids):
            return frozenset(guide_ids) & world.guides
        case ask.KnownAgents():
            return AGENTS
        case ask.Granted(agent_id=agent_id, tools=asked_for):
            return AgentRegistry().grant(agent_id, asked_for)
        case ask.KnownTools():
            return AgentRegistry().tool_names()
        case ask.ClaimedKey(stream=stream):
            return world.keys.get(stream)
        case ask.Answer(interaction_id=interaction_id):
            return world.answers.get(interaction_id)
        case ask.SeenFiles(files=files):
            return {
                wanted: FileFinding(wanted.path not in world.lost, world.lost.get(wanted.path, ""))
                for wanted in files
            }
        case ask.NextSlot(after=after):
            return after.replace(minute=0) + timedelta(hours=1)
        case ask.TaskAtStart(task_id=task_id):
            return _at_start(world, task_id)
        case ask.LiveOfSeries(series_id=series_id):
            alive = [
                task
                for task in tasks.values()
                if series_id in (task.id, task.series_id) and not task.state.terminal
            ]
            return alive[-1] if alive else None
        case ask.UnattendedSince():
            return {}
        case ask.UsageInStore(task_ids=ids):
            return {task_id: StoredUsage() for task_id in ids}
        case ask.NewTaskIds():
            return _fresh(world)
        case ask.ManyTaskIds(count=count):
            return [_fresh(world) for _ in range(count)]
        case _:
            assert_never(need)


def _at_start(world: World, task_id: str) -> Task | None:
    task: Task | None = None
    for entry in world.entries:
        if entry.stream == task_id and isinstance(entry.event, ev.TaskStarted):
            return task
        if entry.stream == task_id:
            task = evolve(task, entry)
    return None


def _fresh(world: World) -> NewIds:
    world.last_id += 1
    return NewIds(
        id=str(world.last_id), uid=uid(str(world.last_id)), thread_id=f"thread-{world.last_id}"
    )


def child_of(world: World, parent_id: str, child_id: str) -> Child:
    """A subtask as its parent knows it."""
    return next(child for child in world.tasks[parent_id].children if child.id == child_id)


def at_depth(world: World, depth: int) -> str:
    """A task that far below a root."""
    task_id = world.add()
    for _ in range(depth):
        task_id = world.add(under=task_id)
    return task_id


def permits(tools: Tools, tool: str) -> bool:
    """Return whether a grant alone allows a tool."""
    return tool not in tools.deny and (tools.allow is None or tool in tools.allow)


def states(world: World) -> dict[str, State]:
    """The state of each task."""
    return {task_id: task.state for task_id, task in world.tasks.items()}
