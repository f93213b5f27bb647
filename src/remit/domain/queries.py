"""The read-only operations.

Each docstring is the description of an operation, each field text that of a parameter.
"""

from typing import Annotated, Literal

from remit.domain.records.record import Alias, Range, Text, record
from remit.domain.task.task import AgentId, GuideId, Label, SessionId, TaskId

StateName = Literal[
    "draft",
    "active",
    "pending",
    "running",
    "waiting",
    "paused",
    "verifying",
    "done",
    "failed",
    "canceled",
]
Limit = Annotated[int, Range(1, 1000), "Maximum number of results."]
Cursor = Annotated[str, Text(1, 512, "characters"), "next_cursor of the previous page."]
After = Annotated[int, Range(0, 2**53)]


@record
class GetTask:
    """Get a task with its terms, plan, state and result."""

    task_id: Annotated[TaskId, "Id of the task, such as 42."]


@record
class ListTasks:
    """List tasks, newest first; by default drafts and active tasks."""

    status: Annotated[StateName, "Only this status or state."] | None = None
    state: Annotated[StateName, "Only this state.", Alias("status")] | None = None
    owner: Annotated[AgentId, "Only tasks of this agent."] | None = None
    parent_session: Annotated[SessionId, "Only tasks that this session created."] | None = None
    parent: Annotated[TaskId, "Only subtasks of this task."] | None = None
    label: Annotated[Label, "Only tasks with this label."] | None = None
    scope: (
        Annotated[
            Literal["mine", "all", "tree"], "mine: owned by you; tree: the whole tree of parent."
        ]
        | None
    ) = None
    limit: Limit = 50
    cursor: Cursor | None = None


@record
class ListSessionTasks:
    """List the tasks that an outside session works on or has created, newest first; by default
    drafts and active tasks.
    """

    session_id: Annotated[SessionId, "The session."]
    role: Annotated[
        Literal["assigned", "created"],
        "assigned: tasks assigned to it; created: tasks that it created.",
    ] = "assigned"
    status: Annotated[StateName, "Only this status or state."] | None = None
    limit: Limit = 50
    cursor: Cursor | None = None


@record
class ListHistory:
    """List ended tasks, newest first."""

    limit: Limit = 50
    cursor: Cursor | None = None


@record
class ListReady:
    """List tasks that can start now, most urgent first."""

    limit: Limit = 50
    cursor: Cursor | None = None


@record
class ListUpdates:
    """List the updates of a task and whether they were delivered to its agent."""

    task_id: Annotated[TaskId, "Id of the task, such as 42."]
    after: Annotated[After, "Only updates numbered above this."] = 0


@record
class GetEvents:
    """Get the events of a task, in order."""

    task_id: Annotated[TaskId, "Id of the task, such as 42."]
    after: Annotated[After, "Only events after this version."] = 0
    limit: Limit = 500


@record
class GetTranscript:
    """Read the conversation of a task: messages, tool calls, results and why it failed or was
    canceled.
    """

    task_id: Annotated[TaskId, "Id of the task, such as 42."]
    after: Annotated[After, "Only messages numbered above this."] = 0


@record
class ListInteractions:
    """List questions of agents to people, by default the open ones."""

    status: Annotated[Literal["open", "answered", "closed"], "Only questions with this status."] = (
        "open"
    )
    task_id: Annotated[TaskId, "Only questions of this task."] | None = None
    limit: Limit = 50
    cursor: Cursor | None = None


@record
class ListNotifications:
    """List messages from agents to people, oldest first."""

    limit: Limit = 50
    cursor: Cursor | None = None


@record
class GetGuide:
    """Get the text of a troubleshooting guide."""

    guide_id: Annotated[GuideId, "Id of the guide."]


@record
class ListGuides:
    """List the troubleshooting guides."""

    limit: Limit = 50
    cursor: Cursor | None = None


@record
class ListAgents:
    """List the agents that can do work, by id."""

    limit: Limit | None = None
    cursor: Cursor | None = None


@record
class GetAgent:
    """Get the definition of an agent."""

    agent_id: Annotated[AgentId, "Id of the agent."]
