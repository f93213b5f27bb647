"""A minimal MCP server on standard input and output that reads the same row: the baseline."""

import json
import sqlite3
import sys
from typing import Any

TOOL = {
    "name": "get_task",
    "inputSchema": {
        "type": "object",
        "properties": {"task_id": {"type": "string"}},
        "required": ["task_id"],
    },
}


def answer(connection: sqlite3.Connection, request: dict[str, Any]) -> dict[str, Any]:
    params: dict[str, Any] = request.get("params", {})
    match request["method"]:
        case "initialize":
            server = {"name": "raw", "version": "1"}
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": server,
            }
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            row = connection.execute(
                "SELECT doc FROM task WHERE id = ?", (int(params["arguments"]["task_id"]),)
            ).fetchone()
            return {
                "content": [{"type": "text", "text": row[0]}],
                "structuredContent": json.loads(row[0]),
                "isError": False,
            }
        case _:
            return {}


def main() -> None:
    connection = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            reply = {"jsonrpc": "2.0", "id": request["id"], "result": answer(connection, request)}
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
