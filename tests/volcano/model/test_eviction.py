# SPDX-License-Identifier: Apache-2.0
"""Who loses a place to whom: laws read from the sources of reclaim, preempt and their plugins."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfp_volcano.volcano.model.configuration import CLASSIC, GANG_AWARE

CONFIGURATIONS = [pytest.param(CLASSIC, id="classic"), pytest.param(GANG_AWARE, id="gang-aware")]


def halves(lab: Any, make: Any, **first: Any) -> None:
    """Two queues that deserve half of the cluster each."""
    lab.queue(make.queue("one", deserved=8, **first))
    lab.queue(make.queue("two", deserved=8))
    lab.settle()


def submit(lab: Any, *manifests: dict[str, Any]) -> None:
    for manifest in manifests:
        lab.submit(manifest)
        lab.settle()


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_a_queue_that_is_not_reclaimable_keeps_what_it_borrowed(new_lab: Any, make: Any, configuration: Any) -> None:
    """`reclaimable: false` protects surplus above what the queue deserves."""
    lab = new_lab(configuration)
    halves(lab, make, reclaimable=False)
    submit(lab, make.job("a", make.task("w", 8, 1), queue="one"), make.job("b", make.task("w", 3, 3), queue="two"))
    assert (lab.running("a")["w"], lab.running("b")["w"]) == (8, 0)


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_critical_pods_are_not_preempted(new_lab: Any, make: Any, configuration: Any) -> None:
    """Pods of the cluster's own priority classes stay, whatever the priority of a gang in their queue (conformance)."""
    lab = new_lab(configuration)
    lab.priority("high", 10)
    critical = make.task("w", 8, 1, priority="system-cluster-critical")
    submit(lab, make.job("a", critical), make.job("b", make.task("w", 3, 3), priorityClassName="high"))
    expected = (8, 0) if configuration is CLASSIC else (5, 3)
    assert (lab.running("a")["w"], lab.running("b")["w"]) == expected


def test_critical_pods_are_reclaimed(lab: Any, make: Any) -> None:
    """Across queues the next tier is asked when conformance lets nobody go, and capacity does not know of them."""
    halves(lab, make)
    critical = make.task("w", 8, 1, priority="system-cluster-critical")
    submit(lab, make.job("a", critical, queue="one"), make.job("b", make.task("w", 3, 3), queue="two"))
    assert (lab.running("a")["w"], lab.running("b")["w"]) == (5, 3)


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_surplus_takes_nothing(new_lab: Any, make: Any, configuration: Any) -> None:
    """A gang that has its minimum never takes from others, whatever its queue deserves or its priority is."""
    lab = new_lab(configuration)
    lab.priority("high", 10)
    halves(lab, make)
    submit(
        lab,
        make.job("b", make.task("w", 1, 1), queue="two", priorityClassName="high"),
        make.job("a", make.task("w", 8, 1), queue="one"),
    )
    lab.patch("b", [{"op": "replace", "path": "/spec/tasks/0/replicas", "value": 4}])
    lab.settle()
    assert (lab.running("a")["w"], lab.running("b")["w"]) == (7, 1)


def test_a_rigid_gang_is_broken_down_to_what_its_queue_deserves(lab: Any, make: Any) -> None:
    """Where gang lets nobody go, the next tier decides: capacity takes pods of a gang above what its queue deserves."""
    halves(lab, make)
    submit(lab, make.job("a", make.task("w", 8, 8), queue="one"), make.job("b", make.task("w", 2, 2), queue="two"))
    assert (lab.running("a")["w"], lab.running("b")["w"]) == (6, 2)
    state = lab.state()["jobs"]["a"]
    assert (state["phase"], state["podgroup"]["phase"]) == ("Pending", "Unknown")


