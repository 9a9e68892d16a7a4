# SPDX-License-Identifier: Apache-2.0
"""What Ray Tune draws."""

from __future__ import annotations

import importlib.util

import pytest

if importlib.util.find_spec("tensorboardX") is None:
    pytest.skip("Ray Tune is not installed", allow_module_level=True)

from kfp_volcano.volcano.launcher.searching.space import space
from kfp_volcano.volcano.launcher.searching.tuning import drawn


def test_what_is_drawn_follows_the_seed() -> None:
    """And is of plain types, for YAML and JSON; a grid has all combinations."""
    spread = space({"env.A": "loguniform(1e-4,1e-1)", "checkpoint.keep": "randint(1,5)", "env.B": "x,y"}, {})
    found = drawn(spread, count=20, seed=3)
    assert found == drawn(spread, count=20, seed=3) != drawn(spread, count=20, seed=4)
    assert {type(value) for each in found for value in each.values()} == {float, int, str}
    assert all(1e-4 <= each["env.A"] <= 1e-1 and 1 <= each["checkpoint.keep"] < 5 for each in found)
    grid = drawn(space({"env.A": "1,2", "env.B": "x,y,z"}, {}), count=None, seed=0)
    assert sorted((each["env.A"], each["env.B"]) for each in grid) == [(a, b) for a in "12" for b in "xyz"]
