# SPDX-License-Identifier: Apache-2.0
"""Laws of queues: their states, their order, their limits, and who may be whose parent."""

from __future__ import annotations

from typing import Any

import pytest

from kfp_volcano.errors import InvalidError
from kfp_volcano.volcano.model.objects import status_of
from kfp_volcano.volcano.model.queues import queue_tree

GPU = "nvidia.com/gpu"


def state(lab: Any, name: str) -> str:
    return str(lab.state()["queues"][name]["state"])


def plant(lab: Any, *queues: dict[str, Any]) -> None:
    for each in queues:
        lab.queue(each)
        lab.settle()


def test_a_queue_closes_when_it_is_empty_and_its_children_with_it(lab: Any, make: Any) -> None:
    """CloseQueue closes the queues below as well; one with PodGroups is Closing until they are gone."""
    plant(lab, make.queue("dept"), make.queue("busy", parent="dept"), make.queue("idle", parent="dept"))
    lab.submit(make.job("a", make.task("w", 1, 1), queue="busy"))
    lab.settle()
    lab.command("CloseQueue", "Queue", "dept")
    lab.settle()
    assert [state(lab, name) for name in ("dept", "busy", "idle")] == ["Closed", "Closing", "Closed"]
    assert lab.running("a")["w"] == 1
    with pytest.raises(InvalidError, match=r"queue with state `Open`, queue `busy` status is `Closing`"):
        lab.submit(make.job("b", make.task("w", 1, 1), queue="busy"))
    lab.delete("a")
    lab.settle()
    assert state(lab, "busy") == "Closed"
    lab.command("OpenQueue", "Queue", "dept")
    lab.settle()
    assert [state(lab, name) for name in ("dept", "busy", "idle")] == ["Open", "Open", "Open"]
    assert not lab.world.objects["Command"]


def test_a_closed_queue_keeps_its_pods_and_gets_no_new_ones(lab: Any, make: Any) -> None:
    """A Job in a closed queue runs on, but no pod of it gets a node any more."""
    plant(lab, make.queue("q"))
    lab.submit(make.job("a", make.task("w", 2, 1), queue="q"))
    lab.settle()
    lab.command("CloseQueue", "Queue", "q")
    lab.settle()
    lab.patch("a", [{"op": "replace", "path": "/spec/tasks/0/replicas", "value": 4}])
    lab.settle()
    assert lab.state()["jobs"]["a"]["tasks"]["w"] == {"Running": [0, 1], "Pending": [2, 3]}


