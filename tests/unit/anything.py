"""Random moves on a small forest of tasks: mostly what makes sense for a task as it is,
sometimes anything at all.
"""

from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any, NamedTuple, get_args

from remit.domain.task import commands as cmd
from remit.domain.task.task import (
    Dependency,
    Limits,
    Output,
    Resource,
    Schedule,
    State,
    Task,
    ToolCount,
    Tools,
    Usage,
)
from tests.unit.given import ANN, BOB, BUILD, NOW, PLAN, SCHEDULER, World

TOOLS = ("Read", "Edit", "Bash")
WORDS = ("Look", "Build", "Ship")


class Move(NamedTuple):
    """A command, who says it, under which run's fence, and how much later."""

    command: cmd.Command
    actor: str
    run_id: str | None
    seconds: int


def some_move(random: Random, world: World) -> Move:
    """The next thing that happens in a world."""
    task = random.choice(
        [task for task in world.tasks.values() if not task.state.terminal]
        or list(world.tasks.values())
    )
    if random.random() < 0.15:
        task = random.choice(list(world.tasks.values()))
    kind = random.choice(_fitting(task)) if random.random() < 0.65 else random.choice(ALL)
    run_id = task.run.id if task.run and (kind in OF_A_RUN or random.random() < 0.2) else None
    actor = BUILD if run_id else random.choice((ANN, ANN, BOB, BUILD, PLAN, SCHEDULER))
    if random.random() < 0.05:
        run_id = f"{task.id}-r009999"
    return Move(FIELDS[kind](random, world, task), actor, run_id, random.choice((0, 1, 30)))


OF_A_RUN: tuple[type[Any], ...] = (
    cmd.DeliverUpdates,
    cmd.AskUser,
    cmd.AwaitSubtask,
    cmd.SetTimer,
    cmd.YieldRun,
    cmd.VouchResult,
    cmd.FinishRun,
    cmd.ReleaseRun,
    cmd.FailRun,
    cmd.TimeOutRun,
    cmd.SettleBudget,
)
ALL: tuple[type[Any], ...] = (
    *get_args(cmd.Operation),
    *get_args(cmd.Signal),
    cmd.EndTime,
    cmd.ExcludeDowntime,
    cmd.UpdateTask,
    cmd.CreateSubtask,
)


def _fitting(task: Task) -> tuple[type[Any], ...]:
    """Kinds of commands that are likely to be accepted."""
    match task.state:
        case State.DRAFT | State.PENDING:
            return (
                cmd.StartRun,
                cmd.StartRun,
                cmd.StartRun,
                cmd.DeliverUpdates,
                cmd.UpdateTask,
                cmd.CreateSubtask,
            )
        case State.RUNNING:
            return (
                *OF_A_RUN,
                cmd.AwaitSubtask,
                cmd.CreateSubtask,
                cmd.UpdateSteps,
                cmd.CompleteTask,
                cmd.LoseRun,
                cmd.SendMessage,
                cmd.PauseTask,
            )
        case State.WAITING:
            return (
                cmd.Respond,
                cmd.FireTimer,
                cmd.EndTime,
                cmd.ExcludeDowntime,
                cmd.Tick,
                cmd.AwaitTask,
                cmd.RunTask,
                cmd.SendMessage,
                cmd.PauseTask,
            )
        case State.PAUSED:
            return (
                cmd.ResumeTask,
                cmd.ResumeTask,
                cmd.YieldRun,
                cmd.ReleaseRun,
                cmd.LoseRun,
                cmd.Respond,
                cmd.FireTimer,
                cmd.WaiveCriterion,
            )
        case State.VERIFYING:
            return (
                cmd.CheckCriteria,
                cmd.CheckCriteria,
                cmd.WaiveCriterion,
                cmd.PauseTask,
                cmd.UpdateTask,
            )
        case _:
            return (cmd.RerunTask, cmd.CreateTask)


def _id(random: Random, world: World) -> str:
    some = random.choice(list(world.tasks.values()))
    return random.choice((some.id, some.id, some.id, some.uid, "99"))


