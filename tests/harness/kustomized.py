# SPDX-License-Identifier: Apache-2.0
"""The objects of a kustomization as `kubectl kustomize` would print them, for the few features that `deploy/` uses.

Resources, components, `namespace`, `labels`, ConfigMaps of files; where kubectl is installed a test holds this to it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

__all__ = ["CLUSTER_SCOPED", "build", "listed"]

CLUSTER_SCOPED = {"ClusterRole", "ClusterRoleBinding", "Namespace", "PriorityClass"}
_KNOWN = {"apiVersion", "kind", "namespace", "resources", "components", "labels", "configMapGenerator"}

Manifest = dict[str, Any]


def build(folder: Path) -> list[Manifest]:
    """All objects of the kustomization in a folder."""
    content = _kustomization(folder)
    found: list[Manifest] = []
    for name in content.get("resources", []):
        if (folder / name).is_dir():
            found += build(folder / name)
        else:
            found += [each for each in yaml.safe_load_all((folder / name).read_text()) if each]
    found += [_config_map(folder, each) for each in content.get("configMapGenerator", [])]
    for name in content.get("components", []):
        found += build(folder / name)
    namespace = content.get("namespace")
    for each in found:
        if namespace:
            _place(each, namespace, {(other["kind"], other["metadata"]["name"]) for other in found})
        for labels in content.get("labels", []):
            each["metadata"].setdefault("labels", {}).update(labels["pairs"])
    return found


def listed(folder: Path) -> set[Path]:
    """The files that a kustomization lists."""
    content = _kustomization(folder)
    files = {folder / name for each in content.get("configMapGenerator", []) for name in each["files"]}
    return files | {folder / name for name in content.get("resources", []) if not (folder / name).is_dir()}


def _config_map(folder: Path, generator: Manifest) -> Manifest:
    options = generator["options"]
    assert options["disableNameSuffixHash"], "this does not know the hash that kustomize would add to the name"
    metadata = {"name": generator["name"], "labels": options.get("labels", {})}
    data = {name: (folder / name).read_text(encoding="utf-8") for name in generator["files"]}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _kustomization(folder: Path) -> Manifest:
    content: Manifest = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert set(content) <= _KNOWN, f"{folder}: this does not know {sorted(set(content) - _KNOWN)}"
    return content


def _place(manifest: Manifest, namespace: str, built: set[tuple[str, str]]) -> None:
    """Put an object, and the service accounts of the same build that it binds, into a namespace."""
    if manifest["kind"] not in CLUSTER_SCOPED:
        manifest["metadata"]["namespace"] = namespace
    for subject in manifest.get("subjects", []):
        if (subject["kind"], subject["name"]) in built:
            subject["namespace"] = namespace
