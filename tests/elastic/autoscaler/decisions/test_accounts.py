# SPDX-License-Identifier: Apache-2.0
"""What Jobs have had so far."""

from __future__ import annotations

from kfp_volcano.elastic.autoscaler.decisions.accounts import Accounts
from kfp_volcano.elastic.policies.snapshot import ElasticJob


def job(name: str, running: int) -> ElasticJob:
    """A Job with two GPUs a worker."""
    size = {"workers": 4, "min_workers": 1, "max_workers": 4, "sizes": (1, 4), "gpus_per_worker": 2, "nodes": ()}
    return ElasticJob(key=name, running=running, **size)


def test_gpus_are_added_up_over_the_time_they_were_held() -> None:
    """By workers that run; a Job that is not among the queue's holds nothing meanwhile."""
    accounts = Accounts()
    for now, jobs in ((0, [job("a", 0)]), (10, [job("a", 2)]), (20, []), (30, [job("a", 4), job("b", 1)]), (40, [])):
        accounts.see(jobs, now)
    found = accounts.close("a")
    assert found is not None
    assert (found.since, found.total(99)) == (0, 2 * 2 * 10 + 4 * 2 * 10)
    assert accounts.close("a") is None


def test_a_clock_that_goes_back_takes_nothing_away() -> None:
    """Nor does it count a time twice."""
    accounts = Accounts()
    for now, running in ((100, 1), (50, 2), (110, 0)):
        accounts.see([job("a", running)], now)
    found = accounts.close("a")
    assert found is not None
    assert found.total(110) == 2 * 2 * 10


def test_what_holds_nothing_for_a_day_is_forgotten() -> None:
    """A Job that was deleted has no end that anybody tells of."""
    accounts = Accounts()
    accounts.see([job("a", 1), job("b", 1)], 0)
    accounts.see([job("b", 1)], 10)
    assert accounts.remaining(100).keys() == {"a", "b"}
    assert accounts.remaining(100_000).keys() == {"b"}