def _many(random: Random, make: Callable[[], Any], high: int = 2) -> tuple[Any, ...]:
    return tuple(make() for _ in range(random.randint(0, high)))


def _maybe(random: Random, value: Any, often: float = 0.3) -> Any:
    return value if random.random() < often else None


CHECKS = (
    "pytest",
    {"command": "pytest"},
    {"file": "green"},
    {"output": "a"},
    {"output": "a", "equals": "y"},
    {"output": "u", "contains": "org"},
)


def _criteria(random: Random) -> tuple[cmd.NewCriterion, ...]:
    return _many(
        random,
        lambda: cmd.NewCriterion(
            text=random.choice(WORDS), check=_maybe(random, random.choice(CHECKS), 0.6)
        ),
    )


def _outputs(random: Random) -> tuple[Output, ...]:
    return random.choice(
        (
            (),
            (),
            (),
            (Output(name="a"),),
            (Output(name="a"), Output(name="a")),
            (Output(name="u", kind="url"),),
        )
    )


def _given(random: Random) -> Any:
    return random.choice(
        (None, {"a": "x"}, {"a": "x", "u": "https://a.org"}, {"a": 1}, {"u": "nowhere"})
    )


def _steps(random: Random, task: Task | None) -> tuple[cmd.NewStep, ...]:
    kept = (
        tuple(cmd.NewStep(title=step.title, done=random.random() < 0.7) for step in task.steps)
        if task and random.random() < 0.7
        else ()
    )
    return kept + _many(
        random, lambda: cmd.NewStep(title=random.choice(WORDS), done=random.random() < 0.6)
    )


def _needs(random: Random, world: World) -> tuple[Dependency, ...]:
    return _many(
        random,
        lambda: Dependency(task_id=_id(random, world), on=random.choice(("done", "settled"))),
    )


def _limits(random: Random) -> Limits:
    return random.choice(
        (Limits(), Limits(), Limits(max_attempts=1), Limits(max_depth=1), Limits(max_children=2))
    )


def _tools(random: Random) -> Tools:
    return Tools(
        allow=_maybe(random, _many(random, lambda: random.choice(TOOLS), 3), 0.5),
        deny=_many(random, lambda: random.choice(TOOLS), 1),
    )


def _brief(random: Random, world: World) -> dict[str, Any]:
    return {
        "title": random.choice(WORDS),
        "owner": random.choice(("build", "build", "build", "plan", "nobody")),
        "acceptance": _criteria(random),
        "outputs": _outputs(random),
        "steps": _steps(random, None),
        "depends_on": _needs(random, world) if random.random() < 0.2 else (),
        "tools": _tools(random),
        "limits": _limits(random),
        "completion": random.choice(("auto", "auto", "explicit")),
        "status": random.choice(("active", "active", "active", "draft")),
        "session_id": _maybe(random, "s1", 0.1),
        "schedule": _maybe(random, Schedule(not_before=NOW + timedelta(minutes=5)), 0.1),
        "idempotency_key": _maybe(random, "k", 0.1),
        "resources": random.choice(
            (
                (),
                (),
                (),
                (Resource(type="file", value="a"),),
                (Resource(type="url", value="http://["),),
            )
        ),
        "tsgs": random.choice(((), (), (), ("look",))),
    }


def _task(random: Random, world: World, _: Task) -> cmd.CreateTask:
    brief = _brief(random, world)
    if random.random() < 0.3:
        return cmd.CreateCached(**brief, cache_key="k")
    return cmd.CreateDelegated(**brief) if random.random() < 0.3 else cmd.CreateTask(**brief)


def _subtask(random: Random, world: World, task: Task) -> cmd.CreateSubtask:
    link = {
        "task_id": task.id,
        "step_index": _maybe(random, random.randint(0, 2)),
        "wait": random.choice(("wake", "block", "none")),
    }
    brief: dict[str, Any] = {**link, **_brief(random, world)}
    return (
        cmd.CreateCachedSubtask(**brief, cache_key="k")
        if random.random() < 0.3
        else cmd.CreateSubtask(**brief)
    )


