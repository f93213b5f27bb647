"""What tests of agents share."""

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace with a file, beside whatever else a test writes."""
    made = tmp_path / "ws"
    (made / ".remit").mkdir(parents=True)
    (made / "main.py").write_text("def main(): ...\n")
    return made
