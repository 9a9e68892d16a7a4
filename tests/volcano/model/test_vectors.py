"""What Volcano 1.15.1 did, recorded step by step, comes out of the model as well."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kfp_volcano.errors import ConflictError, InvalidError

REPOSITORY = Path(__file__).parents[3]
SHARED = Path(os.environ.get("KFP_VOLCANO_SHARED", REPOSITORY.parent / "shared"))
VECTORS = SHARED / "volcano" / "vectors.json"

NEED_EVICTION = {
    "guarantee_is_kept_free",
    "priority_preempts_surplus",
    "reclaim_for_a_gang_alone",
    "reclaim_with_lower_priority_surplus",
    "reclaim_with_unpreemptable_core",
}
"""Scenarios in which the scheduler takes GPUs from running pods: the model has no such action yet."""


def scenarios() -> list[Any]:
    """Every recorded scenario, or one that says where the recording was looked for."""
    if not VECTORS.exists():
        return [pytest.param("", [], marks=pytest.mark.skip(reason=f"no recording at {VECTORS} ($KFP_VOLCANO_SHARED)"))]
    recorded = json.loads(VECTORS.read_text())["scenarios"]
    to_come = pytest.mark.xfail(strict=True, reason="reclaim and preempt are to come")
    return [
        pytest.param(name, steps, id=name, marks=[to_come] if name in NEED_EVICTION else [])
        for name, steps in recorded.items()
    ]


def message(text: str) -> str:
    """A refusal without the list of valid events and actions: Volcano prints a map, in any order."""
    return text.partition(" valid events are ")[0]


@pytest.mark.parametrize(("name", "steps"), scenarios())
def test_a_recorded_scenario_comes_out_the_same(lab: Any, name: str, steps: list[dict[str, Any]]) -> None:
    """After each step the answer, the state and the replaced pods are those recorded."""
    for number, step in enumerate(steps):
        uids = lab.uids()
        answer: dict[str, Any] = {"accepted": True}
        try:
            getattr(lab, step["op"])(*step["args"])
        except (InvalidError, ConflictError) as refusal:
            answer = {"accepted": False, "message": message(str(refusal))}
        lab.settle()
        recorded = {key: value for key, value in step["answer"].items() if key != "code"}
        if "message" in recorded:
            recorded["message"] = message(recorded["message"])
        replaced = sorted(pod for pod, uid in lab.uids().items() if uids.get(pod, uid) != uid)
        assert answer == recorded, f"{name}, step {number}: {step['op']}"
        assert lab.state() == step["state"], f"{name}, step {number}: {step['op']}"
        assert replaced == step["replacedPods"], f"{name}, step {number}: {step['op']}"