def _update(random: Random, world: World, task: Task) -> cmd.UpdateTask:
    """One or two changes at once."""
    fields: dict[str, Any] = {
        "title": random.choice(WORDS),
        "instructions": random.choice(WORDS),
        "acceptance": _criteria(random),
        "outputs": _outputs(random),
        "owner": random.choice(("build", "plan", "nobody")),
        "depends_on": _needs(random, world),
        "limits": _limits(random),
        "status": random.choice(("active", "active", "done", "canceled")),
        "expected_version": random.choice((task.version, 0)),
        "metadata": {"n": random.randint(0, 3)},
    }
    return cmd.UpdateTask(
        task_id=task.id,
        **{name: fields[name] for name in random.sample(list(fields), random.choice((1, 1, 2)))},
    )


def _waited(random: Random, task: Task, kind: str, other: str) -> str:
    refs = [item.ref for item in task.wait.on if item.kind == kind] if task.wait else []
    return random.choice(refs) if refs else other


def _child(random: Random, world: World, task: Task) -> str:
    return (
        random.choice([child.id for child in task.children])
        if task.children and random.random() < 0.9
        else _id(random, world)
    )


def _criterion(random: Random, task: Task) -> str:
    return random.choice([*(item.id for item in task.acceptance), "c9"])


def _counts(random: Random) -> tuple[ToolCount, ...]:
    return _many(random, lambda: ToolCount(tool=random.choice(TOOLS), count=random.randint(0, 3)))


def _question(random: Random, task: Task) -> str:
    return random.choice(
        [*(question.id for question in task.questions)] * 4 + [f"{task.id}-q1", "99-q1", "x"]
    )


