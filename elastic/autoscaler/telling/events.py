# SPDX-License-Identifier: Apache-2.0
"""Kubernetes Events on Jobs: what was asked, what became of it, and why a Job stays as it is. A Recorder.

A Job has one Event for each reason to leave it alone, counted on when the reason comes back, and two for each resize.
Their names follow from the Job's uid and the reason, or from the request's id: whoever tells the same again, another
replica or the next process, finds it there.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from dataclasses import dataclass
from queue import Full, Queue
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.policies.policy import Reason
from kfp_volcano.errors import ClusterError, ConflictError, ForbiddenError, NotFoundError
from kfp_volcano.schemas.nouns import counted
from kfp_volcano.schemas.records import Phase
from kfp_volcano.volcano.model.objects import reference_to, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kfp_volcano.elastic.autoscaler.telling.recorder import JobEnd
    from kfp_volcano.elastic.policies.policy import Decision
    from kfp_volcano.elastic.policies.snapshot import QueueSnapshot
    from kfp_volcano.schemas.records import ClassChange, ResizeOutcome
    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["COMPONENT", "Events"]

COMPONENT = "kfp-volcano-autoscaler"
"""What Events name as their source."""

AGAIN_S = 600.0
"""The same reason of a Job is told again after as long at the earliest, seconds."""
BARRED_S = 300.0
"""Before the next try of one that was not allowed to write Events, seconds."""
MOST_WAITING = 1000
"""Events that wait to be written; beyond it new ones are dropped, for nothing depends on them."""
_LONGEST = 1000
"""Characters of a message: Kubernetes takes 1,024."""
_UNTOLD = frozenset({Reason.STEADY, Reason.RESIZE_OPEN})
"""Reasons that say nothing new: that there is nothing to do, and what an Event told already."""
_DONE = "Resized"
_FAILED: Mapping[Phase, str] = {
    Phase.ROLLED_BACK: "ResizeRolledBack",
    Phase.EXPIRED: "ResizeExpired",
    Phase.REFUSED: "ResizeRefused",
}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Message:
    """One thing to be told of a Job."""

    job: str
    key: str
    """What makes it the same as one that was told before."""
    reason: str
    text: str
    warning: bool = False
    counts: bool = False
    """Whether telling it again counts on; otherwise that it is there is enough."""


class Events:
    """Writes Events from a thread of its own; that they cannot be written stops nobody from scaling.

    Args:
        cluster: Where the Jobs are.
        identity: Who tells.
        clock: Unix seconds.
    """

    def __init__(self, cluster: Cluster, *, identity: str, clock: Callable[[], float] = time.time) -> None:
        self._cluster = cluster
        self._identity = identity
        self._clock = clock
        self._reasons: dict[str, dict[str, Reason]] = {}
        """By queue and Job: the last reason that was told."""
        self._told_at: dict[tuple[str, str], float] = {}
        self._waiting: Queue[_Message | None] = Queue(MOST_WAITING)
        self._barred_until = 0.0
        self._thread = threading.Thread(target=self._write_all, name="events", daemon=True)
        self._thread.start()

    def decided(
        self,
        snapshot: QueueSnapshot,
        decisions: Sequence[Decision],
        requests: Mapping[str, str],
        *,
        lag_s: float,  # noqa: ARG002 - of metrics alone
    ) -> None:
        """See `Recorder.decided`."""
        before = self._reasons.get(snapshot.queue, {})
        self._reasons[snapshot.queue] = {each.job: each.reason for each in decisions}
        for gone in before.keys() - self._reasons[snapshot.queue].keys():
            for known in [key for key in self._told_at if key[0] == gone]:
                del self._told_at[known]
        for each in decisions:
            request = requests.get(each.job)
            if request is not None:
                text = f"{each.from_workers} to {counted(each.to_workers, 'worker')} asked for: {each.explanation}"
                self._tell(
                    _Message(each.job, f"{request}-requested", "ResizeRequested", f"{text} ({each.reason.value})")
                )
            elif not each.resizes and before.get(each.job) != each.reason and each.reason not in _UNTOLD:
                self._tell_hold(each, snapshot.at)

    def resized(self, queue: str, job: str, outcome: ResizeOutcome) -> None:  # noqa: ARG002 - Events are of Jobs
        """See `Recorder.resized`."""
        failure = _FAILED.get(outcome.phase)
        size = f"{outcome.from_workers} to {counted(outcome.to_workers, 'worker')}"
        if failure is None:
            took = "" if outcome.done_at is None else f" in {outcome.done_at - outcome.requested_at:.0f} s"
            pause = "" if outcome.pause_s is None else f", training paused {outcome.pause_s:.1f} s"
            text = f"{size}{took}{pause}"
        else:
            text = f"{size}: {outcome.message or outcome.explanation}"
        self._tell(_Message(job, f"{outcome.id}-ended", failure or _DONE, text, warning=failure is not None))

    def reranked(self, queue: str, job: str, change: ClassChange) -> None:  # noqa: ARG002 - Events are of Jobs
        """See `Recorder.reranked`."""
        text = f"{change.from_class} to {change.to_class}: {change.explanation} ({change.reason})"
        self._tell(_Message(job, f"class-{change.at}", "PriorityChanged", text))

    def ended(self, queue: str, end: JobEnd) -> None:
        """See `Recorder.ended`: Volcano tells of it by an Event of its own."""

    def failed(self, queue: str, error: Exception) -> None:
        """See `Recorder.failed`: no Job's business."""

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what waits, and end."""
        try:
            self._waiting.put(None, timeout=timeout_s)
        except Full:
            return
        self._thread.join(timeout_s)

    def _tell_hold(self, decision: Decision, now: float) -> None:
        told = (decision.job, decision.reason.value)
        if now >= self._told_at.get(told, -AGAIN_S) + AGAIN_S:
            self._told_at[told] = now
            key = decision.reason.value.lower()
            self._tell(_Message(decision.job, key, decision.reason.value, decision.explanation, counts=True))

    def _tell(self, message: _Message) -> None:
        try:
            self._waiting.put_nowait(message)
        except Full:
            _log.warning("%s: too many Events wait to be written: %s is not told", message.job, message.reason)

    def _write_all(self) -> None:
        while (message := self._waiting.get()) is not None:
            if self._clock() < self._barred_until:
                continue
            try:
                self._write(message)
            except ForbiddenError as error:
                _log.warning("Events cannot be written: %s", error)
                self._barred_until = self._clock() + BARRED_S
            except NotFoundError:
                continue  # the Job is gone, or the Event just went
            except ClusterError as error:
                _log.warning("%s: an Event is lost: %s", message.job, error)

    def _write(self, message: _Message) -> None:
        namespace, _, name = message.job.partition("/")
        job = self._cluster.get("Job", name, namespace)
        event = self._event(job, message)
        try:
            self._cluster.create(event)
        except ConflictError:
            if message.counts:
                self._count(event)

    def _count(self, event: Manifest) -> None:
        name, namespace = event["metadata"]["name"], event["metadata"]["namespace"]
        there = self._cluster.get("Event", name, namespace)
        patch = [
            {"op": "add", "path": "/count", "value": int(there.get("count") or 1) + 1},
            {"op": "add", "path": "/lastTimestamp", "value": event["lastTimestamp"]},
            {"op": "add", "path": "/message", "value": event["message"]},
        ]
        self._cluster.patch("Event", name, namespace, patch)

    def _event(self, job: Manifest, message: _Message) -> dict[str, Any]:
        metadata, now = job["metadata"], time_text(self._clock())
        unique = hashlib.sha256(f"{metadata.get('uid')} {message.key}".encode()).hexdigest()[:16]
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{metadata['name']}.{unique}", "namespace": metadata["namespace"]},
            "involvedObject": {**reference_to(job), "namespace": metadata["namespace"]},
            "type": "Warning" if message.warning else "Normal",
            "reason": message.reason,
            "message": message.text[:_LONGEST],
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._identity[:128],
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
