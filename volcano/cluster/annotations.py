# SPDX-License-Identifier: Apache-2.0
"""Changing one annotation of an object that others change too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.errors import ConflictError
from kfp_volcano.volcano.manifests.pointer import pointer

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["MOST_TRIES", "annotation", "annotation_patch", "update_annotation"]

MOST_TRIES = 20


def annotation(manifest: Manifest, key: str) -> str | None:
    """The text of an annotation, None where the object has none of that name."""
    text = (manifest["metadata"].get("annotations") or {}).get(key)
    return None if text is None else str(text)


def annotation_patch(manifest: Manifest, key: str, text: str) -> list[dict[str, object]]:
    """The JSON Patch that sets an annotation if it still reads as in `manifest`, and fails otherwise."""
    path = pointer("metadata", "annotations", key)
    uid: dict[str, object] = {"op": "test", "path": "/metadata/uid", "value": manifest["metadata"]["uid"]}
    before = annotation(manifest, key)
    if before is None:
        # `add` would overwrite what another has written meanwhile; the version tells.
        version = {"op": "test", "path": "/metadata/resourceVersion", "value": manifest["metadata"]["resourceVersion"]}
        if manifest["metadata"].get("annotations"):
            return [uid, version, {"op": "add", "path": path, "value": text}]
        return [uid, version, {"op": "add", "path": "/metadata/annotations", "value": {key: text}}]
    return [uid, {"op": "test", "path": path, "value": before}, {"op": "replace", "path": path, "value": text}]


def update_annotation(
    cluster: Cluster, kind: str, name: str, namespace: str, key: str, change: Callable[[str | None], str | None]
) -> Manifest:
    """Set an annotation to `change(its present text)`; nothing happens where that is None.

    Reads again and decides again when another writer was faster. Raises ConflictError after many lost races.
    """
    for _ in range(MOST_TRIES):
        manifest = cluster.get(kind, name, namespace)
        text = change(annotation(manifest, key))
        if text is None or text == annotation(manifest, key):
            return manifest
        try:
            return cluster.patch(kind, name, namespace, annotation_patch(manifest, key, text))
        except ConflictError:
            continue
    raise ConflictError(f"{kind} {namespace}/{name}: annotation {key} is being changed by others all the time")
