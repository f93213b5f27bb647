"""A plain Starlette app with the same read: a SQLite row as JSON, behind a bearer token."""

import json
import sqlite3
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


def app(path: str, token: str) -> Starlette:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)

    async def show(request: Request) -> JSONResponse:
        if request.headers.get("authorization") != f"Bearer {token}":
            return JSONResponse({"error": "no"}, 401)
        row = connection.execute(
            "SELECT doc FROM task WHERE id = ?", (int(request.path_params["task_id"]),)
        ).fetchone()
        return JSONResponse(json.loads(row[0]))

    return Starlette(routes=[Route("/api/tasks/{task_id}", show)])


if __name__ == "__main__":
    uvicorn.run(
        app(sys.argv[1], sys.argv[2]), port=int(sys.argv[3]), log_level="error", access_log=False
    )
