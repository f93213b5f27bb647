"""Keys and tokens are sent where they belong and are seen nowhere else, even if an endpoint
sends them back.
"""

import asyncio
import json
import re
import signal
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import pytest

from remit.domain.llm.failures import excerpt
from tests.agents.endpoint import Body, RuledServer, objective
from tests.crash.process import environment
from tests.modelserver import Raw, Reply, Status, sse
from tests.patience import patient
from tests.surfaces.shell import Shell

CANARY = "Zq7canary"
"""How every secret here begins; no pattern of usual keys fits it."""
MAIN, LIGHT, OTHER, TOKEN = (
    f"{CANARY}.{name}.0123" for name in ("main", "light", "other", "token")
)


def basic(key: str) -> str:
    """A key as the header of a user without a name holds it."""
    return b64encode(f"u:{key}".encode()).decode()


ALTERED = (CANARY, CANARY.upper(), basic(CANARY)[3:-1], f"{CANARY[:7]}*")
"""What betrays a key that was sent back, also in another form."""


def echoes(key: str) -> dict[str, Reply]:
    """Failures that send a key back, each in its own way, and that are not tried again."""
    return {
        "refused": Status(
            401,
            {"error": {"message": f"Incorrect API key provided: {key}. Find yours at our site."}},
        ),
        "code": Status(400, {"error": {"code": key, "type": key, "message": key}}),
        "trace": Status(404, f"Traceback: headers = {{'Authorization': 'Bearer {key}'}}"),
        "shape": Status(400, {"detail": [{"loc": ["header", key], "msg": key}]}),
        "at-a-cut": Status(400, " " * 3990 + key + " is no key"),
        "at-another-cut": Status(400, "<i>" * 21_840 + key),
        "header": Status(
            402,
            "",
            {"Retry-After": key, "X-Key": key, "Location": f"http://127.0.0.1:9/?key={key}"},
        ),
        "elsewhere": Status(307, key, {"Location": f"http://127.0.0.1:9/?key={key}"}),
        "altered": Status(400, f"{key.upper()} or {basic(key)} or {key[:7]}****{key[-4:]}"),
        "frame": Raw((sse({"error": {"message": f"bad key {key}", "code": 401}}),)),
    }


async def rule(body: Body) -> Reply:
    tier, _, shape = objective(body).partition(" ")
    return echoes(MAIN if tier == "main" else LIGHT)[shape]


@contextmanager
def serving(shell: Shell) -> Iterator[tuple[str, list[str]]]:
    """The URL of a server, and what it has said once it has stopped."""
    child = shell.started("serve", "--port", "0")
    said: list[str] = []
    assert child.stderr is not None
    found = None
    while found is None:  # on a slow machine it may say first that it waits for the store
        said.append(child.stderr.readline())
        assert said[-1], "it ended"
        found = re.search(r"http://127\.0\.0\.1:\d+", said[-1])
    try:
        yield found[0], said
    finally:
        child.send_signal(signal.SIGTERM)
        said += child.communicate(timeout=patient(20))


