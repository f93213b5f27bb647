"""Access control of the HTTP server: every route, with every kind of invalid request."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from starlette.routing import Route

from remit.surfaces.http.guard import MAX_BODY, Guard, Message, Receive, Send
from remit.surfaces.http.rest import rest_routes
from tests.surfaces.http import BEARER, CALLER, HOST, TOKEN, Answer, House, house, send, site

JSON = {"Content-Type": "application/json"}
GOOD = {"Host": HOST, **BEARER}


@pytest.fixture
async def home() -> AsyncIterator[House]:
    async with house() as opened:
        opened.stopping.set()  # so that a stream that should not have opened cannot hang a test
        yield opened


def _every_request(home: House) -> Iterator[tuple[str, str]]:
    """Each route of the router, each with all its methods; and paths that are not there."""
    routes: list[Route] = rest_routes(home.core, CALLER)
    for route in routes:
        target = route.path.format(**dict.fromkeys(route.param_convertors, "1"))
        for method in sorted(route.methods or ()):
            yield method, target
    for target in (
        "/",
        "/mcp",
        "/mcp/",
        "/nothing",
        "/healthz/",
        "//healthz",
        "/healthz/../api/tasks",
        "/HEALTHZ",
    ):
        yield "GET", target
        yield "POST", target


async def _all_refused(
    home: House,
    change: Callable[[dict[str, str]], None],
    status: int,
    code: str,
    *,
    public: bool = True,
) -> None:
    """What a changed header gets at every door; nothing is stored."""
    before = await home.store.tail()
    for method, target in _every_request(home):
        headers = dict(GOOD)
        change(headers)
        answer = await send(home.door, method, target, headers)
        if target == "/healthz" and not public:
            assert answer.status in (200, 405)
            continue
        assert (answer.status, answer.code) == (status, code), f"{method} {target}"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert TOKEN not in answer.body.decode() + str(answer.headers)
    assert await home.store.tail() == before


BAD_TOKENS = {
    "wrong": f"Bearer {TOKEN[:-1]}x",
    "shorter": f"Bearer {TOKEN[:-1]}",
    "longer": f"Bearer {TOKEN}x",
    "another case": f"Bearer {TOKEN.upper()}",
    "empty": "Bearer ",
    "no scheme": TOKEN,
    "another scheme": f"Basic {TOKEN}",
    "twice": f"Bearer {TOKEN}, Bearer {TOKEN}",
    "not ASCII": "Bearer \xfc",
}


async def test_without_a_token_every_route_is_closed(home: House) -> None:
    await _all_refused(
        home,
        lambda headers: headers.__delitem__("Authorization"),
        401,
        "UNAUTHENTICATED",
        public=False,
    )


@pytest.mark.parametrize("name", BAD_TOKENS)
async def test_with_a_bad_token_every_route_is_closed(name: str, home: House) -> None:
    await _all_refused(
        home,
        lambda headers: headers.update(Authorization=BAD_TOKENS[name]),
        401,
        "UNAUTHENTICATED",
        public=False,
    )


async def test_a_refusal_says_how_to_authenticate(home: House) -> None:
    assert (await send(home.door, "GET", "/api/tasks", {"Host": HOST})).headers[
        "www-authenticate"
    ] == "Bearer"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_the_scheme_may_be_written_in_any_case(scheme: str, home: House) -> None:
    assert (
        await send(
            home.door, "GET", "/api/tasks", {"Host": HOST, "Authorization": f"{scheme} {TOKEN}"}
        )
    ).status == 200


async def test_a_token_in_the_address_counts_for_nothing(home: House) -> None:
    for query in (f"token={TOKEN}", f"access_token={TOKEN}", f"authorization=Bearer%20{TOKEN}"):
        assert (await send(home.door, "GET", f"/api/tasks?{query}", {"Host": HOST})).status == 401


async def test_a_token_given_twice_is_refused(home: House) -> None:
    twice = [
        ("Host", HOST),
        ("Authorization", f"Bearer {TOKEN}"),
        ("Authorization", f"Bearer {TOKEN}"),
    ]
    assert (await send(home.door, "GET", "/api/tasks", twice)).status == 401


def test_every_route_requires_the_token(home: House) -> None:
    with pytest.raises(ValueError, match="token"):
        Guard(home.door, token="", hosts=[HOST])


BAD_HOSTS = [
    "evil.example",
    "evil.example:8420",
    "127.0.0.1",
    "127.0.0.1:8421",
    "127.0.0.1:8420.evil.example",
    "localhost:8420",
    "",
    f"{HOST}:8420",
    f"a@{HOST}",
]


@pytest.mark.parametrize("host", BAD_HOSTS)
async def test_another_host_is_misdirected_everywhere(host: str, home: House) -> None:
    await _all_refused(home, lambda headers: headers.update(Host=host), 421, "INVALID_PARAM")


async def test_no_host_and_two_hosts_are_misdirected(home: House) -> None:
    await _all_refused(home, lambda headers: headers.__delitem__("Host"), 421, "INVALID_PARAM")
    assert (
        await send(home.door, "GET", "/healthz", [("Host", HOST), ("Host", HOST)])
    ).status == 421


async def test_a_host_is_known_in_any_case() -> None:
    door = Guard(_ok, token=TOKEN, hosts=["LocalHost:8420"])
    assert (await send(door, "GET", "/", {"Host": "LOCALHOST:8420", **BEARER})).status == 204


BAD_ORIGINS = [
    "null",
    "http://evil.example",
    f"https://{HOST}",
    "http://127.0.0.1",
    "http://127.0.0.1:8421",
    f"http://{HOST}.evil.example",
    f"http://{HOST}/",
    "",
    HOST,
]


@pytest.mark.parametrize("origin", BAD_ORIGINS)
async def test_another_origin_is_forbidden_everywhere(origin: str, home: House) -> None:
    await _all_refused(home, lambda headers: headers.update(Origin=origin), 403, "FORBIDDEN")


async def test_our_own_origin_is_let_in_and_gets_no_leave_for_others(home: House) -> None:
    answer = await home.ask("GET", "/api/tasks", Origin=f"http://{HOST}")
    assert answer.status == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]


# Bodies.

BAD_TYPES = [
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/json-patch+json",
    "text/json",
    "",
]


@pytest.mark.parametrize(
    "kind", [*BAD_TYPES, "application/json; charset=utf-16", "application/json, text/plain", None]
)
async def test_only_json_is_read(kind: str | None, home: House) -> None:
    before = await home.store.tail()
    for method, target in _every_request(home):
        headers = GOOD | ({} if kind is None else {"Content-Type": kind}) | {"Content-Length": "14"}
        answer = await send(home.door, method, target, headers, [b'{"title": "x"}'])
        assert (answer.status, answer.code) == (415, "INVALID_PARAM"), f"{method} {target}"
    assert await home.store.tail() == before


@pytest.mark.parametrize(
    "kind",
    [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        'application/json;charset="UTF-8"',
    ],
)
async def test_json_is_known_in_each_of_its_spellings(kind: str, home: House) -> None:
    assert (await home.ask("POST", "/api/tasks", {"title": "x"}, Content_Type=kind)).status == 200


async def test_a_body_that_was_not_announced_must_be_json_too(home: House) -> None:
    answer = await send(home.door, "POST", "/api/tasks", GOOD, [b'{"title": "x"}'])
    assert (answer.status, answer.code) == (415, "INVALID_PARAM")


async def test_without_a_body_no_type_is_asked_for(home: House) -> None:
    task_id = await home.create()
    assert (await send(home.door, "POST", f"/api/tasks/{task_id}/pause", GOOD)).status == 200
    assert (
        await send(
            home.door, "POST", f"/api/tasks/{task_id}/resume", GOOD | {"Content-Length": "0"}
        )
    ).status == 200


def _sized(size: int) -> bytes:
    empty = json.dumps({"title": "x", "instructions": ""}).encode()
    return json.dumps({"title": "x", "instructions": "a" * (size - len(empty))}).encode()


def _pieces(body: bytes) -> list[bytes]:
    return [body[start : start + 65_536] for start in range(0, len(body), 65_536)]


async def test_a_body_of_the_largest_size_is_read(home: House) -> None:
    assert (await home.ask("POST", "/api/tasks", raw=_sized(MAX_BODY))).status == 200


@pytest.mark.parametrize(
    "length",
    [
        {"Content-Length": str(MAX_BODY + 1)},
        {"Transfer-Encoding": "chunked"},
        {"Content-Length": "10"},
        {},
        {"Content-Length": "x"},
    ],
)
async def test_one_byte_more_is_too_large_whatever_was_announced(
    length: dict[str, str], home: House
) -> None:
    before = await home.store.tail()
    answer = await send(
        home.door, "POST", "/api/tasks", GOOD | JSON | length, _pieces(_sized(MAX_BODY + 1))
    )
    assert (answer.status, answer.code) == (413, "INVALID_PARAM")
    assert await home.store.tail() == before


async def test_a_body_without_end_is_cut_off_while_it_is_read(home: House) -> None:
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        while taken < 100:
            taken += 1
            yield b"a" * 100_000

    async def receive() -> Message:
        return {"type": "http.request", "body": next(chunks), "more_body": True}

    chunks, sent = endless(), list[Message]()

    async def collect(message: Message) -> None:
        sent.append(message)

    headers = [
        (name.lower().encode(), value.encode())
        for name, value in (GOOD | JSON | {"Transfer-Encoding": "chunked"}).items()
    ]
    scope: Message = {
        "type": "http",
        "method": "POST",
        "path": "/api/tasks",
        "scheme": "http",
        "headers": headers,
        "query_string": b"",
    }
    await home.door(scope, receive, collect)
    assert sent[0]["status"] == 413
    assert taken == 11


async def test_a_caller_who_hangs_up_in_the_middle_of_a_body_changes_nothing(home: House) -> None:
    before = await home.store.tail()
    messages: list[Message] = [
        {"type": "http.request", "body": b'{"title": "x"}', "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Message:
        return messages.pop(0)

    async def ignore(_: Message) -> None:
        pass

    headers = [
        (name.lower().encode(), value.encode())
        for name, value in (GOOD | JSON | {"Content-Length": "20"}).items()
    ]
    await home.door(
        {
            "type": "http",
            "method": "POST",
            "path": "/api/tasks",
            "scheme": "http",
            "headers": headers,
            "query_string": b"",
        },
        receive,
        ignore,
    )
    assert await home.store.tail() == before


# What is not HTTP, what the answers carry, what the logs say.


async def _ok(_scope: Message, _receive: Receive, send: Send) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": 204,
            "headers": [(b"cache-control", b"max-age=60")],
        }
    )
    await send({"type": "http.response.body", "body": b""})


async def test_a_response_with_its_own_cache_control_is_unchanged() -> None:
    answer = await send(Guard(_ok, token=TOKEN, hosts=[HOST]), "GET", "/", GOOD)
    assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == (
        "max-age=60",
        "nosniff",
    )


async def test_good_answers_carry_the_security_headers(home: House) -> None:
    for target in ("/healthz", "/api/tasks", "/openapi.json", "/api/events"):
        answer = await home.ask("GET", target)
        assert (
            answer.status,
            answer.headers["x-content-type-options"],
            answer.headers["cache-control"],
        ) == (200, "nosniff", "no-store")


async def test_a_websocket_is_closed_at_the_door(home: House) -> None:
    sent: list[Message] = []

    async def collect(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    await home.door({"type": "websocket", "path": "/", "headers": []}, receive, collect)
    assert sent == [{"type": "websocket.close", "code": 1008}]


async def test_the_token_is_in_no_log(home: House, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    home.core.store = None  # type: ignore[assignment]  # so that something goes wrong and is logged
    for target in ("/api/tasks", "/readyz", "/api/nothing"):
        await home.ask("GET", target)
    assert "failed" in caplog.text
    assert TOKEN not in caplog.text


# The same on a real socket, where lengths can lie for real.


async def _wire(host: str, head: str, body: bytes = b"") -> Answer:
    """One request, byte for byte."""
    name, _, port = host.partition(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    writer.write(head.replace("\n", "\r\n").encode() + b"\r\n" + body)
    status = int((await reader.readline()).split()[1])
    headers: dict[str, str] = {}
    while (line := (await reader.readline()).strip()) != b"":
        key, _, value = line.decode().partition(": ")
        headers[key.lower()] = value
    content = (
        await reader.readexactly(int(headers["content-length"]))
        if "content-length" in headers
        else await reader.read()
    )
    writer.close()
    await writer.wait_closed()
    return Answer(status, headers, content)


def _chunked(body: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in _pieces(body)) + b"0\r\n\r\n"


async def test_the_wire_is_guarded_too(home: House) -> None:
    async with site(home.store) as served:
        head = (
            f"POST /api/tasks HTTP/1.1\nHost: {served.host}\nAuthorization: Bearer"
            f" {TOKEN}\nContent-Type: application/json\n"
        )
        chunked = head + "Transfer-Encoding: chunked\n"
        assert (await _wire(served.host, chunked, _chunked(_sized(MAX_BODY)))).status == 200
        assert (await _wire(served.host, chunked, _chunked(_sized(MAX_BODY + 1)))).status == 413
        assert (
            await _wire(
                served.host, head + f"Content-Length: {MAX_BODY + 1}\n", _sized(MAX_BODY + 1)
            )
        ).status == 413
        assert (await _wire(served.host, head + "Content-Length: 20\n", _sized(5000))).status == 422
        assert (
            await _wire(served.host, f"GET /healthz HTTP/1.1\nHost: {served.host}\n")
        ).status == 200
        assert (await _wire(served.host, "GET /healthz HTTP/1.0\n")).status == 421
        assert (
            await _wire(served.host, "GET /healthz HTTP/1.1\nHost: evil.example\n")
        ).code == "INVALID_PARAM"
        assert (
            await _wire(
                served.host, f"GET http://evil.example/api/tasks HTTP/1.1\nHost: {served.host}\n"
            )
        ).status == 401
        assert len((await home.ask("GET", "/api/tasks")).json["tasks"]) == 1


@pytest.mark.parametrize("begun", [False, True], ids=["unanswered", "answered in part"])
async def test_a_caller_that_a_stopping_server_cuts_off_is_told_so(begun: bool) -> None:
    stopping, waiting = asyncio.Event(), asyncio.Event()
    sent: list[Message] = []

    async def slow(_: Message, __: Receive, send: Send) -> None:
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        waiting.set()
        await asyncio.Event().wait()

    async def collect(message: Message) -> None:
        sent.append(message)

    async def nothing() -> Message:
        raise AssertionError("there is no body to read")

    door = Guard(slow, token=TOKEN, hosts={HOST}, stopping=stopping)
    scope = {
        "type": "http",
        "scheme": "http",
        "method": "GET",
        "path": "/",
        "headers": [(b"host", HOST.encode())],
    }
    scope["headers"].append((b"authorization", f"Bearer {TOKEN}".encode()))  # type: ignore[attr-defined]
    for told in (False, True):
        serving = asyncio.create_task(door(scope, nothing, collect))
        await waiting.wait()
        waiting.clear()
        serving.cancel()
        if told:
            await serving
        else:
            with pytest.raises(asyncio.CancelledError):
                await serving
            stopping.set()
    if begun:
        assert [message["type"] for message in sent] == ["http.response.start"] * 2, (
            "nothing after what was said"
        )
    else:
        assert (sent[0]["status"], json.loads(sent[1]["body"])["error"]["code"]) == (
            503,
            "UNAVAILABLE",
        )
