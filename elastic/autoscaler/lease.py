# SPDX-License-Identifier: Apache-2.0
"""Leases: who leads a queue, who executes a Job's resizes.

A Lease keeps two from doing the same work; it is not what makes the work safe. Whoever was paused for long and believes
to hold it still cannot do harm, because every change of a Job is a JSON Patch that tests what it was decided on.

Expiry is judged by the times in the Lease and the clock of whoever looks, so that a program that just started need not
watch for a full term first; clocks are taken to agree within a second or two, as NTP keeps them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import ConflictError, NotFoundError
from kfp_volcano.schemas.names import MANAGED_LABEL, MANAGER, labels_for
from kfp_volcano.volcano.model.objects import parse_time, reference_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["HANDOVER_S", "TERM_S", "JobLease", "Lease", "Term", "term_of"]

TERM_S = 30.0
"""How long a Lease holds without being renewed, seconds; renewed after a third of it."""

HANDOVER_S = 300.0
"""How long a run's next step has to take up the Job's Lease, seconds: pods of steps take up to minutes to start."""


@dataclass(frozen=True, slots=True)
class Term:
    """A Lease as it reads."""

    holder: str
    """Empty where it was given back."""
    ends_at: float

    def holds(self, now: float) -> bool:
        """Whether somebody has it at `now`."""
        return bool(self.holder) and now < self.ends_at


class Lease:
    """One side's view of a Lease object: taken, kept, given back or handed on."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        name: str,
        *,
        holder: str,
        clock: Callable[[], float],
        term_s: float = TERM_S,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self.holder = holder
        """Who this side is."""
        self._clock = clock
        self._term_s = term_s
        self._object: Manifest | None = None
        self._looked_at = -math.inf

    @property
    def term(self) -> Term | None:
        """The Lease as last seen; None where there was none."""
        return None if self._object is None else term_of(self._object)

    @property
    def held(self) -> bool:
        """Whether it is ours, as far as known, at this moment."""
        term = self.term
        return term is not None and term.holder == self.holder and term.holds(self._clock())

    @property
    def due_at(self) -> float:
        """When `renew_if_due` will do something again, Unix seconds."""
        term = self.term
        if term is not None and not self.held:
            return min(max(term.ends_at, self._looked_at), self._looked_at + self._term_s / 3)
        return self._looked_at + self._term_s / 3

    def look(self) -> Term | None:
        """Read it; None where there is none."""
        try:
            self._object = self._cluster.get("Lease", self._name, self._namespace)
        except NotFoundError:
            self._object = None
        return self.term

    def hold(self) -> bool:
        """Take it or keep it. False while another has it, or was faster."""
        self._looked_at = now = self._clock()
        try:
            if not self.held:
                self.look()
            term = self.term
            if term is None:
                self._object = self._cluster.create(self._new(now))
            elif not term.holds(now) or self._may_take_from(term.holder):
                self._write(self.holder, now, self._term_s)
        except (ConflictError, NotFoundError):
            self.look()
        return self.held

    def renew_if_due(self) -> bool:
        """Like `hold`, but asks the cluster only a third of a term after the last time, or when a term has ended."""
        return self.hold() if self._clock() >= self.due_at else self.held

    def release(self) -> None:
        """Give it back, so that another need not wait for its end. Nothing happens if it is not ours."""
        self._give("", self._term_s)

    def hand_over(self, heir: str, term_s: float = HANDOVER_S) -> None:
        """Leave it to `heir` for `term_s` seconds. Nothing happens if it is not ours."""
        self._give(heir, term_s)

    def _give(self, heir: str, term_s: float) -> None:
        try:
            if self.held:
                self._write(heir, self._clock(), term_s)
        except (ConflictError, NotFoundError):
            self.look()

    def _may_take_from(self, holder: str) -> bool:
        return holder == self.holder

    def _write(self, holder: str, now: float, term_s: float) -> None:
        seen = self._object or {}
        version = {"op": "test", "path": "/metadata/resourceVersion", "value": seen["metadata"]["resourceVersion"]}
        before = seen.get("spec") or {}
        changes = int(before.get("leaseTransitions") or 0) + (before.get("holderIdentity") != holder)
        spec = _spec(holder, now, term_s, changes)
        if before.get("holderIdentity") == holder and before.get("acquireTime"):
            spec["acquireTime"] = before["acquireTime"]
        patch = [version, {"op": "add", "path": "/spec", "value": spec}]
        self._object = self._cluster.patch("Lease", self._name, self._namespace, patch)

    def _new(self, now: float) -> Manifest:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self._name,
                "namespace": self._namespace,
                "labels": {MANAGED_LABEL: MANAGER},
            },
            "spec": _spec(self.holder, now, self._term_s, 0),
        }


class JobLease(Lease):
    """The Lease named after a Job: who follows it and executes its resizes.

    Holders are `<part>:<run id>`. What was handed over to `run:<run id>` may be taken up by any part of that run.
    """

    def __init__(self, cluster: Cluster, namespace: str, name: str, *, holder: str, clock: Callable[[], float]) -> None:
        term_s = HANDOVER_S if holder.startswith("run:") else TERM_S
        super().__init__(cluster, namespace, name, holder=holder, clock=clock, term_s=term_s)

    def _new(self, now: float) -> Manifest:
        """It belongs to the Job, and goes with it. Raises NotFoundError where there is no Job."""
        lease, job = super()._new(now), self._cluster.get("Job", self._name, self._namespace)
        metadata = {**lease["metadata"], "labels": labels_for(self._name), "ownerReferences": [reference_to(job)]}
        return {**lease, "metadata": metadata}

    def _may_take_from(self, holder: str) -> bool:
        part, _, run = holder.partition(":")
        return holder == self.holder or (part == "run" and run == self.holder.partition(":")[2])


def _spec(holder: str, now: float, term_s: float, transitions: int) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "leaseDurationSeconds": math.ceil(term_s),
        "acquireTime": _micro_time(now),
        "renewTime": _micro_time(now),
        "leaseTransitions": transitions,
    }
    return {**spec, "holderIdentity": holder} if holder else spec


def term_of(lease: Manifest) -> Term:
    """What a Lease object says."""
    spec = lease.get("spec") or {}
    renewed = spec.get("renewTime") or spec.get("acquireTime")
    ends_at = parse_time(str(renewed)) + float(spec.get("leaseDurationSeconds") or 0) if renewed else 0.0
    return Term(str(spec.get("holderIdentity") or ""), ends_at)


def _micro_time(at: float) -> str:
    """The API's MicroTime."""
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
