"""Which tests belong to `make test`, to `make test-long` and to `make test-fast`.

The markers are set here and nowhere else. `make test` runs `not long`. `make test-long` runs every
long test, and measures coverage while it runs the `measured` tests: the long ones that run in one
process, and the short ones that no long test repeats on PostgreSQL.
"""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any
from zlib import crc32

LONG_FOLDERS = {"docs", "long", "torture"}
LONG_MODULES = {
    "agents/test_population.py",
    "flows/test_examples.py",
    "surfaces/test_fuzz.py",
    "surfaces/test_typed_api.py",
}
LONG_ON_POSTGRES = {"agents", "engine", "flows", "security", "surfaces", "unit"}
"""Folders whose tests run on PostgreSQL in `make test-long` only.

`make test` holds both stores to their promises in the other folders.
"""
EVERY_NTH = {
    "contract/test_opening.py": 3,
    "crash/test_many_writers.py": 3,
    "crash/test_stop.py": 4,
    "engine/test_clock.py": 3,
    "surfaces/test_cli_completion.py": 3,
    "surfaces/test_cli_interrupt.py": 3,
    "surfaces/test_cli_surroundings.py": 3,
    "surfaces/test_command.py": 3,
    "surfaces/test_database_files.py": 4,
    "surfaces/test_high_water_marks.py": 4,
    "surfaces/test_logs.py": 3,
    "surfaces/test_mcp_sessions.py": 3,
    "surfaces/test_mcp_stdio.py": 3,
    "surfaces/test_replaced_file.py": 4,
    "surfaces/test_rollback.py": 4,
    "unit/test_headings.py::test_a_megabyte_of_marks_costs_little": 8,
    "unit/test_written.py::test_a_text_that_repeats_itself_costs_little": 8,
}
"""Modules that start many processes, and long tables that repeat one path.

`make test` takes about every n-th of their tests, `make test-long` all others.
"""
NOT_MEASURED_FOLDERS = {"crash", "docs", "long", "torture"}
NOT_MEASURED_MODULES = {
    "agents/test_population.py",
    "contract/test_opening.py",
    "engine/test_clock.py",
    "engine/test_downtime.py",
    "flows/test_examples.py",
    "surfaces/test_cli_completion.py",
    "surfaces/test_cli_interrupt.py",
    "surfaces/test_cli_interrupt_early.py",
    "surfaces/test_cli_start.py",
    "surfaces/test_cli_surroundings.py",
    "surfaces/test_cli_watch.py",
    "surfaces/test_command.py",
    "surfaces/test_database_files.py",
    "surfaces/test_fuzz.py",
    "surfaces/test_gitignore.py",
    "surfaces/test_high_water_marks.py",
    "surfaces/test_logs.py",
    "surfaces/test_mcp_sessions.py",
    "surfaces/test_mcp_stdio.py",
    "surfaces/test_replaced_file.py",
    "surfaces/test_rollback.py",
    "surfaces/test_typed_api.py",
}
"""Tests that start many processes or repeat one path: to measure what they cover costs too much."""
FAST_FOLDERS = {"unit", "flows"}
REPEATED = {"memory", "sqlite"}
"""Values of parameters whose tests are repeated on PostgreSQL."""
DURABLE = {"sqlite", "postgres"}
"""Values of parameters that choose a store outside of the memory of the test."""


def markers(module: PurePath, name: str, parameters: Mapping[str, Any]) -> set[str]:
    """The markers of a test, given its module below `tests`, its name and its parameters."""
    folder = module.parts[0]
    values = {value for value in parameters.values() if isinstance(value, str)}
    is_repeated = folder in LONG_ON_POSTGRES and not values.isdisjoint(REPEATED)
    is_repetition = folder in LONG_ON_POSTGRES and "postgres" in values
    has_all_points = any(value.startswith("all points") for value in values)
    is_left_out = has_all_points or _is_left_out(f"{module.as_posix()}::{name}")
    found: set[str] = set()
    if folder in LONG_FOLDERS or module.as_posix() in LONG_MODULES or is_repetition or is_left_out:
        found.add("long")
    elif folder in FAST_FOLDERS and not values & DURABLE:
        found.add("fast")
    is_in_process = (
        folder not in NOT_MEASURED_FOLDERS and module.as_posix() not in NOT_MEASURED_MODULES
    )
    if is_in_process and not is_left_out and not is_repeated:
        found.add("measured")
    return found


def _is_left_out(test: str) -> bool:
    """True if `make test` takes other tests of the module or table, the same ones in every run."""
    table = test.partition("[")[0]
    every = EVERY_NTH.get(table) or EVERY_NTH.get(table.partition("::")[0], 1)
    return crc32(test.encode()) % every != 0
