"""How a Job stands, why it waits and how it ended, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfp_volcano.schemas.names import COORDINATOR, pod_name
from kfp_volcano.volcano.launcher.logs import last_lines
from kfp_volcano.volcano.model.objects import container_statuses

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["Failure", "Failures", "explain_failure", "explain_wait"]

SIGNALS = {137: "SIGKILL", 139: "SIGSEGV", 143: "SIGTERM", 134: "SIGABRT"}


def explain_wait(podgroup: Manifest | None) -> str | None:
    """Why a gang does not run, in the scheduler's words; None where it does not wait."""
    if podgroup is None or podgroup.get("status", {}).get("phase") in {"Running", "Completed"}:
        return None
    conditions = podgroup.get("status", {}).get("conditions") or []
    waiting = [c for c in conditions if c.get("type") == "Unschedulable" and c.get("status") == "True"]
    return str(waiting[-1].get("message") or waiting[-1].get("reason")) if waiting else None


def explain_failure(job: Manifest, failures: Failures) -> str:
    """Which container failed first, how, where, and what it printed last."""
    state = job.get("status", {}).get("state", {})
    why = state.get("message") or state.get("reason")
    head = f"the Job ended {state.get('phase')}" + (f": {why}" if why else "")
    first = failures.first
    if first is None:
        pod, lines = failures.left_behind(job)
        said = f"; the last lines of {pod}:" + "".join(f"\n    {line}" for line in lines) if lines else ""
        return f"{head}, before its containers could be looked at{said}"
    signal = f" ({SIGNALS[first.exit_code]})" if first.exit_code in SIGNALS else ""
    where = f" on node {first.node}" if first.node else ""
    said = "".join(f"\n    {line}" for line in failures.last_lines) or "\n    (it printed nothing)"
    return f"{head}\n  {first.pod} failed with exit code {first.exit_code}{signal}{where}; its last lines:{said}"


@dataclass(frozen=True, slots=True)
class Failure:
    """A container that ended with an exit code other than 0."""

    pod: str
    node: str
    exit_code: int
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
    for each in container_statuses(pod):
        for key in ("lastState", "state"):
            ended = (each.get(key) or {}).get("terminated")
            if ended and ended.get("exitCode"):
                node = pod.get("spec", {}).get("nodeName") or ""
                at = str(ended.get("finishedAt") or "")
                yield Failure(pod["metadata"]["name"], node, int(ended["exitCode"]), at)
