# SPDX-License-Identifier: Apache-2.0
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
from kfp_volcano.schemas.nouns import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kfp_volcano.elastic.policies.settings import GuardSettings
    from kfp_volcano.elastic.policies.snapshot import ElasticJob

__all__ = ["benefit", "nearly_done", "savings_s"]


def nearly_done(job: ElasticJob, _at: float, _: GuardSettings) -> Verdict | None:
    """Growth that has no time left to pay: what is shorter than a cooldown is not worth a resize."""
    if job.remaining_s is None or job.remaining_s >= job.cooldown_s:
        return None
    explanation = f"{job.name} ends in about {job.remaining_s:.0f} s: growing is not worth it any more"
    return no_growth(job, Reason.NEARLY_DONE, explanation)


def benefit(job: ElasticJob, _at: float, settings: GuardSettings) -> Verdict | None:
    """No growth to sizes that save less than they cost."""
    larger = [size for size in job.sizes if size > job.workers]
    if not settings.benefit or not larger:
        return None
    measured = pause_of(job)
    cost = settings.benefit * (settings.pause_s if measured is None else measured)
    useless = {size: saved for size, saved in savings_s(job, larger).items() if saved <= cost}
    if not useless:
        return None
    size, saved = max(useless.items(), key=lambda each: (each[1], -each[0]))
    explanation = (
        f"growing {job.name} from {job.workers} to {counted(size, 'worker')} would save "
        f"{f'about {saved:.1f} s' if saved > 0 else 'nothing'}, and has to save more than {cost:.1f} s"
    )
    return Verdict(tuple(size for size in job.sizes if size not in useless), Reason.NO_BENEFIT, explanation)


def savings_s(job: ElasticJob, sizes: Iterable[int]) -> dict[int, float]:
    """How much sooner a Job would end at each of these sizes, seconds, without the pause; empty if nothing is known."""
    best: dict[int, float] = {}
    for each in job.measured:
        best[each.workers] = max(best.get(each.workers, 0.0), each.throughput)
    present = _throughput(best, job.workers)
    left = job.remaining_s
    if left is None and job.remaining_samples is not None and best and present > 0:
        left = job.remaining_samples / present
    if left is None:
        return {}
    return {size: left * (1 - present / then) for size in sizes if (then := _throughput(best, size)) > 0}


def _throughput(measured: Mapping[int, float], workers: int) -> float:
    """Measured at this size, else in proportion to the next smaller size that was measured, or the smallest.

    In units of its own where nothing was measured. As throughput is concave in workers, both are hopes.
    """
    if not measured:
        return float(workers)
    base = max((size for size in measured if size <= workers), default=min(measured))
    return measured[base] * workers / base
