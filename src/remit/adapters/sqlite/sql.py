"""The statements of the embedded store, by name."""

from remit.adapters import sql
from remit.domain.table import BESIDE, TABLES, Table

SELECT = {name: sql.for_sqlite(statement) for name, statement in sql.SELECT.items()}
FEED = f"SELECT {sql.EVENT}, pos FROM event WHERE pos > :after ORDER BY pos LIMIT :limit"
TAIL = "SELECT COALESCE(MAX(pos), 0) FROM event"
STATE = """SELECT s.id, s.epoch, COALESCE(CAST(e.pos AS TEXT), ''), COALESCE(e.id, ''), COALESCE((SELECT MAX(id) FROM task), 0), s.floor
    FROM store s LEFT JOIN event e ON e.pos = (SELECT MAX(pos) FROM event)"""
EVENT_ID = "SELECT id FROM event WHERE pos = ?"
PAGE_OF_ID = "SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = 'store'"
TAKE_OVER = "UPDATE store SET id = ?"
NEW_EPOCH = "UPDATE store SET epoch = :epoch, floor = MAX(floor, :floor)"
NEW_IDS = "UPDATE counter SET value = value + :count WHERE name = 'task' RETURNING value"
SET_COUNTER = "UPDATE counter SET value = MAX(value, :value) WHERE name = 'task'"
VERSIONS = "SELECT id, version FROM task WHERE id IN (SELECT value FROM json_each(?))"
HOLDERS = "SELECT id, worker FROM job WHERE id IN (SELECT value FROM json_each(?))"
STREAM_VERSION = "SELECT MAX(version) FROM event WHERE stream = ?"
DEPENDENTS = "SELECT COUNT(*) FROM task_dependency WHERE needs = ?"
EVENT_AT = "SELECT id FROM event WHERE stream = ? AND version = ?"
INSERT_EVENT = f"INSERT INTO event ({sql.EVENT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
INSERT_EVENT_AT = f"INSERT INTO event (pos, {sql.EVENT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"


_FREE = "NOT EXISTS (SELECT 1 FROM job held WHERE held.key = job.key AND held.worker IS NOT NULL)"
"""Nobody works on this key: a successor waits until the job before it is done, or two would work on one task."""
PUT_JOB = """INSERT INTO job (key, queue, priority, at, later, root)
    VALUES (:key, :queue, :priority, :at, :at IS NOT NULL, :root)
    ON CONFLICT (key) WHERE worker IS NULL DO UPDATE
    SET queue = excluded.queue, priority = excluded.priority, at = excluded.at, later = excluded.later, root = excluded.root"""
NEEDED = "SELECT EXISTS (SELECT 1 FROM task_dependency WHERE needs = ?)"
DROP_JOB = "DELETE FROM job WHERE key = ? AND worker IS NULL"
ACK = "DELETE FROM job WHERE id = ? AND worker = ?"
OPEN_BUDGET = "INSERT INTO budget VALUES (:root_id, :used_tokens, :used_cost) ON CONFLICT DO NOTHING"
DEBIT = """UPDATE budget SET tokens = tokens + :tokens, cost = cost + :cost WHERE root_id = :root_id
    AND (:max_tokens IS NULL OR tokens + :tokens <= :max_tokens) AND (:max_cost IS NULL OR cost + :cost <= :max_cost)"""
PROMOTE = "UPDATE job SET later = 0 WHERE worker IS NULL AND later = 1 AND at <= :now"
EXPIRED = """SELECT id, key, queue, tries, at, NULL, NULL, seen FROM job WHERE worker IS NOT NULL AND (beat < :now - :lease OR beat > :now + 1)
    AND queue IN (SELECT value FROM json_each(:queues)) ORDER BY beat"""
QUEUED = f"""SELECT id, key, queue, tries, at, NULL, NULL, seen FROM job INDEXED BY job_ready
    WHERE worker IS NULL AND later = 0 AND queue IN (SELECT value FROM json_each(:queues)) AND {_FREE} ORDER BY priority, id"""
SIGNALLED = f"""SELECT id, key, queue, tries, at FROM job INDEXED BY job_ready_queue
    WHERE worker IS NULL AND later = 0 AND queue = :queue AND {_FREE} ORDER BY priority, id LIMIT :limit"""
CLAIMED = "SELECT queue, COUNT(*) FROM job WHERE worker IS NOT NULL GROUP BY queue"
DOCUMENT = "SELECT hash, doc FROM task WHERE id = ?"
TAKE = """UPDATE job SET worker = :worker, beat = :now, tries = tries + 1,
    seen = COALESCE(seen, :at) WHERE id = :job"""
"""A job keeps the last heartbeat of its former holder until the new holder's first one."""
BEAT = "UPDATE job SET beat = :now, seen = :at WHERE worker = :worker AND id IN (SELECT value FROM json_each(:jobs))"
LOST = "SELECT id FROM job WHERE id IN (SELECT value FROM json_each(:jobs)) AND worker IS NOT :worker"
GIVE_BACK = """UPDATE OR REPLACE job SET worker = NULL, beat = NULL, at = COALESCE(:at, at), later = :at IS NOT NULL
    WHERE id = :job AND worker = :worker"""
