"""docs/prompts.md shows the text of every tool that an agent is offered in its situations."""

import json
import re
from pathlib import Path

from scripts.prompts import PAGE, SITUATIONS

from remit.adapters.tools import WorkspaceTools


def test_every_offered_tool_is_described_in_full() -> None:
    sections = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    assert len(sections) == len(SITUATIONS)
    shown = [_described(section) for section in sections]
    for section, tools in zip(sections, shown, strict=True):
        referred = re.search(r"^The same tools as in situation (\d+)\.$", section, re.MULTILINE)
        described = shown[int(referred[1]) - 1] if referred else tools
        assert [tool["name"] for tool in described] == _offered(section)
        assert all(tool["description"] and "parameters" in tool for tool in described)


def test_a_set_of_tools_is_described_once() -> None:
    sections = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    sets = [json.dumps(tools) for section in sections if (tools := _described(section))]
    assert len(sets) == len(frozenset(sets))


def test_every_tool_of_the_workspace_is_described(tmp_path: Path) -> None:
    sections = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    tools = [tool for section in sections for tool in _described(section)]
    shown = {tool["name"]: tool["description"] for tool in tools}
    for spec in WorkspaceTools(tmp_path, find_programs=False).specs():
        assert shown.get(spec.name) == spec.description, spec.name


def _offered(section: str) -> list[str]:
    found = re.search(r"^Tools \(\d+\): (.*)$", section, re.MULTILINE)
    assert found is not None
    return [name for name in found[1].split(", ") if name]


def _described(section: str) -> list[dict[str, str]]:
    block = re.search(r"```json\n(.*?)\n```", section, re.DOTALL)
    return [json.loads(line) for line in block[1].splitlines()] if block else []
