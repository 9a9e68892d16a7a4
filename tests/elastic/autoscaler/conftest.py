# SPDX-License-Identifier: Apache-2.0
"""A cluster in virtual time: the embedded cluster's objects and Volcano's model, with pods that only say they run.

Nothing happens between two calls: `settle` lets controllers, scheduler and nodes act until all is quiet.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from kfp_volcano.elastic.autoscaler.lease import JobLease
from kfp_volcano.elastic.autoscaler.observing.index import WATCHED
from kfp_volcano.elastic.autoscaler.observing.view import Stamped
from kfp_volcano.schemas.names import GPU, PROGRESS, REQUEST, RESIZE
from kfp_volcano.schemas.records import Progress, ResizeOutcome, ResizeRequest, dump, parse, parse_list
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.annotations import annotation, update_annotation
from kfp_volcano.volcano.cluster.base import Event
from kfp_volcano.volcano.cluster.store import Store
from kfp_volcano.volcano.manifests.job import job_manifest
from kfp_volcano.volcano.manifests.resize import workers
from kfp_volcano.volcano.model.control import run_controllers, run_scheduler
from kfp_volcano.volcano.model.objects import terminating
from kfp_volcano.volcano.model.queues import root_queue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kfp_volcano.volcano.model.objects import Transition

START = 1_790_000_000.0


class VirtualCluster:
    """Implements the Cluster port as far as the autoscaler uses it; `informer`, so that it needs no threads.

    `fail_at(n)` makes the n-th write from then on raise, before (`lost=False`) or after (`lost=True`) it took effect:
    the death of whoever writes, at that line.
    """

    def __init__(self, nodes: Iterable[int] = (4, 4)) -> None:
        self.now = START
        self.store = Store(clock=lambda: self.now)
        self.trains = True
        """Whether training takes part: progress shows the workers that run."""
        self.broken_nodes = False
        """Whether pods that have a node never come to run."""
        self.writes = 0
        self._fail: tuple[int, bool] | None = None
        with self.store.transaction() as (world, now):
            for number, gpus in enumerate(nodes):
                room = {"cpu": "1000", "memory": "1000Gi", "pods": "1000", GPU: str(gpus)}
                node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{number}"}, "spec": {}}
                world.create({**node, "status": {"capacity": room, "allocatable": room}}, now)
            world.create(root_queue(), now)
            queue = {"metadata": {"name": "research"}, "spec": {"capability": {GPU: str(sum(nodes))}}}
            world.create({**root_queue(), **queue}, now)
            run_controllers(world, now)

    # The Cluster port.
    def get(self, kind: str, name: str, namespace: str = "") -> Any:
        return self.store.get(kind, name, namespace)

    def list(self, kind: str, namespace: str = "", labels: Any = None) -> Any:
        return self.store.list(kind, namespace, labels)

    def create(self, manifest: Any) -> Any:
        return self._write(lambda: self.store.create(manifest))

    def patch(self, kind: str, name: str, namespace: str, patch: Any) -> Any:
        return self._write(lambda: self.store.patch(kind, name, namespace, patch))

    def delete(self, kind: str, name: str, namespace: str = "", *, grace_s: float | None = None, uid: str = "") -> None:
        self._write(lambda: self.store.delete(kind, name, namespace, grace_s=grace_s, uid=uid))

    def _write(self, write: Any) -> Any:
        number = self.writes
        self.writes += 1
        if self._fail is None or self._fail[0] != number:
            return write()
        lost = self._fail[1]
        self._fail = None
        if lost:
            write()
        raise Killed("killed")

    def live(self, scaler: Any, seconds: float) -> None:
        """Let time pass, and an autoscaler with it."""
        end = self.now + seconds
        while self.now < end:
            look_at = scaler.turn()
            assert look_at >= self.now
            self.wait(0, min(look_at, end) - self.now)

    def request(self, name: str = "digits") -> ResizeRequest:
        """What a Job was asked last."""
        return parse(ResizeRequest, annotation(self.job(name), REQUEST))

    def follow(self, holder: str = "train-1:abc", name: str = "digits") -> JobLease:
        """A follower that holds a Job's Lease, and does nothing."""
        lease = JobLease(self, "ml", name, holder=holder, clock=lambda: self.now)
        assert lease.hold()
        return lease

    def view(self) -> VirtualView:
        """Another autoscaler's eyes."""
        return VirtualView(self)

    def fail_at(self, number: int, *, lost: bool) -> None:
        self.writes = 0
        self._fail = (number, lost)

    # The informer: always up to date; waiting is what lets time pass.
    stale_since = None

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def objects(self, kind: str) -> Any:
        return self.store.list(kind)[0]

    def wait(self, version: int, timeout_s: float) -> int:
        before = self.store.version
        self.settle()
        if self.store.version == before:
            self.now += timeout_s
        return self.store.version

    # The world outside.
    def settle(self) -> None:
        """Let everybody act until nothing changes any more."""
        before = -1
        while before != self.store.version:
            with self.store.transaction() as (world, now):
                before = world.version
                run_controllers(world, now)
                run_scheduler(world, now)
                run_controllers(world, now)
                for key, pod in list(world.objects.get("Pod", {}).items()):
                    if terminating(pod):
                        world.remove("Pod", key, now)
                    elif pod["spec"].get("nodeName") and not self.broken_nodes:
                        world.update({**pod, "status": {**(pod.get("status") or {}), "phase": "Running"}})
        if self.trains:
            self._report()

    def _report(self) -> None:
        running = [
            pod["metadata"]["labels"]["volcano.sh/job-name"]
            for pod in self.objects("Pod")
            if pod["metadata"]["labels"]["volcano.sh/task-spec"] in {"core", "elastic"}
            and (pod.get("status") or {}).get("phase") == "Running"
        ]
        for job in self.objects("Job"):
            name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
            if name in running:
                progress = Progress(
                    step=10,
                    total_steps=100,
                    samples=640,
                    epoch=0,
                    throughput=64.0,
                    workers=running.count(name),
                    batch=64,
                    lr=0.1,
                    at=self.now,
                )
                known = annotation(job, PROGRESS)
                if known is None or f'"workers":{progress.workers},' not in known:
                    update_annotation(self.store, "Job", name, namespace, PROGRESS, lambda _, p=progress: dump(p))

    def submit(
        self,
        name: str = "digits",
        *,
        initial: int = 2,
        low: int = 2,
        high: int = 8,
        sizes: Any = None,
        step: str = "submit",
        **spec: Any,
    ) -> Any:
        """Create an elastic Job, and let it start."""
        replicas = {"min": low, "max": high} | ({"sizes": sizes} if sizes else {})
        job = training_job(
            {
                "apiVersion": "kfp-volcano/v1",
                "kind": "TrainingJob",
                "metadata": {"name": name, "namespace": "ml"},
                "spec": {
                    "framework": "pytorch",
                    "image": "train",
                    "command": ["sleep", "600"],
                    "queue": "research",
                    "roles": {"worker": {"replicas": replicas, "resources": {"gpu": 1}}},
                    "elasticity": {"cooldown": "60s"},
                    "checkpoint": {"volume": "checkpoints"},
                    **spec,
                },
            }
        )
        self.store.create(job_manifest(job, name=name, run_id="run-1", step=step, workers=initial))
        self.settle()
        return self.job(name)

    def submit_gang(self, name: str = "big", *, pods: int = 4, gpus: int = 1) -> Any:
        """Another team's gang, not elastic."""
        container = {"name": "main", "image": "x", "command": ["sleep", "9"], "resources": {"limits": {GPU: str(gpus)}}}
        self.store.create(
            {
                "apiVersion": "batch.volcano.sh/v1alpha1",
                "kind": "Job",
                "metadata": {"name": name, "namespace": "vision", "labels": {"kfp-volcano/team": "speech"}},
                "spec": {
                    "queue": "research",
                    "minAvailable": pods,
                    "schedulerName": "volcano",
                    "tasks": [
                        {
                            "name": "main",
                            "replicas": pods,
                            "minAvailable": pods,
                            "template": {"spec": {"containers": [container]}},
                        }
                    ],
                },
            }
        )
        self.settle()

    def job(self, name: str = "digits", namespace: str = "ml") -> Any:
        return self.store.get("Job", name, namespace)

    def size(self, name: str = "digits") -> int:
        return workers(self.job(name))

    def outcomes(self, name: str = "digits") -> list[ResizeOutcome]:
        return parse_list(ResizeOutcome, annotation(self.job(name), RESIZE))

    def annotate(self, key: str, record: Any, name: str = "digits") -> None:
        update_annotation(
            self.store, "Job", name, "ml", key, lambda _: record if isinstance(record, str) else dump(record)
        )

    def running(self, name: str) -> int:
        return sum(
            pod["metadata"]["labels"]["volcano.sh/job-name"] == name
            and (pod.get("status") or {}).get("phase") == "Running"
            for pod in self.objects("Pod")
        )


class VirtualView:
    """What an autoscaler sees of a virtual cluster: always up to date; waiting is what lets time pass."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self._cluster = cluster
        self._stamped = Stamped(lambda: cluster.now)
        for kind in WATCHED:
            objects, version = cluster.store.list(kind)
            self._stamped.index.replace(kind, objects, version)
        cluster.store.listen(self._happened)

    def _happened(self, transition: Transition) -> None:
        if transition.kind in WATCHED:
            manifest = transition.new or transition.old
            self._stamped.apply(transition.kind, Event("MODIFIED" if transition.new else "DELETED", manifest))

    @property
    def stale_since(self) -> float | None:
        return self._cluster.stale_since

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def wake(self) -> None: ...

    def wait(self, version: int, timeout_s: float) -> int:
        return self._cluster.wait(version, timeout_s)

    def reading(self) -> Any:
        return nullcontext(self._stamped)


class Killed(BaseException):
    """The process that wrote is dead."""


@pytest.fixture
def cluster() -> VirtualCluster:
    """Two nodes of four GPUs, and the queue `research` that may use them all."""
    return VirtualCluster()
