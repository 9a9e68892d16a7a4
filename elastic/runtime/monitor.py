# SPDX-License-Identifier: Apache-2.0
"""What follows, in training, from what the watch sees: the rim of `elastic.monitoring`.

All workers have seen the same numbers when a step has committed and come to the same decision by themselves; whoever
missed the step takes the state of those who did not, for a rollback raises the state's version.
"""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.runtime.evaluation import Evaluation, Part
from kfp_volcano.elastic.runtime.events import Kind
from kfp_volcano.errors import TrainingStoppedError
from kfp_volcano.schemas.nouns import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kfp_volcano.elastic.monitoring import Seen
    from kfp_volcano.elastic.runtime.crew import Crew
    from kfp_volcano.elastic.runtime.events import Events
    from kfp_volcano.elastic.runtime.gradients import Total
    from kfp_volcano.elastic.runtime.group import Group
    from kfp_volcano.elastic.runtime.journal import Journal
    from kfp_volcano.elastic.runtime.message import Row
    from kfp_volcano.elastic.runtime.saving import Unsaved
    from kfp_volcano.elastic.runtime.share import Attempt
    from kfp_volcano.elastic.runtime.state import State
    from kfp_volcano.elastic.runtime.surroundings import Surroundings
    from kfp_volcano.schemas.monitor import Then
    from kfp_volcano.schemas.records import MembershipChange

__all__ = ["Monitor"]

_MARK = "stopped.txt"
"""In the job folder: why the watch has ended the training."""


