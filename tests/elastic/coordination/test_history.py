# SPDX-License-Identifier: Apache-2.0
"""What was told before stays known, whoever has forgotten it."""

from __future__ import annotations

from dataclasses import replace

from kfp_volcano.elastic.coordination.history import CHANGES_KEPT, SIZES_KEPT, with_former
from kfp_volcano.schemas.records import Measured, MembershipChange, Progress

PROGRESS = Progress(step=9, total_steps=99, samples=90, epoch=0, throughput=10.0, workers=2, batch=10, lr=0.1, at=1.0)


def size(workers: int, throughput: float = 100.0) -> Measured:
    """Measured at so many workers."""
    return Measured(workers=workers, throughput=throughput, batch=10)


def test_sizes_that_were_measured_stay_known_and_the_newest_reading_counts() -> None:
    """The present one last; the oldest go when there are too many."""
    former = replace(PROGRESS, measured=(size(1), size(2, 150.0)))
    assert with_former(replace(PROGRESS, measured=(size(2, 160.0),)), former).measured == (size(1), size(2, 160.0))
    assert with_former(PROGRESS, former).measured == former.measured
    many = replace(PROGRESS, measured=tuple(size(workers) for workers in range(1, SIZES_KEPT + 1)))
    kept = with_former(replace(PROGRESS, measured=(size(99),)), many).measured
    assert [each.workers for each in kept] == [*range(2, SIZES_KEPT + 1), 99]


def test_changes_are_kept_each_once_in_order() -> None:
    """The last twenty."""
    changes = [MembershipChange(step=n, from_workers=n, to_workers=n + 1, at=float(n), pause_s=0.1) for n in range(30)]
    former = replace(PROGRESS, changes=tuple(changes[:15]))
    merged = with_former(replace(PROGRESS, changes=tuple(changes[10:])), former)
    assert merged.changes == tuple(changes[30 - CHANGES_KEPT :])
    assert with_former(PROGRESS, None) is PROGRESS
