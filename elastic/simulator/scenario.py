# SPDX-License-Identifier: Apache-2.0
"""A scenario: a cluster, its queues, and the jobs that come to it. Pure values, whatever they were read from.

Times are seconds from the scenario's beginning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfp_volcano.elastic.simulator.work import Work

__all__ = ["ROOT", "Job", "Node", "Outage", "Queue", "Scenario"]

ROOT = "root"
"""Volcano's queue above all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node with GPUs."""

    name: str
    gpus: int
    gpu_class: str = ""
    zone: str = ""
    """What stands together in the topology; empty where nothing is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A time for which a node is gone: what ran there has to run again, from its last checkpoint."""

    node: str
    at: float
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue, in GPUs; None: nothing is said, as in Volcano."""

    name: str
    parent: str = ROOT
    capability: int | None = None
    deserved: int | None = None
    guarantee: int = 0
    weight: int = 1
    priority: int = 0
    reclaimable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job that comes to the cluster."""

    name: str
    submitted_at: float
    work: Work
    workers: int
    """What it asks for where sizes are fixed."""
    min_workers: int
    """Its gang."""
    max_workers: int
    sizes: tuple[int, ...] = ()
    """Sizes it may have; empty: all from min to max."""
    gpus_per_worker: int = 1
    queue: str = "default"
    team: str = ""
    """Whom fairness is measured for; empty: its queue."""
    priority: int = 0
    gpu_classes: tuple[str, ...] = ()
    """It may run on; empty: any."""
    placed: tuple[str, ...] = ()
    """The node of each worker that it has as the scenario begins, in the order in which they stay; empty: it comes when
    it is submitted, and waits for its gang."""
    start_s: float = 0.0
    """What its first start costs, seconds in which it holds its GPUs and does not train."""
    resize_s: float = 1.0
    """What each resize costs so."""
    restart_s: float = 60.0
    """What it loses when its gang is broken: to come back from its last checkpoint."""

    @property
    def elastic(self) -> bool:
        """Whether it may have more than one size."""
        return self.min_workers < self.max_workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is replayed."""

    name: str
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]
    """By time of submission."""
    queues: tuple[Queue, ...] = (Queue(name="default"),)
    outages: tuple[Outage, ...] = ()
    interval_s: float = 60.0
    """Between two looks of policies that look at intervals."""
    source: str = ""
    """What it was read from, for people."""
    notes: tuple[str, ...] = field(default=())
    """What was assumed or left out in reading it, for people."""

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return sum(node.gpus for node in self.nodes)
