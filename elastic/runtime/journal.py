# SPDX-License-Identifier: Apache-2.0
"""The file a worker's ledger goes to."""

from __future__ import annotations

import errno
import logging
import os
import time
from typing import TYPE_CHECKING

from kfp_volcano.elastic import ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from kfp_volcano.elastic.runtime.share import Attempt
    from kfp_volcano.elastic.runtime.state import State
    from kfp_volcano.elastic.runtime.surroundings import Surroundings
    from kfp_volcano.elastic.sharding import Plan

__all__ = ["PATIENCE_S", "Journal"]

PATIENCE_S = 600.0
"""How long training waits for room on a full volume."""
_RETRY_S = 1.0
_FULL = (errno.ENOSPC, errno.EDQUOT)

_log = logging.getLogger(__name__)


class Journal:
    """Appends entries to `ledger/<pod>-<incarnation>.jsonl` in the job folder; without one they go nowhere.

    Each entry is one write of the operating system, with nothing held back in this process: what a SIGKILL cannot take
    back is on file. An unrecorded step must not count: where the volume is full training waits for room, for
    `PATIENCE_S` at most; then, and where the volume refuses otherwise, all methods raise OSError.

    Args:
        here: whose ledger it is.
        sleep: waits some seconds.
    """

    def __init__(self, here: Surroundings, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._here = here
        self._sleep = sleep
        self._file: int | None = None

    def start(self, plan: Plan, state: State) -> None:
        """Opens the file; the process begins in `state`."""
        if self._here.job_dir is not None:
            folder = self._here.job_dir / "ledger"
            folder.mkdir(exist_ok=True)
            path = folder / f"{self._here.owner}.jsonl"
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._write(
            ledger.Start(
                pod=self._here.pod,
                incarnation=self._here.incarnation,
                time=time.time(),
                seed=plan.seed,
                size=plan.size,
                batch=plan.batch,
                epochs=plan.epochs,
                lineage=state.lineage,
                step=state.steps,
            )
        )

    def feed(self, attempt: Attempt, ids: NDArray[np.int64]) -> None:
        """These samples are about to be fed."""
        self._write(
            ledger.Feed(
                attempt=attempt.digest,
                step=attempt.step,
                epoch=attempt.epoch,
                parent=attempt.parent,
                world=attempt.world,
                rank=attempt.rank,
                ids=ids.tolist(),
                time=time.time(),
            )
        )

    def commit(self, attempt: Attempt, *, loss: float, samples: int, lr: float, at: float) -> str:
        """The attempt counts; returns the lineage of the state that follows."""
        lineage = ledger.lineage_digest(attempt.parent, attempt.digest)
        self._write(
            ledger.Commit(
                attempt=attempt.digest,
                step=attempt.step,
                epoch=attempt.epoch,
                parent=attempt.parent,
                lineage=lineage,
                world=attempt.world,
                processes=attempt.processes,
                loss=loss,
                samples=samples,
                time=at,
                lr=lr,
            )
        )
        return lineage

    def discard(self, attempt: Attempt, reason: str) -> None:
        """The attempt does not count here."""
        self._write(ledger.Discard(attempt=attempt.digest, step=attempt.step, time=time.time(), reason=reason))

    def rollback(self, parent: str, back: State, *, from_step: int, reason: str) -> str:
        """Training goes back to the state `back`; returns the lineage of the state that follows."""
        lineage = ledger.rollback_digest(parent, back.lineage)
        self._write(
            ledger.Rollback(
                step=back.steps,
                from_step=from_step,
                parent=parent,
                to=back.lineage,
                lineage=lineage,
                time=time.time(),
                reason=reason,
            )
        )
        return lineage

    def skip(self, state: State, ids: NDArray[np.int64], reason: str) -> str:
        """The samples that would come next are passed over; returns the lineage of the state that follows."""
        samples = state.plan.samples(state.plan.after(state.cursor, len(ids)))
        lineage = ledger.skip_digest(state.lineage, state.cursor.epoch, samples)
        self._write(
            ledger.Skip(
                step=state.steps,
                epoch=state.cursor.epoch,
                parent=state.lineage,
                lineage=lineage,
                ids=ids.tolist(),
                samples=samples,
                time=time.time(),
                reason=reason,
            )
        )
        return lineage

    def metric(self, state: State, *, samples: int, epoch: int, values: Mapping[str, float]) -> None:
        """The training code logged values of the present state."""
        self._write(
            ledger.Metric(
                step=state.steps,
                samples=samples,
                epoch=epoch,
                lineage=state.lineage,
                values=dict(values),
                time=time.time(),
            )
        )

    def leave(self, step: int, reason: str) -> None:
        """The process ends on purpose."""
        self._write(ledger.Leave(step=step, time=time.time(), reason=reason))

    def sync(self) -> None:
        """Waits until what was written has reached the disk."""
        if self._file is not None:
            os.fsync(self._file)

    def close(self) -> None:
        """Writes no more."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self, entry: ledger.Entry) -> None:
        if self._file is not None:
            rest = memoryview(ledger.to_line(entry).encode())
            waited_s = 0.0
            while rest:
                try:
                    rest = rest[os.write(self._file, rest) :]
                except OSError as error:  # noqa: PERF203 - the rest of a line that was cut short is tried again
                    if error.errno not in _FULL or waited_s >= PATIENCE_S:
                        raise
                    if not waited_s:
                        _log.error("the ledger's volume is full (%s): training waits until there is room", error)
                    self._sleep(_RETRY_S)
                    waited_s += _RETRY_S
