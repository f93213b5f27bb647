"""How events change what a task says: its fields, terms, plan and queued updates."""

from typing import TypeVar

from remit.domain.prompts.claims import in_force
from remit.domain.prompts.terms import ALL_WAIVED
from remit.domain.prompts.update_messages import is_said
from remit.domain.records.record import replace
from remit.domain.task import events as ev
from remit.domain.task.policy import outline
from remit.domain.task.task import Criterion, State, Step, Task, Update, UpdateType

V = TypeVar("V")
TermsUpdate = ev.InstructionsUpdated | ev.AcceptanceUpdated | ev.OutputsUpdated

NEWS: frozenset[UpdateType] = frozenset(
    {"instructions", "acceptance", "outputs", "message", "subtask"}
)
"""Updates with new input. The others are remit's own objections to a result."""


MAX_EARLIER = 50
"""How many earlier descriptions a task remembers."""


def new_or_old(new: V | None, old: V) -> V:
    """Return the new value of a field; the old one if the event does not change it."""
    return old if new is None else new


def revise(task: Task, event: ev.TaskRevised) -> Task:
    """Change the fields that are not terms of the task."""
    keeps_description = task.has_description and event.description is None
    return replace(
        task,
        title=new_or_old(event.title, task.title),
        title_outdated=task.title_outdated and event.title is None,
        description=new_or_old(event.description, task.description),
        has_description=event.has_description or keeps_description,
        has_instructions=task.has_instructions or event.has_instructions,
        priority=new_or_old(event.priority, task.priority),
        labels=new_or_old(event.labels, task.labels),
        metadata=new_or_old(event.metadata, task.metadata),
        limits=new_or_old(event.limits, task.limits),
    )


def activate(task: Task, _: ev.TaskActivated) -> Task:
    """Let a draft run."""
    return replace(task, state=State.PENDING)


def reassign(task: Task, event: ev.TaskReassigned) -> Task:
    """Give a task to another agent."""
    return replace(task, owner=event.owner)


def assign(task: Task, event: ev.TaskAssigned) -> Task:
    """Give a task to a session, which has not read its assignment yet."""
    return replace(task, session_id=event.session_id, briefed=False)


def supersede(task: Task, event: ev.TaskSuperseded) -> Task:
    """Name the successor of a task."""
    return replace(task, superseded_by=event.by)


def change_dependencies(task: Task, event: ev.DependenciesChanged) -> Task:
    """Replace the dependencies."""
    return replace(task, depends_on=event.depends_on)


def change_schedule(task: Task, event: ev.ScheduleChanged) -> Task:
    """Replace the schedule."""
    return replace(task, schedule=event.schedule)


def replace_parent(task: Task, event: ev.ParentReplaced) -> Task:
    """Move a task to the successor of its parent."""
    return replace(
        task,
        parent_id=event.parent_id,
        root_id=event.root_id or task.root_id,
        depth=new_or_old(event.depth, task.depth),
    )


def update_instructions(task: Task, event: ev.InstructionsUpdated, entry: ev.Entry) -> Task:
    """Replace the instructions, and the title and description that they stand for."""
    title_was_instructions = task.title_outdated or task.title == task.instructions
    keeps_title = event.title is not None or event.description_only
    keeps_text = event.description is None and event.instructions == task.description
    changed = replace(
        task,
        title=new_or_old(event.title, task.title),
        title_outdated=title_was_instructions and not keeps_title,
        instructions=event.instructions,
        instructions_version=task.instructions_version + 1,
        has_instructions=task.has_instructions or event.has_instructions,
        description_only=event.description_only or (task.description_only and keeps_text),
        has_description=event.has_description,
        earlier_descriptions=_earlier_descriptions(task, event),
        terms_version=_terms_version(task, event),
        description=new_or_old(event.description, task.description),
        outdated_answer=bool(event.terms_version and task.final_message),
    )
    return queue(changed, entry, event.update_id, "instructions", event.instructions)


def _earlier_descriptions(task: Task, event: ev.InstructionsUpdated) -> tuple[str, ...]:
    """Return the hashes of the last instructions that reads returned as the description."""
    if event.replaced_hash is None:
        return task.earlier_descriptions
    return (*task.earlier_descriptions, event.replaced_hash)[-MAX_EARLIER:]


