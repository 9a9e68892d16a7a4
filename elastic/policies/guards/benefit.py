"""Whether growing pays: what it saves over the remaining work against what the resize costs. Pure.

With throughput T(n) at n workers and `left` seconds of work at the present one, growing from n to m workers saves
`left · (1 - T(n)/T(m))` seconds and costs one pause. GPUs that would be idle otherwise cost nothing. (The test of
Optimus and AdaptDL, which ask for a gain per restart, without their discount for age: a pause is measured here.)

Where nothing was measured, hope: the pause of a worker who joins live, and throughput in proportion to workers. So a
Job may grow once and measure; a size at which it was no faster it is not given again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.giving import pause_of
from kfp_volcano.elastic.policies.guards.verdict import Verdict, no_growth
from kfp_volcano.elastic.policies.policy import Reason

if TYPE_CHECKING:
    from kfp_volcano.elastic.policies.settings import GuardSettings
    from kfp_volcano.elastic.policies.snapshot import ElasticJob

__all__ = ["benefit", "nearly_done", "saving_s"]


def nearly_done(job: ElasticJob, _at: float, _: GuardSettings) -> Verdict | None:
    """Growth that has no time left to pay: what is shorter than a cooldown is not worth a resize."""
    if job.remaining_s is None or job.remaining_s >= job.cooldown_s:
        return None
    explanation = f"{job.name} ends in about {job.remaining_s:.0f} s: growing is not worth it any more"
    return no_growth(job, Reason.NEARLY_DONE, explanation)


def benefit(job: ElasticJob, _at: float, settings: GuardSettings) -> Verdict | None:
    """No growth to sizes that save less than they cost."""
    larger = {size: saving_s(job, size) for size in job.sizes if size > job.workers}
    measured = pause_of(job)
    cost = settings.benefit * (settings.pause_s if measured is None else measured)
    useless = {size: saved for size, saved in larger.items() if saved is not None and saved <= cost}
    if not useless or not settings.benefit:
        return None
    size, saved = max(useless.items(), key=lambda each: (each[1], -each[0]))
    explanation = (
        f"growing {job.name} from {job.workers} to {size} workers would save {max(0.0, saved):.0f} s"
        f"{'' if saved > 0 else ' or less'} and has to save more than {cost:.1f} s"
    )
    return Verdict(tuple(size for size in job.sizes if size not in useless), Reason.NO_BENEFIT, explanation)


def saving_s(job: ElasticJob, size: int) -> float | None:
    """How much sooner a Job would end with so many workers, seconds, without the pause; None where nothing is known."""
    present, then = _throughput(job, job.workers), _throughput(job, size)
    left = job.remaining_s
    if left is None and job.remaining_samples is not None and job.measured and present > 0:
        left = job.remaining_samples / present
    if left is None or then <= 0:
        return None
    return left * (1 - present / then)


def _throughput(job: ElasticJob, workers: int) -> float:
    """Best measured at this size, else in proportion to the next smaller size that was measured, or the smallest.

    In units of its own where nothing was measured. As throughput is concave in workers, both are hopes.
    """
    best: dict[int, float] = {}
    for each in job.measured:
        best[each.workers] = max(best.get(each.workers, 0.0), each.throughput)
    base = max((size for size in best if size <= workers), default=min(best, default=None))
    return float(workers) if base is None else best[base] * workers / base
