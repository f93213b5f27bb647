"""Lookups of plans."""

from typing import get_args

from remit.app.writing.plan_lookups import PlanLookups
from remit.domain.planning import lookups


def test_every_lookup_has_an_answer() -> None:
    assert PlanLookups.ANSWERS.keys() == set(get_args(lookups.Lookup))
