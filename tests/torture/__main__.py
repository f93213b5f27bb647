"""The long form: `python -m tests.torture --tasks N --kills K --seed S --database
sqlite|postgres [--minutes M]`.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from random import SystemRandom

from tests.postgres import PostgresForTests
from tests.torture.ordeal import Report, Settings, on_postgres, on_sqlite


def main() -> int:
    """Rounds of the ordeal, each with the next seed, until the time is over or one has found
    something.
    """
    asked = arguments()
    deadline = time.monotonic() + asked.minutes * 60
    seed = asked.seed
    while True:
        report = one_round(asked, seed)
        print(f"{asked.database}: {report}", flush=True)
        if report.violations:
            return 1
        seed += 1
        if time.monotonic() >= deadline:
            return 0


def one_round(asked: argparse.Namespace, seed: int) -> Report:
    """The ordeal once, in a folder that is kept only if something was found."""
    settings = Settings(
        seed,
        asked.tasks,
        asked.kills,
        stops=asked.stops,
        restarts=asked.restarts,
        cuts=asked.restarts,
        workers=asked.workers,
    )
    folder = Path(tempfile.mkdtemp(prefix="remit-torture-"))
    if asked.database == "sqlite":
        report = on_sqlite(settings, folder)
    else:
        server = PostgresForTests()
        try:
            report = on_postgres(settings, folder, server)
        finally:
            server.close()
    if report.violations:
        print(f"what the processes said is in {folder}")
    else:
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        folder.rmdir()
    return report


def arguments() -> argparse.Namespace:
    """The options of the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture")
    parser.add_argument("--database", choices=("sqlite", "postgres"), required=True)
    parser.add_argument("--tasks", type=int, default=3000)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--stops", type=int, default=6)
    parser.add_argument(
        "--restarts",
        type=int,
        default=6,
        help="of the server, and cuts of its connections; PostgreSQL only",
    )
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6))
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="go on with further seeds for so long"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
