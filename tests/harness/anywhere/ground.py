# SPDX-License-Identifier: Apache-2.0
"""A test's own ground on a cluster: a namespace and queues that go with it, and Jobs whose pods run a shell script."""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from anywhere.queues import open_queue, remove_queue
from kfp_volcano.errors import KfpVolcanoError, NotFoundError
from kfp_volcano.schemas.names import COORDINATOR, GPU, REQUEST
from kfp_volcano.schemas.records import ResizeRequest, dump
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.annotations import update_annotation
from kfp_volcano.volcano.launcher.follow import follow
from kfp_volcano.volcano.launcher.reference import JobRef
from kfp_volcano.volcano.launcher.submit import submit
from kfp_volcano.volcano.manifests.resize import workers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from anywhere.place import Place
    from kfp_volcano.volcano.cluster.base import Manifest
    from kfp_volcano.volcano.cluster.kubernetes.cluster import KubernetesCluster

__all__ = ["Follower", "Ground"]

PATIENCE_S = 120.0
"""How long anything may take: images are there, but a cluster may be busy."""
WAITS = "while :; do sleep 1; done"
_STOPPABLE = "trap 'exit 0' TERM; "


class Ground:
    """Everything that a test makes on a cluster is made here, and taken away by `clear`."""

    def __init__(self, cluster: KubernetesCluster, place: Place) -> None:
        self.cluster = cluster
        self.place = place
        self.namespace = f"kfp-volcano-test-{uuid.uuid4().hex[:8]}"
        self.queues: list[str] = []
        labels = {"pod-security.kubernetes.io/enforce": "privileged"}
        metadata = {"name": self.namespace, "labels": labels}
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        self.until("ServiceAccount", bool)
        claim = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "resources": {"requests": {"storage": "1Mi"}},
        }
        metadata = {"name": "checkpoints", "namespace": self.namespace}
        cluster.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim})

    # What is made.
    @property
    def most(self) -> int:
        """How many workers fit at once, at most 8."""
        return min(self.place.gpus, 8) if self.place.gpus else 8

    def queue(self, *, most: int, deserved: int | None = None) -> str:
        """A new queue for so many workers, where said with a right to so many."""
        name = f"{self.namespace}-{len(self.queues)}"
        self.queues.append(name)
        open_queue(self.cluster, name, self._room(most), None if deserved is None else self._room(deserved))
        return name

    def _room(self, most: int) -> dict[str, str]:
        return {GPU: str(most)} if self.place.gpus else {"cpu": f"{most * 10 + 5}m"}

    def submit(
        self,
        name: str,
        queue: str,
        *,
        script: str = WAITS,
        replicas: Any = 1,
        strategy: str | None = None,
        run_id: str = "run",
        **faults: Any,
    ) -> JobRef:
        """Submit a TrainingJob whose workers run a shell script."""
        elastic = isinstance(replicas, dict)
        worker = {"cpu": "10m", "memory": "16Mi", **({"gpu": 1} if self.place.gpus else {})}
        spec = {
            "framework": "custom",
            "image": self.place.image,
            "command": ["sh", "-c", script],
            "queue": queue,
            "roles": {"worker": {"replicas": replicas, "resources": worker}},
            "elasticity": {
                "strategy": strategy or ("restart" if elastic else "fixed"),
                "grace": "5s",
                "cooldown": "1s",
            },
            "checkpoint": {"volume": "checkpoints"},
            "faults": faults,
        }
        if elastic:
            spec["elasticity"]["coordinator"] = {"resources": {"cpu": "5m", "memory": "16Mi"}}
        document = {
            "apiVersion": "kfp-volcano/v1",
            "kind": "TrainingJob",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        }
        job = training_job(document)
        there = _InShells(self.cluster, self.place, script)
        return JobRef.of(submit(there, job, run_id=run_id, step="submit", now=time.time()))  # type: ignore[arg-type]

    def ask(self, ref: JobRef, to: int) -> str:
        """Ask for another number of workers, as a person would; returns the request's id."""
        job, now = ref.read(self.cluster), time.time()
        request = ResizeRequest(
            id=uuid.uuid4().hex[:12],
            from_workers=workers(job),
            to_workers=to,
            reason="Manual",
            explanation="a test asks for it",
            policy="none",
            by="test",
            at=now,
            expires=now + 600.0,
            urgent=False,
        )
        update_annotation(self.cluster, "Job", ref.name, ref.namespace, REQUEST, lambda _: dump(request))
        return request.id

    def follow(self, ref: JobRef, *, step: str = "train-1", last: bool = True) -> Follower:
        """Follow a Job in a thread, as a step does."""
        return Follower(self.cluster, ref, step=step, last=last)

    def finish(self, ref: JobRef) -> None:
        """Where pods are simulated, have the workers end well; elsewhere their scripts end by themselves."""
        if self.place.simulated is not None:
            pods = [pod for pod in self.pods(ref) if pod["metadata"]["labels"]["volcano.sh/task-spec"] == "core"]
            self.place.simulated.finish(pods)

    # What is seen.
    def pods(self, ref: JobRef) -> list[Manifest]:
        """The pods of a Job."""
        return self.cluster.list("Pod", self.namespace, {"volcano.sh/job-name": ref.name})[0]

    def running(self, ref: JobRef, *tasks: str) -> set[str]:
        """The uids of a Job's pods that run, of these tasks or of the workers'."""
        return {
            pod["metadata"]["uid"]
            for pod in self.pods(ref)
            if pod["metadata"]["labels"]["volcano.sh/task-spec"] in (tasks or ("core", "elastic"))
            and pod["status"].get("phase") == "Running"
            and not pod["metadata"].get("deletionTimestamp")
        }

    def until_running(self, ref: JobRef, count: int) -> set[str]:
        """Wait until so many workers run, and no others are there; their uids."""

        def so(_: list[Manifest]) -> bool:
            ours = [pod for pod in self.pods(ref) if pod["metadata"]["labels"]["volcano.sh/task-spec"] != COORDINATOR]
            return len(self.running(ref)) == len(ours) == count

        self.until("Pod", so)
        return self.running(ref)

    def until(self, kind: str, condition: Callable[[list[Manifest]], object]) -> list[Manifest]:
        """The objects of a kind in the namespace once they are so."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found, version = self.cluster.list(kind, self.namespace)
            if condition(found):
                return found
            assert time.monotonic() < deadline, f"{kind} still {[_brief(each) for each in found]}"
            next(iter(self.cluster.watch(kind, self.namespace, resource_version=version, timeout_s=2.0)), None)

    def clear(self) -> None:
        """Take all of it away; the namespace goes on by itself, see `gone`."""
        for job in self.cluster.list("Job", self.namespace)[0]:
            with suppress(NotFoundError):
                self.cluster.delete("Job", job["metadata"]["name"], self.namespace)
        self.until("Pod", lambda found: not found)
        self.until("PodGroup", lambda found: not found)
        with suppress(NotFoundError):
            self.cluster.delete("Namespace", self.namespace)
        for queue in self.queues:
            remove_queue(self.cluster, queue)

    def gone(self) -> None:
        """Wait until nothing of it is left."""
        self.until("Namespace", lambda found: self.namespace not in {each["metadata"]["name"] for each in found})


class Follower:
    """`follow` in a thread, what it says, and how it ends."""

    def __init__(self, cluster: KubernetesCluster, ref: JobRef, *, step: str, last: bool) -> None:
        self.said: list[str] = []
        self.outcome: str | KfpVolcanoError | None = None
        self._news = threading.Condition()
        self._arguments = {"holder": f"{step}:run", "heir": "run:run", "last": last, "clock": time.time}
        self._thread = threading.Thread(target=self._run, args=(cluster, ref), name=step, daemon=True)
        self._thread.start()

    def _run(self, cluster: KubernetesCluster, ref: JobRef) -> None:
        outcome: str | KfpVolcanoError
        try:
            outcome = follow(cluster, ref, say=self._hear, **self._arguments)  # type: ignore[arg-type]
        except KfpVolcanoError as error:
            outcome = error
        with self._news:
            self.outcome = outcome
            self._news.notify_all()

    def _hear(self, line: str) -> None:
        with self._news:
            self.said.append(line)
            self._news.notify_all()

    def until_said(self, words: str) -> str:
        """Wait for a line with these words."""
        with self._news:
            heard = self._news.wait_for(lambda: any(words in line for line in self.said), PATIENCE_S)
            assert heard, (words, self.said, self.outcome)
            return next(line for line in self.said if words in line)

    def ended(self) -> str | KfpVolcanoError:
        """Wait for the end; returns how it ended."""
        with self._news:
            assert self._news.wait_for(lambda: self.outcome is not None, PATIENCE_S), self.said
            assert self.outcome is not None
            return self.outcome


class _InShells:
    """The cluster, with all that a Job's containers need that is not there replaced by a shell."""

    def __init__(self, cluster: KubernetesCluster, place: Place, script: str) -> None:
        self._cluster = cluster
        self._place = place
        self._script = script

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def create(self, manifest: Manifest) -> Manifest:
        """As the cluster; a Job's pods are changed before."""
        if manifest["kind"] == "Job":
            tasks = [self._in_shell(task) for task in manifest["spec"]["tasks"]]
            manifest = {**manifest, "spec": {**manifest["spec"], "tasks": tasks}}
        return self._cluster.create(manifest)

    def _in_shell(self, task: Mapping[str, Any]) -> dict[str, Any]:
        spec = dict(task["template"]["spec"])
        script = WAITS if task["name"] == COORDINATOR else self._script
        shell = {"image": self._place.image, "imagePullPolicy": "IfNotPresent"}
        command = ["sh", "-c", _STOPPABLE + script]
        containers = [{**each, **shell, "command": command, "args": []} for each in spec["containers"]]
        claims = [{"name": each["name"], "emptyDir": {}} for each in spec.get("volumes") or ()]
        spec.pop("initContainers", None)
        spec |= {"containers": containers, "volumes": claims, "affinity": self._place.affinity}
        spec |= {"tolerations": self._place.tolerations, "automountServiceAccountToken": False}
        return {**task, "template": {**task["template"], "spec": spec}}


def _brief(manifest: Manifest) -> Any:
    return {"name": manifest["metadata"]["name"], "status": manifest.get("status")}
