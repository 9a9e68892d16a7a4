# SPDX-License-Identifier: Apache-2.0
"""Removes what nobody else does: Jobs of runs that are over, and what Jobs left behind.

The last of several layers: a run's exit step, the Job's owner and its time to live come first. Nothing is removed on
doubt. What is read in which order is part of that: a run is there before its Job, and a Job before what is made for
it, so each is read after what comes later, and again before anything is removed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from kfp_volcano.elastic.autoscaler.contracts import read
from kfp_volcano.errors import ConflictError, ForbiddenError, NotFoundError
from kfp_volcano.schemas.names import MANAGED_LABEL, MANAGER, OWNER
from kfp_volcano.schemas.records import Owner
from kfp_volcano.volcano.cluster.annotations import annotation
from kfp_volcano.volcano.launcher.leftovers import job_of, left_behind, read_leftovers
from kfp_volcano.volcano.launcher.step_pod import run_of
from kfp_volcano.volcano.launcher.workflows import read_run
from kfp_volcano.volcano.manifests.status import JobState, job_state
from kfp_volcano.volcano.model.objects import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest
    from kfp_volcano.volcano.launcher.workflows import Run

__all__ = ["Decision", "decide", "reap"]

_RUN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""KFP's run ids; those of runs on a machine are not of this form."""
_PIPELINE_STEP = "submit"
"""The step of pipelines that creates Jobs on the cluster it is on itself (`steps.create_job`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What becomes of one object, and why."""

    kind: str
    namespace: str
    name: str
    uid: str
    what: Literal["keep", "remove", "removed", "failed"]
    """`remove`: it would be; `failed`: it was to be, and is still there."""
    why: str

    def __str__(self) -> str:
        return f"{self.what:<8} {self.kind} {self.namespace}/{self.name}: {self.why}"


def reap(
    cluster: Cluster,
    namespace: str,
    *,
    clock: Callable[[], float],
    dry_run: bool = False,
    tell: Callable[[Decision], None],
) -> list[Decision]:
    """Look once, and remove what is to be removed.

    Args:
        cluster: Where.
        namespace: Whose Jobs; empty: all.
        clock: Unix seconds.
        dry_run: Only say what would be removed.
        tell: Takes each decision as it is carried out.

    Returns:
        The decisions: one for each Job of ours, and one for each object that was left behind.

    Any number may do it at once. Raises a ClusterError where Jobs cannot be read, or there is no answer: what has not
    been removed by then is left for the next time.
    """
    leftovers = read_leftovers(cluster, namespace)
    jobs, _ = cluster.list("Job", namespace, {MANAGED_LABEL: MANAGER})
    decisions = []

    def conclude(found: Manifest, decision: Decision, still: Callable[[], bool]) -> None:
        if decision.what == "remove" and not dry_run:
            decision = _remove(cluster, found, decision, still)
        decisions.append(decision)
        tell(decision)

    for job in jobs:
        decision = _decided(cluster, job, namespace, clock())
        if decision is not None:
            conclude(job, decision, partial(_is_still_over, cluster, job, namespace, clock))
    names = {(job["metadata"]["namespace"], job["metadata"]["name"]) for job in jobs}
    for each, why in _useless(leftovers, names, clock()):
        conclude(each, _decision(each, "remove", why), partial(_has_no_job, cluster, each))
    return decisions


def decide(job: Manifest, run: Run | None, now: float) -> Decision:
    """What becomes of a Job that was made by a pipeline run, or by none."""
    if job["metadata"].get("deletionTimestamp"):
        return _decision(job, "keep", "it is being deleted")
    if run is None:
        return _decision(job, "keep", "no pipeline run of this cluster made it: whoever did ends it")
    over, why = run.ended(job["metadata"]["namespace"] if run_of(job) else "", now)
    if not over:
        return _decision(job, "keep", why)
    if job_state(job) is JobState.SUCCEEDED and not _outlived(job, now):
        return _decision(job, "keep", f"it has succeeded, and stays for its time to live; {why}")
    return _decision(job, "remove", why)


def _decided(cluster: Cluster, job: Manifest, namespace: str, now: float) -> Decision | None:
    """The decision about a Job by what can be seen of its run at this moment; None for one that is not ours."""
    owner = read(Owner, annotation(job, OWNER))
    if owner is None:
        return None
    piped = owner.step == _PIPELINE_STEP and _RUN_ID.fullmatch(owner.run_id)
    return decide(job, read_run(cluster, owner.run_id, namespace) if piped else None, now)


def _outlived(job: Manifest, now: float) -> bool:
    """Whether a Job that has ended is there longer than it was meant to be; Volcano removes such Jobs itself."""
    keep_s, state = job["spec"].get("ttlSecondsAfterFinished"), (job.get("status") or {}).get("state") or {}
    ended = state.get("lastTransitionTime")
    return keep_s is not None and bool(ended) and parse_time(str(ended)) + float(keep_s) < now


def _useless(leftovers: list[Manifest], jobs: set[tuple[str, str]], now: float) -> Iterator[tuple[Manifest, str]]:
    for each in leftovers:
        there = (each["metadata"]["namespace"], job_of(each) or "") in jobs
        why = left_behind(each, job_is_there=there, now=now)
        if why is not None:
            yield each, why


def _remove(cluster: Cluster, found: Manifest, decision: Decision, still: Callable[[], bool]) -> Decision:
    """Remove that very object, if what speaks against it still holds."""
    try:
        if not still():
            return replace(decision, what="keep", why="it has changed meanwhile: it is looked at next time")
        metadata = found["metadata"]
        cluster.delete(found["kind"], metadata["name"], metadata["namespace"], uid=metadata["uid"])
    except (NotFoundError, ConflictError):
        return replace(decision, what="removed", why=f"{decision.why}; another was faster")
    except ForbiddenError as error:
        return replace(decision, what="failed", why=f"{decision.why}; {error}")
    return replace(decision, what="removed")


def _is_still_over(cluster: Cluster, job: Manifest, namespace: str, clock: Callable[[], float]) -> bool:
    """Whether the Job is still the one that was read, and its run is over still. Raises NotFoundError if it is gone."""
    fresh = cluster.get("Job", job["metadata"]["name"], job["metadata"]["namespace"])
    if fresh["metadata"]["uid"] != job["metadata"]["uid"]:
        return False
    again = _decided(cluster, fresh, namespace, clock())
    return again is not None and again.what == "remove"


def _has_no_job(cluster: Cluster, leftover: Manifest) -> bool:
    """Whether the Job that an object was made for is not there; there is none for what belongs to a queue."""
    job = job_of(leftover)
    if job is None:
        return True
    try:
        cluster.get("Job", job, leftover["metadata"]["namespace"])
    except NotFoundError:
        return True
    return False


def _decision(found: Manifest, what: Literal["keep", "remove"], why: str) -> Decision:
    metadata = found["metadata"]
    return Decision(
        kind=found["kind"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        what=what,
        why=why,
    )