def get(url: str, path: str, body: object = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    with urllib.request.urlopen(
        urllib.request.Request(url + path, data, headers), timeout=patient(60)
    ) as answer:
        return str(answer.read().decode())


def with_canaries(folder: Path, database_url: str, address: str) -> Shell:
    """A workspace whose keys come from the user's config and from the environment."""
    shell = Shell(
        folder,
        PYTHONPATH=environment()["PYTHONPATH"],
        REMIT_TOKEN=TOKEN,
        REMIT_DATABASE_URL=database_url,
        LIGHT_LLM_MODEL_ID="small",
        LIGHT_LLM_API_KEY=LIGHT,
        LIGHT_LLM_BASE_URL=f"{address}/light",
        OPENAI_API_KEY=OTHER,
    )
    config = folder / "home" / ".config" / "remit" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(
        f'[models.main]\nmodel = "large"\nbase_url = "{address}/main"\napi_key = "{MAIN}\\n"\n'
    )
    assert shell.remit("init").code == 0
    return shell


def written(folder: Path) -> str:
    """Every byte in a folder, but for the file that a person wrote."""
    return b"\n".join(
        path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "config.toml"
    ).decode("latin-1")


async def stored(folder: Path, database_url: str) -> str:
    """Everything that was kept, in files and in all rows of a database."""
    rows: list[str] = []
    if database_url.startswith("postgresql:"):
        connection = await asyncpg.connect(database_url)
        tables = await connection.fetch(
            "SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) FROM pg_tables WHERE"
            " schemaname !~ '^(pg_|info)'"
        )
        for (table,) in tables:
            rows += [row[0] for row in await connection.fetch(f"SELECT t::text FROM {table} t")]
        await connection.close()
    return "\n".join([*rows, await asyncio.to_thread(written, folder)])


async def test_a_key_that_an_endpoint_sends_back_is_seen_nowhere(
    durable_url: str, tmp_path: Path
) -> None:
    async with RuledServer(rule).running() as server:
        shell = with_canaries(tmp_path, durable_url, server.url)
        said = await asyncio.to_thread(_story, shell, sorted(echoes("")))
        kept = await stored(tmp_path, durable_url)
        sent = {item.headers["authorization"] for item in server.asked}
    assert sent == {f"Bearer {MAIN}", f"Bearer {LIGHT}"}
    assert "rejected the request" in kept
    assert "[redacted]" in kept
    for place, text in {**said, "store": kept}.items():
        for form in ALTERED:
            assert form not in text, (place, text[max(0, text.index(form) - 300) :][:400])


def _story(shell: Shell, shapes: list[str]) -> dict[str, str]:
    """Everything that can be read after all kinds of failures, by the place it was read at."""
    works = [
        {
            "objective": f"{tier} {shape}",
            "model": tier,
            "limits": {"max_attempts": 1},
            "timeout_seconds": patient(60),
        }
        for tier in ("main", "light")
        for shape in shapes
    ]
    read: dict[str, str] = {}
    with serving(shell) as (url, said):
        read["results"] = get(url, "/api/delegate/parallel", {"tasks": works})
        results = json.loads(read["results"])["results"]
        assert {item["data"]["status"] for item in results} == {"failed"}
        for number in range(1, len(works) + 1):
            for path in ("", "/events", "/transcript", "/updates", "/result"):
                read[f"{number}{path}"] = get(url, f"/api/tasks/{number}{path}")
        for path in (
            "/metrics",
            "/readyz",
            "/healthz",
            "/openapi.json",
            "/api/tasks/history",
            "/api/agents",
            "/api/notifications",
        ):
            read[path] = get(url, path)
    read["log"] = "".join(said)
    commands = (("doctor", "--verify"), ("export", "events"), ("run", "main refused"))
    for command in commands:
        ran = shell.remit(*command)
        read[" ".join(command)] = ran.out + ran.err
    return read


@pytest.mark.parametrize("form", ["http://ann:{}@{}/v1", "http://{1}/v1?api-key={0}&v=1"])
async def test_a_secret_in_the_url_of_a_model_is_seen_nowhere(
    durable_url: str, tmp_path: Path, form: str
) -> None:
    async def refuse(_: Body) -> Reply:
        return Status(400, {"error": {"message": f"no route /v1?api-key={OTHER}"}})

    async with RuledServer(refuse).running() as server:
        url = form.format(OTHER, server.url.partition("://")[2])
        shell = Shell(
            tmp_path,
            PYTHONPATH=environment()["PYTHONPATH"],
            REMIT_DATABASE_URL=durable_url,
            LLM_MODEL_ID="large",
            LLM_API_KEY=MAIN,
            LLM_BASE_URL=url,
        )
        commands = (
            ("run", "Look", "--json"),
            ("doctor",),
            ("doctor", "--json"),
            ("task", "show", "1"),
            ("task", "events", "1", "--json"),
        )
        said = [await asyncio.to_thread(shell.remit, *command) for command in commands]
        kept = await stored(tmp_path, durable_url)
    shown = [ran.out + ran.err for ran in said]
    assert "models.main.base_url" in shown[1]
    assert not any(CANARY in text for text in (*shown, kept))


@pytest.mark.parametrize("before", range(3970, 4010))
def test_no_cut_leaves_a_piece_of_a_secret(before: int) -> None:
    assert "Zq7" not in excerpt(" " * before + MAIN, [MAIN])
