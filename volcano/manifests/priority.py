# SPDX-License-Identifier: Apache-2.0
"""The priority of a Job: the classes that it needs, and the patch that changes it while the Job lives.

What Volcano makes of a change (1.15.1, pkg/webhooks/admission/jobs/validate/admit_job.go and createOrUpdatePodGroup,
createJobPod in pkg/controllers/job): a Job's `priorityClassName` may change at any time and its PodGroup follows, by
which the scheduler ranks whole Jobs. Pods get it when they are made, where their template names no class; templates
never change, nor do pods that are there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.schemas import names
from kfp_volcano.volcano.manifests.status import job_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["INSTALLED", "PriorityChange", "priority_change", "priority_classes", "remedy"]

INSTALLED: Mapping[str, tuple[int, int, str]] = {
    "batch-low": (1000, 500, "Training that may wait."),
    "batch": (10000, 9500, "Training as usual."),
    "interactive": (100000, 99500, "Notebooks, and what somebody waits for."),
}
"""The priorities of `deploy/priorities`: value of the class, of its surplus, and what it is for."""


def priority_classes() -> list[dict[str, Any]]:
    """The PriorityClass objects that `kubectl apply -k deploy/priorities` creates."""
    classes = []
    for name, (value, surplus, description) in INSTALLED.items():
        words = f"Workers of {name} above the minimum: the first to go, and the last to wait for."
        classes.append(_class(name, value, "PreemptLowerPriority", description))
        classes.append(_class(names.surplus_priority(name), surplus, "Never", words))
    return classes


def _class(name: str, value: int, policy: str, description: str) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "preemptionPolicy": policy,
        "description": description,
    }


def remedy() -> str:
    """What to do about a class that is not there."""
    return (
        f"kubectl apply -k deploy/priorities installs {', '.join(INSTALLED)}, each with its -surplus;"
        " another needs such a pair of its own; or leave priority out"
    )


@dataclass(frozen=True, slots=True)
class PriorityChange:
    """The change of a live Job's priority."""

    before: str
    """The class so far; empty for none."""
    after: str
    patch: tuple[Mapping[str, Any], ...]
    """A JSON Patch (RFC 6902) that tests what it was made from; empty where the Job has that priority already."""
    reached: tuple[str, ...]
    """What becomes of it, in sentences."""
    kept: tuple[str, ...]
    """What stays as it was, in sentences."""


def priority_change(job: Mapping[str, Any], to: str, values: Mapping[str, int]) -> PriorityChange:
    """How a Job, as read from the cluster, gets the class `to`.

    Args:
        job: The Job.
        to: Name of a PriorityClass.
        values: The cluster's PriorityClasses, name to value.

    Raises:
        SpecError: It cannot have it: there is no such class, the Job has ended, or its surplus would outrank its gang.
    """
    key = f"{job['metadata'].get('namespace', 'default')}/{job['metadata']['name']}"
    problems = list(_problems(job, to, values))
    if problems:
        raise SpecError(problems, source=f"Job {key}")
    before = job["spec"].get("priorityClassName") or ""
    return PriorityChange(
        before=before,
        after=to,
        patch=() if before == to else _patch(job, before, to),
        reached=tuple(_reached(job, to, values)),
        kept=tuple(_kept(job)),
    )


def _problems(job: Mapping[str, Any], to: str, values: Mapping[str, int]) -> Iterator[Problem]:
    state = job_state(job)
    if state.final:
        yield Problem("status", f"the Job has ended ({state.value})", "submit it again with the other priority")
    if to not in values:
        yield Problem("spec.priority", f"there is no PriorityClass {to!r}", remedy())
        return
    for task in job["spec"]["tasks"]:
        own = _own_class(task)
        surplus = own or to
        if task["name"] != names.ELASTIC or values.get(surplus, 0) < values[to]:
            continue
        whose = f"keep the class {own} ({values[own]})" if own else f"would get {to} too"
        yield Problem(
            "spec.priority",
            f"{to} ({values[to]}) is no priority for it: its workers above the minimum {whose}, for their template"
            " cannot change, and Volcano would serve them before pods that the gang lacks",
            f"submit it again with priority {to}" + (f", or choose a class above {values[own]}" if own else ""),
        )


def _patch(job: Mapping[str, Any], before: str, to: str) -> tuple[Mapping[str, Any], ...]:
    path = "/spec/priorityClassName"
    return (
        {"op": "test", "path": "/metadata/uid", "value": job["metadata"]["uid"]},
        *([{"op": "test", "path": path, "value": before}] if before else []),
        {"op": "add", "path": path, "value": to},
    )


def _reached(job: Mapping[str, Any], to: str, values: Mapping[str, int]) -> Iterator[str]:
    yield (
        f"its PodGroup gets {to} ({values[to]}): from the next scheduling cycle on Volcano ranks the whole Job by it,"
        " in what it waits for, may take from others, and may lose to them"
    )
    tasks = [task["name"] for task in job["spec"]["tasks"] if not _own_class(task)]
    if tasks:
        yield f"pods made from now on get it: {_listed('task', tasks)}"


def _kept(job: Mapping[str, Any]) -> Iterator[str]:
    yield "pods that are there keep the priority they were made with: Kubernetes never changes it"
    for task in job["spec"]["tasks"]:
        own = _own_class(task)
        if own:
            who = "the workers above the minimum" if task["name"] == names.ELASTIC else f"task {task['name']}"
            yield f"{who}: new pods get {own} as before, for a template cannot change"
    pools = dict.fromkeys(
        pool
        for task in job["spec"]["tasks"]
        if (pool := (task["template"]["spec"].get("nodeSelector") or {}).get(names.POOL_LABEL))
    )
    if pools:
        yield f"its pods stay on nodes of the {_listed('GPU pool', list(pools))}, for a template cannot change"


def _own_class(task: Mapping[str, Any]) -> str:
    return str(task["template"]["spec"].get("priorityClassName") or "")


def _listed(what: str, those: list[str]) -> str:
    return f"{what}{'s' if len(those) > 1 else ''} {', '.join(those)}"
