"""Messages of a worker on the runs that it gives up because it lost its store."""

import pytest

from remit.adapters.job_engine import _lost_store_message
from remit.errors import Unavailable


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        (0, "No run was given up here."),
        (
            1,
            "Gave up 1 run here. If the last change is stored after all, it is valid. Otherwise"
            " this counts as an attempt, and a worker that reaches the store continues it while"
            " attempts are left.",
        ),
        (
            2,
            "Gave up 2 runs here. If the last change is stored after all, it is valid. Otherwise"
            " each counts as an attempt, and a worker that reaches the store continues them while"
            " attempts are left.",
        ),
    ],
)
def test_the_message_about_given_up_runs_holds_either_way(runs: int, said: str) -> None:
    assert _lost_store_message(runs, Unavailable("The store is away.")) == said
