# SPDX-License-Identifier: Apache-2.0
"""Promises, and where they break; the load at which they do; and the small scenario that shows it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.simulator.document import document_of
from kfp_volcano.elastic.simulator.outcome import JobOutcome, Outcome, Span
from kfp_volcano.elastic.simulator.promises import Promises, breaches
from kfp_volcano.elastic.simulator.scenario import Job, Node, Outage, Queue, Scenario
from kfp_volcano.elastic.simulator.shrinking import shrunk
from kfp_volcano.elastic.simulator.simulate import simulate
from kfp_volcano.elastic.simulator.source import generate
from kfp_volcano.elastic.simulator.stress import at_load, until_broken
from kfp_volcano.elastic.simulator.traced import Scaling, Traced
from kfp_volcano.schemas.scenario_validation import scenario as scenario_spec


def job(name, at=0.0, gpus=4, duration=600.0, **options):
    shape = {"workers": gpus, "min_workers": gpus, "max_workers": gpus}
    return Job(name=name, submitted_at=at, **{**shape, "work": Traced(duration_s=duration, gpus=gpus), **options})


DEFAULT = (Queue(name="default"),)


def scenario(*jobs, nodes=1, queues=DEFAULT):
    """Nodes of four GPUs."""
    cluster = tuple(Node(name=f"node-{index}", gpus=4) for index in range(nodes))
    return Scenario(name="test", nodes=cluster, jobs=jobs, queues=queues)


def ran(name, at, *spans, queue="default", ended=True):
    """An outcome of spans (begin, end, GPUs)."""
    return JobOutcome(
        name=name,
        team="",
        queue=queue,
        submitted_at=at,
        started_at=spans[0][0] if spans else None,
        ended_at=spans[-1][1] if spans and ended else None,
        spans=tuple(Span(begin=begin, end=end, gpus=gpus) for begin, end, gpus in spans),
        asked_gpus=4,
        alone_s=100.0,
        resizes=max(0, len(spans) - 1),
    )


def outcome(*jobs, ended_at=10_000.0):
    return Outcome(scenario="test", policy="p", gpus=4, jobs=jobs, ended_at=ended_at)


NOTHING = Promises(share_wait_s=None, wait_s=None, resizes_per_hour=None)


def test_a_job_that_waits_too_long_is_starved():
    """One that never starts has waited until the end."""
    seen = outcome(ran("a", 0, (500, 600, 4)), ran("b", 0), ran("c", 0, (400, 500, 4)))
    found = breaches(scenario(job("a"), job("b"), job("c")), seen, replace(NOTHING, wait_s=450))
    assert [(each.job, each.at) for each in found] == [("a", 450), ("b", 450)]
    assert "never started" in found[1].text


def test_many_resizes_within_an_hour_are_a_storm():
    """As many as are promised are none; nor are more that are further apart."""
    quick = [(100 * index, 100 * index + 100, 1 + index % 2) for index in range(5)]
    slow = [(2000 * index, 2000 * index + 2000, 1 + index % 2) for index in range(5)]
    seen = outcome(ran("quick", 0, *quick), ran("slow", 0, *slow))
    found = breaches(scenario(job("quick"), job("slow")), seen, replace(NOTHING, resizes_per_hour=3))
    assert [(each.promise, each.job, each.at) for each in found] == [("resizes_per_hour", "quick", 400)]
    assert breaches(scenario(job("quick"), job("slow")), seen, replace(NOTHING, resizes_per_hour=4)) == ()


def test_a_gang_within_its_queue_s_share_does_not_wait():
    """Time in which the queue is full is no breach; time in which others have its share is."""
    queues = (Queue(name="mine", deserved=4), Queue(name="other", deserved=0))
    jobs = [job(name, queue=queue) for name, queue in (("a", "mine"), ("b", "mine"), ("x", "other"))]
    own = outcome(ran("a", 0, (0, 900, 4), queue="mine"), ran("b", 0, (900, 950, 4), queue="mine"))
    lent = outcome(ran("x", 0, (0, 900, 4), queue="other"), ran("b", 100, (900, 950, 4), queue="mine"))
    promised = replace(NOTHING, share_wait_s=600)
    assert breaches(scenario(*jobs, queues=queues), own, promised) == ()
    (found,) = breaches(scenario(*jobs, queues=queues), lent, promised)
    assert (found.promise, found.job, found.at) == ("share_wait_s", "b", 700)


def test_what_takes_too_long_for_its_share_is_unfair():
    """By finish-time fairness."""
    seen = outcome(ran("a", 0, (0, 100, 4)), ran("b", 0, (900, 1000, 4)))
    found = breaches(scenario(job("a"), job("b")), seen, replace(NOTHING, rho=2.0))
    assert [each.job for each in found] == ["b"]


def test_the_load_that_breaks_is_found_and_the_one_that_holds():
    """Close together, and each as simulation says."""
    promises = replace(NOTHING, wait_s=1200)
    loads = scenario(*(job(f"j{index}", at=700.0 * index) for index in range(20)))
    found = until_broken(loads, "fifo", promises)
    assert 1.0 < found.holds_at < found.breaks_at < found.holds_at * 1.06
    for load, broken in ((found.holds_at, False), (found.breaks_at, True)):
        made = at_load(loads, load)
        assert bool(breaches(made, simulate(made, "fifo"), promises)) == broken


def test_what_breaks_is_made_small_and_its_document_breaks_too():
    """Jobs that have nothing to do with it are left out, and so are nodes and queues."""
    promises = replace(NOTHING, wait_s=1200)
    small = [job(f"small-{index}", at=50.0 * index, gpus=1, duration=100) for index in range(10)]
    large = [job(f"large-{index}", at=10.0 * index, gpus=8, duration=1500) for index in range(3)]
    jobs = sorted([*small, *large], key=lambda each: each.submitted_at)
    whole = scenario(*jobs, nodes=3, queues=(*DEFAULT, Queue(name="unused")))
    found = until_broken(whole, "fifo", promises)
    assert found.breaks_at is not None
    assert {each.name for each in found.small.jobs} == {"large-0", "large-1", "large-2"}
    assert [queue.name for queue in found.small.queues] == ["default"]
    assert len(found.small.nodes) == 2
    again = generate(scenario_spec(found.document), folder=Path())
    assert [each.promise for each in breaches(again, simulate(again, "fifo"), promises)] == ["wait_s"]


def test_a_policy_that_always_breaks_or_never_does_is_said_to():
    """With no load that holds, or none that breaks."""
    always = until_broken(scenario(job("a"), job("b")), "fifo", replace(NOTHING, wait_s=0.5))
    assert (always.holds_at, bool(always.small_broken)) == (None, True)
    never = until_broken(scenario(job("a")), "fifo", NOTHING)
    assert (never.breaks_at, never.holds_at, never.document) == (None, 64.0, None)


@given(st.sets(st.integers(0, 30), min_size=1, max_size=4))
def test_only_what_is_needed_to_fail_is_left(needed):
    """Whatever that is."""
    whole = scenario(*(job(f"j{index}") for index in range(31)), nodes=4)
    names = {f"j{index}" for index in needed}
    left = shrunk(whole, lambda one: names <= {each.name for each in one.jobs} and len(one.nodes) >= 2, most_runs=2000)
    assert {each.name for each in left.jobs} == names
    assert len(left.nodes) == 2


def test_making_small_ends_where_it_has_run_often_enough():
    """With what it had by then, which fails too."""
    asked = []
    whole = scenario(*(job(f"j{index}") for index in range(50)))
    left = shrunk(whole, lambda one: bool(asked.append(one)) or len(one.jobs) >= 25, most_runs=7)
    assert len(asked) == 7
    assert 25 <= len(left.jobs) <= 50


STATED = Scaling(serial=0.05, spread=0.9)
JOBS = st.builds(
    lambda name, at, gpus, duration, span, team, priority: job(
        f"j{name}",
        at=at,
        gpus=gpus,
        duration=duration,
        work=Traced(
            duration_s=duration, gpus=gpus, scaling=Scaling(serial=0.05, spread=0.9) if span > 1 else Scaling()
        ),
        min_workers=1 if span > 1 else gpus,
        max_workers=gpus * span,
        team=team,
        priority=priority,
        queue="below",
        gpu_classes=("a100",) if priority > 3 else (),
        resize_s=2.5,
    ),
    st.integers(0, 10**6),
    st.floats(0, 1e6),
    st.integers(1, 4),
    st.floats(1, 1e6),
    st.integers(1, 3),
    st.sampled_from(["", "vision"]),
    st.integers(0, 5),
)


@given(st.lists(JOBS, min_size=1, max_size=5, unique_by=lambda each: each.name))
def test_a_document_gives_its_scenario_back(jobs):
    """Jobs, nodes, queues and outages."""
    nodes = (
        Node(name="node-0", gpus=8, gpu_class="a100", zone="r1"),
        Node(name="node-1", gpus=8, gpu_class="a100", zone="r1"),
        Node(name="node-2", gpus=4),
    )
    queues = (
        Queue(name="above", deserved=8, capability=12, guarantee=2),
        Queue(name="below", parent="above", deserved=8, guarantee=2, priority=3, reclaimable=False),
        Queue(name="default"),
    )
    ordered = tuple(sorted(jobs, key=lambda each: each.submitted_at))
    outages = (Outage(node="node-1", at=5.0, until=9.5),)
    whole = Scenario(name="x", nodes=nodes, jobs=ordered, queues=queues, outages=outages)
    again = generate(scenario_spec(document_of(whole, "x")), folder=Path())
    assert (again.nodes, again.outages, again.interval_s) == (nodes, outages, 60.0)
    assert {each.name: each for each in again.queues if each.name != "above"} == {
        each.name: each for each in queues if each.name != "above"
    }
    for one, other in zip(again.jobs, ordered, strict=True):
        assert replace(one, work=other.work) == other
        for gpus in range(1, other.max_workers + 1):
            assert one.work.alone_s(gpus) == pytest.approx(other.work.alone_s(gpus), rel=1e-9) or not other.elastic
