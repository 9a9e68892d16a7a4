# SPDX-License-Identifier: Apache-2.0
"""The autoscaler's own decision log as a trace: what came to the queues, how large it was, and what was left of it.

The log is a turn of a queue after another (`elastic.autoscaler.decisions`). It knows of a gang that is not elastic as
long as it waits, and no longer: how long such a one ran is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.decisions.decision_log import LOG_NAME
from kfp_volcano.elastic.autoscaler.decisions.log_folder import log_lines
from kfp_volcano.elastic.autoscaler.decisions.log_turns import log_folders, turns
from kfp_volcano.elastic.simulator.reading.shape import largest_node
from kfp_volcano.elastic.simulator.scenario import Job, Node, Queue, Scenario
from kfp_volcano.elastic.simulator.traced import Scaling, Traced
from kfp_volcano.errors import SpecError

if TYPE_CHECKING:
    from pathlib import Path

    from kfp_volcano.elastic.policies.snapshot import ElasticJob, PendingGang, QueueSnapshot
    from kfp_volcano.elastic.simulator.reading.assumed import Assumed

__all__ = ["logged_scenario"]

_USUAL_S = 3600.0
"""How long a gang runs of which the log knows no more than that it waited."""


@dataclass(slots=True)
class _Seen:
    """A job, turn by turn."""

    queue: str
    first: ElasticJob
    last: ElasticJob
    last_at: float
    worked: float = 0.0
    """Seconds' worth of work on the GPUs that it began with."""
    speeds: dict[int, float] = field(default_factory=dict)
    """Samples per second, by GPUs."""


def logged_scenario(path: Path, assumed: Assumed) -> Scenario:
    """The scenario of the decision logs at or below a path.

    Raises SpecError where there is none, or no job in it.
    """
    reading = _Reading(assumed)
    for folder in log_folders(path):
        for turn in turns(log_lines(folder, LOG_NAME)):
            reading.take(turn.snapshot)
    return reading.scenario(path)


class _Reading:
    def __init__(self, assumed: Assumed) -> None:
        self._assumed = assumed
        self._jobs: dict[str, _Seen] = {}
        self._gangs: dict[str, tuple[str, PendingGang]] = {}
        self._queues: dict[str, QueueSnapshot] = {}
        self._gpus = 0
        """The most that any queue saw."""

    def take(self, snapshot: QueueSnapshot) -> None:
        """A turn."""
        self._queues[snapshot.queue] = snapshot
        self._gpus = max(self._gpus, snapshot.limit_gpus, snapshot.allocated_gpus)
        for gang in snapshot.pending:
            self._gangs.setdefault(gang.key, (snapshot.queue, gang))
        for job in snapshot.jobs:
            seen = self._jobs.get(job.key)
            if seen is None:
                seen = self._jobs[job.key] = _Seen(snapshot.queue, job, job, snapshot.at)
            elif snapshot.at > seen.last_at:
                seen.worked += (snapshot.at - seen.last_at) * _relative(seen, self._assumed.scaling)
            for each in job.measured:
                if each.throughput > 0:
                    seen.speeds[each.workers * job.gpus_per_worker] = each.throughput
            seen.last, seen.last_at = job, snapshot.at

    def scenario(self, path: Path) -> Scenario:
        """What came, as a scenario."""
        waiting = {key: gang for key, gang in self._gangs.items() if key not in self._jobs}
        if not self._jobs and not waiting:
            raise SpecError("the decision log saw no job", source=str(path))
        notes = []
        if waiting:
            notes.append(
                f"{len(waiting)} gangs that are not elastic are in the log only as long as they waited: each is taken "
                f"to run for {_USUAL_S / 60:.0f} minutes"
            )
        nodes = self._assumed.nodes
        if not nodes:
            per_node = self._assumed.gpus_per_node
            nodes = tuple(
                Node(name=f"node-{index}", gpus=min(per_node, self._gpus - index * per_node))
                for index in range(-(-self._gpus // per_node))
            )
            notes.append(f"the log does not tell the nodes: {self._gpus} GPUs on nodes of {per_node} are assumed")
        begin = min(
            [*(seen.first.created_at for seen in self._jobs.values()), *(gang.since for _, gang in waiting.values())]
        )
        jobs = [self._job(key, seen, begin, nodes) for key, seen in self._jobs.items()]
        jobs += [self._gang(key, queue, gang, begin, nodes) for key, (queue, gang) in waiting.items()]
        jobs.sort(key=lambda job: job.submitted_at)
        queues = tuple(
            Queue(
                name=name,
                capability=last.limit_gpus,
                deserved=last.deserved_gpus,
                guarantee=last.guarantee_gpus,
            )
            for name, last in sorted(self._queues.items())
        )
        return Scenario(
            name=path.name, nodes=nodes, jobs=tuple(jobs), queues=queues, source=str(path), notes=tuple(notes)
        )

    def _job(self, key: str, seen: _Seen, begin: float, nodes: tuple[Node, ...]) -> Job:
        first = seen.first
        left = seen.last.remaining_s or 0.0
        whole = seen.worked + left * _relative(seen, self._assumed.scaling)
        return Job(
            name=key,
            submitted_at=max(0.0, first.created_at - begin),
            work=Traced(
                duration_s=max(1.0, whole),
                gpus=first.workers * first.gpus_per_worker,
                scaling=_scaling(seen, self._assumed.scaling),
                gpus_per_worker=first.gpus_per_worker,
                batch=first.batch or 1,
                node_gpus=largest_node(nodes),
            ),
            workers=first.workers,
            min_workers=first.min_workers,
            max_workers=first.max_workers,
            sizes=first.sizes,
            gpus_per_worker=first.gpus_per_worker,
            queue=seen.queue,
            team=key.partition("/")[0],
            priority=first.priority,
            start_s=self._assumed.start_s,
            resize_s=self._assumed.resize_s,
            restart_s=self._assumed.restart_s,
        )

    def _gang(self, key: str, queue: str, gang: PendingGang, begin: float, nodes: tuple[Node, ...]) -> Job:
        per_worker = gang.pods[0] if gang.pods and len(set(gang.pods)) == 1 else 1
        workers = max(1, gang.gpus // per_worker)
        return Job(
            name=key,
            submitted_at=max(0.0, gang.since - begin),
            work=Traced(
                duration_s=_USUAL_S,
                gpus=workers * per_worker,
                scaling=self._assumed.scaling,
                gpus_per_worker=per_worker,
                node_gpus=largest_node(nodes),
            ),
            workers=workers,
            min_workers=workers,
            max_workers=workers,
            gpus_per_worker=per_worker,
            queue=queue,
            team=key.partition("/")[0],
            priority=gang.priority,
            start_s=self._assumed.start_s,
            restart_s=self._assumed.restart_s,
        )


def _scaling(seen: _Seen, usual: Scaling) -> Scaling:
    """What was measured, where that is at two sizes at least."""
    return Scaling(points=tuple(sorted(seen.speeds.items()))) if len(seen.speeds) > 1 else usual


def _relative(seen: _Seen, usual: Scaling) -> float:
    """How fast it is at present, by the speed that it began with."""
    scaling = _scaling(seen, usual)
    first, last = (each.gpus_per_worker * each.workers for each in (seen.first, seen.last))
    return scaling.speed(last) / scaling.speed(first) if first else 1.0
