"""Run several sub-agents at once on the source code of remit.

Each result is printed when its task ends. A failed task does not affect the others.

Uses the configured model, or the offline model if there is none.
"""

import asyncio
import tempfile
from pathlib import Path

from remit import Remit, WorkInput

HERE = Path(__file__).resolve().parents[1] / "src"

WORK: list[WorkInput] = [
    {"objective": "Where is the class `Remit` defined?", "subagent_type": "explore"},
    {"objective": "Condense remit/errors.py", "subagent_type": "summary"},
    {"objective": "Plan a new operation beside `create_guide`", "subagent_type": "plan"},
    {"objective": "This agent does not exist", "subagent_type": "unknown"},
]


async def main() -> None:
    """Delegate the tasks and print their results."""
    statuses = {}
    with tempfile.TemporaryDirectory() as folder:
        async with Remit.open(HERE, f"sqlite:///{folder}/remit.db") as remit:
            async for settled in remit.stream_parallel(WORK):
                index, result = settled.index, settled.result
                statuses[index] = result.status
                print(f"[{index}] {WORK[index]['objective']}: {result.status}")
                for line in result.text.splitlines()[:8]:
                    print(f"      {line}")
    assert statuses == {0: "completed", 1: "completed", 2: "completed", 3: "failed"}, statuses


if __name__ == "__main__":
    asyncio.run(main())
