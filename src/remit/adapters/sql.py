"""Every question to a database, once for all of them, and how each dialect spells it.

Fixed text only: values travel as parameters. A statement is written with `:name` parameters, `IN [name]` for membership
in a list that is a parameter, `<position>` for an event's place in the order of all, and `{index}` hints that only
SQLite understands.
"""

import re
from collections.abc import Mapping

from remit.domain.table import BESIDE, TABLES

EVENT = "id, stream, version, type, at, actor, data, hash"
_SUMMARY = "t.id, t.title, t.state, t.owner, t.parent_id, t.wait, t.priority, t.updated_at"
_UNMET = "d.task_id = t.id AND NOT (p.state = 'done' OR (d.rule = 'settled' AND p.state IN ('failed', 'canceled')))"


def _list(source: str, driver: str) -> str:
    """A page of tasks, newest first; the driver is what an index serves, the rest is looked at row by row."""
    return f"""SELECT {_SUMMARY} FROM {source}
        WHERE {driver} AND t.id < :before AND t.state IN [states] AND (:owner IS NULL OR t.owner = :owner)
        AND (:parent IS NULL OR t.parent_id = :parent) AND (:parent_session IS NULL OR t.parent_session_id = :parent_session)
        AND (:session IS NULL OR t.session_id = :session)
        AND (:root IS NULL OR t.root_id = :root)
        AND (:label IS NULL OR EXISTS (SELECT 1 FROM task_label m WHERE m.task_id = t.id AND m.label = :label))
        ORDER BY t.id DESC LIMIT :limit"""


