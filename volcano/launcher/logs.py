"""What the Job's pods print, interleaved and prefixed, going on where an earlier segment stopped."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kfp_volcano.errors import ConflictError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest
    from kfp_volcano.volcano.launcher.reference import JobRef

__all__ = ["LogTail", "last_lines"]


class LogTail:
    """Prints each complete line of each pod once.

    How far each pod has been printed is kept in the ConfigMap `<job>-logs`, so that the next step of the DAG, in
    another process, neither repeats nor skips a line.
    """

    def __init__(self, cluster: Cluster, job: Manifest, ref: JobRef, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._job = job
        self._ref = ref
        self._say = say
        self._places = self._load()

    def pump(self, pods: Iterable[Manifest]) -> None:
        """Print what is new."""
        for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"])):
            name = pod["metadata"]["name"]
            try:
                text, place = self._cluster.logs(name, self._ref.namespace, after=self._places.get(name, ""))
            except NotFoundError:
                continue
            short = name.removeprefix(self._ref.name + "-")
            for line in text.split("\n")[:-1]:
                self._say(f"{short} | {line}")
            self._places[name] = place

    def save(self) -> None:
        """Note how far the logs have been printed, for the next step."""
        name, data = f"{self._ref.name}-logs", {"places": json.dumps(self._places)}
        owner = {
            "apiVersion": self._job["apiVersion"],
            "kind": "Job",
            "name": self._ref.name,
            "uid": self._job["metadata"]["uid"],
        }
        try:
            self._cluster.create(
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": name, "namespace": self._ref.namespace, "ownerReferences": [owner]},
                    "data": data,
                }
            )
        except ConflictError:
            patch = [{"op": "replace", "path": "/data", "value": data}]
            self._cluster.patch("ConfigMap", name, self._ref.namespace, patch)

    def _load(self) -> dict[str, str]:
        try:
            stored = self._cluster.get("ConfigMap", f"{self._ref.name}-logs", self._ref.namespace)
        except NotFoundError:
            return {}
        places: dict[str, str] = json.loads(stored["data"]["places"])
        return places


def last_lines(cluster: Cluster, pod: str, namespace: str, *, count: int = 15) -> list[str]:
    """The last lines a pod printed, none where it printed nothing or its log is gone."""
    try:
        text, _ = cluster.logs(pod, namespace, tail=count)
    except NotFoundError:
        return []
    return text.rstrip("\n").split("\n") if text.strip() else []
