# SPDX-License-Identifier: Apache-2.0
"""GPUPools: what is read from a document, what is wrong with one, and the Jobs that are bound to a pool."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.codec import wire_key
from kfp_volcano.schemas.gpu_pools import GPUPools, Pool, bound, gpu_pools
from kfp_volcano.schemas.structure import child_rule, load_schema
from kfp_volcano.schemas.training_job import TrainingJob
from kfp_volcano.schemas.validation import training_job

SCHEMA = load_schema("gpu-pools.v1")


def document(**spec: Any) -> dict[str, Any]:
    """A document with two pools, and what a test adds."""
    pools = {
        "interactive": {"priorities": ["interactive"], "min": 2, "max": 8, "wantsAbove": 75},
        "batch": {"priorities": ["batch", "batch-low"], "max": 16},
    }
    spec = {"pools": pools, **spec}
    return {"apiVersion": "kfp-volcano/v1", "kind": "GPUPools", "metadata": {"name": "shared"}, "spec": spec}


def at(*path: str) -> Any:
    """The part of the schema at a path."""
    rule: Any = SCHEMA
    for key in path:
        rule = child_rule(rule, key, SCHEMA)
    return rule


def test_a_document_is_read_with_its_defaults() -> None:
    """Pools in the order of their names, one value of a label without a list around it."""
    pools = gpu_pools(document(nodes={"gpu.class": "l4", "zone": ["a", "b"]}, cooldown="5m"))
    assert pools == GPUPools(
        name="shared",
        nodes={"gpu.class": ("l4",), "zone": ("a", "b")},
        cooldown_s=300,
        pools=(
            Pool(name="batch", priorities=("batch", "batch-low"), max=16, min=0, wants_above=80, gives_below=50),
            Pool(name="interactive", priorities=("interactive",), max=8, min=2, wants_above=75, gives_below=50),
        ),
    )


def test_types_and_schema_have_the_same_keys_and_defaults() -> None:
    """Each field is a key and each key a field."""
    kinds = (
        (GPUPools, {"metadata", *at("spec")["properties"]}),
        (Pool, {"name", *at("spec", "pools", "x")["properties"]}),
    )
    for kind, keys in kinds:
        fields = {wire_key(field.name, field.metadata): field for field in dataclasses.fields(kind)}
        assert {"metadata" if kind is GPUPools and key == "name" else key for key in fields} == keys
    rules = at("spec", "pools", "x")["properties"]
    for field in dataclasses.fields(Pool):
        if field.default is not dataclasses.MISSING:
            assert rules[wire_key(field.name, field.metadata)]["default"] == field.default
    assert (
        gpu_pools(document()).cooldown_s == gpu_pools(document(cooldown=at("spec", "cooldown")["default"])).cooldown_s
    )


def test_every_problem_is_told_at_once() -> None:
    """Each with its place."""
    pools = {
        "a": {"priorities": ["x", "y", "x"], "min": 5, "max": 4},
        "b": {"priorities": ["y", "Z"], "max": 4, "wantsAbove": 50},
        "c": {"priorities": [], "max": "4", "givesBelow": 90, "size": 3},
        "D": {"priorities": ["w"], "max": 0},
    }
    with pytest.raises(SpecError) as raised:
        gpu_pools(document(pools=pools, nodes={"kfp-volcano/gpu-pool": "a"}, cooldown="-1m"))
    assert {problem.path for problem in raised.value.problems} == {
        "spec.cooldown",
        'spec.nodes["kfp-volcano/gpu-pool"]',
        "spec.pools.D",
        "spec.pools.D.max",
        "spec.pools.a.min",
        "spec.pools.a.priorities[2]",
        "spec.pools.b.givesBelow",
        "spec.pools.b.priorities[0]",
        "spec.pools.b.priorities[1]",
        "spec.pools.c.givesBelow",
        "spec.pools.c.max",
        "spec.pools.c.priorities",
        "spec.pools.c.size",
    }


@pytest.mark.parametrize("value", [None, [], "x", {}, {"kind": "QueueTree"}, document(pools={}), document(pools=[1])])
def test_anything_else_is_refused(value: Any) -> None:
    """And never ends in another error."""
    with pytest.raises(SpecError):
        gpu_pools(value)


def job(priority: str | None, **spec: Any) -> TrainingJob:
    """A TrainingJob with a role that shares a GPU, one that has a whole one, and one that has none."""
    share = {"gpu": 1, "gpuShare": {"memory": "4Gi"}}
    roles = {
        "worker": {"replicas": 2, "resources": share},
        "whole": {"replicas": 1, "resources": {"gpu": 1}},
        "none": {"replicas": 1},
    }
    spec = {"framework": "custom", "image": "x", "command": ["x"], "queue": "q", "roles": roles, **spec}
    if priority:
        spec["priority"] = priority
    return training_job(
        {"apiVersion": "kfp-volcano/v1", "kind": "TrainingJob", "metadata": {"name": "a"}, "spec": spec}
    )


def selectors(of: TrainingJob) -> dict[str, dict[str, str]]:
    """What each role asks of nodes."""
    return {role.name: role.placement.node_selector for role in of.roles}


def test_roles_that_share_gpus_are_bound_to_the_pool_of_the_priority() -> None:
    """The others run where they like."""
    found = selectors(bound(job("batch-low", placement={"nodeSelector": {"zone": "a"}}), gpu_pools(document())))
    assert found == {"worker": {"kfp-volcano/gpu-pool": "batch"}, "whole": {}, "none": {}}


@pytest.mark.parametrize("priority", [None, "urgent"])
def test_a_job_whose_priority_has_no_pool_is_left_alone(priority: str | None) -> None:
    """As if there were no pools."""
    assert bound(job(priority), gpu_pools(document())) == job(priority)


def test_a_spec_that_names_a_pool_keeps_it() -> None:
    """For all roles, or for one."""
    own = {"kfp-volcano/gpu-pool": "mine"}
    whole = job("batch", placement={"nodeSelector": own})
    assert bound(whole, gpu_pools(document())) == whole
    role = {"replicas": 1, "resources": {"profile": "shared-gpu-notebook"}, "placement": {"nodeSelector": own}}
    assert selectors(bound(job("batch", roles={"worker": role}), gpu_pools(document()))) == {"worker": own}