SELECT: Mapping[str, str] = {
    "heads": """SELECT stream, version, hash FROM event e WHERE stream IN [streams]
        AND version = (SELECT MAX(version) FROM event WHERE stream = e.stream) ORDER BY stream""",
    "tasks": "SELECT id, hash, doc FROM task WHERE id IN [ids] ORDER BY id",
    "head": "SELECT hash FROM task WHERE id = :id",
    "tasks_by_uid": "SELECT id, uid, hash, doc FROM task WHERE uid IN [uids] ORDER BY id",
    "list_live": _list("task t {task_live}", "t.archived_at IS NULL"),
    "list_owner": _list("task t {task_live_owner}", "t.archived_at IS NULL AND t.owner = :owner"),
    "list_ended": _list("task t {task_ended}", "t.archived_at IS NOT NULL AND t.state = :state"),
    "list_any": _list("task t", "TRUE"),
    "list_parent": _list("task t {task_parent}", "t.parent_id = :parent"),
    "list_session": _list("task t {task_parent_session}", "t.parent_session_id = :parent_session"),
    "list_assigned": _list("task t {task_session}", "t.session_id = :session"),
    "list_tree": _list("task t {task_tree}", "t.root_id = :root"),
    "list_label": _list("task_label l CROSS JOIN task t", "l.label = :label AND t.id = l.task_id AND l.task_id < :before"),
    "history": f"""SELECT {_SUMMARY}, t.archived_at FROM task t
        WHERE t.archived_at IS NOT NULL AND (t.archived_at, t.id) < (:before_at, :before) ORDER BY t.archived_at DESC, t.id DESC LIMIT :limit""",
    "ready": f"""SELECT {_SUMMARY} FROM task t {{task_ready}}
        WHERE t.state = 'pending' AND (t.priority, t.id) > (:priority, :after) AND t.owner IS NOT NULL AND t.session_id IS NULL
        AND (t.not_before IS NULL OR t.not_before <= :now)
        AND NOT EXISTS (SELECT 1 FROM task_dependency d JOIN task p ON p.id = d.needs WHERE {_UNMET})
        AND NOT EXISTS (SELECT 1 FROM job j WHERE j.key = 'run/' || t.id AND j.at > :now)
        ORDER BY t.priority, t.id LIMIT :limit""",
    "in_flight": """SELECT id FROM task WHERE archived_at IS NULL AND state IN ('running', 'verifying')
        UNION SELECT task_id FROM run WHERE outcome IS NULL ORDER BY 1""",
    "dependents": "SELECT task_id FROM task_dependency WHERE needs = :id ORDER BY task_id",
    "unmet": f"""SELECT t.id, d.needs, p.state FROM task t JOIN task_dependency d ON d.task_id = t.id JOIN task p ON p.id = d.needs
        WHERE t.id IN [ids] AND {_UNMET} ORDER BY t.id, d.needs""",
    # When the job of a task is due: its run, or its turn by a calendar of its own.
    "starts": """SELECT t.id, t.session_id, t.not_before, t.started_at,
        (SELECT MAX(j.at) FROM job j WHERE j.key IN ('run/' || t.id, 'cron/' || t.id) AND j.worker IS NULL) AS at
        FROM task t WHERE t.id IN [ids] ORDER BY t.id""",
    "scheduled": """SELECT t.id FROM task t WHERE t.state = 'pending' AND t.started_at IS NULL AND t.doc LIKE '%"cron"%' AND t.id > :after
        ORDER BY t.id LIMIT :limit""",
    "recurring": """SELECT t.id FROM task t {task_live} WHERE t.archived_at IS NULL AND t.parent_id IS NULL AND t.started_at IS NOT NULL
        AND t.doc LIKE '%"cron"%' AND t.id > :after ORDER BY t.id LIMIT :limit""",
    "owners": """SELECT owner, MIN(id), COUNT(*) FROM task WHERE archived_at IS NULL AND owner IS NOT NULL
        GROUP BY owner ORDER BY owner""",
    "running": "SELECT worker, COUNT(*) FROM run WHERE outcome IS NULL GROUP BY worker ORDER BY worker",
    "series": """SELECT t.id FROM task t {task_live} WHERE t.archived_at IS NULL AND (t.id = :id OR t.doc LIKE :pattern)
        ORDER BY t.id DESC""",
    "successor": "SELECT MIN(id), MAX(id) FROM task WHERE rerun_of = :id GROUP BY rerun_of",
    "path": """WITH RECURSIVE above (id, parent_id, step) AS (
            SELECT id, parent_id, 0 FROM task WHERE id = :id
            UNION ALL SELECT t.id, t.parent_id, above.step + 1 FROM task t JOIN above ON t.id = above.parent_id
        ) SELECT id FROM above ORDER BY step DESC""",
    "events": f"SELECT {EVENT}, <position> FROM event WHERE stream = :stream AND version > :after ORDER BY version LIMIT :limit",
    "result": "SELECT task_id FROM task_result {task_result_key} WHERE key = :key ORDER BY task_id DESC LIMIT 1",
    "updates": """SELECT update_id, type, content, status, run_id, turn, at FROM task_update
        WHERE task_id = :id AND number > :after ORDER BY number LIMIT :limit""",
    "interactions": """SELECT interaction_id, task_id, question, options, blocking, asked_by, asked_at, status, answer, answered_by, answered_at,
            allow_other
        FROM interaction WHERE status IN [statuses] AND (:task IS NULL OR task_id = :task) AND (task_id, number) > (:after, :number)
        ORDER BY task_id, number LIMIT :limit""",
    "interaction": """SELECT interaction_id, task_id, question, options, blocking, asked_by, asked_at, status, answer, answered_by, answered_at,
            allow_other
        FROM interaction WHERE interaction_id = :interaction""",
    "notifications": """SELECT notification_id, task_id, message, actor, at FROM notification
        WHERE (at, notification_id) > (:after_at, :after_id) ORDER BY at, notification_id LIMIT :limit""",
    "runs": "SELECT run_id, worker, started_at, ended_at, outcome, error FROM run WHERE task_id = :id ORDER BY number",
    "guides": "SELECT id, title, created_by, created_at FROM guide WHERE id > :after_id ORDER BY id LIMIT :limit",
    "guide": "SELECT id, title, body, created_by, created_at FROM guide WHERE id IN [names] ORDER BY id",
    "counts": "SELECT state, COUNT(*) FROM task GROUP BY state ORDER BY state",
    "ended_children": "SELECT id FROM task {task_parent} WHERE parent_id = :id AND archived_at IS NOT NULL ORDER BY id",
    "held": "SELECT t.hash, t.doc, (SELECT worker FROM job WHERE id = :job) FROM task t WHERE t.id = :id",
    "queued": "SELECT key, at, worker FROM job WHERE key IN [names] ORDER BY id",
    "roots": "SELECT id, root_id FROM task WHERE id IN [ids] ORDER BY id",
    # A claim is checked by any worker of its tree; everything else needs one that works for the owner.
    "needed_workers": """SELECT id, root_id, CASE WHEN state <> 'verifying' THEN owner END AS agent
        FROM task WHERE id IN [ids] ORDER BY id""",
    # A tree is in use while a task of it is live, or a job about it is left.
    "roots_in_use": """SELECT DISTINCT root_id FROM task {task_tree} WHERE root_id IN [ids] AND archived_at IS NULL
        UNION SELECT root FROM job WHERE root IN [ids] AND worker IS NULL AND later = 0
        UNION SELECT root FROM job WHERE root IN [ids] AND worker IS NULL AND later = 1
        UNION SELECT root FROM job WHERE root IN [ids] AND worker IS NOT NULL ORDER BY 1""",
    # A task that has ended and whose dependents were not told yet is still needed.
    "roots_needed": """SELECT DISTINCT p.root_id FROM task t {task_tree} JOIN task_dependency d ON d.task_id = t.id
        JOIN task p ON p.id = d.needs WHERE t.root_id IN [ids] AND t.archived_at IS NULL
        AND (p.archived_at IS NULL OR EXISTS (SELECT 1 FROM job j WHERE j.key = 'release/' || p.id)) ORDER BY 1""",
    "roots_via": """SELECT DISTINCT root_id FROM task {task_live_via}
        WHERE via = :via AND via IS NOT NULL AND archived_at IS NULL ORDER BY root_id""",
    "attended": "SELECT root_id, at FROM attendance WHERE root_id IN [ids] ORDER BY root_id",
    "clocks": """SELECT t.id, t.root_id, (SELECT MAX(a.at) FROM attendance a WHERE a.root_id IN (0, t.root_id)) FROM task t
        WHERE t.state = 'waiting' AND t.doc LIKE '%"clock_since"%' AND t.id > :after ORDER BY t.id LIMIT :limit""",
    "clocks_of": """SELECT t.id, t.root_id, (SELECT MAX(a.at) FROM attendance a WHERE a.root_id IN (0, t.root_id)) FROM task t {task_tree}
        WHERE t.root_id IN [ids] AND t.state = 'waiting' AND t.doc LIKE '%"clock_since"%' ORDER BY t.id""",
    "roots_due": """SELECT DISTINCT root FROM job
        WHERE root > 0 AND (worker IS NOT NULL OR later = 0 OR at <= :now) ORDER BY root""",
    "ended": "SELECT id, state FROM task WHERE id IN [ids] AND archived_at IS NOT NULL ORDER BY id",
    "live_runs": """SELECT r.task_id, r.run_id, t.state FROM run r JOIN task t ON t.id = r.task_id
        WHERE r.outcome IS NULL AND r.task_id IN [ids] ORDER BY r.task_id""",
    "ticking": """SELECT id FROM task WHERE state = 'waiting' AND wait LIKE '%"tick"%' AND id > :after ORDER BY id LIMIT :limit""",
    "turning": """SELECT t.id FROM task t {task_live} WHERE t.archived_at IS NULL AND t.state IN ('pending', 'running', 'paused') AND t.id > :after
        AND t.started_at IS NOT NULL AND EXISTS (
            SELECT 1 FROM event e WHERE e.stream = CAST(t.id AS TEXT) AND e.type = 'TimerFired' AND e.data LIKE '%"cause":"tick"%' AND NOT EXISTS (
                SELECT 1 FROM event y WHERE y.stream = e.stream AND y.version > e.version AND y.type = 'RunYielded')) ORDER BY t.id LIMIT :limit""",
    "documents": "SELECT id, doc FROM task WHERE id > :after ORDER BY id LIMIT :limit",
    "unheard": """SELECT t.id FROM task t WHERE t.state = 'waiting' AND t.id > :after
        AND EXISTS (SELECT 1 FROM task_update u WHERE u.task_id = t.id AND u.status = 'queued') ORDER BY t.id LIMIT :limit""",
    "alarmed": """SELECT id FROM task WHERE state = 'waiting' AND (wait LIKE '%"timer"%' OR (wait LIKE '%"tick"%' AND doc LIKE '%"cron"%')
        OR (wait LIKE '%"subtask"%' AND doc LIKE '%"clock_since"%'))
        AND id > :after ORDER BY id LIMIT :limit""",
    "jobless": f"""SELECT t.id FROM task t WHERE t.state = 'pending' AND t.id > :after AND t.owner IS NOT NULL AND t.session_id IS NULL
        AND NOT EXISTS (SELECT 1 FROM task_dependency d JOIN task p ON p.id = d.needs WHERE {_UNMET})
        AND NOT EXISTS (SELECT 1 FROM job j WHERE j.key = 'run/' || t.id) ORDER BY t.id LIMIT :limit""",
    "runless": """SELECT r.task_id, r.run_id, r.worker FROM run r WHERE r.outcome IS NULL AND r.task_id > :after
        AND NOT EXISTS (SELECT 1 FROM job j WHERE j.key = 'run/' || r.task_id AND j.worker IS NOT NULL) ORDER BY r.task_id LIMIT :limit""",
    "untold": """SELECT DISTINCT p.id FROM task p JOIN task c ON c.parent_id = p.id WHERE p.archived_at IS NULL AND p.id > :after
        AND c.archived_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM job j WHERE j.key = 'tell/' || p.id) ORDER BY p.id LIMIT :limit""",
    "unreleased": """SELECT DISTINCT p.id FROM task p JOIN task_dependency d ON d.needs = p.id JOIN task t ON t.id = d.task_id
        WHERE p.id > :after AND p.archived_at IS NOT NULL AND p.state <> 'done' AND d.rule = 'done' AND t.archived_at IS NULL AND t.started_at IS NULL
        AND NOT EXISTS (SELECT 1 FROM job j WHERE j.key = 'release/' || p.id) ORDER BY p.id LIMIT :limit""",
    "unchecked": """SELECT t.id FROM task t WHERE t.archived_at IS NULL AND t.state = 'verifying' AND t.id > :after
        AND NOT EXISTS (SELECT 1 FROM job j WHERE j.key = 'check/' || t.id) ORDER BY t.id LIMIT :limit""",
    "jobs": "SELECT id, key, queue, priority, at, worker, tries FROM job ORDER BY id LIMIT :limit",
    "job_count": """SELECT queue, SUM(CASE WHEN worker IS NULL THEN 1 ELSE 0 END), SUM(CASE WHEN worker IS NULL THEN 0 ELSE 1 END)
        FROM job GROUP BY queue ORDER BY queue""",
    "budget": "SELECT tokens, cost FROM budget WHERE root_id = :id",
    "budgets": "SELECT root_id, tokens, cost FROM budget WHERE root_id > :after ORDER BY root_id LIMIT :limit",
    "tree": "SELECT doc FROM task {task_tree} WHERE root_id = :id ORDER BY id",
    "calls": f"SELECT {', '.join(BESIDE['call'].columns)} FROM call WHERE task_id = :id ORDER BY started_at, call_id",
    "call": f"SELECT {', '.join(BESIDE['call'].columns)} FROM call WHERE task_id = :id AND call_id = :call",
    "messages": f"SELECT {', '.join(BESIDE['message'].columns)} FROM message WHERE task_id = :id AND number > :after ORDER BY number LIMIT :limit",
    "pulse": """SELECT t.id, t.version, COALESCE((SELECT MAX(number) FROM message m WHERE m.task_id = t.id), 0),
        (SELECT COUNT(*) FROM call c WHERE c.task_id = t.id AND c.status = 'denied')
        FROM task t WHERE t.id IN [ids] ORDER BY t.id""",
    "streams": "SELECT DISTINCT stream FROM event WHERE stream > :after_id ORDER BY stream LIMIT :limit",
    "events_of": f"SELECT {EVENT} FROM event WHERE stream IN [streams] ORDER BY stream, version",
    **{
        f"rows_{name}": f"SELECT {', '.join(table.columns)} FROM {name} WHERE {table.columns[0]} IN [{'names' if name == 'guide' else 'ids'}]"
        for name, table in TABLES.items()
    },
    **{f"count_{name}": f"SELECT COUNT(*) FROM {name}" for name in ("event", *TABLES)},
}

