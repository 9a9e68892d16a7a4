# SPDX-License-Identifier: Apache-2.0
"""Which nodes move from one pool of shared GPUs to another, each with the reason.

A pool wants a node while it has less than its min, while a pod finds no room in it, or while it is fuller than
`wantsAbove`. It gets a spare node, or one on which no pod shares GPUs from a pool that is emptier than `givesBelow`
and does not come to want one by that. So no move calls for the next, and where nothing changes nothing moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfp_volcano.schemas.names import POOL_LABEL, POOL_SINCE
from kfp_volcano.schemas.nouns import counted
from kfp_volcano.volcano.manifests.pointer import pointer
from kfp_volcano.volcano.model.objects import labels_of
from kfp_volcano.volcano.pools.state import admits, state_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from kfp_volcano.schemas.gpu_pools import GPUPools
    from kfp_volcano.volcano.model.objects import Manifest
    from kfp_volcano.volcano.pools.state import SharedNode, Standing, State

__all__ = ["Move", "PoolPlan", "plan", "relabel"]

_LABEL = pointer("metadata", "labels", POOL_LABEL)
_SINCE = pointer("metadata", "annotations", POOL_SINCE)


@dataclass(frozen=True, slots=True)
class Move:
    """One node that changes its pool."""

    node: str
    gpus: int
    before: str
    """Empty: it is spare."""
    after: str
    """Empty: it becomes spare."""
    reason: str

    def __str__(self) -> str:
        gpus = f"{self.gpus} GPU{'s' if self.gpus > 1 else ''}"
        return f"{self.node} ({gpus}): {self.before or 'spare'} -> {self.after or 'spare'}: {self.reason}"


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """What to do, and what cannot be done."""

    standings: tuple[Standing, ...]
    """How each pool stands now, before any move."""
    spare: tuple[SharedNode, ...]
    """Nodes that are in no pool now."""
    moves: tuple[Move, ...]
    unmet: tuple[str, ...]
    """What pools go on wanting, and other things that people should know, in sentences."""


def plan(pools: GPUPools, nodes: Iterable[Manifest], pods: Iterable[Manifest], now: float) -> PoolPlan:
    """The moves that pools call for; none where nothing has to move. Equal arguments give equal plans.

    Args:
        pools: What was asked for.
        nodes: The cluster's nodes.
        pods: The cluster's pods.
        now: Unix seconds, for the cooldown of nodes that have moved.
    """
    state = first = state_of(pools, nodes, pods)
    standings = before = {pool.name: first.standing(pool) for pool in pools.pools}
    moves = []
    while move := _surrendered(state, standings, now) or _wanted(state, standings, now):
        state = state.moved(move.node, move.after, now)
        changed = {pool.name: state.standing(pool) for pool in pools.pools if pool.name in (move.before, move.after)}
        standings = {**standings, **changed}
        moves.append(move)
    strays = (f"node {name} has a pool's label, but shares no GPUs or is none of spec.nodes" for name in first.strays)
    unmet = (*_unmet(standings), *strays)
    return PoolPlan(tuple(before.values()), first.members(""), tuple(moves), unmet)


def relabel(node: Manifest, pool: str, now: float) -> list[dict[str, Any]]:
    """The JSON Patch (RFC 6902) that puts a node, as read from the cluster, into a pool, or makes it spare with "".

    It tests that it meets that very node, with the label it had.
    """
    metadata, before = node["metadata"], labels_of(node).get(POOL_LABEL)
    operations: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": metadata["uid"]}]
    if before is not None:
        operations.append({"op": "test", "path": _LABEL, "value": before})
    if not pool:
        return [*operations, {"op": "remove", "path": _LABEL}] if before is not None else operations
    for kind in ("labels", "annotations"):
        if not metadata.get(kind):  # what others put there meanwhile must not be lost
            version = {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]}
            operations += [version, {"op": "add", "path": f"/metadata/{kind}", "value": {}}]
    return [
        *operations,
        {"op": "add", "path": _LABEL, "value": pool},
        {"op": "add", "path": _SINCE, "value": str(int(now))},
    ]


def _surrendered(state: State, standings: Mapping[str, Standing], now: float) -> Move | None:
    """A node that a pool beyond its max gives back."""
    for standing in standings.values():
        pool = standing.pool
        if standing.gpus <= pool.max:
            continue
        for node in _movable(state, standing.nodes, now):
            if standing.gpus - node.gpus >= pool.min:
                reason = f"{pool.name} has {counted(standing.gpus, 'GPU')}, more than its max of {pool.max}"
                return Move(node.name, node.gpus, pool.name, "", f"{reason}, and no pod shares any here")
    return None


def _wanted(state: State, standings: Mapping[str, Standing], now: float) -> Move | None:
    """The next node for a pool that wants one: first for those below their min, then where pods wait, then by use."""
    wanting = [standing for standing in standings.values() if standing.wants]
    for taker in sorted(wanting, key=_urgency):
        for node in _movable(state, state.members(""), now):
            if _helps(node, taker):
                return _move(node, taker, "the node is spare")
        for giver in sorted(standings.values(), key=lambda each: (each.use, each.pool.name)):
            given = _given(state, giver, taker, now)
            if given is not None:
                use = f"{giver.pool.name} uses {giver.use:.0%} of its {counted(giver.gpus, 'GPU')}"
                return _move(given, taker, f"{use}, and no pod shares any here")
    return None


def _given(state: State, giver: Standing, taker: Standing, now: float) -> SharedNode | None:
    """A node that one pool can spare for another. Who is below its min gets one also from a pool that is half full."""
    short = taker.gpus < taker.pool.min
    if giver.pool == taker.pool or giver.wants or not (giver.quiet or short):
        return None
    for node in _movable(state, giver.nodes, now):
        enough = giver.gpus - node.gpus >= giver.pool.min
        if enough and _helps(node, taker) and not state.moved(node.name, "", now).standing(giver.pool).wants:
            return node
    return None


def _movable(state: State, nodes: Iterable[SharedNode], now: float) -> Iterator[SharedNode]:
    """Nodes that nobody uses and that have been where they are for long enough, the smallest first."""
    for node in sorted(nodes, key=lambda each: (each.gpus, each.name)):
        if not node.used and (not node.pool or now - node.since >= state.pools.cooldown_s):
            yield node


def _helps(node: SharedNode, taker: Standing) -> bool:
    """Whether a pool may have a node, and is better off with it."""
    if taker.gpus + node.gpus > taker.pool.max:
        return False
    if taker.gpus < taker.pool.min or not taker.unserved:
        return True
    there = node.moved(taker.pool.name, 0).model
    return any(admits(there, task) for task in taker.kinds)


def _urgency(standing: Standing) -> tuple[bool, bool, float, str]:
    return standing.gpus >= standing.pool.min, not standing.unserved, -standing.use, standing.pool.name


def _move(node: SharedNode, taker: Standing, why_this: str) -> Move:
    return Move(node.name, node.gpus, node.pool, taker.pool.name, f"{_want(taker)}; {why_this}")


def _want(standing: Standing) -> str:
    """Why a pool wants a node."""
    pool = standing.pool
    if standing.gpus < pool.min:
        return f"{pool.name} has {counted(standing.gpus, 'GPU')}, less than its min of {pool.min}"
    if standing.unserved:
        more = len(standing.unserved) - 1
        who = standing.unserved[0] + (f" and {more} more" if more else "")
        return f"no room in {pool.name} for {who}"
    return f"{pool.name} uses {standing.use:.0%} of its {counted(standing.gpus, 'GPU')}, more than {pool.wants_above}%"


def _unmet(standings: Mapping[str, Standing]) -> Iterator[str]:
    for standing in standings.values():
        pool = standing.pool
        if standing.gpus > pool.max:
            has = counted(standing.gpus, "GPU")
            yield f"{pool.name} has {has}, more than its max of {pool.max}: none of its nodes can go now"
        if standing.wants:
            full = standing.gpus >= pool.max
            yield f"{_want(standing)}: {'it has its max' if full else 'no node that fits it can be had now'}"
