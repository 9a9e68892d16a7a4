# SPDX-License-Identifier: Apache-2.0
"""Nodes that a test makes on any cluster, with a small kubelet for them: pods there are said to run, and end when told.

What needs several nodes, many GPUs or the loss of a node can be tried so on every cluster, and harms nobody: only pods
that name these nodes and tolerate their taint come there.
"""

from __future__ import annotations

import threading
import uuid
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import ClusterError, ConflictError, NotFoundError
from kfp_volcano.schemas.names import GPU
from kfp_volcano.volcano.cluster.base import KINDS
from kfp_volcano.volcano.cluster.informer import Informer
from kfp_volcano.volcano.cluster.kubernetes.request import Request
from kfp_volcano.volcano.model.objects import has_ended, terminating

if TYPE_CHECKING:
    from kfp_volcano.volcano.cluster.base import Manifest
    from kfp_volcano.volcano.cluster.kubernetes.cluster import KubernetesCluster

__all__ = ["TAINT", "SimulatedNodes"]

TAINT = "kfp-volcano-test/simulated"
"""The taint and the label of such nodes; its value is the set they belong to."""
_LEASES = "kube-node-lease"
_HEARTBEAT_S = 10.0
_LOOK_S = 1.0


class SimulatedNodes:
    """Some nodes of equal size, from `start` to `stop`."""

    def __init__(self, cluster: KubernetesCluster, *, count: int = 2, gpus: int = 4) -> None:
        self._cluster = cluster
        self.label = f"test-{uuid.uuid4().hex[:8]}"
        self.names = [f"kfp-volcano-{self.label}-{number}" for number in range(count)]
        self.gpus = gpus
        self._kept = set(self.names)
        self._ends: dict[str, int] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._informer = Informer(cluster, ("Pod",))
        self._thread = threading.Thread(target=self._run, name="simulated-kubelet")

    def start(self) -> None:
        """Make the nodes, and look after their pods from then on."""
        for name in self.names:
            self._make(name)
        self._informer.start()
        self._thread.start()

    def stop(self) -> None:
        """Take them away again."""
        self._stopped.set()
        self._informer.stop()
        self._thread.join()
        for name in self.names:
            for kind, namespace in (("Node", ""), ("Lease", _LEASES)):
                with suppress(NotFoundError):
                    self._cluster.delete(kind, name, namespace)

    def finish(self, pods: list[Manifest], exit_code: int = 0) -> None:
        """Have pods end."""
        with self._lock:
            self._ends |= {pod["metadata"]["uid"]: exit_code for pod in pods}

    def lose(self, name: str) -> None:
        """A node is gone for good, as when its machine was taken away: nobody speaks for its pods any more."""
        with self._lock:
            self._kept.discard(name)
        self._cluster.delete("Node", name)
        for pod in self._cluster.list("Pod")[0]:  # what the garbage collector of pods does within a minute
            if pod["spec"].get("nodeName") == name:
                with suppress(NotFoundError):
                    self._cluster.delete("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"], grace_s=0)

    def restore(self) -> None:
        """Make lost nodes anew."""
        for name in self.names:
            if name not in self._kept:
                self._make(name)
                self._kept.add(name)

    def _make(self, name: str) -> None:
        labels = {
            TAINT: self.label,
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
        }
        taint = {"key": TAINT, "value": self.label, "effect": "NoSchedule"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        made = self._cluster.create({**node, "spec": {"taints": [taint]}})
        # The API server taints what is not ready; the node lifecycle controller would take that off after a while.
        if made["spec"].get("taints") != [taint]:
            self._cluster.patch("Node", name, "", [{"op": "replace", "path": "/spec/taints", "value": [taint]}])
        room = {"cpu": "64", "memory": "512Gi", "pods": "200", GPU: str(self.gpus)}
        conditions = [
            {"type": kind, "status": status, "reason": "Simulated", "lastHeartbeatTime": _now()}
            for kind, status in (("Ready", "True"), ("MemoryPressure", "False"), ("DiskPressure", "False"))
        ]
        self._set_status("Node", name, "", {"capacity": room, "allocatable": room, "conditions": conditions})

    def _run(self) -> None:
        """Look at the pods with each change, and say now and then that the nodes are there."""
        version, beats_at = 0, 0.0
        while not self._stopped.is_set():
            now = datetime.now(timezone.utc).timestamp()
            if now >= beats_at:
                beats_at = now + _HEARTBEAT_S
                for name in list(self._kept):
                    with suppress(ClusterError):
                        self._beat(name)
            for pod in self._informer.objects("Pod"):
                if pod["spec"].get("nodeName") in self._kept:
                    with suppress(ClusterError):  # it has changed meanwhile: that comes here, too
                        self._look_after(pod)
            version = self._informer.wait(version, timeout_s=_LOOK_S)

    def _look_after(self, pod: Manifest) -> None:
        metadata, phase = pod["metadata"], (pod.get("status") or {}).get("phase")
        if terminating(pod):
            self._cluster.delete("Pod", metadata["name"], metadata["namespace"], grace_s=0, uid=metadata["uid"])
        elif has_ended(pod):
            return
        elif metadata["uid"] in self._ends:
            self._say(pod, self._ends[metadata["uid"]])
        elif phase == "Pending":
            self._say(pod, None)

    def _say(self, pod: Manifest, exit_code: int | None) -> None:
        """Write how a pod is: it runs, or has ended."""
        metadata, runs = pod["metadata"], exit_code is None
        ended = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed", "finishedAt": _now()}
        state = {"running": {"startedAt": _now()}} if runs else {"terminated": ended}
        container = {"ready": runs, "restartCount": 0, "image": "simulated", "imageID": "", "state": state}
        status = {
            "phase": "Running" if runs else "Failed" if exit_code else "Succeeded",
            "startTime": (pod.get("status") or {}).get("startTime") or _now(),
            "conditions": [{"type": kind, "status": str(runs)} for kind in ("Ready", "ContainersReady", "Initialized")],
            "containerStatuses": [{"name": each["name"], **container} for each in pod["spec"]["containers"]],
        }
        self._set_status("Pod", metadata["name"], metadata["namespace"], status)

    def _beat(self, name: str) -> None:
        """What tells the node lifecycle controller that a kubelet is alive."""
        at = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": at}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec}
        try:
            self._cluster.create({**lease, "metadata": {"name": name, "namespace": _LEASES}})
        except ConflictError:
            self._cluster.patch("Lease", name, _LEASES, [{"op": "replace", "path": "/spec", "value": spec}])

    def _set_status(self, kind: str, name: str, namespace: str, status: dict[str, Any]) -> None:
        known = KINDS[kind]
        patch = [{"op": "add", "path": f"/status/{key}", "value": value} for key, value in status.items()]
        self._cluster.api.read(Request("patch", known, namespace, name, "status", body=patch))


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
