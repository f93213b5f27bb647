"""Ways to delegate to a model that plans: the command line and REST."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, cast

from remit.surfaces.http.guard import App, Guard
from remit.surfaces.http.rest import rest_app
from tests.agents.stage import Stage
from tests.modelserver import ModelServer
from tests.patience import patient
from tests.surfaces.http import BEARER, CALLER, HOST, TOKEN, send


def model_of(server: ModelServer) -> dict[str, str]:
    """The environment that names an endpoint."""
    return {"LLM_MODEL_ID": "planner", "LLM_API_KEY": "none", "LLM_BASE_URL": f"{server.url}/v1"}


async def asked(at: Stage, method: str, target: str, body: Any = None) -> Any:
    """A request through the front door to the workers of a stage."""
    rest = rest_app(at.team.core, caller=CALLER, stopping=asyncio.Event(), heartbeat=15.0)
    door = Guard(cast("App", rest), token=TOKEN, hosts=frozenset({HOST}))
    content = b"" if body is None else json.dumps(body).encode()
    typed = (
        {"Content-Type": "application/json", "Content-Length": str(len(content))} if content else {}
    )
    answer = await send(door, method, target, {"Host": HOST, **BEARER, **typed}, [content])
    assert answer.status == 200
    return answer.json


async def remit_in(
    folder: Path, variables: dict[str, str], *arguments: str
) -> tuple[int | None, str, str]:
    """A command in a real process: its exit code and what it printed."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("REMIT_", "LLM_", "LIGHT_LLM_"))
    }
    env = clean | {"HOME": str(folder / "home"), "NO_COLOR": "1"} | variables
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "remit", *arguments, cwd=folder, env=env, stdout=pipe, stderr=pipe
    )
    try:
        async with asyncio.timeout(patient(60)):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode, out.decode(), err.decode()
