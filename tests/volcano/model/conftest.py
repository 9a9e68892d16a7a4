# SPDX-License-Identifier: Apache-2.0
"""A laboratory for the model: the one in which Volcano's behaviour was recorded."""

from __future__ import annotations

import itertools
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from kfp_volcano.volcano.cluster.json_patch import apply_patch
from kfp_volcano.volcano.model import expiry
from kfp_volcano.volcano.model.configuration import CLASSIC, Configuration
from kfp_volcano.volcano.model.control import run_controllers, run_scheduler
from kfp_volcano.volcano.model.objects import Transition, phase_of, status_of, terminating
from kfp_volcano.volcano.model.pods import INDEX, JOB, TASK
from kfp_volcano.volcano.model.queues import root_queue
from kfp_volcano.volcano.model.resources import pod_request, resources
from kfp_volcano.volcano.model.world import World

GPU = "nvidia.com/gpu"
NAMESPACE = "default"


class Lab:
    """The recorded laboratory: 2 nodes with 8 GPUs, kubelets that start what is bound and end what must go."""

    def __init__(self, configuration: Configuration = CLASSIC) -> None:
        self.configuration = configuration
        self._numbers = itertools.count()
        self.taken: set[str] = set()
        self.world = World(lambda: f"uid-{next(self._numbers)}", self._note)
        self.now = 0.0
        capacity = {"cpu": "64", "memory": "512Gi", "pods": "200", GPU: "8"}
        for name in ("gpu-0", "gpu-1"):
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": capacity}}
            self.world.create(node, self.now)
        self.world.create(root_queue(), self.now)
        self.queue({"kind": "Queue", "metadata": {"name": "default"}, "spec": {}})
        self.settle()

    def settle(self, seconds: int = 4, limit: int = 40) -> None:
        """Let everybody act until nobody has had anything to do for a while, as the recorder waited."""
        quiet = 0
        for _ in range(limit):
            before = self.world.version
            self.now += 1
            for expired in expiry.collect(self.world.objects, self.now):
                self.world.apply(expired, self.now)
            run_controllers(self.world, self.now)
            run_scheduler(self.world, self.now, self.configuration)
            run_controllers(self.world, self.now)
            self._kubelets()
            quiet = quiet + 1 if before == self.world.version else 0
            if quiet == seconds:
                return

    def _note(self, transition: Transition) -> None:
        """Remember the Jobs whose pods the scheduler took."""
        pod = transition.new
        if pod is not None and pod["kind"] == "Pod":
            conditions = {each["type"] for each in status_of(pod).get("conditions") or ()}
            self.taken |= {pod["metadata"]["annotations"][JOB]} if "DisruptionTarget" in conditions else set()

    def _kubelets(self) -> None:
        """One pod after the other, and the controllers are faster than that."""
        for key in list(self.world.objects.get("Pod", {})):
            pod = self.world.objects["Pod"].get(key)
            if pod is None:
                continue
            if terminating(pod):
                self.world.remove("Pod", key, self.now)
            elif pod["spec"].get("nodeName") and phase_of(pod) == "Pending":
                self._status(pod, phase="Running", restarts=0)
            run_controllers(self.world, self.now)

    def _status(self, pod: dict[str, Any], *, phase: str, restarts: int, code: int | None = None) -> None:
        state: dict[str, Any] = {"running": {}} if code is None else {"terminated": {"exitCode": code}}
        container = {"name": "c", "restartCount": restarts, "state": state}
        self.world.update({**pod, "status": {**status_of(pod), "phase": phase, "containerStatuses": [container]}})

    def _pod(self, name: str) -> dict[str, Any]:
        return self.world.get("Pod", (NAMESPACE, name))

    def queue(self, manifest: dict[str, Any]) -> None:
        self.world.create(manifest, self.now)

    def submit(self, manifest: dict[str, Any]) -> None:
        self.world.create({**manifest, "metadata": {"namespace": NAMESPACE, **manifest["metadata"]}}, self.now)

    def priority(self, name: str, value: int, **more: Any) -> None:
        self.world.create({"kind": "PriorityClass", "metadata": {"name": name}, "value": value, **more}, self.now)

    def patch(self, name: str, operations: list[dict[str, Any]]) -> None:
        self.world.update(apply_patch(self.world.get("Job", (NAMESPACE, name)), operations))

    def delete(self, name: str) -> None:
        self.world.delete("Job", (NAMESPACE, name), self.now)

    def evict(self, name: str) -> None:
        self.world.delete("Pod", (NAMESPACE, name), self.now, grace_s=0)

    def end(self, name: str, code: int) -> None:
        self._status(self._pod(name), phase="Failed" if code else "Succeeded", restarts=0, code=code)

    def restarts(self, name: str, count: int) -> None:
        self._status(self._pod(name), phase="Running", restarts=count)

    def command(self, action: str, kind: str, name: str) -> None:
        """What `vcctl` writes."""
        groups = {"Job": "batch.volcano.sh/v1alpha1", "Queue": "scheduling.volcano.sh/v1beta1"}
        target = {"apiVersion": groups[kind], "kind": kind, "name": name}
        metadata = {"namespace": NAMESPACE, "name": f"{name}-{next(self._numbers)}"}
        self.world.create({"kind": "Command", "metadata": metadata, "action": action, "target": target}, self.now)

    def running(self, name: str) -> Counter[str]:
        """How many pods of each task of a Job run."""
        tasks = self.state()["jobs"][name]["tasks"]
        return Counter({task: len(phases["Running"]) for task, phases in tasks.items() if "Running" in phases})

    def held(self) -> Counter[str]:
        """GPUs taken on each node."""
        total: Counter[str] = Counter()
        for pod in self.world.objects.get("Pod", {}).values():
            if pod["spec"].get("nodeName") and phase_of(pod) in {"Pending", "Running"}:
                total[pod["spec"]["nodeName"]] += pod_request(pod["spec"])[GPU] // 1000
        return total

    def uids(self) -> dict[str, str]:
        return {name: pod["metadata"]["uid"] for (_, name), pod in self.world.objects.get("Pod", {}).items()}

    def state(self) -> dict[str, Any]:
        """What the recorder wrote down after each step."""
        return {
            "jobs": {name: self._job(job) for (_, name), job in self.world.objects.get("Job", {}).items()},
            "queues": {
                name: {
                    "state": status_of(queue).get("state"),
                    "allocatedGPU": resources(status_of(queue).get("allocated")).get(GPU, 0) // 1000,
                }
                for (_, name), queue in self.world.objects["Queue"].items()
            },
        }

    def _job(self, job: dict[str, Any]) -> dict[str, Any]:
        tasks: dict[str, dict[str, list[int]]] = {}
        for pod in self.world.objects.get("Pod", {}).values():
            annotations = pod["metadata"]["annotations"]
            if annotations[JOB] == job["metadata"]["name"] and not terminating(pod):
                indexes = tasks.setdefault(annotations[TASK], {}).setdefault(phase_of(pod), [])
                indexes.append(int(annotations[INDEX]))
                indexes.sort()
        return {
            "phase": status_of(job)["state"]["phase"],
            "retryCount": status_of(job)["retryCount"],
            "tasks": tasks,
            "podgroup": self._group(job),
        }

    def _group(self, job: dict[str, Any]) -> dict[str, Any] | None:
        key = (NAMESPACE, f"{job['metadata']['name']}-{job['metadata']['uid']}")
        group = self.world.objects.get("PodGroup", {}).get(key)
        if group is None:
            return None
        spec = group["spec"]
        return {
            "phase": phase_of(group),
            "minMember": spec.get("minMember"),
            "minTaskMember": spec["minTaskMember"],
            "minGPU": spec["minResources"].get(f"requests.{GPU}"),
        }


