"""The checked values of `format`: pydantic reads each accepted text, and no text takes long."""

import json
import random
import time
from datetime import date, datetime, timedelta
from datetime import time as time_of_day
from ipaddress import IPv4Address, IPv6Address
from typing import Any
from uuid import UUID

import pytest
from pydantic import UUID4, AnyUrl, IPvAnyAddress, TypeAdapter, ValidationError

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
        "2026-01-31",
        "2026-01-31_10:00:00,5+0100",
        "2026-01-31T10:00:00.1234567891\u221205:00",
        "1700000000",
        "-1700000000.5",
        "1.7e9",
    ),
    "date": (
        "2026-01-31",
        "2024-02-29",
        "0001-01-01",
        "2026-01-31T00:00:00",
        "2026-01-31 00:00Z",
        "2026-01-31T00:00:00.000+0100",
        "1700006400",
        "-86400.0",
        "1700006400000",
    ),
    "time": ("10:00", "10:00:00.5Z", "23:59:59+05:30", "10:00:00,1234567+0530"),
    "duration": (
        "P1Y2M3W4DT5H6M7.5S",
        "PT0S",
        "-PT1H",
        "P999999D",
        "PT0.5H",
        "P1.5D",
        "P0.5W",
        "PT1,5S",
        "P1000000Y",
        "P1DT",
        "PT1H1.5M",
        "P1D1Y",
        "PT4294967295S",
        "1d",
        "1 day",
        "-2 days, 02:00:00.5",
        "12:30",
        "1:30:00",
        "100:00:00",
    ),
    "uuid": (V4, V7, V4.replace("-", ""), f"{{{V4}}}", f"urn:uuid:{V4}"),
    "uuid4": (
        V4,
        V4.upper(),
        V4.replace("-", ""),
        f"{{{V4}}}",
        f"urn:uuid:{V4}",
    ),
    "uri": (
        "https://example.com/a?b#c",
        "http://localhost:8080",
        "http://[::1]:80/",
        "mailto:a@example.com",
        "urn:isbn:0451450523",
        "file:///etc/hosts",
        "https://exämple.com/ü",
        "HTTPS://u:p@x:0080/a b?q#f",
        "http:x",
        "http:\\\\x\\:99999",
        "http:///x",
        " http://x\n",
        "ht\ttp://a\nb",
        "http://x?:99999",
        "file:a",
        "file:///a b",
        "sqlite:///app.db",
        "redis:///0",
        "custom:",
        "custom://",
        "custom://?x",
        "custom://@",
        "custom://a:5\\b",
        "data:text/plain,a b",
    ),
    "email": ("a@example.com", "a.b+c@localhost", "A B <a@example.com>"),
    "ipv4": ("10.0.0.1",),
    "ipv6": ("::1", "fd00::1"),
    "ipvanyaddress": ("10.0.0.1", "::1"),
}
WRONG = {
    "date-time": (
        "yesterday",
        "2026-01-32",
        "2026-02-30T10:00:00Z",
        "2026-01-31T24:00:00Z",
        "2026-01-31T10:00:60Z",
        "2026-01-31T10:00:00+24:00",
        "0000-01-01T00:00:00Z",
        "2026-01-31T10:00:00Z\n",
        "٢٠٢٦-01-31T10:00:00Z",
    ),
    "date": (
        "31.01.2026",
        "20260131",
        "2026-W05-6",
        "2025-02-29",
        "0000-01-01",
        "2026-01-31T01:00",
        "1e999",
    ),
    "time": ("noon", "24:00", "10", "10:60", "10:00:60"),
    "duration": ("two hours", "P", "PT", "1:00", "PT1M1H1", "P.5D", "P9999999999D", "p1d "),
    "uuid": ("17", f"{{{V4}", f"urn:uuid:{{{V4}}}", V4.replace("-", "", 1), f"{V4}\n"),
    "uuid4": (V7, V7.replace("-", ""), V4.replace("-9d", "-1d")),
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
        "http://u@/x",
        "custom://a b/",
        "custom://:80",
        "custom://a:99999",
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
        TypeAdapter(TYPES[name]).validate_json(json.dumps(text))


@pytest.mark.parametrize(("name", "text"), [(name, text) for name in WRONG for text in WRONG[name]])
def test_a_text_in_another_format_is_refused(name: str, text: str) -> None:
    assert found(name, text) == [FORMATS[name].expected]
    if name in TYPES:
        with pytest.raises(ValidationError):
            TypeAdapter(TYPES[name]).validate_json(json.dumps(text))


@pytest.mark.parametrize("name", sorted(TYPES))
def test_no_text_that_pydantic_accepts_is_refused(name: str) -> None:
    chance = random.Random(name)
    adapter = TypeAdapter(TYPES[name])
    texts = [each for texts in (*RIGHT.values(), *WRONG.values()) for each in texts]
    texts += [changed(chance.choice(RIGHT[name]), chance) for _ in range(3000)]
    wrongly = [text for text in texts if found(name, text) and accepts(adapter, text)]
    assert wrongly == []


def accepts(adapter: TypeAdapter[Any], text: str) -> bool:
    try:
        adapter.validate_json(json.dumps(text))
    except ValidationError:
        return False
    return True


def changed(text: str, chance: random.Random) -> str:
    """Return a text with a few characters removed, replaced or added."""
    for _ in range(chance.randint(1, 3)):
        start = chance.randint(0, len(text))
        end = start + chance.randint(0, 1)
        text = (
            text[:start] + chance.choice(["", *"0159:-+.,/\\?#@[]{} \tTZPDWHSdaue_"]) + text[end:]
        )
    return text


@pytest.mark.parametrize("name", sorted(TYPES))
def test_what_pydantic_writes_is_accepted(name: str) -> None:
    adapter = TypeAdapter(TYPES[name])
    values = [adapter.validate_json(json.dumps(text)) for text in RIGHT[name]]
    assert [found(name, adapter.dump_python(value, mode="json")) for value in values] == [[]] * len(
        values
    )


def test_other_values_and_unknown_formats_are_not_checked() -> None:
    assert found("date-time", 3) == []
    assert found("color", "anything") == []
    assert schema_problem({"format": 3}, "schema") is not None


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_long_text_takes_little_time(name: str) -> None:
    began = time.perf_counter()
    parts = ("a", "1", "1.", "0", "a:", "a@", "b.", "P1Y", "1D", "/", ":", "@", "<", " ", "\\")
    starts = ("", "http:", "a://", "P", "PT", "1e", "2026-01-31T00:00:00.", "a@", "a@b", "<")
    for part in (*parts, "00000000001H", "\\/"):
        for start in starts:
            found(name, start + part * (10**5 // len(part)) + "!")
    assert time.perf_counter() - began < patient(2)
