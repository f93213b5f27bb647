"""Run a driver in a separate process: set it up, run one job per input line, and print its cost.

A driver is a file in `drivers/` with `setup(cfg) -> state`, `run(state, n, k) -> text`,
`teardown(state)` and, if it can continue after a kill, `resume(state) -> text`. Each can be plain
or `async`. `DELEGATE` names the tool that its lead delegates with.
"""

import asyncio
import gc
import importlib
import inspect
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

DRIVERS = Path(__file__).parent / "drivers"


async def main(name: str, cfg: dict[str, Any]) -> None:
    """Read lines in a thread, so that the driver's event loop keeps running."""
    sys.path.insert(0, str(DRIVERS))
    driver = importlib.import_module(name)
    state = await settled(driver.setup(cfg))
    say({"delegate": driver.DELEGATE})
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        say(
            await measured(
                partial(driver.resume, state)
                if order.get("resume")
                else partial(driver.run, state, order["n"], order["k"])
            )
        )
    await settled(driver.teardown(state))


async def measured(work: Callable[[], Any]) -> dict[str, Any]:
    gc.collect()
    forget_peak()
    before, began = memory_kb("VmRSS"), time.process_time()
    text = await settled(work())
    return {
        "cpu": time.process_time() - began,
        "memory_kb": memory_kb("VmHWM") - before,
        "text": text,
    }


async def settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def forget_peak() -> None:
    """Reset the peak memory counter of this process (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def memory_kb(field: str) -> int:
    """A field of `/proc/self/status`, in KB (Linux)."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{field}:")[2].split()[0])


def say(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
    os._exit(0)  # some libraries have threads that keep the process alive
