"""What Volcano 1.15.1 did, recorded step by step, comes out of the model as well."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kfp_volcano.errors import ConflictError, InvalidError
from kfp_volcano.volcano.model.configuration import CLASSIC, GANG_AWARE

REPOSITORY = Path(__file__).parents[3]
SHARED = Path(os.environ.get("KFP_VOLCANO_SHARED", REPOSITORY.parent / "shared"))
RECORDINGS = {"vectors.json": CLASSIC, "vectors-gang.json": GANG_AWARE}

BY_TASK = {
    "guarantee_is_kept_free",
    "priority_preempts_surplus",
    "reclaim_takes_the_surplus",
    "reclaim_with_lower_priority_surplus",
    "reclaim_with_unpreemptable_core",
}
"""Scenarios with victims: Volcano takes any of several equal ones, so how many of a task are taken is compared."""
BY_JOB = {"reclaim_for_a_gang_alone"}
"""Here it takes from either task of a Job."""


def scenarios() -> list[Any]:
    """Every recorded scenario, or one that says where a recording was looked for."""
    found = []
    for file, configuration in RECORDINGS.items():
        path = SHARED / "volcano" / file
        if path.exists():
            recorded = json.loads(path.read_text())["scenarios"]
            found += [pytest.param(name, steps, configuration, id=f"{file}-{name}") for name, steps in recorded.items()]
        else:
            reason = f"no recording at {path} ($KFP_VOLCANO_SHARED)"
            found.append(pytest.param("", [], configuration, marks=pytest.mark.skip(reason=reason)))
    return found


def message(text: str) -> str:
    """A refusal without the list of valid events and actions: Volcano prints a map, in any order."""
    return text.partition(" valid events are ")[0]


def summary(name: str, state: dict[str, Any], replaced: list[str]) -> Any:
    """As much of what is seen as Volcano's rules decide."""
    if name not in BY_TASK | BY_JOB:
        return state, replaced
    jobs = {}
    for job, seen in state["jobs"].items():
        phases: Counter[Any] = Counter()
        for task, indexes in seen["tasks"].items():
            for phase, found in indexes.items():
                phases[phase if name in BY_JOB else (task, phase)] += len(found)
        jobs[job] = {**seen, "tasks": phases}
    group = 0 if name in BY_JOB else 1
    return {**state, "jobs": jobs}, Counter(tuple(pod.split("-")[: 1 + group]) for pod in replaced)


@pytest.mark.parametrize(("name", "steps", "configuration"), scenarios())
def test_a_recorded_scenario_comes_out_the_same(
    new_lab: Any, name: str, steps: list[dict[str, Any]], configuration: Any
) -> None:
    """After each step the answer, the state and the replaced pods are those recorded."""
    lab = new_lab(configuration)
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
        at = f"{name}, step {number}: {step['op']}"
        assert answer == recorded, at
        assert summary(name, lab.state(), replaced) == summary(name, step["state"], step["replacedPods"]), at
