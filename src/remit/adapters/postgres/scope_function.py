"""The functions of the PostgreSQL store since jobs name the root of their tree: a worker may ask for the jobs of some trees only."""

from remit.adapters.postgres.function import CLAIM, COMMIT, PUT_ROWS

_NOW = """to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
_FREE = "NOT EXISTS (SELECT 1 FROM job held WHERE held.key = job.key AND held.worker IS NOT NULL)"
_TAKE = f"""UPDATE job SET worker = me, beat = clock_timestamp(), tries = tries + 1,
        seen = COALESCE(seen, {_NOW}) WHERE id = ANY(chosen)
        RETURNING job.id, job.key, job.queue, job.priority, job.tries, job.at, job.seen, NULL::float8"""


def _changed(function: str, *changes: tuple[str, str]) -> str:
    """A released function with some of its text replaced; each text must be there once."""
    for old, new in (("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"), *changes):
        assert function.count(old) == 1, old
        function = function.replace(old, new)
    return function


COMMIT_WITH_ROOTS = _changed(
    COMMIT,
    ("INSERT INTO job (key, queue, priority, at, later)", "INSERT INTO job (key, queue, priority, at, later, root)"),
    ("j.key, j.queue, j.priority, j.at, (j.at IS NOT NULL)::int", "j.key, j.queue, j.priority, j.at, (j.at IS NOT NULL)::int, j.root"),
    ("at text, if_needed_by_others bigint))", "at text, if_needed_by_others bigint, root bigint))"),
    ("AS j (unit, key, queue, priority, at, needed, n)", "AS j (unit, key, queue, priority, at, needed, root, n)"),
    ("later = excluded.later;", "later = excluded.later, root = excluded.root;"),
)
PUT_ROWS_WITH_ROOTS = _changed(
    PUT_ROWS,
    ("parent_id = excluded.parent_id,", "parent_id = excluded.parent_id, root_id = excluded.root_id,"),
)
CLAIM_SEEN = _changed(
    CLAIM,
    ("tries bigint, at text, seconds float8)", "tries bigint, at text, seen text, seconds float8)"),
    (
        """UPDATE job SET worker = me, beat = clock_timestamp(), tries = tries + 1 WHERE id = ANY(chosen)
        RETURNING job.id, job.key, job.queue, job.priority, job.tries, job.at, NULL::float8""",
        _TAKE,
    ),
)

NEXT_IN_OF = f"""CREATE FUNCTION next_in_of(roots bigint[], queues text[], room bigint, lease_seconds float8)
RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
    mine text[] := array_append(CASE WHEN room > 0 THEN queues ELSE '{{}}' END, 'signals');
    wait float8;
BEGIN
    IF EXISTS (
        SELECT 1 FROM unnest(roots) AS tree (root) CROSS JOIN LATERAL (
            SELECT 1 FROM job WHERE job.root = tree.root AND worker IS NULL AND later = 0 AND queue = ANY(mine) AND {_FREE} LIMIT 1
        ) AS ready
    ) THEN
        RETURN 0;
    END IF;
    wait := LEAST(
        (SELECT EXTRACT(EPOCH FROM MIN(first.at)::timestamptz - clock_timestamp())
            FROM unnest(roots) AS tree (root) CROSS JOIN LATERAL (
                SELECT at FROM job WHERE job.root = tree.root AND worker IS NULL AND later = 1 AND queue = ANY(mine) ORDER BY at LIMIT 1
            ) AS first),
        (SELECT EXTRACT(EPOCH FROM MIN(beat) - clock_timestamp()) + lease_seconds
            FROM job WHERE worker IS NOT NULL AND queue = ANY(mine) AND root = ANY(roots))
    );
    RETURN CASE WHEN wait < 0 THEN 0 ELSE wait END;
END $$"""

CLAIM_OF = f"""CREATE FUNCTION claim_jobs_of(
    roots bigint[], me text, queues text[], limits int[], room int, signals int, lease_seconds float8, fleet int
) RETURNS TABLE (id bigint, key text, queue text, priority bigint, tries bigint, at text, seen text, seconds float8) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    chosen bigint[];
    more bigint[];
    free text[];
    taken bigint;
    asked int := room;
    since timestamptz := clock_timestamp() - make_interval(secs => lease_seconds);
