# SPDX-License-Identifier: Apache-2.0
"""How a step ends: its gradients are summed, and it is committed by all workers or does not count."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from kfp_volcano.elastic.runtime import noise
from kfp_volcano.elastic.runtime.account import progress
from kfp_volcano.elastic.runtime.events import Kind
from kfp_volcano.elastic.runtime.gradients import Total
from kfp_volcano.elastic.runtime.loss_scale import LossScale
from kfp_volcano.elastic.runtime.message import Row
from kfp_volcano.elastic.runtime.summing import summed

if TYPE_CHECKING:
    from kfp_volcano.elastic.runtime.accumulation import Accumulation
    from kfp_volcano.elastic.runtime.crew import Crew
    from kfp_volcano.elastic.runtime.events import Events
    from kfp_volcano.elastic.runtime.gradients import Gradients
    from kfp_volcano.elastic.runtime.journal import Journal
    from kfp_volcano.elastic.runtime.lookout import Lookout
    from kfp_volcano.elastic.runtime.membership import Membership
    from kfp_volcano.elastic.runtime.monitor import Monitor
    from kfp_volcano.elastic.runtime.progress import Reporter
    from kfp_volcano.elastic.runtime.saving import Unsaved
    from kfp_volcano.elastic.runtime.share import Attempt
    from kfp_volcano.elastic.runtime.state import State
    from kfp_volcano.elastic.runtime.surroundings import Surroundings
    from kfp_volcano.elastic.runtime.wishes import Wishes

__all__ = ["Settler"]

_log = logging.getLogger(__name__)


class Settler:
    """Sums a step's gradients over all workers, then updates the model or discards the step, as all of them do.

    Args:
        here: where this worker runs.
        state: what is updated.
        crew: the processes of this worker.
        membership: who trains.
        gradients: of this process.
        parts: what the share's parts have added up to.
        flat: whether the gradients are whole in each process.
        journal: the ledger.
        events: where it is told that an update was left out.
        saving: the checkpoints.
        monitor: sees each step that counts.
        lookout: as well.
        wishes: takes the wish for a checkpoint.
    """

    def __init__(
        self,
        here: Surroundings,
        state: State,
        crew: Crew,
        membership: Membership,
        gradients: Gradients,
        parts: Accumulation,
        *,
        flat: bool,
        journal: Journal,
        events: Events,
        saving: Unsaved,
        monitor: Monitor,
        lookout: Lookout,
        wishes: Wishes,
    ) -> None:
        self._state, self._crew, self._membership = state, crew, membership
        self._gradients, self._parts, self._flat = gradients, parts, flat
        self._journal, self._events, self._saving, self._wishes = journal, events, saving, wishes
        self._monitor, self._lookout = monitor, lookout
        self._node, self._worker = Row.number_of(here.node), Row.number_of(here.owner)
        self._summed_s = self._given_at = 0.0
        self.reporter: Reporter | None = None
        """Takes the progress; None: nobody asks for it."""

    def given(self) -> None:
        """The share of the next step goes to the training code now."""
        self._given_at = time.perf_counter()

    def settle(self, attempt: Attempt) -> bool:
        """Sums, and commits or discards; decides, as every worker does, what comes next. True if the step counts."""
        row = self._row(attempt)
        began = time.perf_counter()
        total = self._sum(attempt, row)
        self._summed_s = time.perf_counter() - began
        self._saving.computed()
        rows = [Row.of(values) for values in total.rows] if total else []
        reason = Row.disagreement(rows, attempt.counts)
        if total is None or reason:
            self._discard(attempt, reason, stray=bool(rows) and rows[0].state != row.state)
            return False
        self._membership.group.settle(ok=True)
        if self._monitor.evaluated(rows, first=self._membership.first) and self._membership.leads:
            self._saving.now(best=True)
        total = self._commit(attempt, rows, total)
        turned = self._monitor.committed(attempt, rows, total)
        self._lookout.committed(attempt, self._membership.group.rendezvous, rows)
        decision = self._membership.decide(rows)
        if decision.save:
            self._wishes.save = False
            self._saving.agreed(everyone_leaves=decision.everyone)
        if turned:  # saved soon, so that a restart knows of it
            self._membership.turn()
            self._wishes.save = True
        return True

    def _row(self, attempt: Attempt) -> Row:
        loss = self._parts.loss  # on a GPU this waits for the backward pass
        return Row(
            state=Row.state_of(self._state.lineage),
            flags=self._membership.flags(save=self._saving.overdue(first=self._membership.first)),
            silent_s=self._membership.silent_s,
            count=attempt.mine,
            loss=loss,
            node=self._node,
            worker=self._worker,
            computed_s=time.perf_counter() - self._given_at,
            summed_s=self._summed_s,
            noise=Row.noise_of(self._state.noise.scale),
            **self._monitor.told(attempt),
        )

    def _sum(self, attempt: Attempt, row: Row) -> Total | None:
        return summed(
            self._gradients,
            row.numbers(),
            self._membership.group,
            self._crew,
            flat=self._flat,
            lengths=noise.looks(attempt.step) if attempt.world > 1 else self._parts.first is not None,
            whole=self._state.watch.wants_norm,
        )

    def _commit(self, attempt: Attempt, rows: list[Row], total: Total) -> Total:
        """Updates the model and counts the step; returns what its gradients show, the loss scale taken out."""
        state, workers = self._state, self._membership.workers
        now, loss = time.time(), sum(row.loss for row in rows)
        samples = state.plan.samples(state.plan.after(state.cursor, attempt.count))
        lr = self._monitor.lr_factor * state.learning.prepare(
            workers=attempt.workers, samples=state.samples, count=attempt.count, noise_scale=rows[0].noise_scale
        )
        lineage = self._journal.commit(attempt, loss=loss, samples=samples, lr=lr, at=now)
        scale = state.scale.value
        with self._monitor.rate():
            fits = state.scale.update(state.optimizer)
        total = LossScale.unscaled(total, scale) if fits else self._overflowed(total, scale)
        batch = state.learning.sizing.batch(workers)
        state.committed(attempt, lineage, rows, total, first=self._parts.first, batch=batch, at=now)
        if self._membership.first and self.reporter is not None and (self.reporter.due() or state.finished):
            self.reporter.offer(progress(state, workers=workers, batch=batch, loss=loss, lr=lr, at=now))
        return total

    def _overflowed(self, total: Total, scale: float) -> Total:
        """An update was left out, but its samples count: what is to be seen of its gradients."""
        if self._membership.first:
            now = self._state.scale.value
            words = f"the gradients overflow at a loss scale of {scale:g}: no update, the scale is {now:g} from now on"
            self._events.add(Kind.UPDATE_SKIPPED, words, scale=now)
        # It was the scale's doing, unless there is hardly any: then the watch is to see that they are not finite.
        return Total(total.rows, whole=None if scale > 1 else total.whole)

    def _discard(self, attempt: Attempt, reason: str, *, stray: bool) -> None:
        _log.info("step %d is done again: %s", attempt.step, reason)
        self._journal.discard(attempt, reason)
        self._state.history.discard()
        self._membership.failed(reason, stray=stray)
