# SPDX-License-Identifier: Apache-2.0
"""The life of one pod: its containers in their order, its time limit, and what its status says.

As the kubelet does it: init containers one after another, each to its end; sidecars (init containers with a
`restartPolicy` of their own) from their turn on until the others have ended; then all containers at once.
"""

from __future__ import annotations

import threading
import time
from base64 import b64decode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfp_volcano.volcano.cluster.container import Program, build_program, with_addresses
from kfp_volcano.volcano.cluster.container_worker import ContainerWorker
from kfp_volcano.volcano.cluster.pod_status import conditions, is_sidecar, phase
from kfp_volcano.volcano.model.objects import ENDED, key_of, status_of, terminating, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kfp_volcano.volcano.cluster.addresses import AddressBook
    from kfp_volcano.volcano.cluster.base import Manifest
    from kfp_volcano.volcano.cluster.container_worker import Kind
    from kfp_volcano.volcano.cluster.store import Store
    from kfp_volcano.volcano.cluster.volumes import Volumes

__all__ = ["Machine", "PodWorker"]

_DEFAULT_GRACE_S = 30.0
_LEAST_GRACE_S = 2.0
"""What a sidecar has when those before it have used up the pod's grace period (minimumGracePeriodInSeconds)."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What all pods of a cluster share."""

    store: Store
    addresses: AddressBook
    volumes: Volumes
    logs: Path
    workdir: Path
    interpreter: str
    env_of: Callable[[Manifest], Mapping[str, str]]
    """The environment that a pod's processes get before their own."""

    def log_of(self, namespace: str, pod: str) -> Path:
        """The file with everything that pods of this name have printed."""
        return self.logs / namespace / f"{pod}.log"


