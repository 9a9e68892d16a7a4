# SPDX-License-Identifier: Apache-2.0
"""Which nodes move between pools: who gets one, who gives one, and what never happens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.schemas.gpu_pools import GPUPools, Pool
from kfp_volcano.volcano.model.cards import REGISTER, Share, assignment
from kfp_volcano.volcano.pools.plan import PoolPlan, plan, relabel

LABEL, SINCE = "kfp-volcano/gpu-pool", "kfp-volcano/gpu-pool-since"
MEMORY, NOW = 1000, 10_000.0


def pools(*each: Pool, cooldown: float = 600, **nodes: tuple[str, ...]) -> GPUPools:
    """A document."""
    return GPUPools(name="shared", pools=each, nodes=nodes, cooldown_s=cooldown)


def pool(name: str, least: int = 0, most: int = 100, wants: int = 80, gives: int = 50) -> Pool:
    """A pool of one priority of the same name."""
    return Pool(name=name, priorities=(name,), min=least, max=most, wants_above=wants, gives_below=gives)


def node(name: str, pool: str = "", gpus: int = 2, *, since: float = 0, **labels: str) -> Any:
    """A node with so many shared GPUs."""
    cards = "".join(f"{name}-{card},10,{MEMORY},NVIDIA-L4,true,hami-core:" for card in range(gpus))
    amounts = {"vgpu-number": 10 * gpus, "vgpu-memory": MEMORY * gpus, "vgpu-cores": 100 * gpus}
    room = {
        "cpu": "64",
        "memory": "64Gi",
        "pods": "100",
        **{f"volcano.sh/{key}": str(amount) for key, amount in amounts.items()},
    }
    own = {**labels, **({LABEL: pool} if pool else {})}
    metadata = {
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": "7",
        "labels": own,
        "annotations": {REGISTER: cards, SINCE: str(int(since))},
    }
    return {"kind": "Node", "metadata": metadata, "status": {"allocatable": room}}


def pod(name: str, pool: str = "", memory: int = 500, on: str = "", card: int = 0, **spec: Any) -> Any:
    """A pod that shares a GPU: it waits for a pool, or runs on a card of a node."""
    container = {
        "name": "c",
        "resources": {"limits": {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": str(memory)}},
    }
    notes = assignment(on, [[Share(f"{on}-{card}", memory, 0)]], 0) if on else {}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "x", "annotations": notes},
        "spec": {
            "containers": [container],
            **({"nodeSelector": {LABEL: pool}} if pool else {}),
            **({"nodeName": on} if on else {}),
            **spec,
        },
        "status": {"phase": "Running" if on else "Pending"},
    }


def moves(found: PoolPlan) -> list[tuple[str, str, str]]:
    """Node, pool before, pool after."""
    return [(move.node, move.before, move.after) for move in found.moves]


TWO = pools(pool("a", least=2), pool("b", least=2))


def test_where_all_is_well_nothing_moves() -> None:
    """Bounds are kept and everybody has room."""
    found = plan(TWO, [node("n0", "a"), node("n1", "b"), node("n2")], [pod("p", "a")], NOW)
    assert found.moves == ()
    assert found.unmet == ()
    assert [(each.pool.name, each.gpus, each.use) for each in found.standings] == [("a", 2, 0.25), ("b", 2, 0.0)]
    assert [each.name for each in found.spare] == ["n2"]


def test_pools_get_their_min_from_spare_nodes() -> None:
    """The smallest first."""
    found = plan(TWO, [node("n0", gpus=4), node("n1"), node("n2", gpus=8)], [], NOW)
    assert moves(found) == [("n1", "", "a"), ("n0", "", "b")]
    assert found.moves[0].reason == "a has 0 GPUs, less than its min of 2; the node is spare"


def test_a_pod_without_room_brings_an_unused_node_of_the_emptiest_pool() -> None:
    """And the reason names who waits and who gives."""
    nodes = [node("n0", "a"), node("n1", "b"), node("n2", "b"), node("n3", "c"), node("n4", "c")]
    three = pools(pool("a"), pool("b"), pool("c"))
    running = [
        pod("r0", on="n0"),
        pod("r1", on="n0", card=1),
        pod("r3", on="n3", memory=900),
        pod("r2", on="n1", memory=100),
    ]
    found = plan(three, nodes, [*running, pod("w0", "a", 600), pod("w1", "a", 600)], NOW)
    assert moves(found) == [("n2", "b", "a")]
    assert str(found.moves[0]) == (
        "n2 (2 GPUs): b -> a: no room in a for x/w0 and 1 more; b uses 2% of its 4 GPUs, and no pod shares any here"
    )


def test_a_full_pool_gets_a_node_before_anybody_waits() -> None:
    """Above `wantsAbove`, from one below `givesBelow`."""
    running = [pod("r0", on="n0", memory=900), pod("r1", on="n0", memory=900, card=1)]
    found = plan(TWO, [node("n0", "a"), node("n1", "b"), node("n2", "b")], running, NOW)
    assert moves(found) == [("n1", "b", "a")]
    assert "a uses 90% of its 2 GPUs, more than 80%" in found.moves[0].reason


@pytest.mark.parametrize(
    ("nodes", "used"),
    [
        pytest.param([node("n1", "b")], [], id="it would fall below its min"),
        pytest.param([node("n1", "b"), node("n2", "b")], [("n1", 0, 10), ("n2", 0, 10)], id="pods share all its nodes"),
        pytest.param(
            [node("n1", "b"), node("n2", "b", since=NOW - 599)], [("n1", 0, 10)], id="it has just got the node"
        ),
        pytest.param(
            [node("n1", "b"), node("n2", "b", gpus=1)], [("n1", 0, 750), ("n1", 1, 750)], id="it is used well enough"
        ),
        pytest.param(
            [node("n1", "b"), node("n2", "b", gpus=4)], [("n1", 0, 900), ("n1", 1, 900)], id="it would want one itself"
        ),
        pytest.param([node("n1", "b"), node("n2", "b", gpus=9)], [("n1", 0, 10)], id="the taker would exceed its max"),
    ],
)
def test_a_pool_gives_no_node_when(nodes: list[Any], used: list[tuple[str, int, int]]) -> None:
    """One reason each; what is wanted in vain is told."""
    running = [pod(f"r{number}", on=on, card=card, memory=memory) for number, (on, card, memory) in enumerate(used)]
    waiting = [pod(f"w{number}", "a", memory=900) for number in range(3)]
    found = plan(pools(pool("a", most=8), pool("b", least=2)), [node("n0", "a"), *nodes], [*running, *waiting], NOW)
    assert found.moves == ()
    assert found.unmet == ("no room in a for x/w2: no node that fits it can be had now",)


def test_a_pool_below_its_min_gets_a_node_also_of_one_that_is_half_full() -> None:
    """Its min comes before another's comfort, not before another's min."""
    running = [pod("r0", on="n1", memory=900), pod("r1", on="n1", memory=900, card=1), pod("r2", on="n2", memory=600)]
    nodes = [node("n1", "b"), node("n2", "b"), node("n3", "b")]
    assert moves(plan(TWO, nodes, running, NOW)) == [("n3", "b", "a")]


def test_a_terminating_pod_still_holds_its_node_and_one_that_has_ended_does_not() -> None:
    """Shares are held until the pod is gone."""
    nodes, waiting = [node("n0", "a", gpus=1), node("n1", "b"), node("n2", "b")], pod("w", "a", memory=900)
    fills = [pod("r", on="n0", memory=900), pod("s", on="n1", memory=1), waiting]
    going = pod("t", on="n2")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert plan(pools(pool("a"), pool("b")), nodes, [*fills, going], NOW).moves == ()
    ended = {**pod("t", on="n2"), "status": {"phase": "Succeeded"}}
    assert moves(plan(pools(pool("a"), pool("b")), nodes, [*fills, ended], NOW)) == [("n2", "b", "a")]


def test_a_node_that_would_not_help_stays() -> None:
    """The waiting pod asks for more than a card there has, or for nodes of another kind."""
    nodes = [node("n0", "a"), node("n1", "b"), node("n2", "b", zone="z")]
    two = pools(pool("a"), pool("b"))
    assert plan(two, nodes, [pod("w", "a", memory=MEMORY + 1)], NOW).moves == ()
    picky = pod("w", "c", memory=900, nodeSelector={LABEL: "c", "zone": "z"})
    assert moves(plan(pools(pool("b"), pool("c")), nodes[1:], [picky], NOW)) == [("n2", "b", "c")]


def test_a_pool_beyond_its_max_gives_back_what_nobody_uses() -> None:
    """Down to its min, and says what it cannot give."""
    few = pools(pool("a", least=2, most=3))
    nodes = [node("n0", "a"), node("n1", "a"), node("n2", "a")]
    assert moves(plan(few, nodes, [pod("r", on="n0")], NOW)) == [("n1", "a", ""), ("n2", "a", "")]
    used = [pod(f"r{number}", on=f"n{number}", memory=10) for number in range(3)]
    found = plan(few, nodes, used, NOW)
    assert found.moves == ()
    assert found.unmet == ("a has 6 GPUs, more than its max of 3: none of its nodes can go now",)


def test_only_nodes_that_the_document_chooses_count() -> None:
    """Others, cordoned ones and those that are not ready are neither counted nor moved; a label there is told."""
    cordoned = {**node("n2", kind="l4"), "spec": {"unschedulable": True}}
    lost = node("n3", kind="l4")
    lost["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    nodes = [node("n0", "a", kind="t4"), node("n1", kind="t4"), cordoned, lost, node("n4", "gone", kind="l4")]
    found = plan(pools(pool("a", least=1), kind=("l4", "a10")), nodes, [], NOW)
    assert moves(found) == [("n4", "", "a")]
    assert found.unmet == ("node n0 has a pool's label, but shares no GPUs or is none of spec.nodes",)


@pytest.mark.parametrize("before", ["", "a", "foreign"])
@pytest.mark.parametrize("after", ["", "b"])
@pytest.mark.parametrize("bare", [True, False])
def test_a_patch_moves_the_label_and_tests_what_it_meets(before: str, after: str, *, bare: bool) -> None:
    """Whatever labels and annotations the node has; another node, or one that has moved, refuses it."""
    manifest = node("n", before)
    if bare and not before:
        del manifest["metadata"]["labels"], manifest["metadata"]["annotations"]
    patch = relabel(manifest, after, NOW)
    metadata = jsonpatch.apply_patch(manifest, patch)["metadata"]
    assert metadata.get("labels", {}).get(LABEL, "") == after
    if after:
        assert metadata["annotations"][SINCE] == str(int(NOW))
    others = [{**manifest, "metadata": {**manifest["metadata"], "uid": "other"}}]
    if before:
        others.append({**manifest, "metadata": {**manifest["metadata"], "labels": {LABEL: "elsewhere"}}})
    for other in others:
        with pytest.raises(jsonpatch.JsonPatchTestFailed):
            jsonpatch.apply_patch(other, patch)


@dataclass(frozen=True)
class Case:
    """A cluster with pools."""

    pools: GPUPools
    nodes: list[Any]
    pods: list[Any]


NAMES = ("a", "b", "c")


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Pools with bounds, nodes in them or not, pods that run on cards or wait."""

    def one(name: str) -> Pool:
        least, wants = draw(st.integers(0, 6)), draw(st.integers(1, 100))
        return pool(name, least, draw(st.integers(max(1, least), 12)), wants, draw(st.integers(0, wants - 1)))

    document = pools(*map(one, NAMES[: draw(st.integers(1, 3))]), cooldown=draw(st.sampled_from([0, 600])))
    nodes = [
        node(
            f"n{number}",
            draw(st.sampled_from(["", *NAMES])),
            draw(st.integers(1, 4)),
            since=draw(st.sampled_from([0, NOW - 1])),
        )
        for number in range(draw(st.integers(0, 7)))
    ]
    amounts = st.integers(1, 1100)
    waiting = [
        pod(f"w{number}", draw(st.sampled_from(NAMES)), draw(amounts)) for number in range(draw(st.integers(0, 6)))
    ]
    used = [each["metadata"]["name"] for each in nodes if draw(st.booleans())]
    running = [pod(f"r-{name}", on=name, memory=draw(st.integers(1, MEMORY))) for name in used]
    return Case(document, nodes, [*waiting, *running])