FIELDS: dict[type[Any], Callable[[Random, World, Task], cmd.Command]] = {
    cmd.CreateTask: _task,
    cmd.CreateSubtask: _subtask,
    cmd.UpdateTask: _update,
    cmd.CompleteTask: lambda r, _, t: cmd.CompleteTask(
        task_id=t.id, outputs=_given(r), summary=_maybe(r, "Did it")
    ),
    cmd.FailTask: lambda _, __, t: cmd.FailTask(task_id=t.id, message="No way"),
    cmd.WaiveCriterion: lambda r, _, t: cmd.WaiveCriterion(
        task_id=t.id, criterion_id=_criterion(r, t), reason="Not needed"
    ),
    cmd.CancelTask: lambda r, _, t: cmd.CancelTask(task_id=t.id, message=_maybe(r, "Enough")),
    cmd.PauseTask: lambda _, __, t: cmd.PauseTask(task_id=t.id),
    cmd.ResumeTask: lambda _, __, t: cmd.ResumeTask(task_id=t.id),
    cmd.RunTask: lambda _, __, t: cmd.RunTask(task_id=t.id),
    cmd.RerunTask: lambda r, w, t: cmd.RerunTask(task_id=r.choice((t.id, _id(r, w)))),
    cmd.AssignTask: lambda r, _, t: cmd.AssignTask(
        task_id=t.id, subagent_session_id=r.choice(("s1", "s2"))
    ),
    cmd.AttachTsg: lambda r, _, t: cmd.AttachTsg(task_id=t.id, tsg_id=r.choice(("look", "wat"))),
    cmd.UpdateSteps: lambda r, _, t: cmd.UpdateSteps(task_id=t.id, steps=_steps(r, t)),
    cmd.UpdateStep: lambda r, _, t: cmd.UpdateStep(
        task_id=t.id,
        index=r.randint(0, 2),
        title=_maybe(r, r.choice(WORDS)),
        done=_maybe(r, r.random() < 0.7),
    ),
    cmd.AddResource: lambda r, _, t: cmd.AddResource(
        task_id=t.id,
        type=r.choice(("url", "file")),
        value=r.choice(("/a", "https://a.org/", "http://[")),
    ),
    cmd.RemoveResource: lambda r, _, t: cmd.RemoveResource(task_id=t.id, index=r.randint(0, 2)),
    cmd.SendMessage: lambda _, __, t: cmd.SendMessage(task_id=t.id, message="Hello"),
    cmd.AskUser: lambda r, _, t: cmd.AskUser(
        task_id=t.id, question="Which?", blocking=r.random() < 0.7, call_id=_maybe(r, "call-1", 0.7)
    ),
    cmd.Respond: lambda r, _, t: cmd.Respond(interaction_id=_question(r, t), answer="This"),
    cmd.NotifyUser: lambda _, __, t: cmd.NotifyUser(task_id=t.id, message="Half way"),
    cmd.CreateGuide: lambda r, _, __: cmd.CreateGuide(title=r.choice(WORDS), body="Try again"),
    cmd.AwaitTask: lambda _, __, t: cmd.AwaitTask(task_id=t.id),
    cmd.StartRun: lambda r, _, t: cmd.StartRun(task_id=t.id, worker=r.choice(("w1", "w2"))),
    cmd.DeliverUpdates: lambda r, _, t: cmd.DeliverUpdates(
        task_id=t.id, turn=r.randint(0, 3), session_id=t.session_id or _maybe(r, "s2", 0.1)
    ),
    cmd.AwaitSubtask: lambda r, w, t: cmd.AwaitSubtask(
        task_id=t.id, child_id=_child(r, w, t), call_id=_maybe(r, "call-2", 0.7)
    ),
    cmd.SetTimer: lambda r, _, t: cmd.SetTimer(
        task_id=t.id, due_at=NOW, call_id=_maybe(r, "call-3", 0.5)
    ),
    cmd.YieldRun: lambda r, _, t: cmd.YieldRun(task_id=t.id, tool_summary=_counts(r)),
    cmd.VouchResult: lambda _, __, t: cmd.VouchResult(task_id=t.id),
    cmd.FinishRun: lambda r, _, t: cmd.FinishRun(
        task_id=t.id, final_message="All done", outputs=_given(r), tool_summary=_counts(r)
    ),
    cmd.ReleaseRun: lambda r, _, t: cmd.ReleaseRun(task_id=t.id, tool_summary=_counts(r)),
    cmd.FailRun: lambda r, _, t: cmd.FailRun(
        task_id=t.id, error="Broken", permanent=r.random() < 0.1
    ),
    cmd.TimeOutRun: lambda _, __, t: cmd.TimeOutRun(task_id=t.id, error="Silent"),
    cmd.LoseRun: lambda r, _, t: cmd.LoseRun(
        task_id=t.id, run_id=t.run.id if t.run and r.random() < 0.8 else f"{t.id}-r000001"
    ),
    cmd.ExcludeDowntime: lambda r, _, t: cmd.ExcludeDowntime(
        task_id=t.id,
        since=NOW - timedelta(seconds=r.randrange(60)),
        until=NOW + timedelta(seconds=r.randrange(60)),
    ),
    cmd.FireTimer: lambda r, _, t: cmd.FireTimer(
        task_id=t.id, timer_id=_waited(r, t, "timer", f"{t.id}-t1")
    ),
    cmd.EndTime: lambda r, _, t: cmd.EndTime(task_id=t.id, seconds=0.0, report=r.random() < 0.7),
    cmd.Tick: lambda _, __, t: cmd.Tick(task_id=t.id),
    cmd.SettleSubtask: lambda _, __, t: cmd.SettleSubtask(
        task_id=t.id, child_id="99", state="done"
    ),
    cmd.CheckCriteria: lambda _, __, t: cmd.CheckCriteria(task_id=t.id),
    cmd.AbortTask: lambda r, _, t: cmd.AbortTask(
        task_id=t.id, reason=r.choice(("timeout", "budget")), message="Too much"
    ),
    cmd.ChangeSchedule: lambda _, __, t: cmd.ChangeSchedule(
        task_id=t.id, schedule=Schedule(not_before=NOW)
    ),
    cmd.SettleBudget: lambda r, _, t: cmd.SettleBudget(
        task_id=t.id, usage=Usage(input_tokens=r.randint(0, 9))
    ),
}
"""How a command of each kind is made for a task."""
