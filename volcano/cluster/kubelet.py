# SPDX-License-Identifier: Apache-2.0
"""All nodes' kubelets in one: runs the pods that have a node as processes of this machine.

Restarts are in place: the pod keeps its name, its address and its log. The first one is immediate, the next wait
0.5 s, 1 s, 2 s … up to 10 s (a real kubelet: 10 s up to 5 min), counting anew after a minute of running.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kfp_volcano.volcano.cluster.pod_worker import Machine, PodWorker
from kfp_volcano.volcano.model.objects import Transition, has_ended, key_of, terminating

if TYPE_CHECKING:
    from kfp_volcano.volcano.cluster.base import Manifest

__all__ = ["Kubelet"]


class Kubelet:
    """Starts, stops and kills pods as their objects say."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._workers: dict[str, PodWorker] = {}
        self._forgotten: list[PodWorker] = []
        """Of pods that are gone, though their processes may not be yet."""
        self._lock = threading.Lock()
        self._closed = False

    def observe(self, transition: Transition) -> None:
        """Hear of a change of any object; does not block."""
        if transition.kind == "ConfigMap" and transition.old is not None and transition.new is not None:
            self._refresh(transition.new)
        if transition.kind != "Pod":
            return
        if transition.new is None:
            worker = self._forget(transition.old)
            if worker is not None:
                worker.stop(0)
            return
        worker = self._worker(transition.new)
        if worker is not None and terminating(transition.new):
            worker.stop(transition.new["metadata"]["deletionGracePeriodSeconds"])

    def shutdown(self, grace_s: float) -> None:
        """End all pods and wait until they have; no pod is started any more."""
        with self._lock:
            self._closed = True
            workers = [*self._workers.values(), *self._forgotten]
        for worker in workers:
            worker.stop(grace_s)
        for worker in workers:
            worker.join()

    def _worker(self, pod: Manifest) -> PodWorker | None:
        """The worker of a pod; a new one for a pod that has just got its node."""
        uid = pod["metadata"]["uid"]
        with self._lock:
            worker = self._workers.get(uid)
            starts = pod["spec"].get("nodeName") and not has_ended(pod)
            if worker is None and starts and not self._closed:
                worker = self._workers[uid] = PodWorker(self._machine, pod)
                worker.start()
            return worker

    def _refresh(self, config: Manifest) -> None:
        namespace, name = key_of(config)
        with self._lock:
            workers = [worker for worker in self._workers.values() if worker.namespace == namespace]
        for worker in workers:
            worker.refresh(name)

    def _forget(self, pod: Manifest | None) -> PodWorker | None:
        with self._lock:
            worker = self._workers.pop(pod["metadata"]["uid"], None) if pod else None
            self._forgotten = [each for each in self._forgotten if each.is_alive()]
            if worker is not None:
                self._forgotten.append(worker)
            return worker
