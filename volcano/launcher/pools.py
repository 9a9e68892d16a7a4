# SPDX-License-Identifier: Apache-2.0
"""Pools of shared GPUs brought about on a cluster: read what is there, carry out the moves of a plan."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kfp_volcano.errors import ClusterError, ConflictError
from kfp_volcano.volcano.pools.plan import plan, relabel
from kfp_volcano.volcano.pools.state import holds_shares

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.schemas.gpu_pools import GPUPools
    from kfp_volcano.volcano.cluster.base import Cluster
    from kfp_volcano.volcano.pools.plan import Move, PoolPlan

__all__ = ["Applied", "apply", "look", "version", "wait"]


_SETTLE_S = 2.0
"""One Job makes many changes: let them come, and look once."""


@dataclass(slots=True)
class Applied:
    """How far a plan has been carried out."""

    done: list[Move] = field(default_factory=list)
    kept: list[tuple[Move, ClusterError]] = field(default_factory=list)
    """Moves that were not made, and why: the next plan starts from what is there then."""


def look(cluster: Cluster, pools: GPUPools, *, now: float) -> PoolPlan:
    """What would move now; `now` in Unix seconds."""
    return plan(pools, cluster.list("Node")[0], cluster.list("Pod")[0], now)


def apply(cluster: Cluster, moves: PoolPlan, *, now: float, tell: Callable[[Move], None]) -> Applied:
    """Carry out the moves of a plan; `tell` hears of each before it is tried.

    A node first leaves its pool, so that no pod comes any more; only if nobody has by then does it enter the other one.
    """
    applied = Applied()
    for move in moves.moves:
        tell(move)
        try:
            _perform(cluster, move, now)
        except ClusterError as error:
            applied.kept.append((move, error))
        else:
            applied.done.append(move)
    return applied


def version(cluster: Cluster) -> str:
    """The pods' resource version, to wait from."""
    return cluster.list("Pod")[1]


def wait(cluster: Cluster, since: str, *, timeout_s: float) -> None:
    """Return when a pod has come, changed or gone after the version `since`, or when time is over."""
    with suppress(ConflictError):  # so much has changed that the version is forgotten
        next(iter(cluster.watch("Pod", resource_version=since, timeout_s=timeout_s)), None)
    time.sleep(_SETTLE_S)


def _perform(cluster: Cluster, move: Move, now: float) -> None:
    node = cluster.get("Node", move.node)
    if move.before:
        node = cluster.patch("Node", move.node, "", relabel(node, "", now))
    if any(holds_shares(pod, move.node) for pod in cluster.list("Pod")[0]):
        if move.before:
            with suppress(ClusterError):  # somebody else has given it a label meanwhile
                cluster.patch("Node", move.node, "", relabel(node, move.before, now))
        raise ConflictError(f"a pod has got shares of {move.node} since the plan was made")
    if move.after:
        cluster.patch("Node", move.node, "", relabel(node, move.after, now))
