# SPDX-License-Identifier: Apache-2.0
"""The objects of a tree of queues."""

from __future__ import annotations

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.schemas.queue_validation import queue_tree
from kfp_volcano.volcano.manifests.queues import manifests, queue_command
from kfp_volcano.volcano.manifests.yaml_text import manifest_yaml


def tree_of(*queues, plugin="capacity"):
    """A tree by its queues."""
    document = {"metadata": {"name": "t"}, "spec": {"plugin": plugin, "queues": list(queues)}}
    return queue_tree({"apiVersion": "kfp-volcano/v1", "kind": "QueueTree", **document})


DEPARTMENT = {
    "name": "dept",
    "capability": {"gpu": 16, "memory": "1Ti"},
    "deserved": {"gpu": 8, "cpu": "1500m"},
    "guarantee": {"gpu": 2},
    "queues": [
        {
            "name": "a",
            "deserved": {"gpu": 4, "cpu": "500m"},
            "priority": 3,
            "quotas": {"vision": {"requests": {"gpu": 4, "cpu": 8, "pods": 9, "hugepages-2Mi": "1Gi"}, "jobs": 5}},
        },
        {"name": "b", "deserved": {"gpu": 4, "cpu": 1}, "reclaimable": False},
    ],
}


def test_a_queue_has_what_the_tree_says_and_nothing_else():
    """Each amount under its own name, the parent always, no weight under capacity."""
    dept, a, b, quota = manifests(tree_of(DEPARTMENT))
    assert dept == {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {
            "name": "dept",
            "labels": {"kfp-volcano/queue-tree": "t", "app.kubernetes.io/managed-by": "kfp-volcano"},
        },
        "spec": {
            "parent": "root",
            "capability": {"memory": "1Ti", "nvidia.com/gpu": "16"},
            "deserved": {"cpu": "1500m", "nvidia.com/gpu": "8"},
            "guarantee": {"resource": {"nvidia.com/gpu": "2"}},
            "priority": 0,
            "reclaimable": True,
        },
    }
    assert (a["spec"]["parent"], a["spec"]["priority"], b["spec"]["reclaimable"]) == ("dept", 3, False)
    assert quota["metadata"]["namespace"] == "vision"
    assert quota["spec"]["hard"] == {
        "requests.cpu": "8",
        "requests.hugepages-2Mi": "1Gi",
        "requests.nvidia.com/gpu": "4",
        "pods": "9",
        "count/jobs.batch.volcano.sh": "5",
    }


def test_under_proportion_weight_shares_and_a_guarantee_is_deserved():
    """The webhook refuses a guarantee that is not."""
    a, b = manifests(tree_of({"name": "a", "weight": 3, "guarantee": {"gpu": 2}}, {"name": "b"}, plugin="proportion"))
    assert (a["spec"]["weight"], b["spec"]["weight"]) == (3, 1)
    assert a["spec"]["deserved"] == a["spec"]["guarantee"]["resource"] == {"nvidia.com/gpu": "2"}


def test_parents_come_before_their_children():
    """So that `kubectl apply -f` works on an empty cluster."""
    inner = {"name": "x", "queues": [{"name": "y", "queues": [{"name": "z"}]}]}
    assert [each["metadata"]["name"] for each in manifests(tree_of(inner, {"name": "w"}))] == ["x", "w", "y", "z"]


def test_rendering_is_deterministic():
    """However the amounts were ordered."""
    reordered = {**DEPARTMENT, "deserved": dict(reversed(DEPARTMENT["deserved"].items()))}
    assert manifest_yaml(manifests(tree_of(DEPARTMENT))) == manifest_yaml(manifests(tree_of(reordered)))


@pytest.fixture(scope="module", name="crd")
def _crd(shared):
    path = shared / "volcano" / "crds" / "scheduling.volcano.sh_queues.yaml"
    crd = next(each for each in yaml.safe_load_all(path.read_text()) if each)
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


QUANTITIES = st.one_of(
    st.integers(0, 1000), st.sampled_from(["500m", "1.5", "2e3", "10k", "1Ti", ".5", "3.", "1e-1", "12E-3"])
)


@given(st.dictionaries(st.sampled_from(["cpu", "memory", "gpu", "rdma/hca"]), QUANTITIES), st.integers(0, 2**31 - 1))
def test_what_is_valid_fits_the_resource_definition(crd, amounts, priority):
    """Volcano's own schema of a Queue takes it, whatever notation the amounts have."""
    for name in ("memory", "gpu", "rdma/hca"):
        if isinstance(amounts.get(name), str):
            amounts[name] = 4
    amounts = {name: text for name, text in amounts.items() if text != 0}
    (queue,) = manifests(tree_of({"name": "a", "capability": amounts, "priority": priority}))
    jsonschema.Draft202012Validator(crd).validate(queue)


def test_a_command_names_the_queue_it_is_for():
    """By uid, as the queue controller wants it."""
    command = queue_command({"metadata": {"name": "a", "uid": "1-2"}}, "CloseQueue")
    assert command["metadata"] == {"name": "closequeue-1-2", "namespace": "default"}
    assert command["target"]["uid"] == "1-2"
    assert command["action"] == "CloseQueue"
