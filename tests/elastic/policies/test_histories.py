# SPDX-License-Identifier: Apache-2.0
"""Whole histories of a queue under each policy: Jobs and gangs come and go, nodes are lost, resizes fail."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from every_policy import POLICIES
from kfp_volcano.elastic.policies.guards import Guarded
from world import World

shapes = st.builds(
    lambda least, more, first, gpus, priority: {
        "least": least,
        "sizes": tuple(sorted({least, *(least + each for each in more)})),
        "first": first,
        "gpus": gpus,
        "priority": priority,
    },
    st.integers(1, 3),
    st.sets(st.integers(1, 12), min_size=2, max_size=5),
    st.integers(0, 5),
    st.sampled_from([1, 1, 2]),
    st.integers(0, 2),
)
"""Jobs."""


class Histories(RuleBasedStateMachine):
    """A queue to which anything may happen; whatever is decided is checked by `World`."""

    policy = None

    @initialize(
        nodes=st.lists(st.integers(3, 8), min_size=2, max_size=5),
        beyond=st.integers(0, 4),
        deserved=st.none() | st.integers(0, 16),
        jobs=st.lists(shapes, min_size=1, max_size=4),
    )
    def begin(self, nodes, beyond, deserved, jobs):
        limit = max(1, sum(nodes) - beyond)
        self.world = World(Guarded(self.policy), nodes, limit=limit, deserved=deserved)
        self.count = 0
        for shape in jobs:
            self.world.submit(self._name("job"), **shape)

    def _name(self, kind):
        self.count += 1
        return f"ml/{kind}-{self.count}"

    @rule(shape=shapes)
    def submit(self, shape):
        self.world.submit(self._name("job"), **shape)

    @rule(
        pods=st.lists(st.integers(1, 2), min_size=1, max_size=8),
        priority=st.integers(0, 2),
        queue=st.sampled_from(["", "", "two"]),
    )
    def a_gang_arrives(self, pods, priority, queue):
        self.world.arrive(self._name("gang"), tuple(pods), priority=priority, queue=queue)
        self.world.schedule()

    @rule(seconds=st.sampled_from([1.0, 10.0, 31.0, 61.0, 150.0, 400.0, 3700.0]))
    def time_passes(self, seconds):
        for key in self.world.open if seconds > 1 else ():
            self.world.finish(key)
        self.world.pass_time(seconds)

    @rule(data=st.data(), well=st.booleans(), rolled_back=st.booleans())
    def one_resize_ends(self, data, well, rolled_back):
        if self.world.open:
            key = data.draw(st.sampled_from(sorted(self.world.open)))
            self.world.finish(key, well=well, rolled_back=rolled_back and not well)

    @rule(data=st.data())
    def something_ends(self, data):
        there = sorted({*self.world.jobs, *self.world.gangs})
        if len(there) > 3:
            self.world.end(data.draw(st.sampled_from(there)))

    @rule(data=st.data(), cordon=st.booleans())
    def a_node_is_lost(self, data, cordon):
        if len(self.world.capacity) > 1:
            node = data.draw(st.sampled_from(sorted(self.world.capacity)))
            if cordon:
                self.world.cordoned.add(node)
            else:
                self.world.lose(node)

    @rule(data=st.data(), sets=st.booleans(), seconds=st.sampled_from([30.0, 300.0]))
    def a_person_speaks(self, data, sets, seconds):
        if self.world.jobs:
            key = data.draw(st.sampled_from(sorted(self.world.jobs)))
            size = data.draw(st.sampled_from([1, *self.world.jobs[key].sizes])) if sets else None
            self.world.hold(key, override=size, seconds=seconds)

    @rule(
        data=st.data(),
        left=st.none() | st.sampled_from([30.0, 100.0, 5000.0]),
        done=st.none() | st.floats(0, 1),
        diverging=st.sampled_from([False] * 5 + [True]),
    )
    def a_job_trains(self, data, left, done, diverging):
        if self.world.jobs:
            key = data.draw(st.sampled_from(sorted(self.world.jobs)))
            self.world.set(key, remaining_s=left, done=done, diverging=diverging)

    @invariant()
    def the_policy_decides(self):
        if hasattr(self, "world"):
            self.world.turn()

    def teardown(self):
        if hasattr(self, "world"):
            self.world.come_to_rest()


@pytest.mark.parametrize("name", POLICIES)
def test_whatever_happens_decisions_are_sound_and_sizes_settle(name):
    """No invariant breaks; and left alone, the queue comes to rest with every gang served that can be."""

    class Machine(Histories):
        policy = POLICIES[name]

    examples = settings().max_examples // 3
    run_state_machine_as_test(Machine, settings=settings(max_examples=examples, stateful_step_count=25))
