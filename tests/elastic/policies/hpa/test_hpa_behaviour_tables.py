# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' own tables of windows, rates and events, each row a test, replayed on the behaviours here.

The rows are public data that the repository does not contain (`data/k8s-hpa-tables` of the shared folder; its README
says how they are to be read): without it each table is one skipped test.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kfp_volcano.elastic.policies.hpa.behavior import (
    Bounds,
    limited,
    limited_plainly,
    stabilised,
    stabilised_plainly,
)
from kfp_volcano.elastic.policies.hpa.history import History, ScaleEvent, change_within, longest_period, stored
from kfp_volcano.elastic.policies.memory import Recommendation
from kfp_volcano.schemas.hpa import DEFAULT_DOWN, DEFAULT_UP, Behavior, ScalingPolicy, ScalingRules

ROOT = Path(__file__).resolve().parents[4]
TABLES = Path(os.environ.get("KFP_VOLCANO_SHARED", ROOT.parent / "shared"), "data/k8s-hpa-tables/behaviour_tables.json")
NOW = 1_000_000.0


def rows(table: str) -> list[Any]:
    """The rows of a table as parameters, named as there; one that is skipped where they are absent."""
    if not TABLES.is_file():
        reason = f"Kubernetes' tables are absent: {TABLES} (set KFP_VOLCANO_SHARED)"
        return [pytest.param(None, marks=pytest.mark.skip(reason=reason), id=f"hpa-{table}")]
    data = json.loads(TABLES.read_text(encoding="utf-8"))["cases"][f"horizontal_test.go:{table}"]["data"]
    names = [row[0] if isinstance(row, list) else row.get("name", row.get("annotation")) for row in data]
    return [pytest.param(row, id=f"hpa-{table}-{name}") for row, name in zip(data, names, strict=True)]


def rules(row: dict[str, Any] | None, default: ScalingRules) -> ScalingRules:
    """Scaling rules as a row has them, with the API's defaults for what it leaves out."""
    if row is None:
        return default
    policies = [
        ScalingPolicy(type=kind, value=row[key], period_seconds=row[f"{key}Period"])
        for kind, key in (("Pods", "pods"), ("Percent", "percent"))
        if row[key]
    ]
    return ScalingRules(
        stabilization_window_seconds=row["stabilizationWindowSeconds"],
        select_policy=row["selectPolicy"],
        policies=tuple(policies) or default.policies,
    )


def events(row: list[dict[str, Any]] | None) -> tuple[ScaleEvent, ...]:
    """Scale events that happened so many seconds ago."""
    return tuple(ScaleEvent(each["replicaChange"], NOW - each["age_s"]) for each in row or ())


def log(row: list[Any]) -> tuple[Recommendation, ...]:
    """Recommendations [replicas, time]."""
    return tuple(Recommendation(NOW + at["now_plus_s"], replicas) for replicas, at in row)


@pytest.mark.parametrize("row", rows("TestScalingWithRules"))
def test_hpa_rates_and_bounds(row: dict[str, Any]) -> None:
    """By behaviours a size goes as far as range, rates and earlier changes let it, and the nearest limit is named."""
    behavior = Behavior(
        scale_up=rules(row.get("scaleUpRules"), DEFAULT_UP), scale_down=rules(row.get("scaleDownRules"), DEFAULT_DOWN)
    )
    history = History(ups=events(row.get("scaleUpEvents")), downs=events(row.get("scaleDownEvents")))
    bounds = Bounds(row["specMinReplicas"], row["specMaxReplicas"])
    found = limited(row["currentReplicas"], row["prenormalizedDesiredReplicas"], bounds, behavior, history, NOW)
    assert (found.replicas, found.reason) == (row["expectedReplicas"], row["expectedCondition"])


@pytest.mark.parametrize("row", rows("TestConvertDesiredReplicasWithRules"))
def test_hpa_bounds_without_behaviours(row: dict[str, Any]) -> None:
    """Without behaviours a size at most doubles, or goes to four."""
    bounds = Bounds(row["hpaMinReplicas"], row["hpaMaxReplicas"])
    found = limited_plainly(row["currentReplicas"], row["expectedDesiredReplicas"], bounds)
    assert (found.replicas, found.reason) == (row["expectedConvertedDesiredReplicas"], row["expectedCondition"])


@pytest.mark.parametrize("row", rows("TestNormalizeDesiredReplicas"))
def test_hpa_window_without_behaviours(row: list[Any]) -> None:
    """Without behaviours the highest of five minutes counts, and one slot that is older is used again."""
    _, _, recommendations, wanted, expected, length = row
    replicas, kept = stabilised_plainly(wanted, log(recommendations), NOW, down_window_s=300)
    assert (replicas, len(kept)) == (expected, length)


@pytest.mark.parametrize("row", rows("TestNormalizeDesiredReplicasWithBehavior"))
def test_hpa_windows_of_behaviours(row: dict[str, Any]) -> None:
    """By behaviours each direction has its window, and the log keeps what was recommended, not what came of it."""
    behavior = Behavior(
        scale_up=ScalingRules(stabilization_window_seconds=row.get("scaleUpStabilizationWindowSeconds", 0)),
        scale_down=ScalingRules(stabilization_window_seconds=row.get("scaleDownStabilizationWindowSeconds", 0)),
    )
    wanted, before = row["prenormalizedDesiredReplicas"], log(row["recommendations"])
    found = stabilised(row["currentReplicas"], wanted, behavior, before, NOW, down_window_s=300)
    assert found.replicas == row["expectedStabilizedReplicas"]
    if "expectedRecommendations" in row:
        assert [each.workers for each in found.log] == [replicas for replicas, _ in row["expectedRecommendations"]]


@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("row", rows("TestStoreScaleEvents"))
def test_hpa_events_are_stored(row: dict[str, Any], direction: str) -> None:
    """A change is kept as long as some policy asks for it; without behaviours none is."""
    said = row.get("scalingRules")
    before = tuple(ScaleEvent(change, NOW + at["now_plus_s"], old) for change, at, old in row["prevScaleEvents"])
    policies = rules(said, ScalingRules())
    behavior = Behavior(scale_up=policies, scale_down=policies) if said else None
    assert change_within(before, longest_period(policies), NOW) == row["expectedReplicasChange"]
    up = direction == "up"
    history = History(ups=before) if up else History(downs=before)
    after = stored(history, behavior, 10, 10 + row["replicaChange"] * (1 if up else -1), NOW)
    kept, other = (after.ups, after.downs) if up else (after.downs, after.ups)
    assert [(each.change, each.outdated) for each in kept] == [
        (change, old) for change, _, old in row["newScaleEvents"]
    ]
    assert other == ()
