"""Several sub-agents at once on the sources of remit; each result as it comes, and one that fails fails alone.

Runs with the model that is set, and without one offline.
"""

import asyncio
import tempfile
from pathlib import Path

from remit import Remit

HERE = Path(__file__).resolve().parents[1] / "src"

WORK = [
    {"objective": "Where is the class `Remit` defined?", "subagent_type": "explore"},
    {"objective": "Condense remit/errors.py", "subagent_type": "summary"},
    {"objective": "Plan a new operation beside `create_guide`", "subagent_type": "plan"},
    {"objective": "Do anything at all", "subagent_type": "nobody"},
]


async def main() -> None:
    """Hand out the work, and print what comes back."""
    statuses = {}
    with tempfile.TemporaryDirectory() as folder:
        async with Remit.open(HERE, f"sqlite:///{folder}/remit.db") as remit:
            async for settled in remit.stream_parallel(WORK):
                index, result = settled["index"], settled["result"]
                statuses[index] = result["status"]
                print(f"[{index}] {WORK[index]['objective']}")
                for line in result["text"].splitlines()[:8]:
                    print(f"      {line}")
    assert statuses == {0: "success", 1: "success", 2: "success", 3: "error"}, statuses


if __name__ == "__main__":
    asyncio.run(main())
