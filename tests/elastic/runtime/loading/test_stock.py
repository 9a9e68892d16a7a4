# SPDX-License-Identifier: Apache-2.0
"""What is due is asked for once, in order, and kept until it is committed."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kfp_volcano.elastic.runtime.loading.stock import Stock
from kfp_volcano.elastic.runtime.share import Attempt, Share
from kfp_volcano.elastic.sharding import Cursor, Plan, apportion, cut


def shares(plan: Plan, cursor: Cursor, rank: int, world: int, steps: int) -> list[Share]:
    """Those of a rank in the next steps, as the Dealer would say."""
    found = []
    for _ in range(steps):
        if plan.finished(cursor):
            break
        part = cut(plan, cursor, plan.batch, lambda count: apportion(count, [1.0] * world), rank)
        attempt = Attempt(
            digest="",
            step=0,
            epoch=part.epoch,
            parent="",
            world=world,
            rank=rank,
            rendezvous="",
            counts=part.counts,
            samples=plan.samples(cursor),
        )
        ids, positions = part.ids(plan), part.positions(plan)
        share = Share(ids=ids, positions=positions, epoch=part.epoch, attempt=attempt, last=part.last)
        found += [share] if len(ids) else []
        cursor = plan.after(cursor, sum(part.counts))
    return found


@settings(deadline=None)
@given(
    size=st.integers(1, 60),
    batch=st.integers(1, 20),
    fetchers=st.integers(1, 4),
    last=st.sampled_from(["keep", "drop", "pad"]),
    turns=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(0, 9), st.booleans()), max_size=30),
)
def test_nothing_is_asked_for_twice_while_it_may_be_due(size, batch, fetchers, last, turns) -> None:
    """Whatever number of workers comes next, and whether or not a step commits."""
    plan = Plan(size=size, batch=min(batch, size), epochs=3, last=last)
    stock, cursor, asked = Stock(fetchers), Cursor(), set()
    on_their_way: list[list[tuple[int, int]]] = []
    for world, rank, arriving, commits in turns:
        if plan.finished(cursor):
            break
        due = shares(plan, cursor, rank % world, world, 3)
        stock.expect(due, plan.samples(cursor))
        while stock.hungry:
            piece = stock.ask()
            assert not asked & {at for at, _ in piece}
            assert all(plan.between(*divmod(at, size), at % size + 1)[0] == sample for at, sample in piece)
            asked |= {at for at, _ in piece}
            on_their_way.append(piece)
        assert {at for share in due for at in share.positions.tolist()} <= asked
        for _ in range(min(arriving, len(on_their_way))):
            stock.arrived((at, at * 10) for at, _ in on_their_way.pop(0))
        for share in due:
            there = not set(share.positions.tolist()) & {at for piece in on_their_way for at, _ in piece}
            assert stock.holds(share) == there
            if there:
                assert list(stock.samples(share)) == (share.positions * 10).tolist()
        if commits:
            cursor = plan.after(cursor, plan.count(cursor, plan.batch))


def test_a_share_is_cut_among_the_fetchers() -> None:
    """Each process has a part of the share that is due first."""
    stock = Stock(3)
    stock.expect(shares(Plan(size=50, batch=8, epochs=1), Cursor(), 0, 1, 2), 0)
    pieces = []
    while stock.hungry:
        pieces.append([at for at, _ in stock.ask()])
    assert pieces == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9, 10], [11, 12, 13], [14, 15]]
    assert stock.ask() == []
    assert np.concatenate(pieces).tolist() == list(range(16))
