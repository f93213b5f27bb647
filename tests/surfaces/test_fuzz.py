"""Thousands of requests made from our own OpenAPI document: no server error, and nothing that
the document does not say.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from remit import __version__
from remit.adapters.stores.memory import MemoryEventStore
from remit.catalog import FOR_EVERYONE
from remit.surfaces.http.openapi import REQUESTS, document
from tests.surfaces.http import BEARER, HOST, House

SCHEMA = schemathesis.openapi.from_dict(document(__version__))
OPERATIONS = {
    found.ok().definition.raw["operationId"]: found.ok()
    for found in SCHEMA.get_all_operations()
    if isinstance(found, Ok)
}
EACH = int(os.environ.get("REMIT_FUZZ_EACH") or 36)
"""Requests to each operation, of each kind: 35 operations make more than 2,000.

`make test-soak` sends more of them.
"""
ENOUGH = 2_000

PROMISES = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]

FUZZ = settings(
    max_examples=EACH,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def sent() -> Iterator[Counter[str]]:
    """How many requests each operation got; enough, once all have had theirs."""
    counted: Counter[str] = Counter()
    yield counted
    if counted.keys() == OPERATIONS.keys():
        assert counted.total() >= ENOUGH


@pytest.fixture
def home() -> House:
    """A guide, an ended task, and streams that end at once."""
    opened = House(MemoryEventStore())
    opened.stopping.set()
    asyncio.run(_furnish(opened))
    return opened


async def _furnish(home: House) -> None:
    await home.call("create_guide", **REQUESTS["create_guide"])
    await home.create(**REQUESTS["create_task"])
    await home.call("complete_task", task_id="1", outputs={"notes": "/tmp/notes"})


def _aim(home: House, case: Case[Any]) -> None:
    """Make it about something that is there, such as a task that nothing has happened to: an
    unknown id would hide all else.
    """
    fresh = asyncio.run(
        home.create(
            steps=["One", "Two"],
            acceptance=["Good"],
            resources=[{"type": "url", "value": "https://example.com"}],
        )
    )
    known: dict[str, Any] = {
        "task_id": fresh,
        "guide_id": "flaky-tests",
        "agent_id": "general",
        "criterion_id": "c1",
        "index": 0,
        "owner": "general",
    }
    for part in (case.path_parameters, case.body):
        if isinstance(part, dict):
            part.update({name: value for name, value in known.items() if name in part})


def _send(home: House, case: Case[Any]) -> Any:
    return case.call(base_url=f"http://{HOST}", headers={"Host": HOST, **BEARER})


WAITING = [name for name, operation in FOR_EVERYONE.items() if operation.stream is not None]


@pytest.mark.parametrize("name", OPERATIONS)
def test_requests_that_the_document_allows_are_answered_as_described(
    name: str, home: House, sent: Counter[str]
) -> None:
    _fuzz(name, GenerationMode.POSITIVE, home, sent)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, operation in OPERATIONS.items()
        if operation.body or any(operation.iter_parameters())
    ],
)
def test_requests_that_the_document_forbids_are_answered_as_described(
    name: str, home: House, sent: Counter[str]
) -> None:
    _fuzz(name, GenerationMode.NEGATIVE, home, sent)


def _fuzz(name: str, mode: GenerationMode, home: House, sent: Counter[str]) -> None:
    operation = OPERATIONS[name]
    operation.app = operation.schema.app = home.door

    @FUZZ
    @given(case=operation.as_strategy(generation_mode=mode), known=st.booleans())
    def run(case: Case[Any], known: bool) -> None:
        sent[name] += 1
        case.headers.pop("Authorization", None)
        if known:
            _aim(home, case)
        if isinstance(case.query, dict):
            for wait in ("wait", "wait_seconds"):
                case.query.pop(
                    wait, None
                )  # nobody works here, so it would wait as long as it was told to
        answer = _send(home, case)
        if name in WAITING and answer.status_code == 503:
            return  # what nobody will do is not waited for
        case.validate_response(answer, checks=PROMISES)

    run()
