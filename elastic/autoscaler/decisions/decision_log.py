# SPDX-License-Identifier: Apache-2.0
"""The decision log: what an autoscaler saw and decided, enough to decide it again, as JSON lines (`decisions-*.jsonl`).

Kinds of lines, times in Unix seconds; values are in the form of `schemas.packing`::

    {"kind": "begin", "at": …, "by": "…", "version": "0.1.0"}          first in each file, and of each process
    {"kind": "policy", "policy": ID, "document": {…}}                  before its first turn in a file
    {"kind": "turn", "queue": "…", "policy": ID, "whole": true, "seen": {…}, "decided": [{…}], "requests": {job: id}}
    {"kind": "resized", "at": …, "queue": "…", "job": "…", "outcome": {…}}
    {"kind": "reranked", "at": …, "queue": "…", "job": "…", "change": {…}}
    {"kind": "failed", "at": …, "queue": "…", "error": "…"}
    {"kind": "ended", "queue": "…", "job": "…", "state": "…", …}   see `JobEnd`; and what it had
    {"kind": "accounts", "at": …, "queue": "…", "jobs": {job: {…}}}    what Jobs have had so far

A turn is written when what is decided differs from the queue's last turn, or something that Jobs and gangs are sized by
does. `seen` is what differs from the snapshot of the last turn in the log (`deltas`), from nothing where it is `whole`;
`decided` are the decisions that differ from those of that turn in more than their words.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.autoscaler.decisions.accounts import Account, Accounts
from kfp_volcano.elastic.autoscaler.decisions.deltas import blank, delta
from kfp_volcano.elastic.autoscaler.decisions.log_folder import LogFolder, log_lines
from kfp_volcano.elastic.policies.arms import arm_of
from kfp_volcano.schemas.packing import pack, unpack
from kfp_volcano.schemas.records import Phase
from kfp_volcano.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from kfp_volcano.elastic.autoscaler.telling.recorder import JobEnd
    from kfp_volcano.elastic.policies.policy import Decision
    from kfp_volcano.elastic.policies.snapshot import QueueSnapshot
    from kfp_volcano.schemas.policy import QueuePolicy
    from kfp_volcano.schemas.records import ClassChange, ResizeOutcome

__all__ = ["LOG_NAME", "DecisionLog", "core"]

LOG_NAME = "decisions"
MOST_BYTES = 32 * 2**20
MOST_FILES = 16
ACCOUNTS_S = 3600.0
"""Least time between two accounts of a queue."""


def core(decision: Decision) -> tuple[Any, ...]:
    """What of a decision is more than words and numbers."""
    return (
        decision.from_workers,
        decision.to_workers,
        decision.reason,
        decision.urgent,
        decision.policy,
    )


@dataclass(slots=True)
class _Queue:
    """What the log holds of a queue."""

    accounts: Accounts
    accounts_at: float = 0.0
    snapshot: QueueSnapshot | None = None
    """Of the last turn written in this file; None where the next one is to be written whole."""
    shape: tuple[Any, ...] = ()
    """What that turn was written for."""
    cores: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    error: str = ""


class DecisionLog:
    """A `Recorder` that writes the decision log.

    Args:
        folder: Of this autoscaler alone.
        policies: The Policy of a queue, as it was written.
        by: Who the autoscaler is.
        most_bytes: Of a file.
        most_files: After which the oldest go.
        clock: Unix seconds.
    """

    def __init__(
        self,
        folder: Path,
        *,
        policies: Callable[[str], QueuePolicy],
        by: str,
        most_bytes: int = MOST_BYTES,
        most_files: int = MOST_FILES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._lines = LogFolder(folder, LOG_NAME, most_bytes=most_bytes, most_files=most_files)
        self._policies = policies
        self._by = by
        self._clock = clock
        self._written: set[str] = set()
        self._ids: dict[int, tuple[Mapping[str, Any], str]] = {}
        self._queues = {queue: _Queue(Accounts(known)) for queue, known in _known_accounts(folder).items()}

    def decided(
        self,
        snapshot: QueueSnapshot,
        decisions: Sequence[Decision],
        requests: Mapping[str, str],
        *,
        lag_s: float,  # noqa: ARG002 - of metrics alone
    ) -> None:
        """See `Recorder.decided`."""
        kept = self._queue(snapshot.queue)
        kept.accounts.see(snapshot.jobs, snapshot.at)
        shape = (
            snapshot.limit_gpus,
            tuple(gang.key for gang in snapshot.pending),
            tuple((job.key, job.running, job.workers) for job in snapshot.jobs),
            tuple(map(core, decisions)),
        )
        if shape == kept.shape and not requests and not self._lines.full():
            return
        if self._lines.full():
            self._begin()
        self._account(snapshot.queue, kept, snapshot.at)
        line: dict[str, Any] = {
            "kind": "turn",
            "queue": snapshot.queue,
            "policy": self._policy(self._policies(snapshot.queue)),
        }
        before = kept.snapshot
        if before is None:
            before = blank(snapshot.queue)
            line["whole"] = True
            kept.cores = {}
        line["seen"] = delta(before, snapshot, remembered=before.memory)
        cores = {each.job: core(each) for each in decisions}
        line["decided"] = [pack(each) for each in decisions if kept.cores.get(each.job) != cores[each.job]]
        if requests:
            line["requests"] = dict(requests)
        kept.snapshot, kept.shape, kept.cores, kept.error = snapshot, shape, cores, ""
        self._lines.append(line)

    def resized(self, queue: str, job: str, outcome: ResizeOutcome) -> None:
        """See `Recorder.resized`."""
        if outcome.phase is Phase.DONE:
            self._queue(queue).accounts.resized(job)
        self._append({"kind": "resized", "at": self._clock(), "queue": queue, "job": job, "outcome": pack(outcome)})

    def reranked(self, queue: str, job: str, change: ClassChange) -> None:
        """See `Recorder.reranked`."""
        self._append({"kind": "reranked", "at": change.at, "queue": queue, "job": job, "change": pack(change)})

    def failed(self, queue: str, error: Exception) -> None:
        """See `Recorder.failed`: what fails again and again is written once."""
        kept, text = self._queue(queue), f"{type(error).__name__}: {error}"
        if text != kept.error:
            kept.error = text
            self._append({"kind": "failed", "at": self._clock(), "queue": queue, "error": text})

    def ended(self, queue: str, end: JobEnd) -> None:
        """See `Recorder.ended`."""
        account = self._queue(queue).accounts.close(end.job)
        spec = self._policies(queue)
        line: dict[str, Any] = {"kind": "ended", "queue": queue}
        if spec.arms:
            line |= {"experiment": spec.name, "arm": arm_of(spec, end.job)}
        line |= pack(end)
        if account is not None:
            line |= {"since": account.since, "gpu_s": account.total(end.ended_at), "resizes": account.resizes}
            line |= {"late": True} if account.late else {}
        self._append(line)

    def close(self) -> None:
        """Write what is known of Jobs that have not ended, and let go of the file."""
        for queue, kept in self._queues.items():
            kept.accounts_at = 0.0
            self._account(queue, kept, self._clock())
        self._lines.close()

    def _queue(self, queue: str) -> _Queue:
        kept = self._queues.get(queue)
        if kept is None:
            kept = self._queues[queue] = _Queue(Accounts())
        return kept

    def _append(self, line: Mapping[str, Any]) -> None:
        if self._lines.full():
            self._begin()
        self._lines.append(line)

    def _begin(self) -> None:
        """Begin a file, so that it can be read without those before it."""
        self._written.clear()
        for kept in self._queues.values():
            kept.snapshot, kept.shape, kept.accounts_at = None, (), 0.0
        self._lines.begin({"kind": "begin", "at": self._clock(), "by": self._by, "version": __version__})

    def _policy(self, spec: QueuePolicy) -> str:
        """The id of a Policy, whose document is in this file."""
        document, digest = self._ids.get(id(spec.document), (None, ""))
        if document is not spec.document:
            text = json.dumps(spec.document, sort_keys=True)
            digest = hashlib.sha256(text.encode()).hexdigest()[:12]
            self._ids[id(spec.document)] = (spec.document, digest)
        if digest not in self._written:
            self._written.add(digest)
            self._lines.append({"kind": "policy", "policy": digest, "document": spec.document})
        return digest

    def _account(self, queue: str, kept: _Queue, now: float) -> None:
        if now < kept.accounts_at + ACCOUNTS_S:
            return
        kept.accounts_at = now
        if jobs := kept.accounts.remaining(now):
            jobs_ = {job: asdict(account) for job, account in jobs.items()}
            self._append({"kind": "accounts", "at": now, "queue": queue, "jobs": jobs_})


def _known_accounts(folder: Path) -> dict[str, dict[str, Account]]:
    """What a process before this one has written of each queue's Jobs, in the files that are read quickly."""
    found: dict[str, dict[str, Account]] = {}
    for line in log_lines(folder, LOG_NAME, naming=('"kind":"accounts"', '"kind":"ended"'), last=2):
        if line["kind"] == "accounts":
            found[line["queue"]] = {job: unpack(Account, account) for job, account in line["jobs"].items()}
        else:
            found.get(line["queue"], {}).pop(line["job"], None)
    return found