BEGIN
    seconds := next_in_of(roots, queues, room, lease_seconds);
    IF seconds IS NULL OR seconds > 0 THEN
        RETURN NEXT;
        RETURN;
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    IF fleet > 0 OR 0 < ANY(limits) THEN
        PERFORM pg_advisory_xact_lock(7236002);
    END IF;
    UPDATE job SET later = 0 WHERE id IN (
        SELECT id FROM job WHERE worker IS NULL AND later = 1 AND at <= {_NOW} FOR UPDATE SKIP LOCKED);
    SELECT COALESCE(array_agg(id), '{{}}') INTO chosen FROM (
        SELECT signal.id FROM unnest(roots) AS tree (root) CROSS JOIN LATERAL (
            SELECT id FROM job WHERE job.root = tree.root AND priority = 0 AND worker IS NULL AND later = 0 AND queue = 'signals' AND {_FREE}
                ORDER BY priority, id LIMIT signals FOR UPDATE SKIP LOCKED
        ) AS signal ORDER BY signal.id LIMIT signals
    ) AS signals_of_mine;
    SELECT chosen || COALESCE(array_agg(id), '{{}}') INTO chosen FROM (
        SELECT id FROM job WHERE queue = 'signals' AND worker IS NOT NULL AND beat < since AND root = ANY(roots)
            ORDER BY id LIMIT signals FOR UPDATE SKIP LOCKED
    ) AS left_signal;
    SELECT COALESCE(array_agg(id), '{{}}') INTO more FROM (
        SELECT id FROM job WHERE queue = ANY(queues) AND worker IS NOT NULL AND beat < since AND root = ANY(roots)
            ORDER BY beat LIMIT room FOR UPDATE SKIP LOCKED
    ) AS left_run;
    chosen := chosen || more;
    room := room - cardinality(more);
    IF fleet > 0 THEN
        SELECT COUNT(*) INTO taken FROM job WHERE worker IS NOT NULL AND queue <> 'signals';
        room := LEAST(room, fleet - taken);
    END IF;
    SELECT array_agg(q.queue) INTO free FROM unnest(queues, limits) AS q (queue, most)
        WHERE q.most = 0 OR q.most > (SELECT COUNT(*) FROM job WHERE job.queue = q.queue AND worker IS NOT NULL);
    IF room > 0 AND free IS NOT NULL THEN
        SELECT chosen || COALESCE(array_agg(id), '{{}}') INTO chosen FROM (
            SELECT best.id FROM (
                SELECT run.id, run.priority, run.queue, row_number() OVER (PARTITION BY run.queue ORDER BY run.priority, run.id) AS place
                FROM unnest(roots) AS tree (root) CROSS JOIN LATERAL (
                    SELECT id, priority, queue FROM job
                    WHERE job.root = tree.root AND worker IS NULL AND later = 0 AND queue = ANY(free) AND {_FREE}
                    ORDER BY priority, id LIMIT CASE WHEN 0 < ANY(limits) THEN NULL ELSE room END FOR UPDATE SKIP LOCKED
                ) AS run
            ) AS best JOIN unnest(queues, limits) AS q (queue, most) ON q.queue = best.queue
            WHERE q.most = 0 OR best.place <= q.most - (SELECT COUNT(*) FROM job WHERE job.queue = q.queue AND worker IS NOT NULL)
            ORDER BY best.priority, best.id LIMIT room
        ) AS runs_of_mine;
    END IF;
    RETURN QUERY {_TAKE};
    seconds := CASE WHEN FOUND THEN NULL ELSE next_in_of(roots, queues, asked, lease_seconds) END;
    RETURN NEXT;
END $$"""

MOVE = """CREATE FUNCTION move_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE job SET root = NEW.root_id WHERE substring(key FROM '/([0-9]+)')::bigint = NEW.id;
    RETURN NULL;
END $$"""

DROP_CLAIM = "DROP FUNCTION claim_jobs(text, text[], int[], int, int, float8, int)"
"""What a function returns can only be changed by making it anew."""

SCOPE_FUNCTIONS = (COMMIT_WITH_ROOTS, PUT_ROWS_WITH_ROOTS, DROP_CLAIM, CLAIM_SEEN, NEXT_IN_OF, CLAIM_OF, MOVE)
