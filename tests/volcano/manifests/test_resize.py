# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy

import jsonpatch
import pytest

from kfp_volcano.errors import ResizeError
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.manifests.job import job_manifest
from kfp_volcano.volcano.manifests.resize import resize_patch, workers


def stored(replicas, start):
    """A Job as the API server keeps it."""
    job = training_job(
        {
            "apiVersion": "kfp-volcano/v1",
            "kind": "TrainingJob",
            "metadata": {"name": "a"},
            "spec": {
                "framework": "pytorch",
                "image": "x",
                "command": ["x"],
                "queue": "q",
                "roles": {"worker": {"replicas": replicas}, "evaluator": {"replicas": 3}},
                "checkpoint": {"volume": "v"},
            },
        }
    )
    manifest = job_manifest(job, name="a-1", run_id="r", step="submit", workers=start)
    manifest["metadata"]["uid"] = "0d5c"
    return manifest


@pytest.mark.parametrize("start", range(2, 9))
@pytest.mark.parametrize("to", range(2, 9))
def test_a_patched_job_has_the_size_and_is_otherwise_the_same(start, to):
    """From any size to any size the patch sets `elastic.replicas`, and touches nothing else."""
    job = stored({"min": 2, "max": 8}, start)
    assert workers(job) == start
    patched = jsonpatch.apply_patch(job, resize_patch(job, to))
    assert workers(patched) == to
    expected = copy.deepcopy(job)
    next(task for task in expected["spec"]["tasks"] if task["name"] == "elastic")["replicas"] = to - 2
    assert patched == expected


@pytest.mark.parametrize("to", [-1, 0, 1, 9, 100])
def test_a_size_outside_the_spec_is_refused(to):
    """The gang stays whole and the spec's max is the most; the message says what is allowed."""
    with pytest.raises(ResizeError, match=f"default/a-1 cannot have {to} workers?: its spec allows 2 to 8"):
        resize_patch(stored({"min": 2, "max": 8}, 4), to)


def test_a_job_of_fixed_size_is_refused():
    """A Job without surplus has nothing to resize."""
    with pytest.raises(ResizeError, match="fixed number of workers"):
        resize_patch(stored(4, 4), 5)


def test_a_job_of_others_is_refused():
    """A Job without our spec has no range to go by, whatever its tasks are called."""
    job = stored({"min": 2, "max": 8}, 4)
    del job["metadata"]["annotations"]["kfp-volcano/spec"]
    with pytest.raises(ResizeError, match="not made by kfp-volcano"):
        resize_patch(job, 5)


@pytest.mark.parametrize("change", ["uid", "task", "replicas"])
def test_a_job_that_changed_refuses_the_patch(change):
    """A patch made from one state does not apply to another: another Job, other tasks, another size."""
    job = stored({"min": 2, "max": 8}, 4)
    patch = resize_patch(job, 6)
    elastic = next(task for task in job["spec"]["tasks"] if task["name"] == "elastic")
    if change == "uid":
        job["metadata"]["uid"] = "other"
    elif change == "task":
        elastic["name"] = "other"
    else:
        elastic["replicas"] = 3
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(job, patch)
