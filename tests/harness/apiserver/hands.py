# SPDX-License-Identifier: Apache-2.0
"""What Volcano and the nodes would do, by hand: phases of Jobs, and pods that say that they run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apiserver.server import ApiServer

__all__ = ["Hands"]

_MERGE = "application/merge-patch+json"
_VOLCANO, _QUEUES = "batch.volcano.sh/v1alpha1", "scheduling.volcano.sh/v1beta1"


class Hands:
    """The administrator's, in one namespace."""

    def __init__(self, server: ApiServer, namespace: str) -> None:
        self._server = server
        self._namespace = namespace

    def open_queue(self, name: str) -> None:
        """A queue that takes Jobs."""
        queue = {"apiVersion": _QUEUES, "kind": "Queue", "metadata": {"name": name}, "spec": {"weight": 1}}
        self._server.admin.create(queue).expect()
        self._status(queue, {"state": "Open"})

    def close_queue(self, name: str) -> None:
        """It is as if it had never been."""
        self._server.admin.delete(_QUEUES, "Queue", name).expect()

    def phase(self, job: str, phase: str) -> None:
        """What Volcano's controller says of a Job."""
        reference = {"apiVersion": _VOLCANO, "kind": "Job", "metadata": {"name": job, "namespace": self._namespace}}
        state = {"phase": phase, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        self._status(reference, {"state": state})

    def workflow(self, name: str, run_id: str, phase: str = "Running") -> Mapping[str, Any]:
        """The Workflow of a run."""
        labels = {"pipeline/runid": run_id}
        return self._server.admin.create(
            {
                "apiVersion": "argoproj.io/v1alpha1",
                "kind": "Workflow",
                "metadata": {"name": name, "namespace": self._namespace, "labels": labels},
                "spec": {},
                "status": {"phase": phase},
            }
        ).expect()

    def end_workflow(self, name: str, phase: str) -> None:
        """It has ended so."""
        reference = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow"}
        path = self._server.admin.path({**reference, "metadata": {"namespace": self._namespace}}, name)
        self._server.admin.request("PATCH", path, {"status": {"phase": phase}}, content_type=_MERGE).expect()

    def pods(self, job: Mapping[str, Any], *, node: str = "") -> None:
        """All pods that a Job asks for, running; those that it does not ask for any more are gone.

        A pod on a node only goes when the node's kubelet says so: without one they go at once.
        """
        name, admin = job["metadata"]["name"], self._server.admin
        wanted = {
            f"{name}-{task['name']}-{index}": task for task in job["spec"]["tasks"] for index in range(task["replicas"])
        }
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        there = admin.request("GET", path, query={"labelSelector": f"volcano.sh/job-name={name}"}).expect()["items"]
        for pod in there:
            if pod["metadata"]["name"] not in wanted:
                grace = {"gracePeriodSeconds": "0"}
                admin.request("DELETE", f"{path}/{pod['metadata']['name']}", query=grace).expect()
        for pod_name, task in wanted.items():
            if pod_name in {pod["metadata"]["name"] for pod in there}:
                continue
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": self._pod_metadata(job, task, pod_name)}
            spec = {"containers": [{"name": "c", "image": "i"}], **({"nodeName": node} if node else {})}
            admin.create({**pod, "spec": spec}).expect()
            self._status(pod, {"phase": "Running"})

    def _pod_metadata(self, job: Mapping[str, Any], task: Mapping[str, Any], name: str) -> dict[str, Any]:
        owner = {key: job[key] for key in ("apiVersion", "kind")}
        owner |= {key: job["metadata"][key] for key in ("name", "uid")}
        labels = {"volcano.sh/job-name": job["metadata"]["name"], "volcano.sh/task-spec": task["name"]}
        annotations = {"volcano.sh/task-spec": task["name"]}
        return {
            "name": name,
            "namespace": self._namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner],
        }

    def _status(self, manifest: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        path = self._server.admin.path(manifest, manifest["metadata"]["name"])
        self._server.admin.request("PATCH", f"{path}/status", {"status": status}, content_type=_MERGE).expect()