def after(case: Case, found: PoolPlan, now: float = NOW) -> list[Any]:
    """The nodes once a plan has been carried out."""
    nodes = {each["metadata"]["name"]: each for each in case.nodes}
    for move in found.moves:
        nodes[move.node] = jsonpatch.apply_patch(nodes[move.node], relabel(nodes[move.node], move.after, now))
    return list(nodes.values())


def held(nodes: list[Any]) -> dict[str, int]:
    """GPUs by pool."""
    total: dict[str, int] = {}
    for each in nodes:
        name = each["metadata"]["labels"].get(LABEL, "")
        total[name] = total.get(name, 0) + each["metadata"]["annotations"][REGISTER].count(":")
    return total


@given(cases())
def test_bounds_hold_no_used_node_moves_and_none_is_lost(case: Case) -> None:
    """Nobody is taken below its min or brought above its max; a node moves once from where it is, and not when used."""
    found = plan(case.pools, case.nodes, case.pods, NOW)
    before, later = held(case.nodes), held(after(case, found))
    assert sum(before.values()) == sum(later.values())
    for each in case.pools.pools:
        had, has = before.get(each.name, 0), later.get(each.name, 0)
        assert has >= min(had, each.min)
        assert has <= max(had, each.max)
    used = {each["spec"]["nodeName"] for each in case.pods if "nodeName" in each["spec"]}
    fresh = {each["metadata"]["name"] for each in case.nodes if each["metadata"]["annotations"][SINCE] != "0"}
    for move in found.moves:
        assert move.before != move.after
        assert move.node not in used
        if case.pools.cooldown_s and move.before:
            assert move.node not in fresh


