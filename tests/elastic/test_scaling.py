"""Batch and learning rate after a resize."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.scaling import Scaled, scale


@given(st.integers(1, 4096), st.floats(1e-6, 10), st.lists(st.integers(1, 64), min_size=1))
def test_constant_keeps_both_for_every_size(batch: int, lr: float, sizes: list[int]) -> None:
    """However the number of workers moves, batch and learning rate are those of the start."""
    assert {scale("constant", batch=batch, lr=lr, workers=size) for size in sizes} == {Scaled(batch, lr)}


def test_unknown_rules_are_refused() -> None:
    """A rule that does not exist is no silent default."""
    with pytest.raises(ValueError, match="linear"):
        scale("linear", batch=1, lr=1.0, workers=1)  # type: ignore[arg-type]
