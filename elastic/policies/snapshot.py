# SPDX-License-Identifier: Apache-2.0
"""What a policy may know: one queue, the gangs in it, what is free, what was decided before, and the time.

Built by `elastic.autoscaler` from watched objects; in the simulator, from its virtual cluster. Its size follows the
queue, not the cluster: nodes are told apart only where workers of the queue's Jobs are, all others are counted by
what is left on them. Policies keep nothing: what they need of earlier turns is in the snapshot too (`memory`), so that
equal snapshots give equal decisions, and a log of snapshots can be decided again.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - types of fields are read when logs are
from dataclasses import dataclass, field

from kfp_volcano.elastic.policies.memory import Memory
from kfp_volcano.schemas.records import BatchRange, Hold, Measured, Watched

__all__ = [
    "NOWHERE",
    "UNUSABLE",
    "BatchRange",
    "ElasticJob",
    "Measured",
    "NodeState",
    "PendingGang",
    "QueueSnapshot",
    "Ranked",
    "Resized",
    "Sample",
    "Shape",
    "WorkerPod",
]

NOWHERE = ""
"""In place of a node's name: the worker has none yet, and holds no GPU."""
UNUSABLE = "?"
"""In place of a node's name: one that takes no new pods; what the worker holds there does not come free for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a pod needs beside its GPUs: pods of one shape are the same to every node."""

    name: str
    """Stable while the needs are the same: a digest of requests and constraints."""
    requests: Mapping[str, int] = field(default_factory=dict)
    """Other resources, in thousandths: cpu, memory, rdma/hca, …"""
    gpu_classes: tuple[str, ...] = ()
    """GPU classes it may run on; empty: any."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """What is left on a node."""

    free: int
    """GPUs that no pod holds."""
    releasing: int = 0
    """GPUs that terminating pods, of any queue, still hold."""
    fits: tuple[tuple[str, int], ...] = ()
    """(shape, how many more pods of it): only shapes of which the node could take fewer than its GPUs would allow: its
    CPU, memory or devices are short, or taints, selectors or topology keep them away (0). Sorted by shape."""
    gpu_class: str = ""
    """The node's label for its kind of GPU, empty where it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resized:
    """A resize of a Job that has ended."""

    at: float
    """When it ended, Unix seconds."""
    from_workers: int
    to_workers: int
    """What it led to."""
    failed: bool = False
    """It ended without the size it was for."""
    rolled_back: bool = False
    pause_s: float | None = None
    took_s: float | None = None
    """From the request to the end."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A measured value of a worker: utilisation of its GPUs, CPU, memory and so on."""

    at: float
    value: float
    """In the metric's own unit: cores, bytes, percent; not in thousandths, as requests are."""
    window_s: float = 60.0
    """Over which time it was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPod:
    """A worker's pod, as per-worker metrics see it."""

    name: str
    phase: str
    """Pending, Running, Succeeded, Failed."""
    terminating: bool = False
    ready: bool | None = None
    """The Ready condition; None where there is none."""
    ready_since: float | None = None
    """When the Ready condition last changed, Unix seconds."""
    started_at: float | None = None
    requests: Mapping[str, int] = field(default_factory=dict)
    """In thousandths, by resource."""
    samples: Mapping[str, Sample] = field(default_factory=dict)
    """By metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticJob:
    """An elastic Job of the queue that is running."""

    key: str
    """namespace/name."""
    workers: int
    """Workers asked for now: core + elastic replicas."""
    running: int
    """Workers whose pods run."""
    min_workers: int
    max_workers: int
    sizes: tuple[int, ...]
    gpus_per_worker: int
    nodes: tuple[str, ...]
    """Where each of the `workers` is: its node's name, or `NOWHERE`, or `UNUSABLE`. In the order in which they stay: a
    smaller Job loses its last ones."""
    shape: str = ""
    """Name of its workers' `Shape`."""
    priority: int = 0
    priority_class: str = ""
    created_at: float = 0.0
    cooldown_s: float = 60.0
    last_resize_at: float | None = None
    """When the last resize ended, whatever became of it."""
    last_failed: bool = False
    """Whether the last resize ended without the size it was for."""
    resize_open: bool = False
    """Whether a request is unanswered or a resize is being executed."""
    target_workers: int | None = None
    """The size an open resize leads to."""
    waiting_since: float | None = None
    """Since when the oldest of its surplus workers without a node waits for one."""
    ended: int = 0
    """Surplus workers whose pods have ended: they hold nothing, and Volcano puts nothing in their place."""
    hold: Hold | None = None
    remaining_s: float | None = None
    """Time to the end at the present throughput, where training reports progress."""
    remaining_samples: int | None = None
    done: float | None = None
    """Share of its steps that are done, 0 to 1, where training reports progress."""
    batch: int | None = None
    """Global batch it trains with, samples."""
    measured: tuple[Measured, ...] = ()
    """How fast it was at the sizes it had, by workers."""
    batch_range: BatchRange | None = None
    """What its training chooses its batch from by itself, at each size; None: it follows the spec's rule."""
    noise_scale: float | None = None
    """Gradient noise scale, samples (McCandlish et al. 2018), where training reports it."""
    diverging: bool = False
    """Whether its loss is not finite, or climbs away from the best it had."""
    watched: Watched | None = None
    """What its training's own watch has done, where that is something."""
    resizes: tuple[Resized, ...] = ()
    """Those that ended, as many as its record holds, newest last."""
    pods: tuple[WorkerPod, ...] = ()
    """Only where a policy looks at single workers."""
    utilisation: float | None = None
    """Mean utilisation of its GPUs, 0 to 1, where it is measured."""
    arm: str = ""
    """The arm of the experiment that it is in, if any."""

    @property
    def name(self) -> str:
        """The Job's name without its namespace, as sentences for people use it."""
        return self.key.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingGang:
    """A gang that waits for GPUs."""

    key: str
    """namespace/name of its Job."""
    pods: tuple[int, ...]
    """GPUs of each pod that its minimum still lacks."""
    since: float
    priority: int = 0
    shape: str = ""
    """Name of its pods' `Shape`: of the one that is hardest to place, where they differ."""
    queue: str = ""
    """Its queue, where that is another than the snapshot's."""
    short_gpus: int = 0
    """GPUs that have to come free in this queue, whatever is free on nodes: a queue above both may have no more."""

    @property
    def gpus(self) -> int:
        """GPUs its minimum still lacks."""
        return sum(self.pods)

    @property
    def name(self) -> str:
        """The Job's name without its namespace."""
        return self.key.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A Job of the queue whose priority class may be changed: one of ours, elastic or not, that has not ended."""

    key: str
    """namespace/name."""
    priority_class: str
    """Empty for none."""
    base_class: str
    """The class of its spec, or the last one that a person gave it."""
    surplus_priority: int | None = None
    """Value of the class of its surplus, which cannot change; None where it has no such."""
    waiting_since: float | None = None
    """Since when its gang waits; None while it runs."""
    ranked_at: float | None = None
    """When its class was last changed."""
    sized_at: float | None = None
    """When it got its present number of workers; None if it began with it."""
    done: float | None = None
    """Share of its steps that are done, 0 to 1, where training reports progress."""
    progressed_at: float | None = None
    """When training last reported progress."""
    throughput: float | None = None
    """Samples per second at present."""
    best_throughput: float | None = None
    """The most it had at any size, samples per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSnapshot:
    """One queue at one moment."""

    queue: str
    at: float
    limit_gpus: int
    """GPUs the queue may use at most: its capability, bounded by what the nodes have."""
    allocated_gpus: int
    """GPUs of the queue's pods, terminating ones included: they hold their GPUs until they are gone."""
    deserved_gpus: int | None = None
    """What the queue has a right to: what it holds above is borrowed. None: where nothing is said, all of its limit."""
    guarantee_gpus: int = 0
    """What is kept for it though it does not use it."""
    nodes: Mapping[str, NodeState] = field(default_factory=dict)
    """Each node that takes pods and has a worker of `jobs`, by name."""
    crowd: Mapping[NodeState, int] = field(default_factory=dict)
    """How many other nodes that take pods are in each state."""
    reserved: tuple[tuple[str, int], ...] = ()
    """(shape, GPUs) of each pod of other queues' Jobs that was asked for and holds nothing yet."""
    releasing_gpus: int = 0
    """GPUs that terminating pods of this queue still hold, part of `allocated_gpus`."""
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    """By name; a shape that is not in it needs nothing but its GPUs."""
    jobs: tuple[ElasticJob, ...] = ()
    pending: tuple[PendingGang, ...] = ()
    """Gangs of this queue."""
    claims: tuple[PendingGang, ...] = ()
    """Gangs of other queues, each within what its queue deserves, for which this queue is asked to give back what it
    has borrowed. Each is asked of one queue: of the one most over its share."""
    ranked: tuple[Ranked, ...] = ()
    """Jobs of this queue whose class may be changed; only where a policy changes classes."""
    priorities: Mapping[str, int] = field(default_factory=dict)
    """The cluster's PriorityClasses, name to value; only where a policy changes classes."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Values from outside, by name: external metrics of the policy."""
    stale_s: float = 0.0
    """How long the cluster has not been seen."""
    memory: Memory = field(default_factory=Memory)
    """What was decided before."""

    @property
    def free_gpus(self) -> int:
        """GPUs the queue could still take: within its limit, and free on some node."""
        free = sum(node.free for node in self.nodes.values())
        free += sum(node.free * count for node, count in self.crowd.items())
        return max(0, min(self.limit_gpus - self.allocated_gpus, free))

    @property
    def share_gpus(self) -> int:
        """What it deserves, or may use at most where nothing is said."""
        return self.limit_gpus if self.deserved_gpus is None else min(self.deserved_gpus, self.limit_gpus)
