# SPDX-License-Identifier: Apache-2.0
"""Shared GPUs: how many pods find room on a card, and which cards they are given."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.volcano.model.cards import REGISTER, Cards, assigned, assignment, card_requests
from kfp_volcano.volcano.model.objects import phase_of, status_of

MEMORY = 24576
HOST = "shared-0"


def node(cards: int = 2, *, memory: int = MEMORY, most: int = 10, kind: str = "NVIDIA-L4", **status: Any) -> Any:
    """A node as the device plugin leaves it."""
    entries = (f"GPU-{number},{most},{memory},{kind},true,hami-core:" for number in range(cards))
    room = {
        "cpu": "64",
        "memory": "512Gi",
        "pods": "200",
        "volcano.sh/vgpu-number": str(cards * most),
        "volcano.sh/vgpu-memory": str(cards * memory),
        "volcano.sh/vgpu-cores": str(cards * 100),
    }
    metadata = {"name": HOST, "annotations": {REGISTER: "".join(entries)}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": {**room, **status}}}


def limits(number: int | None = 1, memory: int | None = None, cores: int | None = None) -> dict[str, str]:
    """What a container asks for."""
    asked = {"number": number, "memory": memory, "cores": cores}
    return {f"volcano.sh/vgpu-{name}": str(amount) for name, amount in asked.items() if amount is not None}


def pod(name: str, *containers: dict[str, str], **annotations: str) -> Any:
    """A pod whose containers ask for these shares."""
    spec = {"containers": [{"name": "c", "resources": {"limits": each}} for each in containers]}
    notes = {f"volcano.sh/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {"kind": "Pod", "metadata": {"name": name, "namespace": "x", "annotations": notes}, "spec": spec}


def given_cards(cards: Cards, asking: Any) -> list[str] | None:
    """Let a pod have what it asks for; the cards of its shares, or None where there is no room."""
    shares = cards.room(asking, card_requests(asking["spec"]))
    if shares is None:
        return None
    flat = [share for container in shares for share in container]
    cards.hold(asking, flat)
    return [share.card for share in flat]


def cards_of(manifest: Any) -> Cards:
    """The cards of a node, which has some."""
    cards = Cards.of(manifest)
    assert cards is not None
    return cards


@pytest.mark.parametrize(
    ("asked", "pods"),
    [
        (limits(1, memory=8192), 3),
        (limits(1, memory=8193), 2),
        (limits(1, memory=1024, cores=30), 3),
        (limits(1, memory=1024, cores=51), 1),
        (limits(1, memory=1024, cores=100), 1),
        (limits(1, memory=1024), 10),
        (limits(1), 1),  # no amount of memory: all of it
        (limits(None, memory=8192), 3),  # no number: one card
        ({**limits(1), "volcano.sh/vgpu-memory-percentage": "25"}, 4),
        (limits(2, memory=1024), 0),
    ],
)
def test_a_card_takes_pods_until_memory_cores_or_shares_are_used_up(asked: dict[str, str], pods: int) -> None:
    """Whichever is used up first; and a container's shares are of different cards."""
    cards = cards_of(node(1))
    taken = [given_cards(cards, pod(f"p{number}", asked)) for number in range(12)]
    assert [each is not None for each in taken] == [True] * pods + [False] * (12 - pods)


def test_who_wants_all_cores_is_alone_and_nobody_joins_a_card_without_cores_left() -> None:
    """Volcano's two rules beyond sums."""
    cards = cards_of(node(1))
    assert given_cards(cards, pod("small", limits(1, memory=1)))
    assert given_cards(cards, pod("alone", limits(1, memory=1, cores=100))) is None
    cards.release(pod("small"))
    assert given_cards(cards, pod("alone", limits(1, memory=1, cores=100)))
    assert given_cards(cards, pod("small", limits(1, memory=1))) is None


