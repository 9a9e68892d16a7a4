# SPDX-License-Identifier: Apache-2.0
"""What Volcano 1.15.1 did, recorded step by step, comes out of the model as well."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kfp_volcano.errors import ConflictError, InvalidError, NotFoundError
from kfp_volcano.volcano.model.configuration import CLASSIC, GANG_AWARE

REPOSITORY = Path(__file__).parents[3]
SHARED = Path(os.environ.get("KFP_VOLCANO_SHARED", REPOSITORY.parent / "shared"))
RECORDINGS = SHARED / "volcano"
CONFIGURATIONS = {"scheduler-classic.yaml": CLASSIC, "scheduler-gang.yaml": GANG_AWARE}


def scenarios() -> list[Any]:
    """Every recorded scenario with the scheduler's configuration, or one that says where recordings were looked for."""
    found = []
    for path in sorted(RECORDINGS.glob("vectors*.json")):
        recording = json.loads(path.read_text())
        for name, steps in recording["scenarios"].items():
            configuration = CONFIGURATIONS[recording["scheduler"]]
            found.append(pytest.param(steps, configuration, id=f"{path.name}-{name}"))
    reason = f"no recordings in {RECORDINGS} ($KFP_VOLCANO_SHARED)"
    return found or [pytest.param([], CLASSIC, marks=pytest.mark.skip(reason=reason))]


def message(text: str) -> str:
    """A refusal in one order: Volcano prints sets as they come, and so does the API server with several faults."""
    told = text.partition(" valid events are ")[0]
    faults = re.search(r"is invalid: \[(.*)\]$", told)
    return f"{told[: faults.start()]} {sorted(faults[1].split(', '))}" if faults else told


def alike(manifest: dict[str, Any]) -> bool:
    """Whether Volcano has no reason to take one task's pods rather than another's."""
    marks = {
        (template["spec"].get("priorityClassName"), str(template.get("metadata", {}).get("annotations", {})))
        for template in (task["template"] for task in manifest["spec"]["tasks"])
    }
    return len(marks) == 1


def counted(state: dict[str, Any], replaced: list[str], *, job: str, by: int) -> Any:
    """How many pods of a Job's tasks (`by` 2), or of the Job (1), are in which phase and were replaced."""
    phases: Counter[Any] = Counter()
    for task, indexes in state["jobs"][job]["tasks"].items():
        for phase, found in indexes.items():
            phases[(job, task)[:by], phase] += len(found)
    pods = Counter(tuple(pod.rsplit("-", 2)[:by]) for pod in replaced if pod.rsplit("-", 2)[0] == job)
    return {**state["jobs"][job], "tasks": phases}, pods


def assert_same(step: dict[str, Any], lab: Any, replaced: list[str], at: str) -> None:
    """As much is compared as Volcano's rules decide: of Jobs whose pods the scheduler took, how many of each task.

    Which of several equal pods it takes is chance; where tasks are alike, even whose they are.
    """
    seen, recorded = lab.state(), step["state"]
    assert (seen["queues"], seen["jobs"].keys()) == (recorded["queues"], recorded["jobs"].keys()), at
    for job in seen["jobs"]:
        if job not in lab.taken:
            mine = [pod for pod in replaced if pod.startswith(f"{job}-")]
            theirs = [pod for pod in step["replacedPods"] if pod.startswith(f"{job}-")]
            assert (seen["jobs"][job], mine) == (recorded["jobs"][job], theirs), at
            continue
        pairs = [
            (counted(seen, replaced, job=job, by=by), counted(recorded, step["replacedPods"], job=job, by=by))
            for by in ((2, 1) if alike(lab.world.get("Job", ("default", job))) else (2,))
        ]
        assert any(ours == theirs for ours, theirs in pairs), (at, pairs[0])


@pytest.mark.parametrize(("steps", "configuration"), scenarios())
def test_a_recorded_scenario_comes_out_the_same(new_lab: Any, steps: list[dict[str, Any]], configuration: Any) -> None:
    """After each step the answer, the state and the replaced pods are those recorded."""
    lab = new_lab(configuration)
    for number, step in enumerate(steps):
        uids = lab.uids()
        answer: dict[str, Any] = {"accepted": True}
        try:
            getattr(lab, step["op"])(*step["args"])
        except (InvalidError, ConflictError, NotFoundError) as refusal:
            answer = {"accepted": False, "message": message(str(refusal))}
        lab.settle()
        recorded = {key: value for key, value in step["answer"].items() if key != "code"}
        if "message" in recorded:
            recorded["message"] = message(recorded["message"])
        replaced = sorted(pod for pod, uid in lab.uids().items() if uids.get(pod, uid) != uid)
        at = f"step {number}: {step['op']}"
        assert answer == recorded, at
        assert_same(step, lab, replaced, at)
