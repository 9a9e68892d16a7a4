# SPDX-License-Identifier: Apache-2.0
"""Manifests of Volcano's kinds as the API server gets them: good ones, changed in any field that their CRDs have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from strategies.edits import Edit, Fields, edits, lots
from strategies.json_schema import Field, Schema, places

__all__ = ["EXAMPLES", "fields_of", "manifests", "schema_of"]

_NAME = {"type": "string", "pattern": r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?"}
_KEY = {"type": "string", "pattern": r"([a-z]{1,8}(\.[a-z]{1,8}){0,2}/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,20}[A-Za-z0-9])?"}
_LABEL = {"type": "string", "pattern": r"([A-Za-z0-9]([-_.A-Za-z0-9]{0,20}[A-Za-z0-9])?)?"}
_HIERARCHY = {
    "volcano.sh/hierarchy": {"type": "string", "examples": ["root/a", "a/b", "root", "a"]},
    "volcano.sh/hierarchy-weights": {"type": "string", "examples": ["1/2", "1", "0/1", "1/1.5", "1/-1", "1/x", "1/"]},
}
_METADATA = {
    "type": "object",
    "properties": {
        "name": _NAME,
        "labels": {"type": "object", "propertyNames": _KEY, "additionalProperties": _LABEL},
        "annotations": {
            "type": "object",
            "properties": _HIERARCHY,
            "propertyNames": _KEY,
            "additionalProperties": {"type": "string"},
        },
    },
}

_TEMPLATE = {
    "metadata": {"labels": {"a": "b"}, "annotations": {"volcano.sh/preemptable": "true"}},
    "spec": {
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": 30,
        "containers": [
            {
                "name": "c",
                "image": "i",
                "command": ["sh", "-c", "true"],
                "env": [{"name": "A", "value": "b"}],
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": 1}},
                "ports": [{"containerPort": 80}],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            }
        ],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
        "tolerations": [{"key": "k", "operator": "Exists"}],
    },
}
_JOB = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "job", "namespace": "default"}}
_QUEUE = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "queue"}}
_GROUP = {**_QUEUE, "kind": "PodGroup", "metadata": {"name": "group", "namespace": "default"}}
_GOLDEN = Path(__file__).resolve().parents[2] / "golden"


def _rendered() -> Iterator[dict[str, Any]]:
    """What this project renders, in a namespace that every cluster has."""
    for file in sorted(_GOLDEN.glob("*.manifest.yaml")):
        objects = yaml.safe_load_all(file.read_text(encoding="utf-8"))
        manifest = next(each for each in objects if each["kind"] == "Job")
        yield {**manifest, "metadata": {**manifest["metadata"], "namespace": "default"}}


EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "Job": [
        {**_JOB, "spec": {"tasks": [{"name": "w", "replicas": 1, "template": _TEMPLATE}]}},
        {
            **_JOB,
            "spec": {
                "schedulerName": "volcano",
                "queue": "default",
                "minAvailable": 2,
                "maxRetry": 5,
                "ttlSecondsAfterFinished": 60,
                "priorityClassName": "low",
                "minSuccess": 1,
                "plugins": {"svc": ["--publish-not-ready-addresses=true"], "env": []},
                "policies": [
                    {"event": "PodFailed", "action": "RestartJob"},
                    {"event": "TaskCompleted", "action": "CompleteJob"},
                    {"exitCode": 3, "action": "AbortJob"},
                    {"events": ["PodPending"], "action": "TerminateJob", "timeout": "1h"},
                ],
                "volumes": [{"mountPath": "/a", "volumeClaimName": "c"}, {"mountPath": "/b", "volumeClaim": {}}],
                "networkTopology": {"mode": "soft", "highestTierAllowed": 2},
                "tasks": [
                    {"name": "a", "replicas": 2, "minAvailable": 1, "maxRetry": 2, "template": _TEMPLATE},
                    {
                        "name": "b",
                        "replicas": 4,
                        "minAvailable": 0,
                        "template": _TEMPLATE,
                        "dependsOn": {"name": ["a"], "iteration": "any"},
                        "policies": [{"event": "TaskFailed", "action": "TerminateJob"}],
                    },
                ],
            },
        },
        *_rendered(),
    ],
    "Queue": [
        {**_QUEUE, "spec": {}},
        {
            **_QUEUE,
            "spec": {
                "weight": 2,
                "reclaimable": False,
                "parent": "root",
                "priority": 3,
                "capability": {"cpu": "8", "memory": "8Gi", "nvidia.com/gpu": 8},
                "deserved": {"cpu": 4, "memory": "4Gi", "nvidia.com/gpu": "4"},
                "guarantee": {"resource": {"cpu": "500m", "nvidia.com/gpu": 2}},
                "dequeueStrategy": "fifo",
            },
        },
        {
            **_QUEUE,
            "metadata": {
                "name": "leaf",
                "annotations": {"volcano.sh/hierarchy": "a/b", "volcano.sh/hierarchy-weights": "1/2"},
            },
            "spec": {"weight": 1},
        },
    ],
    "PodGroup": [
        {**_GROUP, "spec": {"minMember": 1}},
        {
            **_GROUP,
            "spec": {
                "minMember": 3,
                "minTaskMember": {"a": 1, "b": 2},
                "queue": "default",
                "priorityClassName": "low",
                "minResources": {"cpu": "3", "nvidia.com/gpu": 2},
                "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
                "subGroupPolicy": [{"name": "s", "subGroupSize": 2, "labelSelector": {"matchLabels": {"a": "b"}}}],
            },
        },
    ],
}
"""Good manifests by kind."""


@cache
def schema_of(kind: str) -> Schema:
    """The CRD's schema of a kind, with that of an object's metadata in it."""
    file = resources.files("kfp_volcano.volcano.model").joinpath("crds", f"{kind.lower()}.json")
    schema = json.loads(file.read_text(encoding="utf-8"))
    properties = {"metadata": _METADATA, "spec": schema["properties"]["spec"]}
    return {"type": "object", "properties": properties}


@cache
def fields_of(kind: str, *, live: bool = False) -> Fields:
    """The fields of a kind, those of pod templates a third of the time; of a `live` object its spec alone changes."""
    schema = schema_of(kind)
    if live:
        schema = {"type": "object", "properties": {"spec": schema["properties"]["spec"]}}
    every = {place.field for example in EXAMPLES[kind] for place in places(schema, example)} - {()}
    pods = {field for field in every if _in_template(field)}
    own = sorted(every - pods)
    return Fields(schema, [own, own, sorted(pods)] if pods else [own])


def _in_template(field: Field) -> bool:
    return "template" in field and field[-1] != "template"


@st.composite
def manifests(draw: st.DrawFn, kind: str) -> tuple[dict[str, Any], list[Edit]]:
    """A good manifest, and changes to it that may leave it good or not."""
    example = draw(lots()).choice(EXAMPLES[kind])
    changes = draw(edits(fields_of(kind), example))
    return example, [change for change in changes if change.path != ("metadata",)]  # without it there is no address