_TYPES = {
    **dict.fromkeys(("before", "limit", "parent", "root", "id", "after", "priority", "task", "number", "job"), "bigint"),
    **dict.fromkeys(("owner", "state", "parent_session", "session", "label", "before_at", "now", "stream", "interaction"), "text"),
    **dict.fromkeys(("after_at", "after_id", "call", "key", "via", "pattern"), "text"),
    **dict.fromkeys(("streams", "uids", "states", "statuses", "names"), "text[]"),
    "ids": "bigint[]",
}


def for_sqlite(statement: str) -> str:
    """A statement as SQLite reads it: lists come as JSON."""
    statement = re.sub(r"\{(\w+)\}", r"INDEXED BY \1", statement).replace("<position>", "CAST(pos AS TEXT)")
    return re.sub(r"IN \[(\w+)\]", r"IN (SELECT value FROM json_each(:\1))", statement)


def for_postgres(statement: str) -> tuple[str, tuple[str, ...]]:
    """A statement as PostgreSQL reads it, with the order of its parameters."""
    names: list[str] = []

    def numbered(match: re.Match[str]) -> str:
        name = match[1]
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}::{_TYPES[name]}"

    statement = re.sub(r"\s*\{\w+\}", "", statement).replace("<position>", "tx::text || '.' || pos")
    statement = re.sub(r"IN \[(\w+)\]", r"= ANY(:\1)", statement)
    return re.sub(r"(?<!:):(\w+)", numbered, statement), tuple(names)