def task(name: str, replicas: int, least: int, *, gpus: int = 2, priority: str = "", **more: Any) -> dict[str, Any]:
    """A task whose pods have so many GPUs each."""
    resources = {"limits": {GPU: str(gpus)}, "requests": {"cpu": "1"}}
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "x", "resources": resources}]}
    if priority:
        spec["priorityClassName"] = priority
    return {"name": name, "replicas": replicas, "minAvailable": least, "template": {"spec": spec}, **more}


def job(name: str, *tasks: dict[str, Any], queue: str = "default", **spec: Any) -> dict[str, Any]:
    """A Job of these tasks, whose minimums add up to its own."""
    least = sum(each["minAvailable"] for each in tasks)
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"queue": queue, "minAvailable": least, "maxRetry": 1000, "tasks": list(tasks), **spec},
    }


def queue(name: str, **spec: Any) -> dict[str, Any]:
    """A queue; numbers are GPUs."""
    amounts = ("capability", "deserved")
    spec = {each: {GPU: str(value)} if each in amounts else value for each, value in spec.items()}
    return {"kind": "Queue", "metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    """Makers of manifests."""
    return SimpleNamespace(task=task, job=job, queue=queue)


@pytest.fixture
def new_lab() -> type[Lab]:
    """Makes laboratories."""
    return Lab


@pytest.fixture
def lab() -> Lab:
    """An empty laboratory."""
    return Lab()
