# SPDX-License-Identifier: Apache-2.0
"""What would change, and for whom: a cluster as it is now, and the same with more GPUs, other quotas or one more job.

Pure. Both are replayed from this moment on; a forecast is as good as what the jobs report of their progress.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kfp_volcano.elastic.simulator.scenario import Node
from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.elastic.simulator.outcome import JobOutcome, Outcome
    from kfp_volcano.elastic.simulator.scenario import Queue, Scenario

__all__ = ["SHARES", "Effect", "Fate", "changed", "effects", "more_gpus", "more_nodes"]

SHARES = ("deserved", "capability", "guarantee")
"""What of a queue may be another."""
_SAME_S = 1.0
"""Times that differ by less are the same."""
_USUAL_GPUS = 8


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a job from now on; times in seconds from now, None: never."""

    starts_s: float | None
    ends_s: float | None
    waited_s: float | None
    """In all, what it had waited before among it; None where it never starts."""
    gpus: tuple[int, ...]
    """The sizes that it has, one after another."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change means for a job."""

    job: str
    team: str
    queue: str
    before: Fate | None
    """None where it is the job that the change brings."""
    after: Fate

    @property
    def differs(self) -> bool:
        """Whether it starts, ends or is sized otherwise."""
        if self.before is None:
            return True
        pairs = ((self.before.starts_s, self.after.starts_s), (self.before.ends_s, self.after.ends_s))
        return self.before.gpus != self.after.gpus or not all(_same(one, other) for one, other in pairs)


def changed(
    scenario: Scenario,
    *,
    nodes: Sequence[Node] = (),
    shares: Mapping[str, Mapping[str, int]] | None = None,
) -> Scenario:
    """The scenario with more nodes, and with other shares of queues (`SHARES` by queue, in GPUs).

    Raises SpecError with every queue that there is not.
    """
    known = {queue.name: queue for queue in scenario.queues}
    there = ", ".join(sorted(known))
    wrong = [Problem("--quota", f"there is no queue {name}", there) for name in shares or {} if name not in known]
    if wrong:
        raise SpecError(wrong, source="--quota")
    queues = tuple(_shared(queue, (shares or {}).get(queue.name, {})) for queue in scenario.queues)
    return replace(scenario, nodes=(*scenario.nodes, *nodes), queues=queues)


def _shared(queue: Queue, shares: Mapping[str, int]) -> Queue:
    """A queue with other shares; one that is not named (empty) is what the queue is limited by at present."""
    found = dict(shares)
    if "" in found:
        found["deserved" if queue.deserved is not None else "capability"] = found.pop("")
    if queue.capability is not None and "capability" not in found:
        found["capability"] = max(queue.capability, found.get("deserved", 0), found.get("guarantee", 0))
    return replace(
        queue,
        deserved=found.get("deserved", queue.deserved),
        capability=found.get("capability", queue.capability),
        guarantee=found.get("guarantee", queue.guarantee),
    )


def more_gpus(scenario: Scenario, count: int, gpu_class: str) -> tuple[Node, ...]:
    """So many GPUs more, on nodes of the size that most nodes of their class have."""
    size = _usual(scenario, gpu_class)
    whole, rest = divmod(count, size)
    return _named(scenario, [size] * whole + [rest] * bool(rest), gpu_class)


def more_nodes(scenario: Scenario, count: int, gpu_class: str, gpus: int | None = None) -> tuple[Node, ...]:
    """So many nodes more, of so many GPUs, or of the size that most nodes of their class have."""
    return _named(scenario, [gpus or _usual(scenario, gpu_class)] * count, gpu_class)


def _usual(scenario: Scenario, gpu_class: str) -> int:
    alike = Counter(node.gpus for node in scenario.nodes if not gpu_class or node.gpu_class == gpu_class)
    every = alike or Counter(node.gpus for node in scenario.nodes)
    return max(every, key=lambda gpus: (every[gpus], gpus), default=_USUAL_GPUS)


def _named(scenario: Scenario, sizes: Sequence[int], gpu_class: str) -> tuple[Node, ...]:
    classes = {node.gpu_class for node in scenario.nodes}
    kind = gpu_class or (classes.pop() if len(classes) == 1 else "")
    return tuple(Node(name=f"more-{index}", gpus=size, gpu_class=kind) for index, size in enumerate(sizes))


def effects(before: Outcome, after: Outcome, waited_s: Mapping[str, float]) -> tuple[Effect, ...]:
    """What differs for each job of `after`, in its order; `waited_s` by job, what each had waited before."""
    earlier = {job.name: job for job in before.jobs}
    return tuple(
        Effect(
            job=job.name,
            team=job.team,
            queue=job.queue,
            before=_fate(earlier[job.name], waited_s) if job.name in earlier else None,
            after=_fate(job, waited_s),
        )
        for job in after.jobs
    )


def _fate(job: JobOutcome, waited_s: Mapping[str, float]) -> Fate:
    sizes: list[int] = []
    for span in job.spans:
        if span.gpus and (not sizes or sizes[-1] != span.gpus):
            sizes.append(span.gpus)
    waited = None if job.waited_s is None else job.waited_s + waited_s.get(job.name, 0.0)
    return Fate(job.started_at, job.ended_at, waited, tuple(sizes))


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) < _SAME_S
