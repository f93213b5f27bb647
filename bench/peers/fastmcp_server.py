"""The same tool on FastMCP."""

import json
import sqlite3
import sys
from typing import Any

from fastmcp import FastMCP

connection = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
server = FastMCP("peer")


@server.tool
async def get_task(task_id: str) -> dict[str, Any]:
    """One task."""
    row = connection.execute("SELECT doc FROM task WHERE id = ?", (int(task_id),)).fetchone()
    found: dict[str, Any] = json.loads(row[0])
    return found


if __name__ == "__main__":
    server.run(show_banner=False)
