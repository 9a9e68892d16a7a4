# SPDX-License-Identifier: Apache-2.0
"""What matters of a Job: its tasks, its range, what its annotations say of resizes, holds and progress.

An annotation is read again only where its text has changed: training reports every few seconds, and most of a Job
stays what it was.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from kfp_volcano.elastic.autoscaler.contracts import failed, job_key, read, read_list, spec_of
from kfp_volcano.elastic.autoscaler.limits import limits_of
from kfp_volcano.elastic.autoscaler.observing.needs import Needs  # noqa: TC001 - a type of fields
from kfp_volcano.elastic.autoscaler.observing.pod_facts import created_at, version_of
from kfp_volcano.elastic.autoscaler.ranking import base_class, class_changes
from kfp_volcano.elastic.policies.divergence import diverging
from kfp_volcano.elastic.policies.snapshot import Resized
from kfp_volcano.schemas.names import CLASSES, CORE, ELASTIC, HOLD, PROGRESS, REQUEST, RESIZE, SPEC, TEAM_LABEL
from kfp_volcano.schemas.records import Hold, Measured, Phase, Progress, ResizeOutcome, ResizeRequest, Watched
from kfp_volcano.schemas.training_job import Faults  # noqa: TC001 - a type of fields
from kfp_volcano.volcano.cluster.annotations import annotation
from kfp_volcano.volcano.manifests.status import JobState, job_state
from kfp_volcano.volcano.model.objects import labels_of, terminating

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kfp_volcano.elastic.autoscaler.observing.needs import Catalogue
    from kfp_volcano.volcano.cluster.base import Manifest

__all__ = ["History", "JobFacts", "Pace", "Range", "Rank", "Task"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Task:
    """A task of a Job."""

    name: str
    replicas: int
    least: int
    """Its minAvailable."""
    needs: Needs


@dataclass(frozen=True, slots=True)
class Range:
    """What an elastic Job's spec allows."""

    least: int
    most: int
    sizes: tuple[int, ...]
    cooldown_s: float


@dataclass(frozen=True, slots=True)
class Pace:
    """Where training stands."""

    remaining_s: float | None
    remaining_samples: int
    done: float | None
    batch: int
    loss: float | None
    throughput: float
    """Samples per second."""
    at: float
    """When it was reported, Unix seconds."""
    measured: tuple[Measured, ...]
    noise_scale: float | None
    diverging: bool
    watched: Watched | None

    @classmethod
    def of(cls, progress: Progress | None) -> Pace | None:
        """From a report; None where there is none."""
        if progress is None:
            return None
        samples = max(0, progress.total_steps - progress.step) * progress.batch
        return cls(
            remaining_s=samples / progress.throughput if progress.throughput > 0 else None,
            remaining_samples=samples,
            done=min(1.0, progress.step / progress.total_steps) if progress.total_steps > 0 else None,
            batch=progress.batch,
            loss=progress.loss,
            throughput=progress.throughput,
            at=progress.at,
            measured=progress.measured,
            noise_scale=progress.noise_scale,
            diverging=diverging(progress.trend),
            watched=progress.watched,
        )


@dataclass(frozen=True, slots=True)
class Rank:
    """What a Job's priority class may be measured by."""

    base: str
    """The class that it starts from."""
    changed_at: float | None
    """When its class was last changed."""
    surplus: str
    """The class of its surplus, which cannot change; empty where it has none."""

    @classmethod
    def of(cls, job: Manifest) -> Rank | None:
        """From a Job; None for one that is not ours."""
        base, changes = base_class(job), class_changes(job)
        if base is None:
            return None
        elastic = next((task for task in job["spec"]["tasks"] if task["name"] == ELASTIC), None)
        surplus = elastic["template"]["spec"].get("priorityClassName") if elastic else None
        return cls(sys.intern(base), changes[-1].at if changes else None, sys.intern(str(surplus or "")))


@dataclass(frozen=True, slots=True)
class History:
    """What became of requests."""

    executing: ResizeOutcome | None = None
    """The resize that is being executed."""
    last_at: float | None = None
    """When the last one ended, if it has."""
    last_failed: bool = False
    last_ended: ResizeOutcome | None = None
    resizes: tuple[Resized, ...] = ()
    """Those that have ended, as many as the Job keeps, newest last: a budget counts more of them than a few."""
    phases: tuple[tuple[str, bool], ...] = ()
    """(id, whether its phase is final) of the last ones, newest last."""

    @classmethod
    def of(cls, outcomes: Sequence[ResizeOutcome]) -> History:
        """From the list on the Job, newest last."""
        last = outcomes[-1] if outcomes else None
        ended = [each for each in outcomes if each.phase.final and each.done_at is not None]
        return cls(
            executing=next((each for each in reversed(outcomes) if not each.phase.final), None),
            last_at=last.done_at if last else None,
            last_failed=last is not None and failed(last),
            last_ended=ended[-1] if ended else None,
            resizes=tuple(map(_resized, ended)),
            phases=tuple((each.id, each.phase.final) for each in outcomes),
        )


