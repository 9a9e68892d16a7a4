# SPDX-License-Identifier: Apache-2.0
"""Changes to a spec by paths."""

from __future__ import annotations

import pytest

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.changes import changed


def test_a_change_sets_one_field_and_leaves_the_given_spec_alone() -> None:
    """Mappings on the way are made where they are missing."""
    given = {"kind": "TrainingJob", "spec": {"queue": "q", "elasticity": {"grace": "30s"}}}
    found = changed(given, {"elasticity.batch.global": 32, "env.LR": "0.1"})
    assert found["spec"]["elasticity"] == {"grace": "30s", "batch": {"global": 32}}
    assert found["spec"]["env"] == {"LR": "0.1"}
    assert given == {"kind": "TrainingJob", "spec": {"queue": "q", "elasticity": {"grace": "30s"}}}


def test_all_paths_that_lead_nowhere_are_named_at_once() -> None:
    """Through a value, and an empty one."""
    with pytest.raises(SpecError) as caught:
        changed({"spec": {"queue": "q"}}, {"queue.name": 1, "a..b": 2, "": 3, "env.X": "1"})
    assert [problem.path for problem in caught.value.problems] == ["queue.name", "a..b", "''"]