def test_limits_go_down_the_tree(lab: Any, make: Any) -> None:
    """A queue may use no more than each of its ancestors, less what is guaranteed to its siblings."""
    guaranteed = {"guarantee": {"resource": {GPU: "2"}}, "deserved": 2}
    plant(
        lab,
        make.queue("dept", capability=10, deserved=8, guarantee={"resource": {GPU: "4"}}),
        make.queue("kept", parent="dept", **guaranteed),
        make.queue("free", parent="dept"),
    )
    limits = {name: share.limit[GPU] // 1000 for name, share in queue_tree(lab.world.objects).items() if share.limit}
    assert limits == {"dept": 10, "kept": 10, "free": 8}
    lab.submit(make.job("a", make.task("w", 8, 1), queue="free"))
    lab.settle()
    assert lab.running("a")["w"] == 4


def test_the_queue_of_higher_priority_is_served_first(lab: Any, make: Any) -> None:
    """Priority comes before share, share before age."""
    plant(lab, make.queue("first", deserved=16), make.queue("second", deserved=16, priority=5))
    for name in ("first", "second"):
        lab.submit(make.job(name, make.task("w", 8, 8), queue=name))
    lab.settle()
    assert (lab.running("first")["w"], lab.running("second")["w"]) == (0, 8)


def test_queues_share_by_what_they_deserve(lab: Any, make: Any) -> None:
    """Two queues that grow at once get parts in proportion to what they deserve; one without any gets what is left."""
    plant(lab, make.queue("none"), make.queue("small", deserved=4), make.queue("large", deserved=12))
    for name in ("none", "small", "large"):
        lab.submit(make.job(name, make.task("w", 16, 1, gpus=1), queue=name))
    lab.settle()
    assert [lab.running(name)["w"] for name in ("small", "large", "none")] == [4, 12, 0]


def test_teams_share_by_what_their_departments_had_when_the_cycle_began(lab: Any, make: Any) -> None:
    """Within a cycle a department's share does not grow: of two that start at nothing the elder's team takes all."""
    lab.queue(make.queue("kept", reclaimable=False))
    for department in ("d1", "d2"):
        lab.queue(make.queue(department, deserved=8))
        lab.queue(make.queue(f"{department}-team", parent=department, deserved=8, reclaimable=False))
    lab.settle()
    lab.submit(make.job("filler", make.task("w", 8, 8), queue="kept"))
    lab.settle()
    for name, department in (("a", "d1"), ("b", "d2")):
        lab.submit(make.job(name, make.task("core", 1, 1), make.task("more", 9, 0), queue=f"{department}-team"))
    lab.settle()
    lab.delete("filler")
    lab.settle()
    assert (sum(lab.running("a").values()), sum(lab.running("b").values())) == (8, 0)


def test_a_resource_that_no_node_has_keeps_a_gang_out(lab: Any, make: Any) -> None:
    """The root queue may use what the cluster has: a gang that asks for something else is not let in."""
    task = make.task("w", 1, 1)
    task["template"]["spec"]["containers"][0]["resources"]["limits"] = {"amd.com/gpu": "1"}
    lab.submit(make.job("a", task))
    lab.settle()
    assert lab.state()["jobs"]["a"]["podgroup"]["phase"] == "Pending"
    group = next(iter(lab.world.objects["PodGroup"].values()))
    assert "amd.com/gpu" in status_of(group)["conditions"][-1]["message"]


REFUSALS = [
    ({"deserved": 8, "capability": 4}, r"deserved\[nvidia.com/gpu\]=8 must be <= capability\[nvidia.com/gpu\]=4"),
    (
        {"guarantee": {"resource": {GPU: "2"}}},
        r'Invalid value: "<nil>": deserved\[nvidia.com/gpu\] must be >= guarantee',
    ),
    ({"parent": "new"}, "queue new cannot use itself as parent"),
    ({"parent": "gone"}, 'failed to get parent queue gone of queue new: queue.scheduling.volcano.sh "gone" not found'),
    ({"parent": "dept", "capability": 9}, r"new capability\[nvidia.com/gpu\]=9000.00 exceeds its ancestor's"),
    ({"parent": "dept", "deserved": 5}, "parent queue dept validation failed: sum of children's deserved"),
    ({"parent": "busy"}, "queue busy cannot be the parent queue of queue new because it has allocated Pods: 1"),
]


@pytest.mark.parametrize(("spec", "refusal"), REFUSALS)
def test_a_queue_has_to_fit_its_relatives(lab: Any, make: Any, spec: dict[str, Any], refusal: str) -> None:
    """Amounts in order, a parent that can be one, limits of ancestors, sums over siblings."""
    plant(
        lab,
        make.queue("dept", capability=8, deserved=8),
        make.queue("team", parent="dept", deserved=4),
        make.queue("busy"),
    )
    lab.submit(make.job("a", make.task("w", 1, 1), queue="busy"))
    lab.settle()
    with pytest.raises(InvalidError, match=refusal):
        lab.queue(make.queue("new", **spec))


def test_a_queue_with_children_is_not_deleted(lab: Any, make: Any) -> None:
    """Nor is the default queue, or the root."""
    plant(lab, make.queue("dept"), make.queue("team", parent="dept"))
    with pytest.raises(InvalidError, match="queue dept can not be deleted because it has 1 child queues: team"):
        lab.world.delete("Queue", ("", "dept"), lab.now)
    for name in ("default", "root"):
        with pytest.raises(InvalidError, match=f"`{name}` queue can not be deleted"):
            lab.world.delete("Queue", ("", name), lab.now)
    lab.world.delete("Queue", ("", "team"), lab.now)