@given(cases())
def test_where_a_plan_was_carried_out_nothing_is_left_to_do(case: Case) -> None:
    """At once and ever after: what has moved does not move back, and nothing calls for the next move."""
    found = plan(case.pools, case.nodes, case.pods, NOW)
    assert plan(case.pools, after(case, found), case.pods, NOW).moves == ()
    old = after(case, plan(case.pools, case.nodes, case.pods, NOW + 3600), NOW + 3600)
    for hours in (1, 2):
        assert plan(case.pools, old, case.pods, NOW + 3600 * hours).moves == ()


@given(cases(), st.randoms(use_true_random=False))
def test_equal_clusters_give_equal_plans(case: Case, random: Any) -> None:
    """In whatever order nodes and pods were read."""
    first = plan(case.pools, case.nodes, case.pods, NOW)
    nodes, pods = list(case.nodes), list(case.pods)
    random.shuffle(nodes)
    random.shuffle(pods)
    assert plan(case.pools, nodes, pods, NOW) == first


@given(cases())
def test_whoever_gives_wants_nothing_afterwards(case: Case) -> None:
    """A pool that gave a node to another has room for all of its own, within its bounds."""
    found = plan(case.pools, case.nodes, case.pods, NOW)
    givers = {move.before for move in found.moves if move.after}
    later = plan(case.pools, after(case, found), case.pods, NOW)
    assert not [each.pool.name for each in later.standings if each.pool.name in givers and each.wants]
