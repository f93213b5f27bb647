"""A call with a field that its tool does not have: the error lists the fields of the schema that
the model was shown.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.agents.stage import calls, results, says, stage


@pytest.mark.parametrize(
    "tool", ["ask_user", "notify_user", "complete_task", "get_task", "TodoWrite"]
)
async def test_an_error_lists_only_fields_that_the_model_was_shown(
    any_url: str, tmp_path: Path, tool: str
) -> None:
    async with stage(any_url, tmp_path, [calls((tool, {"qqq": 1})), says("Done.")]) as at:
        await at.run()
        first, last = at.script.asked
        (schema,) = [offered.schema for offered in first.tools if offered.name == tool]
        shown: dict[str, Any] = schema["properties"]
        (told,) = results(last)
        listed = told.partition(f"qqq: is not a field of {tool}; expected one of ")[2].partition(
            "."
        )[0]
        assert set(listed.split(", ")) == set(shown), told


async def test_no_hidden_field_is_suggested(any_url: str, tmp_path: Path) -> None:
    async with stage(
        any_url,
        tmp_path,
        [calls(("ask_user", {"question": "Which?", "call_ids": 1})), says("Done.")],
    ) as at:
        await at.run()
        (told,) = results(at.script.asked[-1])
        assert (
            told == "call_ids: is not a field of ask_user; expected one of question, options,"
            " allow_other, blocking."
        )
