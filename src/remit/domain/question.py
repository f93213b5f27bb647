"""What can be asked without changing anything: each docstring is the operation's description, each field's text its parameter's."""

from typing import Annotated, Literal

from remit.domain.record import Range, Text, record
from remit.domain.value import AgentId, GuideId, Label, SessionId, TaskId

StateName = Literal["draft", "active", "pending", "running", "waiting", "paused", "verifying", "done", "failed", "canceled"]
Limit = Annotated[int, Range(1, 1000), "How many at most."]
Cursor = Annotated[str, Text(1, 512, "characters"), "Where to go on: the next_cursor of the page before."]
After = Annotated[int, Range(0, 2**53)]


@record
class GetTask:
    """Get a whole task, active or ended."""

    task_id: Annotated[TaskId, "The task."]


@record
class ListTasks:
    """List tasks, newest first; without a filter, drafts and active ones."""

    status: Annotated[StateName, "Only this status; a state is understood too."] | None = None
    state: Annotated[StateName, "Only this state."] | None = None
    owner: Annotated[AgentId, "Only tasks of this agent."] | None = None
    parent_session: Annotated[SessionId, "Only tasks created by this session."] | None = None
    parent: Annotated[TaskId, "Only subtasks of this task."] | None = None
    label: Annotated[Label, "Only tasks with this label."] | None = None
    scope: Annotated[Literal["mine", "all", "tree"], "mine: owned by the caller; tree: the whole tree that parent is in."] | None = None
    limit: Limit = 50
    cursor: Cursor | None = None


@record
class ListSessionTasks:
    """List the tasks that an outside session works on, or those that it has created; newest first, drafts and active ones unless told otherwise."""

    session_id: Annotated[SessionId, "The session."]
    role: Annotated[Literal["assigned", "created"], "assigned: it works on them; created: it has handed them out."] = "assigned"
    status: Annotated[StateName, "Only this status; a state is understood too."] | None = None
    limit: Limit = 50
    cursor: Cursor | None = None


@record
class ListHistory:
    """List ended tasks, the latest first."""

    limit: Limit = 50
    cursor: Cursor | None = None


@record
class ListReady:
    """List tasks that could start now, the most urgent first."""

    limit: Limit = 50
    cursor: Cursor | None = None


@record
class ListUpdates:
    """List what the agent of a task was or will be told, each with its receipt."""

    task_id: Annotated[TaskId, "The task."]
    after: Annotated[After, "Only updates numbered above this."] = 0


@record
class GetEvents:
    """Get what happened to a task, in order."""

    task_id: Annotated[TaskId, "The task."]
    after: Annotated[After, "Only events after this version."] = 0
    limit: Limit = 500


@record
class GetTranscript:
    """Read the conversation of a task: what its agent was told, said and did."""

    task_id: Annotated[TaskId, "The task."]
    after: Annotated[After, "Only messages numbered above this."] = 0


@record
class ListInteractions:
    """List questions to people, the open ones unless told otherwise."""

    status: Annotated[Literal["open", "answered", "closed"], "Only questions with this status."] = "open"
    task_id: Annotated[TaskId, "Only questions of this task."] | None = None
    limit: Limit = 50
    cursor: Cursor | None = None


@record
class ListNotifications:
    """List what agents told people, oldest first."""

    limit: Limit = 50
    cursor: Cursor | None = None


@record
class GetGuide:
    """Get a troubleshooting guide with its text."""

    guide_id: Annotated[GuideId, "The guide."]


@record
class ListGuides:
    """List the troubleshooting guides."""

    limit: Limit = 50
    cursor: Cursor | None = None


@record
class ListAgents:
    """List who can be given work."""


@record
class GetAgent:
    """Get what is known of an agent."""

    agent_id: Annotated[AgentId, "The agent."]
