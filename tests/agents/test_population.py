"""Simulated models of every kind in every flow: each ends right, or in an end that says why.

None hangs.
"""

from pathlib import Path

import pytest

from remit import Remit
from remit.testing import PERSONAS, Persona
from tests.agents.population import FLOWS, Stage, end_of, is_honest, is_right, population


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("persona", PERSONAS, ids=lambda persona: persona.name)
async def test_every_model_ends_right_or_says_why(
    durable_url: str, tmp_path: Path, persona: Persona, flow: str
) -> None:
    stage = Stage(persona.rule())
    async with (
        population(stage.rule, tmp_path),
        Remit.open(tmp_path, database_url=durable_url) as remit,
    ):
        task = await FLOWS[flow](remit, stage)
    assert is_right(task) or (not persona.is_reliable and is_honest(task)), end_of(task)
