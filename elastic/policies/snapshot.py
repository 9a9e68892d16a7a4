"""What a policy may know: one queue, the gangs in it, what is free, and the time.

Built by `elastic.autoscaler.observation` from watched objects; in the simulator, from its virtual cluster. All that
guards remember (the last resize, open requests, holds) is part of it, so that a policy needs no memory of its own and
an autoscaler that was started again decides as the one before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfp_volcano.schemas.records import Hold

__all__ = ["NOWHERE", "UNUSABLE", "ElasticJob", "PendingGang", "QueueSnapshot"]

NOWHERE = -1
"""In place of a node: the worker has none yet, and holds no GPU."""
UNUSABLE = -2
"""In place of a node: one that takes no new pods; what the worker holds there does not come free for others."""


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
    nodes: tuple[int, ...]
    """Where each of the `workers` is: its node's position in `free_gpus_by_node`, or `NOWHERE`, or `UNUSABLE`. In the
    order in which they stay: a smaller Job loses its last ones."""
    priority: int = 0
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
    hold: Hold | None = None
    remaining_s: float | None = None
    """Time to the end at the present throughput, where training reports progress."""

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

    @property
    def gpus(self) -> int:
        """GPUs its minimum still lacks."""
        return sum(self.pods)

    @property
    def name(self) -> str:
        """The Job's name without its namespace."""
        return self.key.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSnapshot:
    """One queue at one moment."""

    queue: str
    at: float
    limit_gpus: int
    """GPUs the queue may use at most: its capability, bounded by what the nodes have."""
    allocated_gpus: int
    """GPUs of the queue's pods, terminating ones included: they hold their GPUs until they are gone."""
    free_gpus_by_node: tuple[int, ...]
    """GPUs no pod holds, for each node that can take pods."""
    releasing_gpus_by_node: tuple[int, ...] = ()
    """GPUs that terminating pods, of any queue, still hold on each of these nodes; empty for none."""
    releasing_gpus: int = 0
    """GPUs that terminating pods of this queue still hold, part of `allocated_gpus`."""
    jobs: tuple[ElasticJob, ...] = ()
    pending: tuple[PendingGang, ...] = ()

    @property
    def free_gpus(self) -> int:
        """GPUs the queue could still take: within its limit, and free on some node."""
        return max(0, min(self.limit_gpus - self.allocated_gpus, sum(self.free_gpus_by_node)))
