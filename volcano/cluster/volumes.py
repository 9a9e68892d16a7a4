# SPDX-License-Identifier: Apache-2.0
"""Folders in place of volumes."""

from __future__ import annotations

import shutil
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING

from kfp_volcano.volcano.cluster.container import Mount

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfp_volcano.volcano.cluster.base import Manifest
    from kfp_volcano.volcano.cluster.container import ReadData

__all__ = ["Volumes"]

_DEFAULT_MODE = 0o644


class Volumes:
    """The cluster's volumes under one directory.

    A claim is `volumes/<namespace>/<claim>`, unless `mapping` names a folder for it; any other volume is a folder of
    its pod alone, under `pods/<namespace>/<pod>-<start of its uid>`, and goes with it.
    """

    def __init__(self, directory: Path, mapping: Mapping[str, str | Path]) -> None:
        self._directory = directory
        self._mapping = {claim: Path(folder).absolute() for claim, folder in mapping.items()}

    def claim(self, namespace: str, claim: str) -> Path:
        """The folder of a claim; made if it is under the cluster's own directory."""
        mapped = self._mapping.get(claim)
        if mapped is not None:
            return mapped
        folder = self._directory / "volumes" / namespace / claim
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def prepare(self, pod: Manifest, container: Manifest, read_data: ReadData) -> list[Mount]:
        """A container's mounts, with the files of ConfigMaps and Secrets as they are now."""
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
        mounts = []
        for wanted in container.get("volumeMounts") or ():
            volume = volumes[wanted["name"]]
            folder = self._folder(pod, volume)
            if "configMap" in volume:
                _write(folder, volume["configMap"], read_data("ConfigMap", volume["configMap"]["name"]))
            elif "secret" in volume:
                _write(folder, volume["secret"], read_data("Secret", volume["secret"]["secretName"]))
            if wanted.get("subPath"):
                folder /= wanted["subPath"]
                folder.mkdir(parents=True, exist_ok=True)
            mounts.append(Mount(wanted["mountPath"], folder))
        return mounts

    def refresh(self, pod: Manifest, config: str, read_data: ReadData) -> None:
        """Write the files of a ConfigMap anew for a pod that runs."""
        for volume in pod["spec"].get("volumes") or ():
            source = volume.get("configMap")
            if source and source["name"] == config and (self._own(pod) / str(volume["name"])).is_dir():
                _write(self._folder(pod, volume), source, read_data("ConfigMap", config))

    def discard(self, pod: Manifest) -> None:
        """Remove the folders that are the pod's alone."""
        shutil.rmtree(self._own(pod), ignore_errors=True)

    def _folder(self, pod: Manifest, volume: Manifest) -> Path:
        if "persistentVolumeClaim" in volume:
            return self.claim(pod["metadata"]["namespace"], volume["persistentVolumeClaim"]["claimName"])
        folder = self._own(pod) / str(volume["name"])
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _own(self, pod: Manifest) -> Path:
        metadata = pod["metadata"]
        return self._directory / "pods" / str(metadata["namespace"]) / f"{metadata['name']}-{metadata['uid'][:8]}"


def _write(folder: Path, source: Manifest, data: Mapping[str, str] | None) -> None:
    """The files of a ConfigMap or Secret: all keys under their names, or those that are asked for under theirs."""
    data = data or {}
    items = source.get("items") or [{"key": key, "path": key} for key in data]
    for item in items:
        if item["key"] in data:
            file = folder / item["path"]
            file.parent.mkdir(parents=True, exist_ok=True)
            # Renamed, so that a program that reads it now reads all of one version; other containers may write it, too.
            partial = file.with_name(f".{file.name}.{get_ident()}.partial")
            partial.write_text(data[item["key"]])
            partial.chmod(item.get("mode") or source.get("defaultMode") or _DEFAULT_MODE)
            partial.replace(file)
