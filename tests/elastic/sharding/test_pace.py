# SPDX-License-Identifier: Apache-2.0
"""Shares that follow what was measured, decided alike by all who saw the same."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.sharding import Pace


def train(pace: Pace, speeds: dict[int, float], *, steps: int, count: int = 60, name: str = "first") -> list[int]:
    """Steps of these workers, by number and samples a second; the shares after them."""
    for _ in range(steps):
        shares = pace.shares(count, rendezvous=name, world=len(speeds))
        rows = zip(speeds, shares, strict=True)
        pace.committed(name, [(worker, share, share / speeds[worker]) for worker, share in rows])
    return pace.shares(count, rendezvous=name, world=len(speeds))


def test_shares_follow_speeds() -> None:
    """A worker half as fast is given half as much, once it was measured."""
    assert train(Pace(), {1: 100.0, 2: 50.0, 3: 100.0}, steps=12) == [24, 12, 24]


@given(st.lists(st.floats(0.1, 1000.0), min_size=1, max_size=8), st.integers(8, 200))
def test_shares_are_bounded(speeds: list[float], count: int) -> None:
    """However slow a worker is, it keeps a share to show its speed by; no speed counts as 4 times the middle one."""
    shares = train(Pace(), dict(enumerate(speeds)), steps=25, count=count)
    assert sum(shares) == count
    assert min(shares) >= 1
    assert max(shares) <= 16 * (min(shares) + 1) + 1


def test_equal_workers_keep_equal_shares() -> None:
    """What no step gains from is left as it is, for what was fetched ahead has a price."""
    assert train(Pace(), {1: 100.0, 2: 98.0, 3: 101.0}, steps=40) == [20, 20, 20]


def test_a_hiccup_changes_nothing() -> None:
    """One slow step is no slow worker."""
    pace = Pace()
    train(pace, {1: 100.0, 2: 100.0}, steps=7)
    train(pace, {1: 100.0, 2: 5.0}, steps=1)
    assert train(pace, {1: 100.0, 2: 100.0}, steps=30) == [30, 30]


def test_a_worker_that_recovers_gets_its_share_back() -> None:
    """The measurements that count are the last."""
    pace = Pace()
    assert train(pace, {1: 100.0, 2: 50.0}, steps=20) == [40, 20]
    assert train(pace, {1: 100.0, 2: 100.0}, steps=20) == [30, 30]


def test_a_change_of_workers_is_shared_equally_until_ranks_are_known() -> None:
    """Then the known speeds count at once, whatever ranks their workers have now."""
    pace = Pace()
    assert train(pace, {1: 100.0, 2: 50.0}, steps=12) == [40, 20]
    assert pace.shares(60, rendezvous="second", world=3) == [20, 20, 20]
    assert train(pace, {2: 50.0, 1: 100.0, 3: 100.0}, steps=1, name="second")[:2] == [13, 27]
    assert train(pace, {2: 50.0, 1: 100.0, 3: 100.0}, steps=12, name="second") == [12, 24, 24]


@given(st.lists(st.lists(st.floats(0.1, 10.0), min_size=3, max_size=3), min_size=1, max_size=40), st.integers(0, 39))
def test_whoever_takes_over_decides_alike(speeds: list[list[float]], at: int) -> None:
    """A newcomer that was handed the state shares out every later step as the others do."""
    old, new = Pace(), None
    for number, each in enumerate(speeds):
        if number == at:
            new = Pace()
            new.load_state_dict(json.loads(json.dumps(old.state_dict())))
        shares = [pace.shares(50, rendezvous="r", world=3) for pace in (old, new) if pace]
        assert all(share == shares[0] for share in shares)
        rows = [(rank, shares[0][rank], shares[0][rank] / each[rank]) for rank in range(3)]
        for pace in (old, new):
            if pace:
                pace.committed("r", rows)


def test_workers_that_look_alike_share_equally() -> None:
    """Two with one number could not be told apart."""
    pace = Pace()
    for _ in range(20):
        pace.committed("r", [(7, 10, 1.0), (7, 10, 5.0)])
    assert pace.shares(20, rendezvous="r", world=2) == [10, 10]
    assert pace.shares(0, rendezvous="r", world=2) == [0, 0]
    with pytest.raises(KeyError):
        Pace().load_state_dict({})
