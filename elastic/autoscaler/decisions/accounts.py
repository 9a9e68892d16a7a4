# SPDX-License-Identifier: Apache-2.0
"""What each Job of a queue has had so far: GPUs over time, and resizes. Pure.

Kept while it runs, for what is over cannot be asked any more; written to the decision log from time to time, and read
back from there by the next process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kfp_volcano.elastic.policies.snapshot import ElasticJob

__all__ = ["Account", "Accounts"]

_BEGINNING = 0.02
"""Share of its steps up to which a Job that is first seen counts as seen from its beginning."""
_FORGOTTEN_S = 86_400.0
"""How long a Job that holds nothing is remembered: it may be restarted, suspended, or be deleted without an end."""


@dataclass(slots=True)
class Account:
    """Of one Job."""

    since: float
    """When it was first seen, Unix seconds."""
    at: float
    """Until when `gpu_s` is counted."""
    gpus: int = 0
    """GPUs that its running workers hold since then."""
    gpu_s: float = 0.0
    """GPU seconds until then."""
    resizes: int = 0
    """Resizes of it that were completed."""
    late: bool = False
    """Whether it had trained, or was resized, before it was first seen."""

    def total(self, now: float) -> float:
        """GPU seconds until now."""
        return self.gpu_s + self.gpus * max(0.0, now - self.at)

    def hold(self, gpus: int, now: float) -> None:
        """It holds so many GPUs from now on."""
        if gpus != self.gpus:
            self.gpu_s, self.at, self.gpus = self.total(now), max(self.at, now), gpus


def _is_under_way(job: ElasticJob) -> bool:
    return bool(job.resizes) or (job.done or 0.0) > _BEGINNING


class Accounts:
    """Of the Jobs of one queue, by key."""

    def __init__(self, known: Mapping[str, Account] | None = None) -> None:
        self._jobs = dict(known or {})
        self._present: set[str] = set(self._jobs)

    def see(self, jobs: Iterable[ElasticJob], now: float) -> None:
        """Take in what the queue's Jobs hold now; those that are not among them hold nothing."""
        present = set()
        for job in jobs:
            present.add(job.key)
            account = self._jobs.get(job.key)
            if account is None:
                account = self._jobs[job.key] = Account(since=now, at=now, late=_is_under_way(job))
            account.hold(job.running * job.gpus_per_worker, now)
        for key in self._present - present:
            if key in self._jobs:
                self._jobs[key].hold(0, now)
        self._present = present

    def resized(self, job: str) -> None:
        """A resize of a Job was completed."""
        if job in self._jobs:
            self._jobs[job].resizes += 1

    def close(self, job: str) -> Account | None:
        """Take out the account of a Job that has ended; None where it never was seen."""
        return self._jobs.pop(job, None)

    def remaining(self, now: float) -> dict[str, Account]:
        """Those that are open, without the forgotten."""
        self._jobs = {
            key: account for key, account in self._jobs.items() if account.gpus or now - account.at < _FORGOTTEN_S
        }
        return dict(self._jobs)
