# SPDX-License-Identifier: Apache-2.0
"""Who gives way: the order in which Jobs give up surplus, and why one comes before another. Pure.

The order is total. First gives the Job of

1. lowest priority;
2. most surplus, in GPUs: it is furthest above what it must have, and feels the loss of one least;
3. the shortest pauses at its resizes, in whole seconds: it is cheapest to shrink;
4. least of its training done, in tenths: others will soon give up all they have by themselves;
5. least used GPUs, in tenths;
6. the first name.

Seconds and tenths are rounded so that noise in what is measured does not change who gives from turn to turn.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from kfp_volcano.elastic.policies.settings import GuardSettings
from kfp_volcano.schemas.nouns import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kfp_volcano.elastic.policies.snapshot import ElasticJob

__all__ = ["Standing", "giving_order", "pause_of", "standing"]

_UNMEASURED_S = GuardSettings().pause_s


class Standing(NamedTuple):
    """Where a Job stands in the order: less gives first."""

    priority: int
    kept: int
    """GPUs of its surplus, negative."""
    pause_s: int
    done: int
    """In tenths; nothing is known to be done where training reports no progress."""
    used: int
    """In tenths; all where it is not measured."""
    key: str

    def before(self, other: Standing) -> str:
        """Why it gives before another, in words and numbers."""
        name = other.key.rpartition("/")[2]
        if self.priority != other.priority:
            return f"lower priority than {name}, {self.priority} against {other.priority}"
        if self.kept != other.kept:
            return f"more surplus than {name}, {counted(-self.kept, 'GPU')} against {-other.kept}"
        if self.pause_s != other.pause_s:
            return f"cheaper to shrink than {name}, about {self.pause_s} s against {other.pause_s} s"
        if self.done != other.done:
            return f"less done than {name}, about {self.done * 10} % against {other.done * 10} %"
        if self.used != other.used:
            return f"its GPUs less used than those of {name}, about {self.used * 10} % against {other.used * 10} %"
        return f"equal to {name}, and first by name"


def standing(job: ElasticJob, workers: int | None = None) -> Standing:
    """Where a Job stands in the order, as it is or with so many workers."""
    workers = job.workers if workers is None else workers
    surplus = (workers - min(job.sizes, default=workers)) * job.gpus_per_worker
    pause = pause_of(job)
    return Standing(
        job.priority,
        -surplus,
        round(_UNMEASURED_S if pause is None else pause),
        round(10 * (job.done or 0.0)),
        round(10 * (1.0 if job.utilisation is None else job.utilisation)),
        job.key,
    )


def giving_order(jobs: Iterable[ElasticJob]) -> list[ElasticJob]:
    """Jobs, who gives first first."""
    return sorted(jobs, key=standing)


def pause_of(job: ElasticJob) -> float | None:
    """Mean pause of the resizes of a Job that came to their end, seconds; None where none was measured."""
    pauses = [resize.pause_s for resize in job.resizes if resize.pause_s is not None and not resize.failed]
    return fmean(pauses) if pauses else None
