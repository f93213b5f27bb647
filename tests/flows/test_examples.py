"""Every example runs from any folder, without a key or a setting, and checks its own result."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.process import environment
from tests.patience import patient

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.py"))
THEIRS = ("REMIT_", "LLM_", "LIGHT_LLM_")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_comes_to_the_result_that_it_expects(example: Path, tmp_path: Path) -> None:
    env = {name: value for name, value in environment().items() if not name.startswith(THEIRS)} | {
        "HOME": str(tmp_path)
    }
    env.pop("XDG_CONFIG_HOME", None)
    ran = subprocess.run(
        [sys.executable, str(example)],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=patient(120),
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout
    assert "Traceback" not in ran.stderr
    assert not list(tmp_path.iterdir()), "nothing is left behind"
