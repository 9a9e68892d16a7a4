# SPDX-License-Identifier: Apache-2.0
"""What a KFP task says of its pods reaches the workers: the JSON that KFP's driver makes of it (TaskConfig)."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.quantities import quantity
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.manifests.convert.task_config import with_task_config
from kfp_volcano.volcano.manifests.job import job_manifest

SPEC: dict[str, Any] = {
    "apiVersion": "kfp-volcano/v1",
    "kind": "TrainingJob",
    "metadata": {"name": "t", "namespace": "n"},
    "spec": {
        "framework": "custom",
        "image": "i",
        "command": ["c"],
        "queue": "q",
        "roles": {"worker": {"replicas": {"min": 1, "max": 3}}},
        "elasticity": {"strategy": "restart"},
    },
}
NOTHING = {
    "affinity": None, "tolerations": None, "node_selector": None, "env": None, "volumes": None, "volume_mounts": None,
    "resources": {},
}  # fmt: skip
"""What the driver says of a task on which nothing is set."""


def spec(role: dict[str, Any] | None = None, **parts: Any) -> dict[str, Any]:
    """The spec with further parts."""
    made = copy.deepcopy(SPEC)
    made["spec"].update(parts)
    made["spec"]["roles"]["worker"].update(role or {})
    return made


def pods(wire: dict[str, Any], config: dict[str, Any]) -> list[dict[str, Any]]:
    """The pod specs of the workers: those of the gang, and of the surplus."""
    job = training_job(with_task_config(wire, {**NOTHING, **config}))
    manifest = job_manifest(job, name="j", run_id="r", step="s", workers=2)
    tasks = {task["name"]: task["template"]["spec"] for task in manifest["spec"]["tasks"]}
    return [tasks["core"], tasks["elastic"]]


names = st.from_regex(r"[a-z]([a-z0-9]{0,8})", fullmatch=True)
variables = st.from_regex(r"[A-Z][A-Z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: not name.startswith("KFP_VOLCANO")
)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0$"), max_size=20)
values = st.one_of(
    st.builds(lambda value: {"value": value}, texts.filter(bool)),
    st.builds(lambda name, key: {"valueFrom": {"secretKeyRef": {"name": name, "key": key}}}, names, names),
    st.builds(
        lambda name, key: {"valueFrom": {"configMapKeyRef": {"name": name, "key": key, "optional": True}}}, names, names
    ),
    st.just({"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}),
)
tolerations = st.one_of(
    st.builds(lambda key, effect: {"key": key, "operator": "Exists", "effect": effect}, names, st.just("NoSchedule")),
    st.builds(lambda key, value: {"key": key, "operator": "Equal", "value": value}, names, names),
    st.builds(
        lambda key, seconds: {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds},
        names,
        st.integers(0, 3600),
    ),
)
sources = st.one_of(
    st.builds(lambda name: {"persistentVolumeClaim": {"claimName": name}}, names),
    st.builds(lambda name: {"secret": {"secretName": name, "optional": False}}, names),
    st.builds(lambda name: {"configMap": {"name": name, "optional": False}}, names),
    st.just({"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}),
    st.just(
        {
            "ephemeral": {
                "volumeClaimTemplate": {
                    "metadata": {"creationTimestamp": None},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}},
                }
            }
        }
    ),
)


@given(
    environment=st.dictionaries(variables, values, max_size=4),
    tolerated=st.lists(tolerations, max_size=3, unique_by=str),
    labels=st.dictionaries(names, names, max_size=3),
    volumes=st.dictionaries(names, st.tuples(sources, names), max_size=4),
    limits=st.dictionaries(st.sampled_from(["cpu", "memory"]), st.integers(1, 8).map(lambda n: f"{n}Gi")),
    gpus=st.integers(0, 8),
)
def test_each_field_reaches_the_workers_of_the_gang_and_of_the_surplus(
    environment: dict[str, Any],
    tolerated: list[dict[str, Any]],
    labels: dict[str, str],
    volumes: dict[str, tuple[dict[str, Any], str]],
    limits: dict[str, str],
    gpus: int,
) -> None:
    """Whatever a user sets on the task is on the workers' pods, in Kubernetes' own words."""
    devices = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}]},
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}  # fmt: skip
    config = {
        "affinity": affinity,
        "tolerations": tolerated or None,
        "node_selector": labels or None,
        "env": [{"name": name, **value} for name, value in environment.items()] or None,
        "volumes": [{"name": name, **source} for name, (source, _) in volumes.items()] or None,
        "volume_mounts": [{"name": name, "mountPath": f"/{name}/{path}"} for name, (_, path) in volumes.items()]
        or None,
        "resources": {"limits": {**limits, **devices}} if limits or devices else {},
    }
    for pod in pods(SPEC, config):
        (container,) = pod["containers"]
        said = {
            entry["name"]: {key: part for key, part in entry.items() if key != "name"} for entry in container["env"]
        }
        assert {name: said.get(name) for name in environment} == environment
        assert pod.get("tolerations", []) == tolerated
        assert pod.get("nodeSelector", {}) == labels
        assert pod["affinity"]["podAntiAffinity"] == affinity["podAntiAffinity"]
        (required,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ]
        assert term["matchExpressions"][0] in required["matchExpressions"]
        for name, limit in {**limits, **devices}.items():
            assert quantity(container["resources"]["limits"][name]) == quantity(limit)
            assert quantity(container["resources"]["requests"].get(name, limit)) == quantity(limit)
        mounts = {mount["name"]: mount["mountPath"] for mount in container.get("volumeMounts", ())}
        found = {volume["name"]: volume for volume in pod.get("volumes", ())}
        for name, (source, path) in volumes.items():
            assert mounts[name] == f"/{name}/{path}"
            ((kind, wanted),) = source.items()
            assert _reduced(found[name][kind]) == _reduced(wanted)


def _reduced(value: Any) -> Any:
    """Without what says nothing: null, false, an empty mapping."""
    if isinstance(value, dict):
        reduced = {key: _reduced(part) for key, part in value.items()}
        return {key: part for key, part in reduced.items() if part not in (None, False, {})}
    return value


def test_a_task_that_says_nothing_changes_nothing() -> None:
    """On a backend the driver fills in empty fields, and locally nobody does."""
    assert with_task_config(SPEC, NOTHING) == SPEC
    assert with_task_config(SPEC, {}) == SPEC


def test_the_task_fills_in_what_the_spec_leaves_open_and_what_both_say_alike_is_said_once() -> None:
    """Requests of the spec and limits of the task stand together; lists are joined."""
    wire = spec(
        {"resources": {"cpu": 2, "memory": "4Gi"}, "placement": {"nodeSelector": {"pool": "a"}}},
        env={"A": "spec"},
        placement={"tolerations": [{"key": "spec", "operator": "Exists"}]},
    )
    config = {
        "resources": {"limits": {"cpu": "4", "memory": "4096Mi", "nvidia.com/gpu": "2"}, "requests": {"cpu": "2000m"}},
        "env": [{"name": "A", "value": "task"}, {"name": "B", "value": "task"}],
        "node_selector": {"pool": "a", "disk": "ssd"},
        "tolerations": [{"key": "task", "operator": "Exists"}],
    }
    for pod in pods(wire, config):
        (container,) = pod["containers"]
        resources = container["resources"]
        assert (resources["requests"]["cpu"], resources["limits"]["cpu"]) == ("2", "4")
        assert (resources["requests"]["memory"], resources["limits"]["memory"]) == ("4Gi", "4096Mi")
        environment = {entry["name"]: entry.get("value") for entry in container["env"]}
        assert (environment["A"], environment["B"]) == ("spec", "task")
        assert pod["nodeSelector"] == {"pool": "a", "disk": "ssd"}
        assert [each["key"] for each in pod["tolerations"]] == ["spec", "task"]


def test_a_limit_that_equals_what_is_reserved_is_no_contradiction() -> None:
    """`reserved` is the spec's word for limits that equal the requests."""
    wire = spec({"resources": {"cpu": 2, "memory": "4Gi", "reserved": True}})
    for pod in pods(wire, {"resources": {"limits": {"cpu": "2", "memory": "4Gi"}}}):
        assert pod["containers"][0]["resources"]["limits"] == {"cpu": "2", "memory": "4Gi"}


