# SPDX-License-Identifier: Apache-2.0
"""Strategic merge: what a `podPatch` makes of a pod template.

The rules are Kubernetes' (k8s.io/apimachinery/pkg/util/strategicpatch): mappings are merged, null removes, lists are
replaced, but for those whose entries have a key, which are merged by it; `$patch: delete` removes an entry, `$patch:
replace` replaces a mapping or a list.
"""

from __future__ import annotations

from typing import Any

__all__ = ["MERGE_KEYS", "strategic_merge"]

MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}
"""Lists of a pod template that are merged, and by which key (`patchMergeKey` in k8s.io/api/core/v1)."""


def strategic_merge(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """What `patch` makes of `target`; neither is changed."""
    if patch.get("$patch") == "replace":
        return {key: _clean(part) for key, part in patch.items() if key != "$patch" and part is not None}
    if patch.get("$patch") == "delete":
        return {}
    merged = dict(target)
    for key, change in patch.items():
        if key == "$patch":
            continue
        if change is None:
            merged.pop(key, None)
        elif isinstance(change, dict):
            before = merged.get(key)
            merged[key] = strategic_merge(before if isinstance(before, dict) else {}, change)
        elif isinstance(change, list) and key in MERGE_KEYS:
            merged[key] = _merge_list(merged.get(key) or [], change, MERGE_KEYS[key])
        else:
            merged[key] = _clean(change)
    return merged


def _merge_list(target: list[Any], patch: list[Any], key: str) -> list[Any]:
    changes = [entry for entry in patch if isinstance(entry, dict)]
    if any(entry.get("$patch") == "replace" for entry in changes):
        return [_clean(entry) for entry in changes if entry.get("$patch") != "replace"]
    merged = {entry[key]: entry for entry in target}
    for entry in changes:
        name = entry.get(key)
        if entry.get("$patch") == "delete":
            merged.pop(name, None)
        else:
            merged[name] = strategic_merge(merged.get(name, {}), entry)
    return list(merged.values())


def _clean(value: Any) -> Any:
    """A copy without nulls and directives."""
    if isinstance(value, dict):
        return {key: _clean(part) for key, part in value.items() if key != "$patch" and part is not None}
    return [_clean(entry) for entry in value] if isinstance(value, list) else value