def test_the_last_card_is_filled_first_and_what_is_released_is_free() -> None:
    """The default policy."""
    cards = cards_of(node(2))
    asked = limits(1, memory=MEMORY // 2)
    assert [given_cards(cards, pod(f"p{number}", asked)) for number in range(5)] == [
        ["GPU-1"],
        ["GPU-1"],
        ["GPU-0"],
        ["GPU-0"],
        None,
    ]
    cards.release(pod("p1"))
    assert given_cards(cards, pod("p5", asked)) == ["GPU-1"]


def test_the_containers_of_a_pod_find_what_those_before_them_left() -> None:
    """All of them have room, or the pod has none, and nothing stays booked."""
    cards = cards_of(node(2))
    assert given_cards(cards, pod("p", limits(1, memory=20000), limits(1, memory=20000))) == ["GPU-1", "GPU-0"]
    assert given_cards(cards, pod("q", limits(1, memory=4000), limits(1, memory=20000))) is None
    assert [card.used_memory for card in cards] == [20000, 20000]


def test_a_pod_says_which_cards_and_whose_company_it_wants() -> None:
    """By Volcano's and the device plugin's annotations."""
    cards = cards_of(node(2))
    notes = {"nvidia.com/use-gputype": "A100,H100"}
    picky = pod("picky", limits(1, memory=1))
    picky["metadata"]["annotations"] = notes
    assert given_cards(cards, picky) is None
    picky["metadata"]["annotations"] = {"nvidia.com/nouse-gputype": "l4"}
    assert given_cards(cards, picky) is None
    assert given_cards(cards, pod("mig", limits(1, memory=1), vgpu_mode="mig")) is None
    for number, expected in ((0, ["GPU-1"]), (1, ["GPU-0"]), (2, None)):
        spread = pod(f"s{number}", limits(1, memory=1), vgpu_podgroup_policy="spread")
        spread["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = "gang"
        assert given_cards(cards, spread) == expected


@pytest.mark.parametrize(
    "broken",
    [
        {"metadata": {"name": "n", "annotations": {}}},
        {"metadata": {"name": "n", "annotations": {REGISTER: "GPU-0,10,24576"}}},
        {"metadata": {"name": "n", "annotations": {REGISTER: "GPU-0,10,24576:"}}},
        {"status": {"allocatable": {}}},
    ],
)
def test_a_node_without_cards_has_none(broken: Any) -> None:
    """No register, one that cannot be read, or nothing to give of them."""
    assert Cards.of({**node(), **broken}) is None


requests = st.tuples(st.integers(1, 3), st.integers(0, 3000), st.integers(0, 100))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), requests), max_size=40))
def test_no_card_ever_has_more_than_it_is(steps: list[tuple[bool, int, tuple[int, int, int]]]) -> None:
    """Whoever comes and goes: memory, cores and shares stay within the card, and empty is empty."""
    cards = cards_of(node(3, memory=4096, most=4))
    there: set[str] = set()
    for comes, number, (count, memory, cores) in steps:
        each = pod(f"p{number}", limits(count, memory, cores))
        if comes and each["metadata"]["name"] not in there and given_cards(cards, each):
            there.add(each["metadata"]["name"])
        elif not comes:
            cards.release(each)
            there.discard(each["metadata"]["name"])
        assert all(
            card.used_memory <= 4096 and card.used_cores <= 100 and 0 <= card.shares <= 4 and 0 <= card.use <= 1
            for card in cards
        )
        assert {key[1] for key in cards.pods} == there
    for name in there:
        cards.release(pod(name))
    assert [card.use for card in cards] == [0, 0, 0]


@given(st.lists(st.lists(requests, max_size=3), min_size=1, max_size=3))
def test_an_assignment_is_read_as_it_was_written(containers: list[list[tuple[int, int, int]]]) -> None:
    """Containers without shares leave no trace."""
    asking = pod("p", *(limits(1, memory + 1, cores) for group in containers for _, memory, cores in group))
    shares = cards_of(node(9, memory=10**6)).room(asking, card_requests(asking["spec"]))
    if shares is not None:
        asking["metadata"]["annotations"] = assignment(HOST, shares, 0)
        assert assigned(asking) == tuple(filter(None, shares))