HELLO = """INSERT INTO worker (worker, host, pid, version, agents, concurrency, since, running, beat, place, models, scope)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (worker) DO UPDATE SET running = excluded.running, beat = excluded.beat, agents = excluded.agents, models = excluded.models,
    scope = excluded.scope"""
FORGET = "DELETE FROM worker WHERE beat < :now - :age OR beat > :now + 1"
LEAVE = "DELETE FROM worker WHERE worker = ?"
EXPIRE = "UPDATE job SET beat = -1e9 WHERE worker = ?"
WORKERS = """SELECT worker, host, pid, version, agents, concurrency, since, running, :now - beat, place, models, scope FROM worker
    WHERE beat <= :now + 1 ORDER BY since, worker"""
READY = f"""SELECT EXISTS (SELECT 1 FROM job INDEXED BY job_ready_queue
    WHERE worker IS NULL AND later = 0 AND queue IN (SELECT value FROM json_each(:queues)) AND {_FREE})"""
BUSY = """SELECT EXISTS (SELECT 1 FROM job WHERE worker IS NOT NULL)
    OR EXISTS (SELECT 1 FROM job WHERE worker IS NULL AND later = 0)
    OR EXISTS (SELECT 1 FROM job WHERE worker IS NULL AND key GLOB 'limit/*')
    OR EXISTS (SELECT 1 FROM job WHERE worker IS NULL AND key GLOB 'timer/*')
    OR EXISTS (SELECT 1 FROM job WHERE worker IS NULL AND later = 1 AND at < :soon AND key GLOB 'run/*')"""
NEXT_AT = "SELECT MIN(at) FROM job WHERE worker IS NULL AND later = 1 AND queue IN (SELECT value FROM json_each(:queues))"
NEXT_BEAT = "SELECT MIN(beat) FROM job WHERE worker IS NOT NULL AND queue IN (SELECT value FROM json_each(:queues))"

# The same for a worker that serves some trees only: each root is looked up by itself, whatever others have left.
EXPIRED_OF = EXPIRED.replace(" ORDER BY", " AND root IN (SELECT value FROM json_each(:roots)) ORDER BY")
QUEUED_OF = f"""SELECT found.id, found.key, found.queue, found.tries, found.at, NULL, NULL, found.seen
    FROM json_each(:roots) AS tree CROSS JOIN job AS found
    WHERE found.id IN (SELECT job.id FROM job INDEXED BY job_ready_root WHERE job.root = tree.value AND worker IS NULL AND later = 0
        AND queue IN (SELECT value FROM json_each(:queues)) AND {_FREE} ORDER BY priority, job.id LIMIT :room)
    ORDER BY found.priority, found.id"""
SIGNALLED_OF = f"""SELECT job.id, job.key, queue, tries, at FROM json_each(:roots) AS tree CROSS JOIN job INDEXED BY job_ready_root
    ON job.root = tree.value WHERE worker IS NULL AND later = 0 AND priority = 0 AND queue = :queue AND {_FREE}
    ORDER BY priority, job.id LIMIT :limit"""
READY_OF = f"""SELECT EXISTS (SELECT 1 FROM json_each(:roots) AS tree CROSS JOIN job INDEXED BY job_ready_root ON job.root = tree.value
    WHERE worker IS NULL AND later = 0 AND queue IN (SELECT value FROM json_each(:queues)) AND {_FREE})"""
NEXT_AT_OF = """SELECT MIN(at) FROM json_each(:roots) AS tree CROSS JOIN job INDEXED BY job_later_root ON job.root = tree.value
    WHERE worker IS NULL AND later = 1 AND queue IN (SELECT value FROM json_each(:queues))"""
NEXT_BEAT_OF = f"{NEXT_BEAT} AND root IN (SELECT value FROM json_each(:roots))"

ATTEND = """INSERT INTO attendance (root_id, at) SELECT value, :at FROM json_each(:roots) WHERE TRUE
    ON CONFLICT (root_id) DO UPDATE SET at = excluded.at"""
UNATTEND = """DELETE FROM attendance WHERE root_id > 0 AND NOT EXISTS (
    SELECT 1 FROM task INDEXED BY task_tree WHERE task.root_id = attendance.root_id AND archived_at IS NULL)"""


def _put(name: str, table: Table) -> str:
    key, columns = table
    rest = columns[key:]
    update = f"DO UPDATE SET {', '.join(f'{column} = excluded.{column}' for column in rest)}" if rest else "DO NOTHING"
    return f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))}) ON CONFLICT ({', '.join(columns[:key])}) {update}"


def _drop(name: str, table: Table) -> str:
    return f"DELETE FROM {name} WHERE {' AND '.join(f'{column} = ?' for column in table.columns[: table.key])}"


PUT = {name: _put(name, table) for name, table in (TABLES | BESIDE).items()}
DROP = {name: _drop(name, table) for name, table in (TABLES | BESIDE).items()}
