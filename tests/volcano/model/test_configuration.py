# SPDX-License-Identifier: Apache-2.0
"""Which scheduler configurations the model follows."""

from __future__ import annotations

from typing import Any

import pytest

from kfp_volcano.errors import SpecError
from kfp_volcano.volcano.model.configuration import CLASSIC, GANG_AWARE, parse_configuration


def stated(actions: str) -> dict[str, Any]:
    """What `volcano-scheduler.conf` of the recordings says."""
    kept = {"enablePreemptable": False}
    first = [{"name": "priority"}, {"name": "gang", **kept}, {"name": "conformance"}]
    second = [{"name": "drf", **kept}, {"name": "predicates"}, {"name": "capacity", "enableHierarchy": True}]
    second += [{"name": "nodeorder"}, {"name": "binpack"}]
    return {"actions": actions, "tiers": [{"plugins": first}, {"plugins": second}]}


def test_a_scheduler_configuration_is_read() -> None:
    """The two configurations of the recordings are those that the model has names for."""
    assert parse_configuration(stated("enqueue, allocate, backfill, reclaim, preempt")) == CLASSIC
    assert parse_configuration(stated("enqueue, allocate, gangreclaim, gangpreempt, backfill")) == GANG_AWARE


def test_an_unknown_configuration_is_refused_whole() -> None:
    """Every action, plugin and argument without a model is named."""
    given = stated("enqueue, shuffle")
    given["tiers"][1]["plugins"] = [{"name": "proportion"}, {"name": "binpack", "arguments": {"binpack.weight": 2}}]
    with pytest.raises(SpecError) as refused:
        parse_configuration(given)
    paths = [problem.path for problem in refused.value.problems]
    assert paths == ["actions", "tiers[1].plugins[0]", "tiers[1].plugins[1].arguments", *["tiers"] * 4]