def update_acceptance(task: Task, event: ev.AcceptanceUpdated, entry: ev.Entry) -> Task:
    """Replace the criteria and queue them as a list for the agent."""
    numbers = map(_criterion_number, event.acceptance)
    counts = replace(task.counts, criteria=max([task.counts.criteria, *numbers]))
    version = _terms_version(task, event)
    changed = replace(task, acceptance=event.acceptance, counts=counts, terms_version=version)
    content = "\n".join(f"- [ ] {criterion.text}" for criterion in in_force(changed))
    if event.acceptance and not content:
        content = ALL_WAIVED
    return queue(changed, entry, event.update_id, "acceptance", content)


def _terms_version(task: Task, event: TermsUpdate) -> int:
    """Return the version of the terms after an update; older events do not have it."""
    return event.terms_version or task.terms_version


def _criterion_number(criterion: Criterion) -> int:
    return int(criterion.id[1:])


def update_outputs(task: Task, event: ev.OutputsUpdated, entry: ev.Entry) -> Task:
    """Replace the required outputs and queue them as one line for the agent."""
    version = _terms_version(task, event)
    changed = replace(task, outputs=event.outputs, terms_version=version)
    return queue(changed, entry, event.update_id, "outputs", outline(event.outputs))


def send_message(task: Task, event: ev.MessageSent, entry: ev.Entry) -> Task:
    """Queue a message for the agent."""
    message = Update(
        update_id=event.update_id,
        type="message",
        content=event.message,
        at=entry.at,
        question=event.question,
    )
    return _with_update(task, message)


def queue(task: Task, entry: ev.Entry, update_id: str, kind: UpdateType, content: str) -> Task:
    """Queue an update for the agent, and count it."""
    return _with_update(task, Update(update_id=update_id, type=kind, content=content, at=entry.at))


def _with_update(task: Task, update: Update) -> Task:
    return replace(
        task,
        queued=(*task.queued, update),
        counts=replace(task.counts, updates=task.counts.updates + 1),
    )


def deliver(task: Task, event: ev.UpdateDelivered) -> Task:
    """Remove delivered updates from the queue; a delivery to a session also starts the task."""
    left = tuple(update for update in task.queued if update.update_id not in event.update_ids)
    if event.session_id is None:
        kinds = {update.type for update in task.queued if update.update_id in event.update_ids}
        idle_runs = task.idle_runs if kinds.isdisjoint(NEWS) else 0
        return replace(task, queued=left, briefed=True, idle_runs=idle_runs)
    if not task.briefed:
        # The assignment contains the current terms, so queued changes of the terms are obsolete.
        left = tuple(filter(is_said, left))
    state = task.state
    if state is State.PENDING:
        state = State.RUNNING
    return replace(task, state=state, queued=left, briefed=True)


def replace_steps(task: Task, event: ev.StepsReplaced) -> Task:
    """Replace the plan."""
    return replace(task, steps=event.steps)


def update_step(task: Task, event: ev.StepUpdated) -> Task:
    """Change one step of the plan."""
    step = task.steps[event.index]
    changed = replace(
        step,
        title=new_or_old(event.title, step.title),
        details=new_or_old(event.details, step.details),
        done=new_or_old(event.done, step.done),
    )
    return with_step(task, event.index, changed)


def with_step(task: Task, index: int, step: Step) -> Task:
    """Return the task with another step at an index."""
    return replace(task, steps=(*task.steps[:index], step, *task.steps[index + 1 :]))


def add_resource(task: Task, event: ev.ResourceAdded) -> Task:
    """Add a resource as the last one."""
    return replace(task, resources=(*task.resources, event.resource))


def remove_resource(task: Task, event: ev.ResourceRemoved) -> Task:
    """Remove the resource at an index."""
    kept = task.resources[: event.index] + task.resources[event.index + 1 :]
    return replace(task, resources=kept)


def attach_guide(task: Task, event: ev.GuideAttached) -> Task:
    """Add a guide as the last one; attached before, it moves to the end."""
    others = (known for known in task.guides if known != event.guide_id)
    return replace(task, guides=(*others, event.guide_id))


def count_notification(task: Task, _: ev.UserNotified) -> Task:
    """Count a notification, so that the next one gets its own id."""
    counts = replace(task.counts, notifications=task.counts.notifications + 1)
    return replace(task, counts=counts)
