# SPDX-License-Identifier: Apache-2.0
"""A cluster that is read, and only told what would be written to it."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from kfp_volcano.volcano.cluster.json_patch import apply_patch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest, Patch

__all__ = ["DryRun"]


class DryRun:
    """Another cluster for reading; each write is told and changes nothing. Whoever reads after it sees no change.

    Args:
        cluster: Which.
        tell: Called with what would be done, and the object or patch where there is one.
    """

    def __init__(self, cluster: Cluster, tell: Callable[[str, Any], None]) -> None:
        self._cluster = cluster
        self._tell = tell

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def create(self, manifest: Manifest) -> Manifest:
        """As if it had been created."""
        self._tell(f"would create {_named(manifest)}", manifest)
        return copy.deepcopy(manifest)

    def patch(self, kind: str, name: str, namespace: str, patch: Patch) -> Manifest:
        """The object as it would be. Raises as the real one where it is not there, or a `test` fails."""
        changed = apply_patch(self._cluster.get(kind, name, namespace), patch)
        self._tell(f"would change {kind} {namespace}/{name}", [dict(each) for each in _changes(patch)])
        return changed

    def delete(self, kind: str, name: str, namespace: str = "", **_options: Any) -> None:
        """Raises NotFoundError where there is nothing to delete."""
        self._cluster.get(kind, name, namespace)
        self._tell(f"would delete {kind} {namespace}/{name}", None)


def _changes(patch: Patch) -> list[Mapping[str, Any]]:
    return [each for each in patch if each["op"] != "test"]


def _named(manifest: Manifest) -> str:
    metadata = manifest["metadata"]
    return f"{manifest['kind']} {metadata.get('namespace', 'default')}/{metadata['name']}"
