"""The instructions for MCP clients: how to use the tools that they are shown, and only those."""

from collections.abc import Collection, Mapping

from remit.catalog import PROFILES
from remit.domain.records.record import record

OPENING = (
    "remit runs tasks with sub-agents and records everything. A task has instructions, acceptance"
    " criteria, required outputs and a plan."
)
MORE_BY_COMMAND = "Not all tools are listed here. `remit mcp --tools all` lists every tool."
MORE_BY_HTTP = (
    "Not all tools are listed here. The address `/mcp?tools=all` lists every tool, and so does a"
    " server started with `remit serve --mcp-tools all`."
)


@record
class Advice:
    """One line: a purpose, the tools for it, and sentences that are added if all their tools are
    listed.
    """

    aim: str
    tools: Mapping[str, str]
    sentences: tuple[tuple[tuple[str, ...], str], ...] = ()

    def text(self, listed: Collection[str]) -> str:
        """Return the line for a client with these tools; empty if none of them serves the
        purpose.
        """
        tools = [phrase for name, phrase in self.tools.items() if name in listed]
        if not tools:
            return ""
        sentences = [text for needed, text in self.sentences if {*needed} <= {*listed}]
        return " ".join([f"- {self.aim}: {', '.join(tools)}.", *sentences])


LATER = "With wait false, task returns at once and task_output gets the result later."
ADVICE = (
    Advice(
        aim="Hand work to a sub-agent and get its result",
        tools={"task": "task", "task_parallel": "task_parallel for several at once"},
        sentences=(
            (("list_agents",), "list_agents shows the agents."),
            (("task", "task_output"), LATER),
        ),
    ),
    Advice(
        aim="Create work that you do not wait for",
        tools={
            "create_task": "create_task",
            "create_subtask": "create_subtask for a part of a task",
        },
    ),
    Advice(
        aim="Look",
        tools={
            "list_tasks": "list_tasks for an overview",
            "get_task": "get_task for one task",
            "get_events": "get_events for what happened to it",
        },
    ),
    Advice(
        aim="Steer",
        tools={"update_task": "update_task", "send_message": "send_message"},
        sentences=(((), "The agent of the task is told before its next step."),),
    ),
    Advice(
        aim="Finish your own task",
        tools={
            "complete_task": "complete_task with every required output",
            "fail_task": "fail_task if it cannot be done",
        },
    ),
    Advice(
        aim="Questions from agents",
        tools={
            "list_interactions": "list_interactions shows the open ones",
            "respond": "respond answers one",
        },
    ),
)
CREATING = ("task", "task_parallel", "create_task", "create_subtask")


def instructions(listed: Collection[str], *, is_http: bool) -> str:
    """Return how to use these tools, and how to list the others over HTTP or with the command."""
    lines = filter(None, (advice.text(listed) for advice in ADVICE))
    parts = [OPENING, "\n".join(lines), _closing(listed)]
    if not {*listed} >= {*PROFILES["all"]}:
        parts.append(MORE_BY_HTTP if is_http else MORE_BY_COMMAND)
    return "\n\n".join(filter(None, parts))


def _closing(listed: Collection[str]) -> str:
    """Return the advice for all tools."""
    sentences = ['A task_id is a number such as "42", or a uid.']
    if any(name.startswith("list_") for name in listed):
        sentences.append("Lists come in pages: pass next_cursor as cursor for the next page.")
    sentences.append("Errors state the problem and what is expected.")
    if not {*CREATING}.isdisjoint(listed):
        key = (
            "If you may send a create twice, give it an idempotency_key: the same key makes one"
            " task."
        )
        sentences.append(key)
    return " ".join(sentences)
