"""The OpenAPI document says what the catalogue does, and shows it."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from remit import __version__
from remit.catalog import FOR_EVERYONE
from remit.domain.records.validate import parse
from remit.errors import RemitError
from remit.surfaces.http.openapi import IN_QUERY, QUERY_ALIASES, REQUESTS, document
from tests.surfaces.http import house

DOCUMENT = document("1.2.3")
OFFERED = {
    name: operation
    for name, operation in FOR_EVERYONE.items()
    if operation.path and not operation.alias_of
}
ONLY_HTTP = {"follow_events", "healthz", "readyz", "metrics", "openapi"}


def _operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, described in methods.items():
            yield method.upper(), path, described


BY_ID = {
    described["operationId"]: (method, path, described) for method, path, described in _operations()
}


def _resolved(part: Any) -> Any:
    """What a reference stands for."""
    while isinstance(part, dict) and "$ref" in part:
        found: Any = DOCUMENT
        for name in part["$ref"].removeprefix("#/").split("/"):
            found = found[name]
        part = found
    return part


def _validator(schema: Any) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": DOCUMENT["components"]})


def test_it_lists_every_operation_once_where_it_is() -> None:
    assert BY_ID.keys() == OFFERED.keys() | ONLY_HTTP
    assert len(list(_operations())) == len(BY_ID)
    assert {name: BY_ID[name][:2] for name in OFFERED} == {
        name: (operation.method, operation.path) for name, operation in OFFERED.items()
    }


def test_the_head_of_the_document() -> None:
    assert (DOCUMENT["openapi"], DOCUMENT["info"]["version"]) == ("3.1.0", "1.2.3")
    assert DOCUMENT["security"] == [{"token": []}]
    assert DOCUMENT["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert [
        name for name, (_, _, described) in BY_ID.items() if described.get("security") == []
    ] == ["healthz"]
    tags = {tag["name"] for tag in DOCUMENT["tags"]}
    assert all(set(described["tags"]) <= tags for _, _, described in _operations())


def test_every_reference_leads_somewhere() -> None:
    references = set(re.findall(r'"\$ref": "([^"]+)"', json.dumps(DOCUMENT)))
    assert {type(_resolved({"$ref": reference})) for reference in references} == {dict}


def test_a_task_is_described_once() -> None:
    assert json.dumps(DOCUMENT).count('"instructions_version": {') == 1
    assert len(json.dumps(DOCUMENT, separators=(",", ":"))) < 130_000


@pytest.mark.parametrize("name", OFFERED)
def test_fields_are_where_requests_have_them(name: str) -> None:
    method, path, described = BY_ID[name]
    fields = set(OFFERED[name].input.__fields__)
    in_path = set(re.findall(r"{(\w+)}", path))
    given = {
        (parameter["in"], parameter["name"])
        for parameter in described["parameters"]
        if parameter["in"] != "header"
    }
    if method in ("GET", "DELETE"):
        asked = (fields - in_path) | QUERY_ALIASES.get(name, {}).keys()
        assert given == {("path", field) for field in in_path} | {
            ("query", field) for field in asked
        }
        assert "requestBody" not in described
    else:
        assert given == {("path", field) for field in in_path} | {
            ("query", field) for field in fields & set(IN_QUERY)
        }
        body = (
            described["requestBody"]["content"]["application/json"]["schema"]
            if "requestBody" in described
            else {"properties": {}}
        )
        assert set(body["properties"]) == fields - in_path
    assert all(parameter["description"] for parameter in described["parameters"])


@pytest.mark.parametrize("name", REQUESTS)
def test_the_example_of_a_request_is_one(name: str) -> None:
    _, _, described = BY_ID[name]
    content = described["requestBody"]["content"]["application/json"]
    assert list(_validator(content["schema"]).iter_errors(content["example"])) == []
    in_path = {
        parameter["name"]: parameter["example"]
        for parameter in described["parameters"]
        if parameter["in"] == "path"
    }
    parse(OFFERED[name].input, content["example"] | in_path)


def test_every_request_with_a_body_has_an_example() -> None:
    assert {
        name for name, (_, _, described) in BY_ID.items() if "requestBody" in described
    } == REQUESTS.keys()


@pytest.mark.parametrize("name", BY_ID)
def test_every_answer_has_an_example_that_is_one(name: str) -> None:
    for answer in map(_resolved, BY_ID[name][2]["responses"].values()):
        for content in answer["content"].values():
            shown = (
                _resolved(content["examples"]["answer"])["value"]
                if "examples" in content
                else content["example"]
            )
            if "itemSchema" in content:
                shown = dict(line.split(": ", 1) for line in shown.strip().split("\n"))
            assert (
                list(_validator(content.get("schema") or content["itemSchema"]).iter_errors(shown))
                == []
            ), shown
            assert shown or name == "openapi"


@pytest.mark.parametrize("name", BY_ID)
def test_every_error_of_the_contract_is_documented(name: str) -> None:
    statuses = {error.status for error in RemitError.__subclasses__()} | {413, 415, 421}
    responses = BY_ID[name][2]["responses"]
    assert responses.keys() == {"200"} | {str(status) for status in statuses}
    for status in statuses:
        assert _resolved(responses[str(status)])["content"]["application/json"]["schema"] == {
            "$ref": "#/components/schemas/Error"
        }


async def test_the_server_gives_it_away() -> None:
    async with house() as home:
        answer = await home.ask("GET", "/openapi.json")
        assert answer.json == json.loads(json.dumps(document(__version__)))
