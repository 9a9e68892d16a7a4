# SPDX-License-Identifier: Apache-2.0
"""Volcano, and the nodes as far as the autoscaler sees them: pods start, run, report and go, each in its time."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas.names import CORE, ELASTIC, PROGRESS
from kfp_volcano.schemas.records import MembershipChange, Progress, dump
from kfp_volcano.volcano.cluster.annotations import annotation, update_annotation
from kfp_volcano.volcano.manifests.status import JobState, job_state
from kfp_volcano.volcano.model.control import run_controllers, run_scheduler
from kfp_volcano.volcano.model.objects import has_ended, key_of, terminating, time_text

if TYPE_CHECKING:
    from storms.storm import Storm

__all__ = ["Kubelet"]

CYCLE_S = 1.0
"""Of the scheduler."""
REPORT_S = 10.0
"""How often training reports that its workers are others."""
_MOST_CHANGES = 300
"""In one cycle; Volcano's controller takes a Job back and forth without end that runs while its PodGroup is Pending."""
STEADY_S = 120.0
"""How often where nothing has changed."""


class _RestlessError(Exception):
    """Controllers answer themselves; they go on in the next cycle, as real ones take their time."""


class Kubelet:
    """Lets pods be."""

    def __init__(self, storm: Storm) -> None:
        self._storm = storm
        self._random = storm.random
        self._settling = False
        self._left: int | None = None
        """How many changes controllers and scheduler may still make in this cycle."""
        self._seen: set[str] = set()
        self._going: set[str] = set()
        self._reported: dict[tuple[str, str], tuple[float, int]] = {}
        self.images_broken = False
        """Whether pods that start now never come to run."""
        self.away_until = 0.0
        """Until when Volcano does nothing."""

    def notice(self) -> None:
        """Something has changed: let controllers and scheduler act in the next cycle."""
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                self._storm.count("controllers restless")
                raise _RestlessError
        if not self._settling:
            self._settling = True
            away_s = max(0.0, self.away_until - self._storm.now)
            self._storm.at(away_s + self._random.uniform(0.2, CYCLE_S), self._settle)

    def _settle(self) -> None:
        self._settling, self._left = False, _MOST_CHANGES
        with self._storm.store.transaction() as (world, now):
            for act in (run_controllers, run_scheduler, run_controllers):
                with suppress(_RestlessError):
                    act(world, now)
            pods = list(world.objects.get("Pod", {}).values())
        self._left = None
        for pod in pods:
            self._look(pod)

    def _look(self, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        if terminating(pod) and uid not in self._going:
            self._going.add(uid)
            grace = min(20.0, float(pod["metadata"].get("deletionGracePeriodSeconds") or 0.0))
            self._storm.at(self._random.uniform(0.1, max(0.5, grace)), lambda: self._remove(pod))
        elif pod["spec"].get("nodeName") and uid not in self._seen:
            self._seen.add(uid)
            if not self.images_broken or self._random.random() < 0.7:
                self._storm.at(self._random.choice([0.5, 2.0, 5.0, 20.0]), lambda: self._start(pod))
            else:
                self._storm.count("image broken")

    def heal(self) -> None:
        """Images are there now."""
        self.images_broken = False
        for pod in self._storm.store.list("Pod")[0]:
            if pod["spec"].get("nodeName") and (pod.get("status") or {}).get("phase", "Pending") == "Pending":
                self._storm.at(2.0, lambda pod=pod: self._start(pod))

    def _start(self, pod: dict[str, Any]) -> None:
        if pod["metadata"]["uid"] in self._going:
            return
        stamp = time_text(self._storm.now)
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": stamp}
        self._revise(pod, {"phase": "Running", "startTime": stamp, "conditions": [ready]})

    def end(self, pod: dict[str, Any], *, well: bool) -> None:
        """A pod's program ends; where it failed it is started again, and fails again, until Volcano has had enough."""
        if not (pod.get("status") or {}).get("startTime"):
            return
        code, stamp = (0, "Completed") if well else (1, "Error"), time_text(self._storm.now)
        ended = {"terminated": {"exitCode": code[0], "reason": code[1], "finishedAt": stamp}}
        names = [each["name"] for each in pod["spec"]["containers"]]
        if well:
            statuses = [{"name": name, "state": ended, "restartCount": 0} for name in names]
            self._revise(pod, {"phase": "Succeeded", "containerStatuses": statuses})
        else:
            again = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended, "restartCount": 99}
            self._revise(pod, {"containerStatuses": [{"name": name, "ready": False, **again} for name in names]})

    def strip(self, pod: dict[str, Any]) -> None:
        """A status that is written in two parts: for a while only the first is there."""
        parts = ("conditions", "startTime", *(["phase"] if self._random.random() < 0.3 else []))
        status = {name: value for name in parts if (value := (pod.get("status") or {}).get(name))}
        if status and pod["spec"].get("nodeName") and not terminating(pod):
            self._revise(pod, dict.fromkeys(status))
            self._storm.at(self._random.uniform(1.0, 20.0), lambda: self._revise(pod, status))

    def report(self) -> None:
        """Training reports, Job by Job."""
        self._storm.at(REPORT_S, self.report)
        running: dict[tuple[str, str], int] = {}
        with self._storm.store.transaction() as (world, _):
            pods, jobs = (list(world.objects.get(kind, {}).values()) for kind in ("Pod", "Job"))
        for pod in pods:
            labels = pod["metadata"].get("labels") or {}
            if labels.get("volcano.sh/task-spec") in {CORE, ELASTIC} and _runs(pod):
                key = (pod["metadata"]["namespace"], labels["volcano.sh/job-name"])
                running[key] = running.get(key, 0) + 1
        for job in jobs:
            workers, (at, known) = running.get(key_of(job), 0), self._reported.get(key_of(job), (0.0, 0))
            trains = job_state(job) is JobState.RUNNING and (job["metadata"].get("labels") or {}).get("trains")
            if workers and trains and (workers != known or self._storm.now >= at + STEADY_S):
                self._reported[key_of(job)] = self._storm.now, workers
                self._progress(job, workers)

    def _progress(self, job: dict[str, Any], workers: int) -> None:
        before = annotation(job, PROGRESS)
        known = json.loads(before) if before and before.startswith("{") and before.endswith("}") else {}
        had, changes = known.get("workers", workers), [MembershipChange(**each) for each in known.get("changes", ())]
        step = int(known.get("step", 0)) + 10
        if had != workers:
            pause_s = self._random.uniform(0.1, 3.0)
            changes.append(
                MembershipChange(step=step, from_workers=had, to_workers=workers, at=self._storm.now, pause_s=pause_s)
            )
        progress = Progress(
            step=step,
            total_steps=1_000_000,
            samples=step * 64,
            epoch=0,
            throughput=64.0 * workers**0.8,
            workers=workers,
            batch=64,
            lr=0.1,
            at=self._storm.now,
            loss=1.0 + 1.0 / step,
            changes=tuple(changes[-20:]),
        )
        namespace, name = key_of(job)
        update_annotation(self._storm.store, "Job", name, namespace, PROGRESS, lambda _: dump(progress))

    def _remove(self, pod: dict[str, Any]) -> None:
        with self._storm.store.transaction() as (world, now):
            current = world.objects.get("Pod", {}).get(key_of(pod))
            if current is not None and current["metadata"]["uid"] == pod["metadata"]["uid"]:
                world.remove("Pod", key_of(pod), now)

    def _revise(self, pod: dict[str, Any], status: dict[str, Any]) -> None:
        def changed(current: dict[str, Any]) -> dict[str, Any]:
            if has_ended(current):
                return current
            new = copy.deepcopy(current)
            merged = {**(current.get("status") or {}), **status}
            new["status"] = {name: value for name, value in merged.items() if value is not None}
            return new

        revise: Callable[..., Any] = self._storm.store.revise
        revise("Pod", key_of(pod), pod["metadata"]["uid"], changed)


def _runs(pod: dict[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"
