"""Every way in which a model can fail has an explanation without internal words."""

from typing import get_args

import pytest

from remit.domain.llm.failures import FailureKind, ModelFailed, ModelOrigin, explain


@pytest.mark.parametrize("kind", get_args(FailureKind))
def test_every_failure_of_a_model_is_explained(kind: FailureKind) -> None:
    told = explain(ModelFailed(kind, "It is so."), "main: m", ModelOrigin())
    assert "main: m" in told
    assert "It is so." in told
    assert "_" not in told.replace("LLM_", "").replace("num_ctx", "")
