# SPDX-License-Identifier: Apache-2.0
"""A job in the virtual cluster: its gang, its course, its resizes, and what the autoscaler may know of it."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.snapshot import NOWHERE, ElasticJob, PendingGang, Resized

if TYPE_CHECKING:
    from kfp_volcano.elastic.simulator.course import Course
    from kfp_volcano.elastic.simulator.observer import Held
    from kfp_volcano.elastic.simulator.scenario import Job
    from kfp_volcano.elastic.simulator.scheduler import Member
    from kfp_volcano.volcano.model.tasks import Task

__all__ = ["Life", "Resize", "What"]

MOST_RESIZES = 50
"""So many of a job's resizes are remembered, as in production."""


class What(IntEnum):
    """What happens; at one time in this order."""

    END = 0
    RESIZED = 1
    """Training goes on at another size."""
    SETTLE = 2
    """Workers that found no node by then are given up."""
    NODE = 3
    COMES = 4


@dataclass(slots=True, kw_only=True)
class Resize:
    """A resize under way."""

    at: float
    from_workers: int
    to_workers: int
    due_at: float
    what: What
    """What it waits for, until then."""
    leaving: list[Task] = field(default_factory=list)
    """Workers that hold their GPUs until it is done."""


@dataclass(slots=True, eq=False)
class Life:
    """One job's."""

    job: Job
    course: Course
    rank: int
    """By time of submission, then by name."""
    member: Member | None = None
    """Its gang; None before it comes and after its end."""
    workers: int = 0
    """Workers asked for; none while its gang waits."""
    resize: Resize | None = None
    resizes: tuple[Resized, ...] = ()
    """Those that have ended."""
    waiting_since: float | None = None
    """Since when surplus waits for nodes."""
    reported_at: float = -math.inf
    broken: bool = False
    """Whether its gang was broken, and waits to come back."""
    number: int = 0
    """Of the plans for it that hold."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """It may have."""
        return self.job.sizes or tuple(range(self.job.min_workers, self.job.max_workers + 1))

    def resized(self, now: float, *, failed: bool = False) -> None:
        """The resize under way has ended."""
        resize = self.resize
        if resize is None:
            return
        ended = Resized(
            at=now,
            from_workers=resize.from_workers,
            to_workers=resize.to_workers,
            failed=failed,
            pause_s=None if failed else self.job.resize_s,
            took_s=now - resize.at,
        )
        self.resizes = (*self.resizes, ended)[-MOST_RESIZES:]
        self.resize = None

    def leave(self) -> None:
        """It is not in the cluster any more."""
        self.member, self.resize, self.workers, self.waiting_since = None, None, 0, None
        self.number += 1

    def held(self) -> Held:
        """GPUs that it holds."""
        found: Held = Counter()
        if self.member is not None:
            for node in filter(None, self.member.nodes):
                found[node, False] += self.job.gpus_per_worker
        for task in self.resize.leaving if self.resize else ():
            found[task.node, True] += self.job.gpus_per_worker
        return found

    def gang(self, shape: str) -> PendingGang | None:
        """Its gang, if it waits."""
        if self.workers or self.member is None:
            return None
        return PendingGang(
            key=self.job.name,
            pods=(self.job.gpus_per_worker,) * self.member.core,
            since=self.job.submitted_at,
            priority=self.member.gang.priority,
            shape=shape,
        )

    def elastic_job(self, shape: str, cooldown_s: float) -> ElasticJob | None:
        """What a policy may know of it, if it is elastic and runs; see `reporting` for what training adds."""
        if not self.job.elastic or not self.workers or self.member is None:
            return None
        nodes, resize = self.member.nodes, self.resize
        return ElasticJob(
            key=self.job.name,
            workers=self.workers,
            running=sum(map(bool, nodes)),
            min_workers=self.member.core,
            max_workers=self.job.max_workers,
            sizes=self.sizes,
            gpus_per_worker=self.job.gpus_per_worker,
            nodes=tuple(node or NOWHERE for node in nodes),
            shape=shape,
            priority=self.member.gang.priority,
            created_at=self.job.submitted_at,
            cooldown_s=cooldown_s,
            last_resize_at=self.resizes[-1].at if self.resizes else None,
            last_failed=bool(self.resizes and self.resizes[-1].failed),
            resize_open=resize is not None,
            target_workers=None if resize is None else resize.to_workers,
            waiting_since=self.waiting_since,
            resizes=self.resizes,
        )

    def reporting(self, seen: ElasticJob, now: float) -> ElasticJob:
        """The same with what training says of itself by now."""
        self.course.advance(now)
        self.reported_at = now
        training = self.course.training
        left = (1.0 - training.done) / training.pace if training.pace else None
        speed = next((one.throughput for one in training.measured if one.workers == self.workers), None)
        return replace(
            seen,
            remaining_s=left,
            remaining_samples=None if speed is None or left is None else round(left * speed),
            done=training.done,
            batch=training.batch,
            measured=training.measured,
            batch_range=training.batch_range,
            noise_scale=training.noise_scale,
        )