@pytest.mark.parametrize(
    ("role", "config", "words"),
    [
        (
            {"resources": {"gpu": 1}},
            {"resources": {"limits": {"nvidia.com/gpu": "8"}}},
            ["spec.roles.worker.resources.gpu", "1", "8"],
        ),
        (
            {"placement": {"nodeSelector": {"pool": "a"}}},
            {"node_selector": {"pool": "b"}},
            ["spec.roles.worker.placement.nodeSelector.pool", "a", "b"],
        ),
        (
            {"volumes": {"data": {"claim": "one", "mount": "/data"}}},
            {
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "two"}}],
                "volume_mounts": [{"name": "data", "mountPath": "/data"}],
            },
            ["spec.roles.worker.volumes.data", "one", "two"],
        ),
        ({}, {"env": [{"name": "KFP_VOLCANO_TASK", "value": "x"}]}, ["task.env[0]", "KFP_VOLCANO_"]),
        ({}, {"resources": {"limits": {"pods": "1"}}}, ["task.resources.limits.pods"]),
        ({}, {"affinity": {"nodeAffinity": {"nonsense": 1}}}, ["task.affinity", "nonsense"]),
    ],
    ids=["gpus", "labels", "volume", "our variables", "no resource of a pod", "unknown field"],
)
def test_contradictions_and_what_cannot_be_carried_over_are_refused_in_words(
    role: dict[str, Any], config: dict[str, Any], words: list[str]
) -> None:
    """Nobody finds a setting missing without having been told."""
    with pytest.raises(SpecError) as caught:
        with_task_config(spec(role), config)
    for word in words:
        assert word in str(caught.value)


def test_all_contradictions_are_told_at_once() -> None:
    """Two things said twice are two problems."""
    wire = spec({"resources": {"gpu": 1, "cpu": 1}})
    with pytest.raises(SpecError) as caught:
        with_task_config(wire, {"resources": {"limits": {"nvidia.com/gpu": "8"}, "requests": {"cpu": "2"}}})
    assert len(caught.value.problems) == 2
