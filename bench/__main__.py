"""`make bench`: print all ratios, and fail if one misses its target."""

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.postgres import PostgresForTests

from bench.commits import Round, postgres_round, sqlite_round
from bench.engine import engine_lines, sqlite_urls
from bench.fanout import fanout_lines
from bench.line import Line
from bench.models import models
from bench.reads import fill, medians
from bench.surfaces import PEERS, mcp, rest, starts, workspace
from remit.bootstrap import open_store

ROUNDS = 5
ENGINE_ROUNDS = 3
COMMITS = {1: 400, 64: 6400}
PARTS = ["sqlite", "postgres", "surfaces", "engine", "models", "fanout"]


async def commit_lines(name: str, round_: Round, rounds: int) -> list[Line]:
    """Commit rates, compared with plain driver code."""
    lines: list[Line] = []
    for concurrent, count in COMMITS.items():
        results = [await round_(concurrent, count) for _ in range(rounds)]
        ours, bare = (statistics.median(column) for column in zip(*results, strict=True))
        ratio = statistics.median(ours / bare for ours, bare in results)
        what = f"{name}: commit, {concurrent} at once, per second (other: plain driver code)"
        lines.append(
            Line(what, f"{ours:,.0f}", f"{bare:,.0f}", ratio, "at least 0.50", ratio >= 0.5)
        )
    return lines


async def read_lines(name: str, small_url: str, large_url: str, size: int) -> list[Line]:
    """Read times with 1,000 tasks and with more."""
    async with open_store(small_url) as small, open_store(large_url) as large:
        await fill(small, 1000)
        await fill(large, size)
        at_small, at_large = await medians(small, 1000), await medians(large, size)
        at_small_again = await medians(small, 1000)
    lines: list[Line] = []
    for what, seconds in at_large.items():
        base = (at_small[what] + at_small_again[what]) / 2
        shown = f"{name}: {what}, ms at {size:,} tasks (other: at 1,000)"
        lines.append(
            Line(
                shown,
                f"{seconds * 1000:.3f}",
                f"{base * 1000:.3f}",
                seconds / base,
                "at most 1.50",
                seconds / base <= 1.5,
            )
        )
    return lines


async def model_lines(rounds: int) -> list[Line]:
    """CPU time of a model call."""
    ours, plain, ratio = await models(rounds)
    what = "model call on the wire, 100 agents at once, CPU microseconds (other: plain aiohttp)"
    return [
        Line(what, f"{ours * 1e6:.0f}", f"{plain * 1e6:.0f}", ratio, "at most 1.30", ratio <= 1.3)
    ]


def surface_lines(folder: Path, rounds: int) -> list[Line]:
    """Call times and startup times of the surfaces."""
    place = workspace(folder)
    ours, bare = rest(place, 1000, rounds)
    lines = [
        Line(
            "REST: read a task, ms (other: plain Starlette)",
            f"{ours * 1000:.3f}",
            f"{bare * 1000:.3f}",
            ours / bare,
            "at most 1.50",
            ours / bare <= 1.5,
        )
    ]
    servers = {"FastMCP": "fastmcp_server.py", "a hand-written server": "raw_mcp.py"}
    start, call = (
        min(column)
        for column in zip(*[mcp(place.remit("mcp"), 500) for _ in range(rounds)], strict=True)
    )
    for name, script in servers.items():
        command = [sys.executable, str(PEERS / script), place.database]
        peer_start, peer_call = (
            min(column) for column in zip(*[mcp(command, 500) for _ in range(rounds)], strict=True)
        )
        target, most = ("at most 1.00", 1.0) if name == "FastMCP" else ("", float("inf"))
        what = f"MCP on stdio: call, ms (other: {name})"
        lines.append(
            Line(
                what,
                f"{call * 1000:.3f}",
                f"{peer_call * 1000:.3f}",
                call / peer_call,
                target,
                call / peer_call <= most,
            )
        )
        lines.append(
            Line(
                f"MCP on stdio: start, ms (other: {name})",
                f"{start * 1000:.0f}",
                f"{peer_start * 1000:.0f}",
                start / peer_start,
                "",
                True,
            )
        )
    read = (
        "import"
        " sqlite3,json,argparse,sys;print(json.dumps(sqlite3.connect(sys.argv[1]).execute('select"
        " doc from task').fetchall()))"
    )
    commands = {
        "nothing": [sys.executable, "-c", "pass"],
        "list": place.remit("task", "list", "--json"),
        "bare": [sys.executable, "-c", read, place.database],
        "create": place.remit("task", "create", "Another"),
    }
    taken = starts(commands, 5 * rounds)
    for name, target, most in (
        ("list", "at most 8.00", 8.0),
        ("bare", "", float("inf")),
        ("create", "", float("inf")),
    ):
        what = {
            "list": "remit task list --json",
            "bare": "python with sqlite3 and json",
            "create": "remit task create",
        }[name]
        ratio = taken[name] / taken["nothing"]
        lines.append(
            Line(
                f"start to end of {what}, ms (other: python -c pass)",
                f"{taken[name] * 1000:.0f}",
                f"{taken['nothing'] * 1000:.0f}",
                ratio,
                target,
                ratio <= most,
            )
        )
    return lines


def show(lines: list[Line]) -> None:
    """Print the lines as a Markdown table."""
    print("| what | remit | other | ratio | target | |\n|---|---|---|---|---|---|")
    for line in lines:
        print(
            f"| {line.what} | {line.ours} | {line.other} | {line.ratio:.2f} | {line.target} |"
            f" {'met' if line.met else 'MISSED'} |"
        )


async def measure(rounds: int, size: int, parts: list[str]) -> list[Line]:
    """Measure all parts, one after the other."""
    lines: list[Line] = []
    with tempfile.TemporaryDirectory() as folder:
        if "sqlite" in parts:
            lines += await commit_lines("SQLite", sqlite_round, rounds)
            lines += await read_lines(
                "SQLite", f"sqlite:///{folder}/small.db", f"sqlite:///{folder}/large.db", size
            )
        if "models" in parts:
            lines += await model_lines(rounds)
        if "fanout" in parts:
            lines += await fanout_lines(Path(folder) / "fanout", rounds)
        if "surfaces" in parts:
            lines += surface_lines(Path(folder) / "workspace", rounds)
        if "postgres" in parts:
            with postgres() as server:
                lines += await commit_lines(
                    "PostgreSQL", partial(postgres_round, server.new_database), rounds
                )
                lines += await read_lines(
                    "PostgreSQL", server.new_database(), server.new_database(), size
                )
        if "engine" in parts:
            with postgres() as server:
                lines += await engine_lines(
                    {"PostgreSQL": server.new_database, "SQLite": sqlite_urls(Path(folder))},
                    min(rounds, ENGINE_ROUNDS),
                )
    return lines


@contextmanager
def postgres() -> Iterator[PostgresForTests]:
    """Start a separate PostgreSQL server for a part."""
    server = PostgresForTests()
    try:
        yield server
    finally:
        server.close()


def main() -> None:
    """Run the measurements; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(
        description="Compare remit with plain code that does the same work."
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=ROUNDS,
        help="how often each rate is measured (default %(default)s)",
    )
    parser.add_argument(
        "--size",
        type=int,
        default=100_000,
        help="tasks in the large workspace (default %(default)s)",
    )
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part")
    options = parser.parse_args()
    lines = asyncio.run(measure(options.rounds, options.size, options.part or PARTS))
    show(lines)
    sys.exit(0 if all(line.met for line in lines) else 1)


if __name__ == "__main__":
    main()
