"""Records: frozen values that are equal when their fields are."""

import copy
import pickle

import pytest

from remit.domain.records.record import fields, is_record, record, replace
from remit.domain.task.task import Dependency, Step, ToolCount


@record
class Pair:
    left: int
    right: int = 0


def test_a_record_has_named_fields_with_defaults() -> None:
    assert (Pair(left=1).left, Pair(left=1).right) == (1, 0)
    assert list(fields(Pair)) == ["left", "right"]
    assert is_record(Pair)
    assert is_record(Pair(left=1))
    assert not is_record(object())
    assert repr(Pair(left=1)) == "Pair(left=1, right=0)"


@pytest.mark.parametrize("values", [{}, {"right": 1}, {"left": 1, "middle": 2}])
def test_a_record_takes_exactly_its_fields(values: dict[str, int]) -> None:
    with pytest.raises(TypeError, match="Pair"):
        Pair(**values)


def test_a_record_cannot_be_changed() -> None:
    pair = Pair(left=1)
    with pytest.raises(AttributeError, match="use replace"):
        pair.left = 2  # type: ignore[misc]  # that it is refused is the point
    with pytest.raises(AttributeError):
        del pair.left
    assert replace(pair, left=2) == Pair(left=2)
    assert pair == Pair(left=1)


def test_only_a_field_can_be_replaced() -> None:
    with pytest.raises(TypeError, match="middle"):
        replace(Pair(left=1), middle=2)  # type: ignore[call-arg]  # that it is refused is the point


def test_equal_records_have_equal_hashes_in_whatever_order_they_were_given() -> None:
    one, other = ToolCount(tool="Read", count=1), ToolCount(count=1, tool="Read")
    assert one == other
    assert len({one, other}) == 1
    assert (
        len({Dependency(task_id="1"), replace(Dependency(on="settled", task_id="1"), on="done")})
        == 1
    )


def test_records_of_different_kinds_are_never_equal() -> None:
    others: list[object] = [Dependency(task_id="a"), {"title": "a", "done": False}]
    assert Step(title="a") not in others


def test_a_record_can_be_copied() -> None:
    step = Step(title="Look", done=True)
    assert copy.deepcopy(step) == step
    assert pickle.loads(pickle.dumps(step)) == step
