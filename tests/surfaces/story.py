"""A story that calls every operation."""

from typing import Any

Story = list[tuple[str, dict[str, Any]]]

TASK = {
    "title": "Write the report",
    "owner": "build",
    "steps": ["Read", {"title": "Write", "details": "two pages"}],
    "outputs": ["report"],
}
STORY: Story = [
    ("list_tasks", {}),
    ("create_guide", {"title": "Disk is full", "body": "Delete the caches."}),
    (
        "create_task",
        {
            **TASK,
            "acceptance": ["Short."],
            "priority": "high",
            "labels": ["a"],
            "tsgs": ["disk-is-full"],
            "metadata": {"x": [1, None]},
        },
    ),
    (
        "create_task",
        {"title": "Second", "depends_on": ["1"], "status": "draft", "idempotency_key": "k"},
    ),
    (
        "create_task",
        {"title": "Second", "depends_on": ["1"], "status": "draft", "idempotency_key": "k"},
    ),
    ("create_subtask", {"task_id": "1", "title": "Look", "owner": "explore", "step_index": 0}),
    ("get_task", {"task_id": "#1"}),
    (
        "update_task",
        {
            "task_id": "1",
            "instructions": "In English.",
            "outputs": ["report", {"name": "link", "kind": "url", "required": False}],
        },
    ),
    ("update_steps", {"task_id": "1", "steps": ["Read", "Write", "Send"]}),
    ("update_step", {"task_id": "1", "index": 1, "done": True}),
    ("add_resource", {"task_id": "1", "type": "url", "value": "https://example.org/x"}),
    ("remove_resource", {"task_id": "1", "index": 0}),
    ("attach_tsg", {"task_id": "2", "tsg_id": "disk-is-full"}),
    ("assign_task", {"task_id": "3", "subagent_session_id": "s1"}),
    ("list_session_tasks", {"session_id": "s1"}),
    ("pre_request", {"session_id": "s1"}),
    ("update_task", {"task_id": "3", "instructions": "Look twice."}),
    ("pre_request", {"session_id": "s1"}),
    ("pre_request", {"session_id": "s1"}),
    ("send_message", {"task_id": "1", "message": "Hurry."}),
    ("pause_task", {"task_id": "1"}),
    ("resume_task", {"task_id": "1"}),
    ("run_task", {"task_id": "1"}),
    ("list_updates", {"task_id": "1"}),
    ("list_tasks", {"scope": "tree", "parent": "3", "limit": 1}),
    ("list_tasks", {"label": "a", "status": "active"}),
    ("list_ready", {}),
    ("list_interactions", {}),
    ("list_notifications", {}),
    ("list_guides", {}),
    ("get_guide", {"guide_id": "disk-is-full"}),
    ("list_agents", {}),
    ("get_agent", {"agent_id": "explore"}),
    ("waive_criterion", {"task_id": "1", "criterion_id": "c1", "reason": "Not needed."}),
    ("mark_task_complete", {"task_id": "1", "outputs": {"report": "..."}, "summary": "Done."}),
    ("fail_task", {"task_id": "3", "message": "No."}),
    ("rerun_task", {"task_id": "3"}),
    ("cancel_task", {"task_id": "2", "message": "Not needed."}),
    ("list_history", {}),
    ("get_events", {"task_id": "1", "after": 2, "limit": 3}),
    (
        "task",
        {
            "objective": "Look.",
            "subagent_type": "Explore",
            "context": {"a": 1},
            "session_id": "s9",
            "wait": False,
        },
    ),
    ("task", {"prompt": "Look again.", "wait": False, "format": "flat", "timeout_seconds": 5}),
    (
        "task_parallel",
        {"tasks": [{"objective": ""}, {"objective": "x", "subagent_type": "nobody"}]},
    ),
    (
        "task_parallel",
        {
            "tasks": [
                5,
                None,
                ["x"],
                {"objective": "x", "colour": "red"},
                {"objective": "x", "subagent_type": 5},
            ]
        },
    ),
    (
        "task_parallel",
        {
            "tasks": [
                {"objective": "x", "wait": False},
                {"objective": "y", "wait": False, "format": "flat"},
                5,
            ]
        },
    ),
    (
        "task_parallel",
        {"tasks": [5, {"objective": "y", "wait": False, "format": "envelope"}], "format": "flat"},
    ),
    ("task_output", {"task_id": "5"}),
    ("task_output", {"task_id": "1", "offset": 2}),
    ("get_transcript", {"task_id": "5"}),
    (
        "list_session_tasks",
        {"session_id": "s9", "role": "created", "status": "pending", "limit": 1},
    ),
    ("cancel_all", {"session_id": "s9"}),
    (
        "create_task",
        {"title": "Beyond", "owner": "explore", "tools": ["Read", "Edit"], "status": "draft"},
    ),
    (
        "task",
        {
            "objective": "Beyond",
            "subagent_type": "explore",
            "tools": ["Read", "Edit"],
            "wait": False,
        },
    ),
]
