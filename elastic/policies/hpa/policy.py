# SPDX-License-Identifier: Apache-2.0
"""The policy `hpa`: Kubernetes' horizontal autoscaling of each elastic Job of a queue, within what the queue has. Pure.

Each Job is one target of the algorithm, exactly (`controller.reconcile`): metrics call for a size, windows and rates
limit the way there. Three things are a queue's own. Its metrics bound all Jobs together, rounded down to whole sizes
that are physically free, and shared out in one order (`plan`). Gangs that wait are served first, at once, past windows
and rates. And what the algorithm remembers comes from elsewhere: recommendations from the queue's memory, changes of
size from each Job's own record, whoever made them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from kfp_volcano.elastic.policies.gangs import owed, serve
from kfp_volcano.elastic.policies.hpa.controller import reconcile
from kfp_volcano.elastic.policies.hpa.explanation import explained
from kfp_volcano.elastic.policies.hpa.history import History, ScaleEvent, change_within, longest_period
from kfp_volcano.elastic.policies.hpa.metrics import Proposal, proposal
from kfp_volcano.elastic.policies.hpa.plan import fitting, grown, shrunk
from kfp_volcano.elastic.policies.hpa.queue_metrics import allowance
from kfp_volcano.elastic.policies.hpa.replicas import DEFAULT, Settings, Tolerance
from kfp_volcano.elastic.policies.hpa.situation import Situation
from kfp_volcano.elastic.policies.hpa.worker_metrics import JobMetrics, calculator_of
from kfp_volcano.elastic.policies.room import unclaimed
from kfp_volcano.schemas.hpa import (
    QUEUE,
    HpaSpec,
    MetricIdentifier,
    MetricSpec,
    MetricTarget,
    ObjectReference,
    ObjectSource,
)

if TYPE_CHECKING:
    from kfp_volcano.elastic.policies.gangs import Service
    from kfp_volcano.elastic.policies.hpa.controller import Outcome
    from kfp_volcano.elastic.policies.policy import Decision
    from kfp_volcano.elastic.policies.snapshot import ElasticJob, QueueSnapshot, Resized

__all__ = ["Hpa"]

SHARE_IN_USE = MetricSpec(
    type="Object",
    object=ObjectSource(
        described_object=ObjectReference(kind=QUEUE, name=QUEUE),
        metric=MetricIdentifier(name="gpu-share-in-use"),
        target=MetricTarget(type="Value", value=900),
    ),
)
"""Nine tenths of a queue in use: what the policy goes by where nothing is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hpa:
    """Kubernetes' algorithm for each Job of a queue, with the queue's metrics as bound for all."""

    name: ClassVar[str] = "hpa"

    spec: HpaSpec = field(default_factory=lambda: HpaSpec(metrics=(SHARE_IN_USE,)))
    """Its range holds beside each Job's own; the narrower counts."""
    settings: Settings = DEFAULT

    def decide(self, snapshot: QueueSnapshot) -> tuple[Decision, ...]:
        """One decision for each Job, sorted by key; see `Policy`."""
        return self.decide_beside(snapshot, serve(snapshot))

    def decide_beside(self, snapshot: QueueSnapshot, service: Service) -> tuple[Decision, ...]:
        """See `Serving`."""
        jobs = sorted(snapshot.jobs, key=lambda job: job.key)
        free = unclaimed(service.room, snapshot)
        queue = [metric for metric in self.spec.metrics if _of_queue(metric)]
        workers = [metric for metric in self.spec.metrics if not _of_queue(metric)]
        withheld = snapshot.limit_gpus - snapshot.share_gpus if service.share_only else 0
        in_use = snapshot.limit_gpus - free.limit_later - withheld
        allowed = allowance(queue, snapshot, in_use, self._tolerance)
        others = [job for job in jobs if job.key not in service.sizes]
        proposals = {job.key: self._proposal(job, workers, snapshot) for job in others}
        wishes = {job.key: self._wish(job, proposals[job.key], bounded=bool(queue)) for job in others}
        plan = grown(others, wishes, free, allowed.to_take)
        plan |= {job.key: wishes[job.key] for job in others if wishes[job.key] < job.workers}
        given = sum((job.workers - plan[job.key]) * job.gpus_per_worker for job in others if _falls(job, plan))
        by_queue = shrunk([job for job in others if job.key not in plan], allowed.to_give - given)
        situation = Situation(
            snapshot=snapshot,
            service=service,
            allowed=allowed,
            plan={**plan, **by_queue},
            wishes=wishes,
            proposals=proposals,
            by_queue=frozenset(by_queue),
            ranges={job.key: self._range(job) for job in others},
            spec=self.spec,
            settings=self.settings,
        )
        return tuple(
            replace(owed(job, service, self.name), recommended=service.sizes[job.key])
            if job.key in service.sizes
            else self._decided(job, situation)
            for job in jobs
        )

    def next_change(self, snapshot: QueueSnapshot) -> float | None:
        """When a recommendation leaves a window, or a change of size a policy's period; see `Changing`."""
        behavior = self.spec.behavior
        both = (behavior.scale_up, behavior.scale_down) if behavior else ()
        own = [each.stabilization_window_seconds for each in both]
        windows = {float(each) for each in own if each is not None} | {self.settings.down_window_s}
        periods = {float(policy.period_seconds) for rules in both for policy in rules.policies}
        seen = [each.at for memory in snapshot.memory.jobs.values() for each in memory.recommendations]
        done = [each.at for job in snapshot.jobs for each in job.resizes]
        ends = [at + window for at in seen for window in windows] + [at + period for at in done for period in periods]
        return min((end for end in ends if end > snapshot.at), default=None)

    @property
    def _tolerance(self) -> Tolerance:
        return Tolerance.of(self.spec.behavior, self.settings)

    def _proposal(self, job: ElasticJob, metrics: list[MetricSpec], snapshot: QueueSnapshot) -> Proposal | None:
        """What the metrics of a Job's workers call for; None where there are none."""
        if not metrics:
            return None
        containers = [each.container_resource.container for each in metrics if each.container_resource]
        calculator = calculator_of(job, snapshot.at, self._tolerance, self.settings, containers)
        return proposal(metrics, calculator, JobMetrics(job, snapshot.metrics))

    def _range(self, job: ElasticJob) -> tuple[int, int]:
        """The sizes between which the Job may be, by its own range and the spec's."""
        least = max(self.spec.min_replicas, job.min_workers)
        return least, max(least, min(self.spec.max_replicas, job.max_workers))

    def _wish(self, job: ElasticJob, proposed: Proposal | None, *, bounded: bool) -> int:
        """The size a Job would have if there were room: what its metrics call for, rounded up to a size it may have.

        Without any, all that the queue's metrics leave; what cannot be known is no wish for another size.
        """
        least, most = self._range(job)
        if not least <= job.workers <= most:
            wanted = least if job.workers < least else most
        elif proposed is None:
            wanted = most if bounded else job.workers
        else:
            wanted = job.workers if proposed.replicas is None else min(max(proposed.replicas, least), most)
        if wanted == job.workers:
            return wanted
        sizes = [size for size in job.sizes if size <= most]
        return min((size for size in sizes if size >= wanted), default=max(sizes, default=job.workers))

    def _decided(self, job: ElasticJob, situation: Situation) -> Decision:
        """What becomes of a Job's part of the plan in its windows and rates."""
        snapshot = situation.snapshot
        wanted = situation.plan.get(job.key, job.workers)
        history = _history(job, snapshot)
        least, most = situation.ranges[job.key]
        spec = replace(self.spec, min_replicas=least, max_replicas=most)
        called = situation.proposals[job.key] or Proposal(wanted, situation.allowed.says, (), ())
        outcome = reconcile(
            spec, job.workers, lambda: called._replace(replicas=wanted), history, snapshot.at, settings=self.settings
        )
        # Without behaviours an old recommendation can lead above the present one: nothing is set aside for that here.
        desired = min(outcome.desired, max(wanted, job.workers))
        if not least <= job.workers <= most:  # at once, as far as there is room
            desired = wanted
        size = fitting(job, desired, moved=self._moved(outcome, history, snapshot.at))
        return explained(job, size, outcome, situation, self.name)

    def _moved(self, outcome: Outcome, history: History, at: float) -> bool:
        """Whether the Job has changed within the periods of the policies for the way it is to go."""
        behavior = self.spec.behavior
        if behavior is None:
            return False
        up = outcome.desired > outcome.current
        rules, events = (behavior.scale_up, history.ups) if up else (behavior.scale_down, history.downs)
        return change_within(events, longest_period(rules), at) > 0


def _of_queue(metric: MetricSpec) -> bool:
    return metric.object is not None and metric.object.described_object.kind == QUEUE


def _falls(job: ElasticJob, plan: dict[str, int]) -> bool:
    return plan.get(job.key, job.workers) < job.workers


def _history(job: ElasticJob, snapshot: QueueSnapshot) -> History:
    """What is remembered of a Job: recommendations by the queue, changes by the Job."""
    remembered = snapshot.memory.jobs.get(job.key)
    done = [each for each in job.resizes if each.to_workers != each.from_workers]
    return History(
        recommendations=remembered.recommendations if remembered else (),
        ups=tuple(ScaleEvent(each.to_workers - each.from_workers, each.at) for each in done if _grew(each)),
        downs=tuple(ScaleEvent(each.from_workers - each.to_workers, each.at) for each in done if not _grew(each)),
    )


def _grew(resized: Resized) -> bool:
    return resized.to_workers > resized.from_workers
