"""A worker that runs one shell command, to be killed."""

import asyncio
import sys
from pathlib import Path

from tests.toolbox import Toolbox


async def main(workspace: str, box: str, command: str) -> None:
    """Say that the call is about to be made, and make it."""
    call = Toolbox(Path(workspace), box=box)
    await call("Bash", command="true")
    print("calling", flush=True)
    await call("Bash", command=command)


asyncio.run(main(*sys.argv[1:]))
