# SPDX-License-Identifier: Apache-2.0
"""How a Job ended, in words."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.autoscaler.contracts import progress_of
from kfp_volcano.schemas.names import COORDINATOR, STEPS, pod_name
from kfp_volcano.schemas.nouns import counted
from kfp_volcano.schemas.records import StepRecord, parse_list
from kfp_volcano.volcano.cluster.annotations import annotation
from kfp_volcano.volcano.launcher.complaints import last_complaints
from kfp_volcano.volcano.launcher.logs import last_lines
from kfp_volcano.volcano.launcher.reference import JobRef
from kfp_volcano.volcano.model.objects import container_statuses, status_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["Failure", "Failures", "explain_failure"]

_BY_SIGNAL = 128
"""What a shell and the container runtimes add to a signal's number for an exit code."""


def explain_failure(job: Manifest, failures: Failures) -> str:
    """Which container failed first, how, where, and what it printed last."""
    state = job.get("status", {}).get("state", {})
    why = state.get("message") or state.get("reason")
    head = f"the Job ended {state.get('phase')}" + (f": {why}" if why else "")
    seen = failures.words or _seen_before(job)
    if seen:
        return f"{head}\n  {seen}"
    progress, stood = progress_of(job), ""
    if progress is not None:
        workers = counted(progress.workers, "worker")
        stood = f"\n  it had come to step {progress.step} of {progress.total_steps} with {workers}"
    complaints = "".join(f"\n  {each}" for each in failures.complaints(job))
    pod, lines = failures.left_behind(job)
    said = f"\n  the last lines of {pod}:" + "".join(f"\n    {line}" for line in lines) if lines else ""
    return f"{head}, before its containers could be looked at{stood}{complaints}{said}"


def _seen_before(job: Manifest) -> str:
    """What an earlier step of the run saw fail, if one did."""
    records = parse_list(StepRecord, annotation(job, STEPS))
    return next((record.saw for record in records if record.saw), "")


@dataclass(frozen=True, slots=True)
class Failure:
    """A container that ended with an exit code other than 0, or a pod that the cluster ended."""

    pod: str
    node: str
    how: str
    """E.g. `failed with exit code 1`."""
    at: str
    """When, as Kubernetes writes times: they sort as text."""


class Failures:
    """What failed first, remembered while the pods are there: a Job that gives up takes them away."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self.first: Failure | None = None
        self.last_lines: list[str] = []

    def look(self, pods: Iterable[Manifest]) -> None:
        """Take note of containers that have failed. One that failed on the way down, after a SIGTERM, comes later."""
        found = min((f for pod in pods for f in _failures(pod)), key=lambda failure: failure.at, default=None)
        if found is not None and (self.first is None or found.at < self.first.at):
            self.first = found
            self.last_lines = last_lines(self._cluster, found.pod, self._namespace)

    @property
    def words(self) -> str:
        """Which container failed first, how, where, and what it printed last; empty while none has."""
        if self.first is None:
            return ""
        where = f" on node {self.first.node}" if self.first.node else ""
        said = "".join(f"\n    {line}" for line in self.last_lines) or "\n    (it printed nothing)"
        return f"{self.first.pod} {self.first.how}{where}; its last lines:{said}"

    def complaints(self, job: Manifest) -> list[str]:
        """What the cluster itself still says went wrong with the Job and its pods."""
        return last_complaints(self._cluster, JobRef(self._namespace, job["metadata"]["name"]))

    def left_behind(self, job: Manifest) -> tuple[str, list[str]]:
        """The first pod of the Job that is gone but whose last lines can still be read, and those."""
        for task in sorted(job["spec"]["tasks"], key=lambda task: task["name"] == COORDINATOR):
            for index in range(task["replicas"]):
                pod = pod_name(job["metadata"]["name"], task["name"], index)
                lines = last_lines(self._cluster, pod, self._namespace)
                if lines:
                    return pod, lines
        return "", []


def _failures(pod: Manifest) -> Iterable[Failure]:
    name, node, status = pod["metadata"]["name"], pod["spec"].get("nodeName") or "", status_of(pod)
    taken = next(_taken(pod), None)
    if taken:
        yield Failure(name, node, *taken)
        return  # that its containers were killed is how it was taken
    for each in container_statuses(pod):
        for key in ("lastState", "state"):
            ended = (each.get(key) or {}).get("terminated")
            if ended and ended.get("exitCode"):
                yield Failure(name, node, _how(ended), str(ended.get("finishedAt") or ""))
    if status.get("phase") == "Failed" and status.get("reason") and not container_statuses(pod):
        yield Failure(name, node, f"was not run: {_words(status)}", str(status.get("startTime") or ""))


def _taken(pod: Manifest) -> Iterator[tuple[str, str]]:
    """How and when the cluster took the pod away: evicted by its node, preempted, lost with its node."""
    status = status_of(pod)
    for each in status.get("conditions") or ():
        if each.get("type") == "DisruptionTarget" and each.get("status") == "True":
            yield f"was taken away by the cluster: {_words(each)}", str(each.get("lastTransitionTime") or "")
    if status.get("phase") == "Failed" and status.get("reason") in {"Evicted", "NodeLost", "Shutdown", "NodeShutdown"}:
        ends = (str(((each.get("state") or {}).get("terminated") or {}).get("finishedAt") or "") for each in
                container_statuses(pod))  # fmt: skip
        yield f"was taken away by the cluster: {_words(status)}", max(ends, default="")


def _words(said: Mapping[str, Any]) -> str:
    return ": ".join(str(said[key]) for key in ("reason", "message") if said.get(key))


def _how(ended: Mapping[str, Any]) -> str:
    """How a container ended: its exit code, the signal, and whether memory was the reason."""
    code = int(ended["exitCode"])
    number = int(ended.get("signal") or 0) or (code - _BY_SIGNAL if code > _BY_SIGNAL else 0)
    by = f" ({signal.Signals(number).name})" if number in signal.valid_signals() - {0} else ""
    if ended.get("reason") == "OOMKilled":
        return f"ran out of memory (OOMKilled, exit code {code})"
    return f"failed with exit code {code}{by}"