@pytest.mark.parametrize("text", ["", ";", ":", "GPU-0", "GPU-0,NVIDIA,x,y", "a,b,c,d,e:;;,,,"])
def test_any_text_is_read_as_some_assignment(text: str) -> None:
    """What others wrote never raises."""
    other = pod("p")
    other["metadata"]["annotations"] = {"volcano.sh/vgpu-ids-new": text}
    assert all(share.memory >= 0 for container in assigned(other) for share in container)


def shared_job(make: Any, name: str, replicas: int, asked: dict[str, str], **spec: Any) -> Any:
    """A Job of pods that share GPUs."""
    task = make.task("core", replicas, replicas)
    resources = task["template"]["spec"]["containers"][0]["resources"]
    resources["limits"] = asked
    return make.job(name, task, **spec)


def test_the_scheduler_fills_cards_and_writes_down_who_has_which(lab: Any, make: Any) -> None:
    """Six pods of 8 GiB share two cards of 24 GiB; the seventh waits until one ends."""
    lab.world.create(node(2), lab.now)
    lab.submit(shared_job(make, "six", 6, limits(1, memory=8192, cores=10)))
    lab.submit(shared_job(make, "seventh", 1, limits(1, memory=8192, cores=10)))
    lab.settle()
    found = {name: each for (_, name), each in lab.world.objects["Pod"].items()}
    running = [each for each in found.values() if phase_of(each) == "Running"]
    assert len(running) == 6
    shares = [share for each in running for container in assigned(each) for share in container]
    assert Counter(share.card for share in shares) == {"GPU-0": 3, "GPU-1": 3}
    allocated = status_of(lab.world.objects["Queue"]["", "default"])["allocated"]
    assert allocated["volcano.sh/vgpu-memory"] == str(6 * 8192)
    waiting = found["seventh-core-0"]
    assert "Insufficient volcano.sh/vgpu-memory" in status_of(waiting)["conditions"][-1]["message"]
    lab.delete("six")
    lab.settle()
    assert lab.running("seventh") == {"core": 1}


def test_pods_that_fit_the_sum_but_no_card_wait(lab: Any, make: Any) -> None:
    """Two cards with 8 GiB left each are no card with 16."""
    lab.world.create(node(2), lab.now)
    lab.submit(shared_job(make, "two", 2, limits(1, memory=16384)))
    lab.submit(shared_job(make, "third", 1, limits(1, memory=16384)))
    lab.settle()
    assert lab.running("two") == {"core": 2}
    assert lab.running("third") == {}


def test_a_gang_that_does_not_fit_leaves_nothing_booked(lab: Any, make: Any) -> None:
    """Its pods were tried on the cards, and taken off again."""
    lab.world.create(node(1), lab.now)
    lab.submit(shared_job(make, "gang", 3, limits(1, memory=10000)))
    lab.submit(shared_job(make, "one", 1, limits(1, memory=24576)))
    lab.settle()
    assert lab.running("gang") == {}
    assert lab.running("one") == {"core": 1}


def test_a_gang_of_higher_priority_takes_the_cards(lab: Any, make: Any) -> None:
    """Preemption frees shares as it frees whole GPUs."""
    lab.world.create(node(1), lab.now)
    for name, value in (("low", 1), ("high", 2)):
        lab.priority(name, value)
    low = shared_job(make, "low", 2, limits(1, memory=12000), priorityClassName="low")
    low["spec"]["tasks"][0]["minAvailable"] = low["spec"]["minAvailable"] = 1
    lab.submit(low)
    lab.settle()
    assert lab.running("low") == {"core": 2}
    lab.submit(shared_job(make, "high", 1, limits(1, memory=12000), priorityClassName="high"))
    lab.settle()
    assert lab.running("high") == {"core": 1}
    assert lab.running("low") == {"core": 1}
