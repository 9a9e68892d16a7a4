# SPDX-License-Identifier: Apache-2.0
"""What a pod's status says as a whole, from what it says of each container.

Sources: getPhase (pkg/kubelet/kubelet_pods.go) and pkg/kubelet/status/generate.go, Kubernetes 1.35. No container here
has a probe: it has started, and is ready, while it runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

__all__ = ["ContainerStatus", "conditions", "is_sidecar", "phase"]

ContainerStatus: TypeAlias = Mapping[str, Any]
"""An entry of `containerStatuses` or `initContainerStatuses`."""


def is_sidecar(container: Mapping[str, Any]) -> bool:
    """Whether an init container runs on beside the others."""
    return bool(container.get("restartPolicy") == "Always")


def phase(
    spec: Mapping[str, Any], inits: Sequence[ContainerStatus], mains: Sequence[ContainerStatus], *, terminal: bool
) -> str:
    """A pod's phase.

    Args:
        spec: The pod's.
        inits: The statuses of all its init containers.
        mains: The statuses of all its containers.
        terminal: Whether nothing of it will be started any more.
    """
    before, sidecars = _told_apart(spec, inits)
    policy = spec.get("restartPolicy", "Always")
    if policy == "Never" and any(map(_has_failed, before)):
        return "Failed"
    unfinished = any("running" in each["state"] or not _has_ended(each) for each in before)
    if unfinished or any(map(_never_started, (*mains, *sidecars))):
        return "Failed" if terminal else "Pending"
    if any("running" in each["state"] for each in (*mains, *sidecars)):
        return "Running"
    succeeded = all(_has_succeeded(each) for each in mains)
    if terminal or policy == "Never" or (policy == "OnFailure" and succeeded):
        return "Succeeded" if succeeded else "Failed"
    return "Running"


def conditions(
    spec: Mapping[str, Any],
    inits: Sequence[ContainerStatus],
    mains: Sequence[ContainerStatus],
    *,
    before: Sequence[Mapping[str, Any]],
    now: str,
) -> list[dict[str, Any]]:
    """A pod's conditions: those that it had `before`, and what the kubelet says, with the time of each change."""
    regular, sidecars = _told_apart(spec, inits)
    ready = all(each["ready"] for each in (*mains, *sidecars))
    initialised = all(map(_has_succeeded, regular))
    initialised = initialised and not any(_never_started(each) for each in sidecars)
    said = {"Initialized": initialised, "ContainersReady": ready, "Ready": ready}
    known = {each["type"]: each for each in before}
    stated = []
    for kind, holds in said.items():
        status = "True" if holds else "False"
        changed = known.get(kind, {}).get("status") != status
        at = now if changed else known[kind].get("lastTransitionTime", now)
        stated.append({"type": kind, "status": status, "lastTransitionTime": at})
    return [*(dict(each) for each in before if each["type"] not in said), *stated]


def _told_apart(
    spec: Mapping[str, Any], inits: Sequence[ContainerStatus]
) -> tuple[list[ContainerStatus], list[ContainerStatus]]:
    """The statuses of the init containers that end, and of those that run on."""
    sidecars = {each["name"] for each in spec.get("initContainers") or () if is_sidecar(each)}
    ending = [each for each in inits if each["name"] not in sidecars]
    return ending, [each for each in inits if each["name"] in sidecars]


def _has_ended(status: ContainerStatus) -> bool:
    """Whether it has run to an end, be it started again or not."""
    return "terminated" in status["state"] or "terminated" in status["lastState"]


def _has_succeeded(status: ContainerStatus) -> bool:
    return bool(status["state"].get("terminated", {}).get("exitCode") == 0)


def _never_started(status: ContainerStatus) -> bool:
    return "waiting" in status["state"] and not _has_ended(status)


def _has_failed(status: ContainerStatus) -> bool:
    """Whether its last end was a failure and it does not run again."""
    ended = status["state"].get("terminated") or status["lastState"].get("terminated") or {}
    return "running" not in status["state"] and bool(ended.get("exitCode"))
