"""The description that a package index shows."""

import re
import subprocess
import sys

import pytest
from scripts.package_readme import with_absolute_links

from tests.docs.pages import ROOT
from tests.patience import patient

SOURCE = "https://github.com/example/remit"


def test_the_description_of_the_package_has_absolute_links() -> None:
    command = [sys.executable, "-m", "hatchling", "metadata", "readme"]
    said = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=patient(60)
    )
    targets = re.findall(r"\]\(([^)\s]+)\)", said.stdout)
    assert len(targets) > 20
    assert [target for target in targets if not target.startswith("https://")] == []


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("[a](docs/a.md#b)", f"[a]({SOURCE}/blob/main/docs/a.md#b)"),
        ("![a](docs/a.svg)", f"![a]({SOURCE}/raw/main/docs/a.svg)"),
        ("[a](https://example.org/a)", "[a](https://example.org/a)"),
        ("[a](#b)", "[a](#b)"),
    ],
)
def test_only_relative_links_are_changed(written: str, expected: str) -> None:
    assert with_absolute_links(written, SOURCE) == expected
