# SPDX-License-Identifier: Apache-2.0
"""Which actor leads which queues."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.autoscaler.assignment import assigned

QUEUES = st.sets(st.sampled_from([f"q{number}" for number in range(12)]))


def test_each_queue_has_an_actor_of_its_own_as_long_as_there_are_enough() -> None:
    """More queues than actors share them evenly."""
    assert assigned(["a", "b"], {}, 4) == {0: {"a"}, 1: {"b"}}
    assert assigned("abcde", {}, 2) == {0: {"a", "c", "e"}, 1: {"b", "d"}}


def test_an_idle_actor_is_given_the_next_queue() -> None:
    """An actor whose queue went is used again before there is another."""
    assert assigned(["b"], {0: frozenset("a"), 1: frozenset("b")}, 4) == {0: frozenset(), 1: {"b"}}
    assert assigned(["b", "c"], {0: frozenset(), 1: frozenset("b")}, 4) == {0: {"c"}, 1: {"b"}}


@given(steps=st.lists(QUEUES, max_size=6), most=st.integers(1, 5))
def test_every_queue_is_led_once_and_stays_where_it_is(steps: list[set[str]], most: int) -> None:
    """Whatever comes and goes: all wanted queues, each at one actor, none moved, no more actors than allowed."""
    before: dict[int, frozenset[str]] = {}
    for wanted in steps:
        after = assigned(wanted, before, most)
        assert sorted(queue for of in after.values() for queue in of) == sorted(wanted)
        assert len(after) <= most
        assert list(after) == list(range(len(after)))
        for actor, queues in before.items():
            assert queues & wanted <= after[actor]
        before = after
