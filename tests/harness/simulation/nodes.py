# SPDX-License-Identifier: Apache-2.0
"""Kubelets of the simulation: pods that have a node start after a while, print, end, and go when they are told to."""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random
from typing import Any

from kfp_volcano.schemas.names import GPU
from kfp_volcano.volcano.cluster.store import Store
from kfp_volcano.volcano.model.control import run_controllers, run_scheduler
from kfp_volcano.volcano.model.objects import has_ended, key_of, terminating, time_text
from kfp_volcano.volcano.model.queues import root_queue
from simulation.server import Run, Server

__all__ = ["Nodes"]

_CONTAINER = "worker"


class Nodes:
    """Two nodes of four GPUs with Volcano's model in place of Volcano.

    Args:
        store: The objects.
        server: Whose kubelets these are.
        at: Has something done after so many seconds.
        now: The time, Unix seconds.
        random: Decides when what happens.
    """

    def __init__(
        self,
        store: Store,
        server: Server,
        at: Callable[[float, Callable[[], None]], None],
        now: Callable[[], float],
        random: Random,
    ) -> None:
        self._store = store
        self._server = server
        self._at = at
        self._now = now
        self._random = random
        self._settling = False
        self._settled = -1
        self._seen: set[str] = set()
        self._going: set[str] = set()
        self.trained_at: float | None = None
        """When training ends; None: not before somebody says so."""
        self.fails = False
        """Whether training fails in the end."""
        self.names: dict[str, str] = {}
        """The pods that ever were, by uid."""
        with store.transaction() as (world, at_):
            for number in range(2):
                room = {"cpu": "64", "memory": "256Gi", "pods": "100", GPU: "4"}
                node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{number}"}, "spec": {}}
                world.create({**node, "status": {"capacity": room, "allocatable": room}}, at_)
            world.create(root_queue(), at_)
            queue = {"metadata": {"name": "research"}, "spec": {"capability": {GPU: "8"}}}
            world.create({**root_queue(), **queue}, at_)
            run_controllers(world, at_)

    def notice(self) -> None:
        """Something may have changed: let controllers and scheduler act soon."""
        if not self._settling and self._store.version != self._settled:
            self._settling = True
            self._at(self._random.uniform(0.02, 0.3), self._settle)

    def _settle(self) -> None:
        self._settling = False
        with self._store.transaction() as (world, now):
            run_controllers(world, now)
            run_scheduler(world, now)
            run_controllers(world, now)
            self._settled = world.version
            pods = list(world.objects.get("Pod", {}).values())
        for pod in pods:
            self._look(pod)
        self.notice()

    def _look(self, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        if terminating(pod) and uid not in self._going:
            self._going.add(uid)
            self._at(self._random.uniform(0.1, 3.0), lambda: self._remove(pod))
        elif pod["spec"].get("nodeName") and uid not in self._seen:
            self._seen.add(uid)
            self._at(self._random.uniform(0.2, 4.0), lambda: self._start(pod))

    def _start(self, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._going:
            return
        self.names[uid] = pod["metadata"]["name"]
        self._server.runs[uid] = [Run()]
        running = {"state": {"running": {"startedAt": time_text(self._now())}}, "restartCount": 0, "ready": True}
        self._status(pod, "Running", running)
        if pod["metadata"]["labels"].get("volcano.sh/task-spec") in {"core", "elastic"}:
            self._at(self._random.uniform(0.0, 2.0), lambda: self._print(pod))
            if self._random.random() < 0.2:
                self._at(self._random.uniform(5.0, 40.0), lambda: self._restart(pod))

    def _print(self, pod: dict[str, Any]) -> None:
        runs = self._server.runs[pod["metadata"]["uid"]]
        if runs[-1].over:
            return
        for _ in range(40 if self._random.random() < 0.02 else self._random.randint(1, 3)):
            self._line(pod, "line")
        if self.trained_at is not None and self._now() >= self.trained_at:
            self._end(pod)
        else:
            self._at(self._random.uniform(0.1, 5.0), lambda: self._print(pod))

    def _line(self, pod: dict[str, Any], word: str) -> None:
        uid = pod["metadata"]["uid"]
        runs = self._server.runs[uid]
        number = sum(len(run.lines) for run in runs)
        # Several lines of one moment are as good as lines of several.
        nanos = int(self._now() * 10**9) + (number if self._random.random() < 0.7 else 0)
        nanos = max([nanos, *(at for run in runs for at, _ in run.lines[-1:])])
        runs[-1].lines.append((nanos, f"{word} {number} of {uid}"))

    def _restart(self, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        runs = self._server.runs[uid]
        if runs[-1].over or uid in self._going:
            return
        self._line(pod, "killed")
        runs[-1].over = True
        runs.append(Run())
        ended = {"terminated": {"exitCode": 137, "reason": "Error", "finishedAt": time_text(self._now())}}
        state = {"running": {"startedAt": time_text(self._now())}}
        self._status(pod, "Running", {"state": state, "lastState": ended, "restartCount": 1, "ready": True})

    def _end(self, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        runs = self._server.runs[uid]
        if runs[-1].over or uid in self._going:
            return
        self._line(pod, "last")
        runs[-1].over = True
        code = 1 if self.fails else 0
        ended = {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": time_text(self._now())}
        if self.fails:  # it is started again, and fails again, until Volcano has had enough of it
            waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
            status = {"state": waiting, "lastState": {"terminated": ended}, "restartCount": 99, "ready": False}
            self._status(pod, "Running", status)
        else:
            self._status(pod, "Succeeded", {"state": {"terminated": ended}, "restartCount": len(runs) - 1})

    def _remove(self, pod: dict[str, Any]) -> None:
        """The pod is gone, and its log with it."""
        uid = pod["metadata"]["uid"]
        runs = self._server.runs.get(uid)
        if runs and not runs[-1].over:
            self._line(pod, "bye")
            runs[-1].over = True
        with self._store.transaction() as (world, now):
            key = key_of(pod)
            current = world.objects.get("Pod", {}).get(key)
            if current is not None and current["metadata"]["uid"] == uid:
                world.remove("Pod", key, now)
        self.notice()

    def _status(self, pod: dict[str, Any], phase: str, container: dict[str, Any]) -> None:
        def changed(current: dict[str, Any]) -> dict[str, Any]:
            if has_ended(current):
                return current
            new = copy.deepcopy(current)
            statuses = [{"name": each["name"], **container} for each in current["spec"]["containers"]]
            new["status"] = {**(current.get("status") or {}), "phase": phase, "containerStatuses": statuses}
            return new

        self._store.revise("Pod", key_of(pod), pod["metadata"]["uid"], changed)
        self.notice()
