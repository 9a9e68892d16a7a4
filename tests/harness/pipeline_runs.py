# SPDX-License-Identifier: Apache-2.0
"""Pipeline runs and their Jobs on an in-memory cluster, with a clock that only the test moves."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from kfp_volcano.errors import ClusterError, ConflictError, NotFoundError
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.store import Store
from kfp_volcano.volcano.launcher.reaping import Decision, reap
from kfp_volcano.volcano.launcher.workflows import RUN_ID_LABEL
from kfp_volcano.volcano.manifests.job import job_manifest
from kfp_volcano.volcano.model.objects import time_text

__all__ = ["NS", "RUNS", "SPEC", "Refusing", "World", "job_of"]

NOW = 1_800_000_000.0
NS = "vision"
RUNS = [str(uuid.UUID(int=number)) for number in range(1, 4)]
SPEC = training_job(
    {
        "apiVersion": "kfp-volcano/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "digits", "namespace": NS},
        "spec": {
            "framework": "pytorch",
            "image": "registry.example/train:1",
            "command": ["train"],
            "queue": "default",
            "roles": {"worker": {"replicas": 1, "resources": {"cpu": 1, "memory": "1Gi"}}},
            "elasticity": {"strategy": "fixed"},
        },
    }
)


def job_of(run: str) -> str:
    """The name of a run's Job."""
    return f"digits-{run[-4:]}"


class World:
    """A cluster with runs on it; time stands still unless a test moves it."""

    def __init__(self) -> None:
        self.now = NOW
        self.store = Store(clock=lambda: self.now)
        self.store.create(
            {
                "apiVersion": "scheduling.volcano.sh/v1beta1",
                "kind": "Queue",
                "metadata": {"name": "default"},
                "spec": {"weight": 1},
                "status": {"state": "Open"},
            }
        )

    def workflow(self, run: str, namespace: str = NS, **content: Any) -> dict[str, Any]:
        """The Workflow of a run, which runs."""
        metadata = {"name": f"run-{run[-4:]}", "namespace": namespace, "labels": {RUN_ID_LABEL: run}}
        nodes = {"n": {"phase": "Running", "startedAt": time_text(self.now)}}
        status = {"phase": "Running", "nodes": nodes, **content.pop("status", {})}
        manifest = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": metadata}
        return self.store.create({**manifest, "spec": content, "status": status})

    def change(self, run: str, namespace: str = NS, **content: Any) -> None:
        """Set fields of a run's Workflow, where it is there; `status` within its status."""
        try:
            found = self.store.get("Workflow", f"run-{run[-4:]}", namespace)
        except NotFoundError:
            return
        status = {**found["status"], **content.pop("status", {})}
        patch = [{"op": "add", "path": "/status", "value": status}]
        patch += [{"op": "add", "path": f"/spec/{key}", "value": value} for key, value in content.items()]
        self.store.patch("Workflow", found["metadata"]["name"], namespace, patch)

    def forget(self, run: str, namespace: str = NS) -> None:
        try:
            self.store.delete("Workflow", f"run-{run[-4:]}", namespace)
        except NotFoundError:
            return

    def job(self, run: str, *, step: str = "submit", phase: str = "Running", owner: Any = None) -> dict[str, Any]:
        """A Job of a run, as the step creates it."""
        manifest = job_manifest(SPEC, name=job_of(run), run_id=run, step=step, workers=1)
        if owner:
            keys = ("apiVersion", "kind")
            reference = {key: owner[key] for key in keys} | {key: owner["metadata"][key] for key in ("name", "uid")}
            manifest["metadata"]["ownerReferences"] = [reference]
        try:
            self.store.create(manifest)
        except ConflictError:
            return manifest
        return self.phase(run, phase)

    def phase(self, run: str, phase: str) -> dict[str, Any]:
        state = {"state": {"phase": phase, "lastTransitionTime": time_text(self.now)}}
        patch = [{"op": "add", "path": "/status", "value": state}]
        try:
            return self.store.patch("Job", job_of(run), NS, patch)
        except NotFoundError:
            return {}

    def lose(self, run: str) -> None:
        """Somebody deletes the run's Job."""
        if job_of(run) in self.jobs():
            self.store.delete("Job", job_of(run), NS)

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def jobs(self) -> set[str]:
        return {each["metadata"]["name"] for each in self.store.list("Job", NS)[0]}

    def reap(self, cluster: Any = None, namespace: str = NS, **options: Any) -> list[Decision]:
        return reap(cluster or self.store, namespace, clock=lambda: self.now, tell=lambda _: None, **options)

    def verdict(self, **options: Any) -> Decision:
        """What became of the only thing that was decided on."""
        (decision,) = self.reap(**options)
        return decision


class Refusing:
    """A cluster on which some calls fail."""

    def __init__(self, store: Any, refuse: Callable[[str, tuple[Any, ...]], ClusterError | None]) -> None:
        self._store = store
        self._refuse = refuse

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            error = self._refuse(name, arguments)
            if error is not None:
                raise error
            return getattr(self._store, name)(*arguments, **options)

        return call
