"""First come, first served: each job at the size it asks for, and none before one that came earlier. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kfp_volcano.elastic.simulator.allocators.filling import Free

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.elastic.simulator.allocators.allocator import Present, Spots
    from kfp_volcano.elastic.simulator.scenario import Node

__all__ = ["Fifo"]


class Fifo:
    """Fixed gangs."""

    name: ClassVar[str] = "fifo"
    adaptive: ClassVar[bool] = False

    def allocate(self, jobs: Sequence[Present], nodes: Sequence[Node], at: float) -> Mapping[str, Spots]:  # noqa: ARG002 - it goes by no time
        """What each job is to hold; see `Allocator`."""
        given = {each.job.name: each.spots for each in jobs if each.spots}
        free = Free(nodes, given.values())
        for each in sorted(jobs, key=lambda each: each.job.submitted_at):
            asked = each.job.workers * each.job.gpus_per_worker
            if each.spots:
                continue
            if asked > free.total:
                break
            given[each.job.name] = free.take(asked)
        return given