def test_a_gang_within_what_its_queue_deserves_is_left_whole(lab: Any, make: Any) -> None:
    """A gang at its minimum, in a queue with no more than it deserves, loses nothing."""
    halves(lab, make)
    submit(
        lab,
        make.job("a", make.task("w", 4, 4), queue="one"),
        make.job("c", make.task("w", 4, 4), queue="two"),
        make.job("b", make.task("w", 1, 1), queue="two"),
    )
    assert [lab.running(name)["w"] for name in "abc"] == [4, 0, 4]


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_a_queue_that_deserves_nothing_takes_nothing(new_lab: Any, make: Any, configuration: Any) -> None:
    """Without `deserved` a queue has what is free, and no more."""
    lab = new_lab(configuration)
    lab.queue(make.queue("one", deserved=8))
    lab.settle()
    submit(lab, make.job("a", make.task("w", 8, 1), queue="one"), make.job("b", make.task("w", 2, 2)))
    assert (lab.running("a")["w"], lab.running("b")["w"]) == (8, 0)


@pytest.mark.parametrize(("least", "surplus"), [(3, 6), (9, 5)])
def test_a_gang_takes_from_its_own_surplus_only_when_starving_and_then_in_vain(
    lab: Any, make: Any, least: int, surplus: int
) -> None:
    """A core that grows on a full cluster gets no place of its Job's surplus.

    With enough pods in all the gang does not starve, and nothing is taken. Where it starves, the surplus loses a pod,
    but the gang cannot be completed with it, and so gets nothing: the place stays empty.
    """
    lab.priority("core", 10)
    lab.priority("surplus", 1)
    core, elastic = make.task("core", 2, 2, priority="core"), make.task("elastic", 6, 0, priority="surplus")
    submit(lab, make.job("a", core, elastic))
    grown = [("/spec/tasks/0/replicas", 3), ("/spec/tasks/0/minAvailable", 3), ("/spec/minAvailable", least)]
    lab.patch("a", [{"op": "replace", "path": path, "value": value} for path, value in grown])
    lab.settle()
    assert lab.running("a") == {"core": 2, "elastic": surplus}


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_a_full_queue_makes_room_for_priority(new_lab: Any, make: Any, configuration: Any) -> None:
    """Preemption works within the limit of a queue, too; under it, not past it."""
    lab = new_lab(configuration)
    lab.priority("low", 1)
    lab.priority("high", 10)
    lab.queue(make.queue("q", capability=8))
    lab.settle()
    submit(
        lab,
        make.job("a", make.task("w", 4, 1), queue="q", priorityClassName="low"),
        make.job("b", make.task("w", 2, 2), queue="q", priorityClassName="high"),
    )
    assert (lab.running("a")["w"], lab.running("b")["w"]) == (2, 2)


shapes = st.tuples(st.integers(1, 4), st.integers(0, 5), st.sampled_from([1, 2, 4]))
arrivals = st.lists(st.tuples(shapes, st.sampled_from(["one", "two", "default"]), st.sampled_from(["", "low", "high"])))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(jobs=arrivals.filter(lambda jobs: len(jobs) < 7), configuration=st.sampled_from([CLASSIC, GANG_AWARE]))
def test_whoever_takes_from_whom_the_books_are_right(new_lab: Any, make: Any, jobs: Any, configuration: Any) -> None:
    """Under any arrivals nodes give no more than they have, queues count what runs, and the same comes out twice."""
    outcomes = []
    for _ in range(2):
        lab = new_lab(configuration)
        lab.priority("low", 1)
        lab.priority("high", 10)
        halves(lab, make)
        for number, ((core, surplus, gpus), queue, priority) in enumerate(jobs):
            tasks = (make.task("core", core, core, gpus=gpus), make.task("elastic", surplus, 0, gpus=gpus))
            lab.submit(
                make.job(f"job-{number}", *tasks, queue=queue, **({"priorityClassName": priority} if priority else {}))
            )
            lab.settle(1)
            held = lab.held()
            assert all(gpus <= 8 for gpus in held.values())
            assert lab.state()["queues"]["root"]["allocatedGPU"] == sum(held.values())
        outcomes.append(lab.state())
    assert outcomes[0] == outcomes[1]
