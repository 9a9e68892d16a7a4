# SPDX-License-Identifier: Apache-2.0
"""What may be decided on what a process has been told: counted anew, in sums, without the code that decides.

A decision that grows Jobs promises GPUs. Law: what one process promises, together with what it knows to be promised
already, is no more than

- what is free on nodes at that moment (the growth alone), and what is free there once all that is leaving is gone
  (with everything that was promised before, holds nothing yet, and will find a place there);
- the same within the queue's capability, and each of its ancestors' beside what other queues hold of them.

What another replica has promised meanwhile and the watch has not told yet is not known, so it does not count; nor does
what has waited for a node for longer than reservations last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kfp_volcano.elastic.autoscaler.contracts import hold_of, open_outcome, open_request, spec_of
from kfp_volcano.elastic.policies.policy import Decision, Reason
from kfp_volcano.elastic.policies.snapshot import QueueSnapshot
from kfp_volcano.volcano.manifests.resize import workers
from storms.holdings import Holdings

__all__ = ["wrong_decisions"]

Seen = Mapping[str, Mapping[Any, Any]]


def wrong_decisions(seen: Seen, snapshot: QueueSnapshot, decisions: Sequence[Decision]) -> Iterator[str]:
    """What is wrong with decisions, in words."""
    jobs = {"/".join(key): job for key, job in seen.get("Job", {}).items()}
    for decision in decisions:
        job = jobs.get(decision.job)
        if not decision.explanation or not decision.policy:
            yield f"decided without a word: {decision}"
        if decision.resizes and job is not None:
            yield from _wrong_size(job, decision, snapshot.at)
    growing = {each.job: each.to_workers - each.from_workers for each in decisions if each.resizes}
    if any(more > 0 for more in growing.values()):
        yield from _overdrawn(seen, jobs, snapshot, growing)


def _wrong_size(job: Any, decision: Decision, now: float) -> Iterator[str]:
    spec, hold = spec_of(job), hold_of(job)
    if spec is None:
        yield f"{decision.job} is not one of ours: {decision}"
        return
    if decision.to_workers not in spec.workers.replicas.sizes:
        yield f"{decision.job} may have {spec.workers.replicas.sizes}: {decision}"
    if decision.from_workers != workers(job):
        yield f"{decision.job} has {workers(job)} workers: {decision}"
    if hold is not None and hold.until > now and decision.to_workers != hold.override:
        yield f"{decision.job} is held by {hold}: {decision}"
    if open_outcome(job) is not None or open_request(job, now) is not None:
        yield f"a resize of {decision.job} is open: {decision}"
    if decision.reason is Reason.OVERRIDE and (hold is None or hold.override is None):
        yield f"nobody has set {decision.job}: {decision}"


def _overdrawn(
    seen: Seen, jobs: Mapping[str, Any], snapshot: QueueSnapshot, growing: Mapping[str, int]
) -> Iterator[str]:
    books = Holdings(seen, jobs, snapshot.at)
    growth = sum(more * books.gpus.get(job, 0) for job, more in growing.items() if more > 0)
    given = sum(-more * books.gpus.get(job, 0) for job, more in growing.items() if more < 0)
    what = f"{dict(growing)} with {books.free} free"
    if growth > sum(books.free.values()):
        yield f"promises {growth} GPUs that are not free on nodes: {what}"
    nodes = books.later()
    left = sum(nodes.values()) + given - books.claimed(nodes)
    if growth > left:
        yield f"promises {growth} GPUs, and {left} will be left of {nodes} beside {books.promised}: {what}"
    queue = snapshot.queue
    for limit, name, below in books.limits(queue):
        held = sum(books.held[each] for each in below)
        if held + growth > limit:
            yield f"promises {growth} GPUs: {name} holds {held} and may have {limit}: {what}"
        room = limit - held + sum(books.leaving_of[each] for each in below) + books.giving_of[queue] + given
        if growth > room - books.claimed(nodes, queue, room):
            yield f"promises {growth} GPUs, and {name} may have {room} more, beside {books.promised}: {what}"
