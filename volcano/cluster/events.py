# SPDX-License-Identifier: Apache-2.0
"""Event objects: what happened, in words, for people who look at a Job or a pod."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.volcano.model.objects import container_statuses, controller_of, status_of, time_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kfp_volcano.volcano.cluster.base import Manifest
    from kfp_volcano.volcano.model.objects import Transition

__all__ = ["events_for"]


def events_for(transition: Transition, now: float) -> Iterator[Manifest]:
    """The Events that a change is worth; their names are unique by the object's version."""
    old, new = transition.old, transition.new
    if new is None:
        return
    if transition.kind == "PodGroup":
        yield from _of_group(old, new, now)
    elif transition.kind == "Pod":
        yield from _of_pod(old, new, now)
    elif transition.kind == "Job":
        phase, before = _job_phase(new), _job_phase(old)
        if phase and phase != before:
            yield _event(new, "JobPhaseChanged", f"Job is {phase}", now=now)


def _of_group(old: Manifest | None, new: Manifest, now: float) -> Iterator[Manifest]:
    """A PodGroup's new condition is told of its Job, as the job controller does (recordPodGroupEvent)."""
    latest = (status_of(new).get("conditions") or [{}])[-1]
    before = (status_of(old).get("conditions") or [{}])[-1] if old else {}
    owner = controller_of(new)
    if latest.get("type") != "Unschedulable" or latest == before or owner is None:
        return
    regarding = {**owner, "namespace": new["metadata"]["namespace"]}
    yield _event(new, "PodGroupPending", latest["message"], now=now, warning=True, regarding=regarding)


def _of_pod(old: Manifest | None, new: Manifest, now: float) -> Iterator[Manifest]:
    node = new["spec"].get("nodeName")
    if node and not (old and old["spec"].get("nodeName")):
        name = f"{new['metadata']['namespace']}/{new['metadata']['name']}"
        yield _event(new, "Scheduled", f"Successfully assigned {name} to {node}", now=now)
    before = _container_states(old)
    for container, state in _container_states(new).items():
        if state == before.get(container, {}):
            continue
        if "running" in state:
            yield _event(new, "Started", f"Started container {container}", now=now)
        elif "waiting" in state and "message" in state["waiting"]:
            yield _event(new, "BackOff", state["waiting"]["message"], now=now, warning=True)
        elif state.get("terminated", {}).get("exitCode"):
            text = f"Container {container} ended with exit code {state['terminated']['exitCode']}"
            yield _event(new, "Failed", text, now=now, warning=True)


def _container_states(pod: Manifest | None) -> dict[str, Mapping[str, Any]]:
    return {each["name"]: each.get("state") or {} for each in (container_statuses(pod) if pod else ())}


def _job_phase(job: Manifest | None) -> str:
    return str(status_of(job).get("state", {}).get("phase", "")) if job else ""


def _reference(manifest: Manifest) -> dict[str, Any]:
    metadata = manifest["metadata"]
    return {
        "apiVersion": manifest["apiVersion"],
        "kind": manifest["kind"],
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def _event(
    source: Manifest,
    reason: str,
    message: str,
    *,
    now: float,
    warning: bool = False,
    regarding: Mapping[str, Any] | None = None,
) -> Manifest:
    """An Event about an object, unless it is said of another."""
    metadata = source["metadata"]
    regarding = regarding or _reference(source)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{regarding['name']}.{reason.lower()}.{metadata['resourceVersion']}",
            "namespace": metadata["namespace"],
        },
        "involvedObject": dict(regarding),
        "type": "Warning" if warning else "Normal",
        "reason": reason,
        "message": message,
        "firstTimestamp": time_text(now),
        "lastTimestamp": time_text(now),
        "count": 1,
    }
