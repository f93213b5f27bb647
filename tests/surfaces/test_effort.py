"""The reasoning effort of a model, on the command line and the server."""

import json
from pathlib import Path

from tests.surfaces.shell import Shell


def test_run_and_create_take_an_effort(tmp_path: Path, durable_url: str) -> None:
    shell = Shell(tmp_path, REMIT_DATABASE_URL=durable_url)
    for name in ("LLM_MODEL_ID", "LLM_API_KEY", "LLM_BASE_URL"):
        shell.env.pop(name, None)
    shell.remit("run", "Find main", "--agent", "explore", "--effort", "high")
    shell.remit("task", "create", "Find it", "--owner", "explore", "--effort", "none", "--draft")
    shown = [json.loads(shell.remit("task", "show", number, "--json").out) for number in ("1", "2")]
    assert [page["effort"] for page in shown] == ["high", "none"]
    wrong = shell.remit("run", "Find main", "--effort", "huge")
    assert (wrong.code, "effort" in wrong.err) == (2, True), wrong
