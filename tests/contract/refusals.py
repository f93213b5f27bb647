"""Refusals of model servers, in their words."""

import json
from pathlib import Path
from typing import Any

AT_MOST = (
    "max_tokens is too large: 16000. This model supports at most 4096 completion tokens, whereas"
    " you provided 16000."
)


RECORDED = json.loads((Path(__file__).parent / "overflows.json").read_text())


OVERFLOWS: dict[str, tuple[int, Any]] = RECORDED["overflows"]
"""The status and the document with which servers refuse a conversation that is too long."""


OTHERS: dict[str, tuple[int, str, str]] = RECORDED["others"]
"""Refusals with similar words, and their kinds."""