class Monitor:
    """Watches a training, seen from one worker.

    Args:
        state: what is watched, and changed; its `watch` decides.
        here: where this worker runs.
        crew: the processes of this worker.
        journal: the ledger.
        checkpoints: where a rollback goes back to; where there is nothing the learning rate is lowered instead.
        evaluation: the training code's own.
        events: where it is told what was seen and done.
    """

    def __init__(
        self,
        state: State,
        here: Surroundings,
        crew: Crew,
        journal: Journal,
        checkpoints: Unsaved,
        evaluation: Evaluation,
        events: Events,
    ) -> None:
        self._state, self._crew, self._journal = state, crew, journal
        self._checkpoints, self._evaluation = checkpoints, evaluation
        self._events = events
        self._mark = None if here.job_dir is None else here.job_dir / _MARK
        self._norm = -1.0
        self._resized: MembershipChange | None = None

    def told(self, attempt: Attempt) -> dict[str, Any]:
        """What goes into this worker's row: the last step's gradient, and its part of an evaluation that is due."""
        part = self._evaluation.part(self._state, attempt.rank, attempt.world)
        return {"norm": self._norm, "evaluated": part.evaluated, "metrics": part.metrics}

    def evaluated(self, rows: Sequence[Row | Part], *, first: bool) -> bool:
        """Takes in what all workers found of the present state, before it changes.

        Args:
            rows: of all processes.
            first: whether this one records it.

        Returns:
            Whether the state is the best so far.
        """
        state = self._state
        metrics = self._evaluation.whole(rows)
        if metrics is None:
            return False
        judged = state.evaluations.add(state.steps, metrics)
        if judged.stop and not state.stopped_early:
            state.stopped_early = f"{state.evaluations.best_told} has not become better"
        if first:
            known = {name: value for name, value in metrics.items() if math.isfinite(value)}
            state.metrics.update(known)
            self._journal.metric(state, samples=state.samples, epoch=state.epoch, values=known)
            told = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
            self._events.add(Kind.EVALUATED, f"{told}{', the best so far' if judged.best else ''}", **metrics)
            if judged.stop:
                self._events.add(Kind.STOPPED_EARLY, f"training has finished: {state.stopped_early}")
        return judged.best

    def last(self, group: Group, exchange: Callable[[Sequence[float]], list[list[float]] | None]) -> bool:
        """As `evaluated`, of the finished training; every process takes part in the `exchange`."""
        own = self._evaluation.part(self._state, group.rank, group.world)
        found = exchange([float(own.evaluated), *own.metrics])
        if found is None:
            if own.evaluated:
                words = "the finished training was not evaluated whole: a worker was lost, or took too long"
                self._events.add(Kind.EVALUATION_FAILED, words)
            return False
        return self.evaluated([Part(int(count), tuple(values)) for count, *values in found], first=group.rank == 0)

    def committed(self, attempt: Attempt, rows: Sequence[Row], total: Total | None) -> bool:
        """Looks at a step that all workers have committed; True where training went back to another state.

        Args:
            attempt: the step; the worker of rank 0 tells what the watch saw, and all act on it.
            rows: what all workers told with it.
            total: the sum of the gradients.
        """
        self._norm = math.sqrt(total.whole) if total is not None and total.whole is not None else -1.0
        watch, state, first = self._state.watch, self._state, attempt.rank == 0
        change = state.history.changes[-1] if state.history.changes else None
        if change is not None and change != self._resized and change.step == state.steps and first:
            words = f"training goes on with {counted(change.to_workers, 'worker')} instead of {change.from_workers}"
            self._events.add(Kind.RESIZED, words, pause_s=change.pause_s, steps_lost=change.steps_lost)
            before, batch = (state.learning.sizing.batch(each) for each in (change.from_workers, change.to_workers))
            if batch != before:
                words = f"the global batch is {batch} samples instead of {before}, and the learning rate follows it"
                self._events.add(Kind.BATCH_CHANGED, words, batch=batch, before=before)
        self._resized = change
        found = watch.observe(
            step=attempt.step,
            cursor=state.plan.cursor(attempt.samples),
            count=attempt.count,
            samples=state.samples,
            loss=sum(row.loss for row in rows),
            norm=next((row.norm for row in rows if row.norm != -1.0), None),
            workers=attempt.workers,
        )
        turned = False
        for seen in found:
            if first:
                self._events.add(seen.kind, seen.message, began=seen.step, then=watch.consequence(seen), **seen.facts)
            turned = self._follow(seen, watch.consequence(seen), first=first)
            if turned:
                break  # the rest was about a state that is no more
        self._pass_over()
        return turned

    def begin(self) -> None:
        """Raises TrainingStoppedError where the watch has ended the training before this worker began."""
        mark = self._mark
        if mark is not None and self._crew.any(mark.exists()):
            self._crew.part()
            stopped = mark.read_text().strip()
            raise TrainingStoppedError(f"{stopped} (remove {mark} to go on from the newest checkpoint)")

    def check(self) -> None:
        """Raises TrainingStoppedError where the watch has ended the training."""
        stopped = self._state.watch.measures.stopped
        if stopped:
            if self._mark is not None:
                self._mark.write_text(stopped + "\n")
            self._crew.part()
            raise TrainingStoppedError(stopped)

    @property
    def lr_factor(self) -> float:
        """By which `rate` lowers the learning rates."""
        return self._state.watch.measures.lr_factor

    @contextmanager
    def rate(self) -> Iterator[None]:
        """Lowers the learning rates within the block: always from what they are without it."""
        factor = self.lr_factor
        groups = self._state.optimizer.param_groups
        if factor == 1.0:
            yield
            return
        plain = [group["lr"] for group in groups]
        for group in groups:
            group["lr"] = group["lr"] * factor
        try:
            yield
        finally:
            for group, lr in zip(groups, plain, strict=True):
                group["lr"] = lr

    def _follow(self, seen: Seen, then: Then, *, first: bool) -> bool:
        measures = self._state.watch.measures
        match then:
            case "rollback":
                if self._roll_back(seen, first=first):
                    return True
                self._lower(first=first)
            case "lowerLR":
                self._lower(first=first)
            case "stopGrowing":
                measures.growth_stopped = seen.message
                if first:
                    self._events.add(Kind.GROWTH_STOPPED, "the autoscaler is told to add no workers")
            case "stop":
                measures.stopped = seen.message
                if first:
                    self._events.add(Kind.STOPPED, f"training ends as failed: {seen.message}")
            case "alert" if seen.kind is Kind.RECOVERED:
                measures.growth_stopped = ""
            case _:
                pass
        return False

    def _lower(self, *, first: bool) -> None:
        factor = self._state.watch.lower()
        if first:
            self._events.add(Kind.RATE_LOWERED, f"the learning rate is {factor:.3g} of its own", factor=factor)

    def _roll_back(self, seen: Seen, *, first: bool) -> bool:
        """Goes back to the newest checkpoint from before a fault; False where there is none."""
        state, watch = self._state, self._state.watch
        checkpoints = self._checkpoints
        saved = checkpoints.newest(until=seen.fine_until)
        if saved is None:
            if first:
                words = f"there is no checkpoint from before step {seen.step}: the learning rate is lowered instead"
                self._events.add(Kind.CHECKPOINT_FAILED, words)
            return False
        parent, from_step, workers = state.lineage, state.steps, state.history.workers
        measures, batches, history = watch.measures, watch.batches, state.history.state_dict()
        state.load_state_dict(saved)
        fine = state.history.workers
        state.history.load_state_dict(history)
        state.history.turn_back()
        measures.rollbacks += 1
        watch.measures = measures
        skipped = 0
        if watch.settings.rollback.then == "skip" and seen.kind is not Kind.SLOW_DOWN:
            skipped = watch.skip(seen.step, batches)
        state.lineage = self._journal.rollback(parent, state, from_step=from_step, reason=seen.message)
        if first:
            checkpoints.withdraw(beyond=state.steps)
            words = f"back from step {from_step} to the checkpoint of step {state.steps}"
            self._events.add(Kind.ROLLED_BACK, words, from_step=from_step, to_step=state.steps, why=seen.message)
            if skipped:
                words = f"the {skipped} batches from the one before step {seen.step} on are not fed again"
                self._events.add(Kind.BATCHES_SKIPPED, words, batches=skipped)
        if not skipped:
            self._lower(first=first)
        if fine not in {0, workers}:
            self._ask_for_size(fine, workers, first=first)
        return True

    def _ask_for_size(self, fine: int, workers: int, *, first: bool) -> None:
        measures = self._state.watch.measures
        measures.size, measures.size_asked_at = fine, time.time()
        if first:
            words = f"training was fine with {counted(fine, 'worker')} and has {workers}: the autoscaler is told"
            self._events.add(Kind.SIZE_ASKED, words, size=fine, workers=workers)

    def _pass_over(self) -> None:
        state = self._state
        while not state.finished and (count := state.watch.skips.at(state.cursor)):
            ids = state.plan.ids(state.cursor, count)
            lineage = self._journal.skip(state, ids, "they led to a fault")
            state.cursor, state.lineage = state.plan.after(state.cursor, len(ids)), lineage
