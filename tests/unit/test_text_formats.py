"""The checked values of `format`: pydantic reads each accepted text, and no text takes long."""

import time
from datetime import date, datetime, timedelta
from datetime import time as time_of_day
from ipaddress import IPv4Address, IPv6Address
from typing import Any
from uuid import UUID

import pytest
from pydantic import UUID4, AnyUrl, IPvAnyAddress, TypeAdapter

from remit.domain.outputs.accepted_schemas import schema_problem
from remit.domain.outputs.schema_check import faults
from remit.domain.outputs.text_formats import FORMATS
from tests.patience import patient

TYPES: dict[str, Any] = {
    "date-time": datetime,
    "date": date,
    "time": time_of_day,
    "duration": timedelta,
    "uuid": UUID,
    "uuid4": UUID4,
    "uri": AnyUrl,
    "ipv4": IPv4Address,
    "ipv6": IPv6Address,
    "ipvanyaddress": IPvAnyAddress,
}
V4 = "a4d7e3c0-5b1f-4a63-9d0e-2f6f1f0c8f11"
V7 = "0198C0DE-0000-7000-8000-000000000000"
RIGHT = {
    "date-time": (
        "2026-01-31T10:00:00Z",
        "2026-01-31 10:00",
        "2026-01-31t10:00:00.123456789z",
        "2024-02-29T23:59:59-23:59",
    ),
    "date": ("2026-01-31", "2024-02-29", "0001-01-01"),
    "time": ("10:00", "10:00:00.5Z", "23:59:59+05:30"),
    "duration": ("P1Y2M3W4DT5H6M7.5S", "PT0S", "-PT1H", "P999999D"),
    "uuid": (V4, V7),
    "uuid4": (V4, V4.upper()),
    "uri": (
        "https://example.com/a?b#c",
        "http://localhost:8080",
        "http://[::1]:80/",
        "mailto:a@example.com",
        "urn:isbn:0451450523",
        "file:///etc/hosts",
        "https://exämple.com/ü",
    ),
    "email": ("a@example.com", "a.b+c@localhost"),
    "ipv4": ("10.0.0.1",),
    "ipv6": ("::1", "fd00::1"),
    "ipvanyaddress": ("10.0.0.1", "::1"),
}
WRONG = {
    "date-time": (
        "yesterday",
        "2026-01-31",
        "2026-02-30T10:00:00Z",
        "2026-01-31T24:00:00Z",
        "2026-01-31T10:00:60Z",
        "2026-01-31T10:00:00+24:00",
        "0000-01-01T00:00:00Z",
        "2026-01-31T10:00:00Z\n",
        "٢٠٢٦-01-31T10:00:00Z",
    ),
    "date": ("31.01.2026", "20260131", "2026-W05-6", "2025-02-29", "0000-01-01"),
    "time": ("noon", "24:00", "10", "10:60", "10:00:60"),
    "duration": ("two hours", "P", "PT", "P1DT", "1:00", "PT1H1.5M", "P9999999999D", "p1d "),
    "uuid": ("17", V4.replace("-", ""), f"{{{V4}}}", f"{V4}\n"),
    "uuid4": (V7, V4.replace("-9d", "-1d")),
    "uri": (
        "nope",
        "/a",
        "//example.com",
        "1a:b",
        "http://",
        "http://:80",
        "http://a:99999",
        "http://[x",
        "http://a b",
        "http://a\nb",
    ),
    "email": ("a", "a@", "@b", "a@b@c", "a b@c", "a@b..c"),
    "ipv4": ("10.0.0.256", "10.0.0", "1", "10.0.0.01"),
    "ipv6": ("fd00::g", "1::2::3", "10.0.0.1"),
    "ipvanyaddress": ("x", ""),
}


def found(name: str, value: Any) -> list[str]:
    return [fault.expected for fault in faults({"format": name}, value, "value")]


@pytest.mark.parametrize(("name", "text"), [(name, text) for name in RIGHT for text in RIGHT[name]])
def test_a_text_in_the_format_is_accepted_and_read_by_pydantic(name: str, text: str) -> None:
    assert found(name, text) == []
    if name in TYPES:
        TypeAdapter(TYPES[name]).validate_python(text)


@pytest.mark.parametrize(("name", "text"), [(name, text) for name in WRONG for text in WRONG[name]])
def test_a_text_in_another_format_is_refused(name: str, text: str) -> None:
    assert found(name, text) == [FORMATS[name].expected]


@pytest.mark.parametrize("name", sorted(TYPES))
def test_what_pydantic_writes_is_accepted(name: str) -> None:
    adapter = TypeAdapter(TYPES[name])
    values = [adapter.validate_python(text) for text in RIGHT[name]]
    assert [found(name, adapter.dump_python(value, mode="json")) for value in values] == [[]] * len(
        values
    )


def test_other_values_and_unknown_formats_are_not_checked() -> None:
    assert found("date-time", 3) == []
    assert found("color", "anything") == []
    assert schema_problem({"format": 3}, "schema") is not None


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_long_text_takes_little_time(name: str) -> None:
    start = time.perf_counter()
    for text in ("a" * 10**6, "1" * 10**6, "a:" * 10**6, "a@" + "b." * 10**6, "P1Y" * 10**6):
        found(name, text)
    assert time.perf_counter() - start < patient(2)
