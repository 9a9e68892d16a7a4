# SPDX-License-Identifier: Apache-2.0
"""One option for each Job: the exact answer against all answers, and the greedy one against the exact."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfp_volcano.elastic.policies.goodput import assignment
from kfp_volcano.elastic.policies.goodput.assignment import assign, greedy
from kfp_volcano.elastic.policies.goodput.capacity import Capacity, Kind, Pool
from kfp_volcano.elastic.policies.goodput.choices import Choice, Option, total
from kfp_volcano.elastic.policies.goodput.programme import Bounded, Programme

EXACT = Bounded(gap=0.0)
KIND = Kind("", 1)
costs = st.floats(0.05, 4.0)


@st.composite
def problems(draw, *, levels=2, most=4):
    """A few Jobs with workers of one GPU, on one or two pools; each can give what it holds above its least."""
    count = draw(st.integers(1, 2))
    pools = tuple(Pool("", frozenset([KIND]), (draw(st.integers(0, 5)),)) for _ in range(count))
    everywhere = tuple(range(count))
    choices = []
    for number in range(draw(st.integers(1, most))):
        smaller = [
            Option(workers=size, cost=draw(costs), gives=((0, 3 - size),), gpus=size - 3)
            for size in sorted(draw(st.sets(st.integers(1, 2))))
        ]
        larger = [
            Option(workers=3 + adds, cost=draw(costs), adds=adds, pools=where, gpus=adds)
            for adds in sorted(draw(st.sets(st.integers(1, 4))))
            for where in draw(st.sets(st.sampled_from([everywhere, (count - 1,)]), min_size=1))
        ]
        choices.append(
            Choice(
                key=f"job-{number}",
                priority=draw(st.integers(1, levels)),
                kind=KIND,
                options=(*smaller, Option(workers=3, cost=draw(costs)), *larger),
                present=len(smaller),
            )
        )
    limit = draw(st.integers(0, 10))
    return choices, Capacity(limit=limit, levels=(1,), pools=pools, pool_of={})


def feasible(capacity, options):
    """Whether all these fit: within the limit, and in each set of pools what can go nowhere else (Hall's theorem)."""
    if sum(option.gpus for option in options) > capacity.limit:
        return False
    places = [pool.places[0] for pool in capacity.pools]
    for option in options:
        for pool, given_up in option.gives:
            places[pool] += given_up
    numbers = range(len(places))
    return all(
        sum(option.adds for option in options if set(option.pools) <= set(some)) <= sum(places[each] for each in some)
        for size in range(1, len(places) + 1)
        for some in combinations(numbers, size)
    )


def best(level, fixed, capacity):
    """The least cost of these choices beside options that are fixed, by trying all."""
    found = [
        sum(option.cost for option in options)
        for options in product(*(choice.options for choice in level))
        if feasible(capacity, [*options, *fixed])
    ]
    return min(found)


@given(problems())
@settings(max_examples=80)
def test_each_priority_gets_the_best_that_those_above_leave(problem):
    """Equal to trying every answer, priority by priority, with those below at their smallest sizes."""
    choices, capacity = problem
    answer = assign(choices, capacity, EXACT)
    assert answer.exact
    assert answer.gap == pytest.approx(0.0, abs=1e-9)
    assert feasible(capacity, list(answer.options.values()))
    for priority in {choice.priority for choice in choices}:
        level = [choice for choice in choices if choice.priority == priority]
        above = [answer.options[choice.key] for choice in choices if choice.priority > priority]
        below = [choice.options[0] for choice in choices if choice.priority < priority]
        cost = total(level, answer.options)
        assert cost == pytest.approx(best(level, [*above, *below], capacity))


@given(problems(), st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_the_order_of_jobs_means_nothing(problem, random):
    """Equal problems have equal answers."""
    choices, capacity = problem
    before = assign(choices, capacity, EXACT)
    shuffled = list(choices)
    random.shuffle(shuffled)
    assert assign(shuffled, capacity, EXACT).options == before.options


@given(problems(levels=3), st.data())
@settings(max_examples=60)
def test_a_raised_priority_never_makes_a_job_worse_off(problem, data):
    """The law that the module's text proves."""
    choices, capacity = problem
    raised = data.draw(st.sampled_from(choices))
    to = data.draw(st.integers(raised.priority, 4))
    after = [replace(choice, priority=to) if choice is raised else choice for choice in choices]
    cost = assign(choices, capacity, EXACT).options[raised.key].cost
    assert assign(after, capacity, EXACT).options[raised.key].cost <= cost + 1e-6


@given(problems(levels=1))
@settings(max_examples=80)
def test_the_answer_at_hand_fits_and_is_no_worse_than_to_stay(problem):
    """Greedy: within what fits, never cheaper than the best, never dearer than to leave all as they are."""
    choices, capacity = problem
    smallest = {choice.key: choice.options[0] for choice in choices}
    found = greedy(choices, choices, smallest, capacity)
    assert feasible(capacity, list(found.values()))
    assert total(choices, found) >= best(choices, [], capacity) - 1e-9
    assert total(choices, found) <= sum(choice.stay.cost for choice in choices) + 1e-9


@given(st.lists(st.floats(0.1, 1.0), min_size=1, max_size=5), st.integers(0, 12), st.integers(0, 12))
def test_with_falling_gains_and_even_steps_greedy_is_the_best(weights, limit, places):
    """Jobs whose next worker always gains less than the last, all with workers of one size, on one pool."""
    choices = [
        Choice(
            key=f"job-{number}",
            priority=0,
            kind=KIND,
            options=tuple(
                Option(workers=size, cost=weight / size, adds=size - 1, pools=(0,) * (size > 1), gpus=size - 1)
                for size in range(1, 6)
            ),
            present=0,
        )
        for number, weight in enumerate(weights)
    ]
    capacity = Capacity(limit=limit, levels=(1,), pools=(Pool("", frozenset([KIND]), (places,)),), pool_of={})
    found = greedy(choices, choices, {choice.key: choice.options[0] for choice in choices}, capacity)
    exact = assign(choices, capacity, EXACT)
    assert total(choices, found) == pytest.approx(total(choices, exact.options))


def test_workers_of_several_sizes_share_the_places():
    """Two nodes of four GPUs take two workers of two and one of four, not two of two, one of four and one of one."""
    kinds = [Kind("", gpus) for gpus in (1, 2, 4)]
    pool = Pool("", frozenset(kinds), (8, 4, 2))
    capacity = Capacity(limit=100, levels=(1, 2, 4), pools=(pool,), pool_of={})
    choices = [
        Choice(
            key=f"job-{kind.gpus}",
            priority=0,
            kind=kind,
            options=(
                Option(workers=1, cost=10.0),
                Option(workers=1 + adds, cost=cost, adds=adds, pools=(0,), gpus=adds * kind.gpus),
            ),
            present=0,
        )
        for kind, adds, cost in zip(kinds, (1, 2, 1), (9.9, 5.0, 4.0), strict=True)
    ]
    for options in (
        assign(choices, capacity, EXACT).options,
        greedy(choices, choices, {choice.key: choice.options[0] for choice in choices}, capacity),
    ):
        assert {key: option.workers for key, option in options.items()} == {"job-1": 1, "job-2": 3, "job-4": 2}


def test_the_answer_at_hand_is_taken_when_there_is_no_other(monkeypatch):
    """HiGHS fails, or the problem is too large: the same answer each time, marked as not known to be the best."""
    pool = Pool("", frozenset([KIND]), (3,))
    capacity = Capacity(limit=3, levels=(1,), pools=(pool,), pool_of={})
    options = tuple(
        Option(workers=1 + adds, cost=4.0 / (1 + adds), adds=adds, pools=(0,) * (adds > 0), gpus=adds)
        for adds in range(4)
    )
    choices = [Choice(key=key, priority=0, kind=KIND, options=options, present=0) for key in "ab"]
    monkeypatch.setattr(Programme, "relaxed", lambda *_: None)
    failed = assign(choices, capacity, EXACT)
    monkeypatch.setattr(assignment, "MOST_OPTIONS", 1)
    large = assign(choices, capacity, EXACT)
    assert failed == large
    assert not failed.exact
    assert failed.gap == float("inf")
    assert sum(option.adds for option in failed.options.values()) == 3


def test_out_of_time_the_answer_at_hand_comes_with_its_distance(monkeypatch):
    """Where only branch and bound is cut off, the relaxation still tells how far from the best the answer may be."""
    rng = np.random.default_rng(3)
    pool = Pool("", frozenset([KIND]), (17,))
    capacity = Capacity(limit=17, levels=(1,), pools=(pool,), pool_of={})
    choices = [
        Choice(
            key=f"job-{number}",
            priority=0,
            kind=KIND,
            options=(
                Option(workers=1, cost=1.0),
                *(
                    Option(workers=1 + adds, cost=float(rng.uniform(0.1, 0.9)), adds=adds, pools=(0,), gpus=adds)
                    for adds in (3, 5)
                ),
            ),
            present=0,
        )
        for number in range(8)
    ]
    exact = assign(choices, capacity, EXACT)
    monkeypatch.setattr(Programme, "whole", lambda *_: None)
    cut = assign(choices, capacity, EXACT)
    assert exact.exact
    assert not cut.exact
    assert 0 < cut.gap < 0.5
    assert total(choices, cut.options) * (1 - cut.gap) <= total(choices, exact.options) + 1e-9