class PodWorker(threading.Thread):
    """Runs one pod from its binding to a node until it has ended or gone."""

    def __init__(self, machine: Machine, pod: Manifest) -> None:
        super().__init__(name=f"pod-{pod['metadata']['name']}", daemon=True)
        self._machine = machine
        self._pod = pod
        self.namespace = str(pod["metadata"]["namespace"])
        spec = pod["spec"]
        self._inits = [
            self._container(each, "sidecar" if is_sidecar(each) else "init")
            for each in spec.get("initContainers") or ()
        ]
        self._mains = [self._container(each, "main") for each in spec["containers"]]
        self._lock = threading.Lock()
        self._ends_at: float | None = None
        """When what is left of it is killed, by the monotonic clock."""
        self._stopping = threading.Event()
        self._initialised = False
        self._reason: dict[str, str] = {}
        """Why it was stopped, where its status says so."""
        self._showing = threading.Lock()

    def stop(self, grace_s: float) -> None:
        """Let the pod end: SIGTERM, and after the grace period SIGKILL. A shorter period replaces a longer one.

        Sidecars hear of it when the others have ended.
        """
        with self._lock:
            ends_at = time.monotonic() + grace_s
            if self._ends_at is not None and ends_at >= self._ends_at:
                return
            self._ends_at = ends_at
            self._stopping.set()
        for container in (*self._mains, *self._inits):
            if container.kind != "sidecar" or container.stopping or grace_s <= 0:
                container.stop(grace_s)

    def refresh(self, config: str) -> None:
        """A ConfigMap has changed; the kubelet brings it to the pods that have it as files."""
        if self.is_alive() and not self._stopping.is_set():
            self._machine.volumes.refresh(self._pod, config, self._files)

    def run(self) -> None:
        """Start the pod, follow it to its end, and say so."""
        namespace, name = key_of(self._pod)
        self._machine.log_of(namespace, name).parent.mkdir(parents=True, exist_ok=True)
        self._machine.log_of(namespace, name).touch()
        self._show(
            podIP=self._machine.addresses.address((namespace, name)),
            hostIP="127.0.0.1",
            startTime=time_text(time.time()),
        )
        limit = self._limit()
        try:
            self._initialised = self._initialise()
            if self._initialised:
                self._run_all(self._mains)
            self._end_sidecars()
            self._show(terminal=True, **self._reason)
        finally:
            if limit is not None:
                limit.cancel()
            self._machine.volumes.discard(self._pod)
            self._leave()

    def _initialise(self) -> bool:
        """Run or start the init containers, in their order; whether the others may start."""
        for container in self._inits:
            if container.kind == "sidecar":
                container.start()
                container.begun.wait()
            else:
                container.run()
                if not container.succeeded:
                    return False
            if self._stopping.is_set():
                return False
        return True

    def _run_all(self, containers: list[ContainerWorker]) -> None:
        for container in containers:
            container.start()
        for container in containers:
            container.join()

    def _end_sidecars(self) -> None:
        """End the sidecars, the last first, in what is left of the grace period."""
        grace_s = float(self._pod["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE_S))
        with self._lock:
            ends_at = self._ends_at = min(time.monotonic() + grace_s, self._ends_at or float("inf"))
        for container in reversed(self._inits):
            if container.kind == "sidecar" and container.is_alive():
                container.stop(max(_LEAST_GRACE_S, ends_at - time.monotonic()))
                container.join()

    def _limit(self) -> threading.Timer | None:
        """What ends the pod when its `activeDeadlineSeconds` are over."""
        spec = self._pod["spec"]
        if spec.get("activeDeadlineSeconds") is None:
            return None
        limit = threading.Timer(spec["activeDeadlineSeconds"], self._end_for_time)
        limit.daemon = True
        limit.start()
        return limit

    def _end_for_time(self) -> None:
        message = "Pod was active on the node longer than the specified deadline"
        self._reason = {"reason": "DeadlineExceeded", "message": message, "phase": "Failed"}
        self.stop(self._pod["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE_S))

    def _leave(self) -> None:
        """A pod that was asked to go is gone once its processes are."""
        key = key_of(self._pod)
        with self._machine.store.transaction() as (world, now):
            current = world.objects.get("Pod", {}).get(key)
            if current and current["metadata"]["uid"] == self._pod["metadata"]["uid"] and terminating(current):
                world.remove("Pod", key, now)

    def _container(self, manifest: Manifest, kind: Kind) -> ContainerWorker:
        return ContainerWorker(
            manifest,
            kind,
            self._pod["spec"].get("restartPolicy", "Always"),
            log=self._machine.log_of(*key_of(self._pod)),
            env=self._machine.env_of(self._pod),
            program=lambda: self._program(manifest),
            changed=self._show,
        )

    def _program(self, manifest: Manifest) -> Program:
        namespace = self._pod["metadata"]["namespace"]
        return build_program(
            self._pod,
            manifest,
            base_env=self._machine.env_of(self._pod),
            mounts=self._machine.volumes.prepare(self._pod, manifest, self._files),
            workdir=self._machine.workdir,
            interpreter=self._machine.interpreter,
            address_of=self._address_of,
            port_of=lambda name: self._machine.addresses.port((namespace, name)),
            read_data=self._data,
        )

    def _data(self, kind: str, name: str) -> Mapping[str, str] | None:
        with self._machine.store.transaction() as (world, _):
            found = world.objects.get(kind, {}).get((self._pod["metadata"]["namespace"], name))
        if found is None:
            return None
        data = found.get("data") or {}
        return data if kind == "ConfigMap" else {key: b64decode(text).decode() for key, text in data.items()}

    def _files(self, kind: str, name: str) -> Mapping[str, str] | None:
        """What a volume of a ConfigMap or Secret holds; there is no DNS, so Volcano's lists of hosts are addresses."""
        data = self._data(kind, name)
        if data is None or kind != "ConfigMap":
            return data
        return {key: with_addresses(text, self._pod, self._address_of) for key, text in data.items()}

    def _address_of(self, name: str) -> str:
        return self._machine.addresses.address((self._pod["metadata"]["namespace"], name))

    def _show(self, *, terminal: bool = False, **said: str) -> None:
        """Bring the pod's status to what its containers are in, if the pod is still there."""
        with self._showing:
            spec = self._pod["spec"]
            inits = [each.status() for each in self._inits]
            # The kubelet sorts them by name; Volcano takes the first one's exit code for the pod's.
            mains = sorted((each.status() for each in self._mains), key=lambda status: str(status["name"]))
            reached = phase(spec, inits, mains, terminal=terminal)
            if not terminal and reached in ENDED:  # said when nothing of it is left
                reached = "Running" if self._initialised else "Pending"
            changes: dict[str, Any] = {
                "phase": reached,
                **({"initContainerStatuses": inits} if inits else {}),
                "containerStatuses": mains,
                **said,
            }

            def revision(pod: Manifest) -> Manifest:
                before, now = status_of(pod), time_text(time.time())
                stated = conditions(spec, inits, mains, before=before.get("conditions") or (), now=now)
                return {**pod, "status": {**before, **changes, "conditions": stated}}

            revised = self._machine.store.revise("Pod", key_of(self._pod), self._pod["metadata"]["uid"], revision)
            self._pod = revised or self._pod
