"""A model that spends tokens until its last turn, and the tokens it is shown as left."""

import re

from remit.domain.llm.messages import Request, Response, Tokens
from tests.agents.stage import calls, says

ANSWER = Tokens(900, 100)


def looking(request: Request) -> Response:
    """Looks around as long as it may, then reports."""
    answer = calls(("LS", {"path": "."})) if request.may_call else says("Half of it.")
    return answer._replace(tokens=ANSWER)


def number(text: str) -> int:
    return int(text.replace(",", ""))


def left(request: Request) -> int | None:
    """The tokens that the task block of a request shows as left."""
    found = re.search(r"^Left: .*?([\d,]+) tokens", request.messages[-1].text, re.MULTILINE)
    return number(found[1]) if found else None