@dataclass(slots=True)
class JobFacts:
    """A Volcano Job, ours or another's. Equal where nothing has changed but training's progress."""

    key: str
    """namespace/name."""
    uid: str
    version: int = field(compare=False)
    queue: str
    state: JobState
    leaving: bool
    created: float
    priority_class: str
    team: str
    gang: int | None
    """Its minAvailable, None where it does not say."""
    tasks: tuple[Task, ...]
    range: Range | None
    """None where it is not elastic, or not ours."""
    request: ResizeRequest | None
    """The last one, answered or not."""
    history: History
    hold: Hold | None
    limit_at: float | None
    """When it reaches a limit in time (`limits`) if it has pods."""
    limit_without_pods_at: float | None
    pace: Pace | None = field(compare=False)
    texts: dict[str, int] = field(compare=False, repr=False)
    """Hashes of the annotations that were read."""
    faults: Faults | None = field(compare=False, repr=False)
    """Where they have to be kept: limits in time."""
    preflight: bool
    """Whether its pods' devices are examined."""
    rank: Rank | None
    """None where it is not ours."""

    @classmethod
    def of(cls, job: Manifest, catalogue: Catalogue, before: JobFacts | None = None) -> JobFacts:
        """Read a Job, with `before`, what was read of it earlier, for what has stayed the same."""
        known = before if before is not None and before.uid == job["metadata"].get("uid") else None
        texts = {key: hash(annotation(job, key)) for key in (SPEC, REQUEST, RESIZE, HOLD, PROGRESS, CLASSES)}

        def reread(key: str, old: Callable[[JobFacts], T], read_it: Callable[[], T]) -> T:
            return old(known) if known is not None and known.texts[key] == texts[key] else read_it()

        faults, allowed, preflight = reread(SPEC, lambda it: (it.faults, it.range, it.preflight), lambda: _spec(job))
        metadata = job["metadata"]
        return cls(
            key=sys.intern(job_key(job)),
            uid=str(metadata.get("uid", "")),
            version=version_of(job),
            queue=sys.intern(str(job["spec"].get("queue") or "default")),
            state=job_state(job),
            leaving=terminating(job),
            created=created_at(job),
            priority_class=sys.intern(str(job["spec"].get("priorityClassName") or "")),
            team=sys.intern(str(labels_of(job).get(TEAM_LABEL) or metadata.get("namespace", ""))),
            gang=job["spec"].get("minAvailable"),
            tasks=_tasks(job, catalogue),
            range=allowed,
            request=reread(REQUEST, lambda it: it.request, lambda: read(ResizeRequest, annotation(job, REQUEST))),
            history=reread(
                RESIZE, lambda it: it.history, lambda: History.of(read_list(ResizeOutcome, annotation(job, RESIZE)))
            ),
            hold=reread(HOLD, lambda it: it.hold, lambda: read(Hold, annotation(job, HOLD))),
            pace=reread(PROGRESS, lambda it: it.pace, lambda: Pace.of(read(Progress, annotation(job, PROGRESS)))),
            limit_at=_first_limit(faults, job, admitted=True),
            limit_without_pods_at=_first_limit(faults, job, admitted=False),
            texts=texts,
            faults=faults,
            preflight=preflight,
            rank=reread(CLASSES, lambda it: it.rank, lambda: Rank.of(job)),
        )

    @property
    def running(self) -> bool:
        """Whether it runs, and was not asked to go."""
        return self.state is JobState.RUNNING and not self.leaving

    @property
    def kept(self) -> bool:
        """Whether it has limits in time, or its pods are examined."""
        return self.faults is not None or self.preflight

    @property
    def workers(self) -> int:
        """How many workers it asks for."""
        return sum(task.replicas for task in self.tasks if task.name in {CORE, ELASTIC})

    def lets_go(self, task: str, index: int) -> bool:
        """Whether it asks for fewer pods of a task than would keep this one: Volcano's controller will delete it."""
        return any(each.name == task and index >= each.replicas for each in self.tasks)

    @property
    def unanswered(self) -> bool:
        """Whether a resize is being executed, or the last request has no final outcome yet."""
        return self.history.executing is not None or (self.request is not None and self._final is not True)

    def target(self, now: float) -> int | None:
        """The size that an open resize leads to."""
        if self.history.executing is not None:
            return self.history.executing.to_workers
        if self.request is None or self._final is True or (self._final is None and now >= self.request.expires):
            return None
        return self.request.to_workers

    @property
    def _final(self) -> bool | None:
        """Whether the last request has its final outcome; None where nobody has taken it up."""
        return None if self.request is None else dict(self.history.phases).get(self.request.id)


def _spec(job: Manifest) -> tuple[Faults | None, Range | None, bool]:
    spec = spec_of(job)
    if spec is None:
        return None, None, False
    replicas, limited = spec.workers.replicas, spec.faults.timeout_s is not None or spec.faults.pending is not None
    allowed = Range(replicas.min, replicas.max, replicas.sizes, spec.elasticity.cooldown_s) if spec.elastic else None
    return spec.faults if limited else None, allowed, spec.faults.preflight is not None


def _first_limit(faults: Faults | None, job: Manifest, *, admitted: bool) -> float | None:
    return (
        None if faults is None else min((each.at for each in limits_of(faults, job, admitted=admitted)), default=None)
    )


def _tasks(job: Manifest, catalogue: Catalogue) -> tuple[Task, ...]:
    return tuple(
        Task(
            sys.intern(str(task["name"])),
            int(task["replicas"]),
            int(task.get("minAvailable", task["replicas"])),
            catalogue.needs(task["template"]["spec"]),
        )
        for task in job["spec"]["tasks"]
    )


def _resized(outcome: ResizeOutcome) -> Resized:
    return Resized(
        at=outcome.done_at or 0.0,
        from_workers=outcome.from_workers,
        to_workers=outcome.to_workers,
        failed=failed(outcome),
        rolled_back=outcome.phase is Phase.ROLLED_BACK,
        pause_s=outcome.pause_s,
        took_s=outcome.done_at - outcome.requested_at if outcome.done_at is not None else None,
    )
