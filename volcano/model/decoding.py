# SPDX-License-Identifier: Apache-2.0
"""What Go says of a manifest that it cannot read into its types, which Volcano's webhooks do before they judge it.

Source: UnmarshalTypeError of Go's encoding/json; the types are those of volcano.sh/apis 1.15 and k8s.io/api 0.35. A
CRD's schema tells all but their names.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kfp_volcano.volcano.model.structural import json_type, properties_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kfp_volcano.volcano.model.objects import Manifest

__all__ = ["misreadings"]

_INT32 = range(-(2**31), 2**31)
_POD = "spec.tasks.template.spec"
_STRUCTS = {
    "spec.guarantee": "v1beta1.Guarantee",
    "spec.networkTopology": "v1alpha1.NetworkTopologySpec",
    "spec.policies": "v1alpha1.LifecyclePolicy",
    "spec.tasks": "v1alpha1.TaskSpec",
    "spec.tasks.dependsOn": "v1alpha1.DependsOn",
    "spec.tasks.partitionPolicy": "v1alpha1.PartitionPolicySpec",
    "spec.tasks.policies": "v1alpha1.LifecyclePolicy",
    "spec.tasks.template": "v1.PodTemplateSpec",
    "spec.tasks.template.metadata": "v1.ObjectMeta",
    "spec.volumes": "v1alpha1.VolumeSpec",
    _POD: "v1.PodSpec",
    f"{_POD}.containers": "v1.Container",
    f"{_POD}.containers.env": "v1.EnvVar",
    f"{_POD}.containers.ports": "v1.ContainerPort",
    f"{_POD}.containers.resources": "v1.ResourceRequirements",
    f"{_POD}.containers.volumeMounts": "v1.VolumeMount",
    f"{_POD}.initContainers": "v1.Container",
    f"{_POD}.tolerations": "v1.Toleration",
    f"{_POD}.volumes": "v1.Volume",
}
"""The struct of each place, but for `spec` itself."""
_SPECS = {"Job": "v1alpha1.JobSpec", "Queue": "v1beta1.QueueSpec", "PodGroup": "v1beta1.PodGroupSpec"}
_LISTS_OF_RESOURCES = frozenset({"limits", "requests", "capability", "deserved", "resource"})
_TEXTS = {
    "action": "v1alpha1.Action",
    "event": "v1alpha1.Event",
    "events": "v1alpha1.Event",
    "iteration": "v1alpha1.Iteration",
    "topologyPolicy": "v1alpha1.NumaPolicy",
    "restartPolicy": "v1.RestartPolicy",
    "dnsPolicy": "v1.DNSPolicy",
    "imagePullPolicy": "v1.PullPolicy",
}
"""Fields whose texts are of a type of their own."""
_WORDS = {"integer": "number", "boolean": "bool"}
"""Go's words for the types of JSON."""


def misreadings(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """The field and Go's sentence for each value that is not of its field's type, in the order in which it reads.

    Numbers have to be whole and to fit: the API server does not look at a schema's `format`.
    """
    kind = manifest["kind"]
    for name, rule in properties_of(kind).items():
        if manifest.get(name) is not None:
            yield from _misread(manifest[name], rule, name, name, kind, kind)


def _misread(
    value: Any, rule: Mapping[str, Any], at: str, path: str, owner: str, kind: str
) -> Iterator[tuple[str, str]]:
    """`at` names the value, `path` the field of the struct `owner` that it is in or below."""
    if rule.get("type") is None or value is None:
        return
    given = _misfit(value, rule)
    if given:
        goal = _type(rule, path, kind)
        yield at, f"json: cannot unmarshal {given} into Go struct field {owner}.{path} of type {goal}"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _misread(item, rule["items"], f"{at}[{index}]", path, owner, kind)
    elif isinstance(value, dict):
        properties, others = rule.get("properties", {}), rule.get("additionalProperties") or {}
        for name, child in sorted(value.items()):
            if name in properties:
                inner = _struct(path, kind).rpartition(".")[2]
                yield from _misread(child, properties[name], f"{at}.{name}", f"{path}.{name}", inner, kind)
            else:
                yield from _misread(child, others, f"{at}.{name}", path, owner, kind)


def _misfit(value: Any, rule: Mapping[str, Any]) -> str:
    """Go's word for a value that is not what it shall be, or nothing."""
    given, wanted = json_type(value), rule["type"]
    if wanted == "integer" and given in {"integer", "number"}:
        fits = given == "integer" and (rule.get("format") != "int32" or value in _INT32)
        return "" if fits else f"number {json.dumps(value)}"
    return "" if wanted in {given, "number"} else _WORDS.get(given, given)


def _type(rule: Mapping[str, Any], path: str, kind: str) -> str:
    name, wanted = path.rpartition(".")[2], rule.get("type")
    if wanted == "array":
        return f"[]{_type(rule['items'], path, kind)}"
    if wanted == "object" and "properties" in rule:
        return _struct(path, kind)
    if wanted == "object" and name in _LISTS_OF_RESOURCES:
        return "v1.ResourceList"
    if wanted == "object":
        return f"map[string]{_type(rule.get('additionalProperties') or {'type': 'string'}, path, kind)}"
    plain = {"integer": rule.get("format", "int"), "boolean": "bool"}
    return str(plain.get(wanted or "", _TEXTS.get(name, "string")))


def _struct(path: str, kind: str) -> str:
    """The struct at a place; where the table has none, it is most often called as its field is."""
    name = path.rpartition(".")[2]
    return _SPECS.get(kind, kind) if path == "spec" else _STRUCTS.get(path, f"v1.{name[:1].upper()}{name[1:]}")
