# SPDX-License-Identifier: Apache-2.0
"""The books of a queue in tests: nodes by number, and the room on them before anything is promised."""

from __future__ import annotations

from kfp_volcano.elastic.policies.room import Room, Spot
from kfp_volcano.elastic.policies.snapshot import NodeState


def name(node):
    """A node's name from its number; what stands in place of a name stays."""
    return node if isinstance(node, str) else f"node-{node}"


def states(free, releasing=()):
    """The nodes of a snapshot, by what is free and what is coming free on each."""
    leaving = [*releasing, *[0] * (len(free) - len(releasing))]
    return {name(number): NodeState(*state) for number, state in enumerate(zip(free, leaving, strict=True))}


def room(limit, free):
    """The room on nodes with so many free GPUs each, nothing of it promised."""
    return Room(limit, limit, {name(number): Spot(gpus, gpus) for number, gpus in enumerate(free)})


def bare_room(snapshot):
    """The room in a snapshot as if nothing had been promised."""
    limit = snapshot.limit_gpus - snapshot.allocated_gpus
    named = {each: Spot(state.free, state.free) for each, state in snapshot.nodes.items()}
    return Room(limit, limit, named)


def pods(gpus, shape=""):
    """Pods as a room takes them."""
    return [(shape, each) for each in gpus]


def free(some_room):
    """GPUs that are free on each node in the end."""
    return tuple(spot.later for spot in some_room.named.values())
