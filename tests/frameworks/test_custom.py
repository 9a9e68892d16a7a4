# SPDX-License-Identifier: Apache-2.0
"""Any roles: they start in their order, find each other by Volcano's lists, and one of them ends the Job."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.timeout(600)


def test_actors_find_the_learner_that_was_there_before(train: Any) -> None:
    """The learner fits the line with both actors, and the Job is done with it."""
    training = train("custom")
    assert training.end() == "Completed", training.logs()
    assert "done with 2 actors, weight 3.0000" in training.logs()
