"""A training loop whose workers come and go: what `elastic.runtime` gives to user code."""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from kfp_volcano.elastic import ledger
from kfp_volcano.elastic.runtime import noise
from kfp_volcano.elastic.runtime.checkpoints import Checkpoints, Final, copy_to_cpu
from kfp_volcano.elastic.runtime.gradients import Gradients, Total
from kfp_volcano.elastic.runtime.group import Group, Solo
from kfp_volcano.elastic.runtime.journal import Journal
from kfp_volcano.elastic.runtime.message import Decision, Flag, Row
from kfp_volcano.elastic.runtime.progress import Reporter
from kfp_volcano.elastic.runtime.replica_group import SILENCE_S, ReplicaGroup
from kfp_volcano.elastic.runtime.share import Attempt, Share
from kfp_volcano.elastic.runtime.state import State
from kfp_volcano.elastic.runtime.surroundings import Surroundings, cpu_share, end_script_with_exit_code
from kfp_volcano.elastic.runtime.wishes import Wishes
from kfp_volcano.elastic.scaling import scale
from kfp_volcano.elastic.sharding import apportion, cut
from kfp_volcano.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kfp_volcano.elastic.runtime.state import Stateful
    from kfp_volcano.elastic.sharding import Last, Order

__all__ = ["LEFT", "Training"]

LEFT = 128 + signal.SIGTERM
"""Exit code of a worker that left an unfinished training: 143, as of any process that a SIGTERM ended.

Not 0: Volcano counts a pod that succeeded towards its task's completion, and a drained node would "complete" the gang
of an unfinished Job. A pod being deleted is not restarted whatever its code, and one that was only signalled should be.
"""

_BACKOFF_S = 0.05
_FINAL_PATIENCE_S = 10.0

_log = logging.getLogger(__name__)


class Training:
    """Iterates over this worker's shares of all global batches that are still to be committed.

    All workers run the same script with the same arguments. What they share is the model's and the optimizer's state,
    the cursor and what `state` names; a newcomer takes it from a peer, a restarted Job from the newest checkpoint.
    Buffers that a forward pass changes (batch norm's statistics) are each worker's own, and go to newcomers.

    Args:
        model: the module that is trained; on CUDA devices its gradients travel over NCCL, else over gloo.
        optimizer: over the parameters whose gradients are summed. Clip gradients in a hook of it
            (`optimizer.register_step_pre_hook`): they are whole only then.
        size: samples in the dataset; needed where there is no `order`.
        batch: samples in a global batch; the TrainingJob's `elasticity.batch.global` comes before it.
        epochs: how often each sample is fed.
        lr: learning rate, or a function from samples committed to it; None leaves the optimizer's alone.
        seed: fixes the order of the samples, with the epoch.
        order: which samples an epoch feeds in which order (`kfp_volcano.elastic.sharding`: `blocks` and `Files` for
            datasets on disk, `Mixture` for classes in proportion); None: each once, shuffled. `size` is its own then.
        last: what becomes of an epoch's last batch where it is smaller: `keep`, `drop`, or `pad` (see `Share.mean`).
        state: further objects whose state belongs to the training.
        job_dir: where checkpoints, ledgers and the final model go outside a Job; None: nowhere.

    Raises:
        SpecError: an argument or the environment is wrong. Uncaught, it ends the script with exit code 2.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        size: int | None = None,
        epochs: int,
        batch: int | None = None,
        order: Order | None = None,
        last: Last = "keep",
        lr: float | Callable[[int], float] | None = None,
        seed: int = 0,
        state: Mapping[str, Stateful] | None = None,
        job_dir: str | Path | None = None,
    ) -> None:
        try:
            self._here = Surroundings.read(os.environ, job_dir=None if job_dir is None else Path(job_dir))
            self._plan = self._here.plan(size=size, batch=batch, epochs=epochs, seed=seed, last=last, order=order)
        except SpecError:
            end_script_with_exit_code()
            raise
        threads = cpu_share(self._here, os.environ)
        if threads is not None:
            torch.set_num_threads(threads)
        self._state = State(model, optimizer, state or {}, self._plan)
        self._lr = lr
        self._gradients = Gradients(p for group in optimizer.param_groups for p in group["params"])
        self._group: Group = Solo()
        self._journal = Journal(self._here)
        self._reporter: Reporter | None = None
        self._checkpoints: Checkpoints | None = None
        self._final: Final | None = None
        if self._here.job_dir is not None:
            keep = self._here.settings.checkpoint_keep
            self._checkpoints = Checkpoints(self._here.job_dir / "checkpoints", keep=keep, owner=self._here.owner)
            self._final = Final(self._here.job_dir / "final", owner=self._here.owner)
        self._share: Share | None = None
        self._saved_at = time.monotonic()
        self._wishes = Wishes()
        self._node, self._worker = Row.number_of(self._here.node), Row.number_of(self._here.owner)
        self._summed_s = self._computed_s = self._given_at = 0.0
        # What the last step decided.
        self._must_renew = True
        self._parting = False
        self._stray = False
        self._silent_since: float | None = None

    @property
    def first(self) -> bool:
        """Whether this worker is the one that evaluates, logs and prints. Changes when that worker leaves."""
        return self._group.rank == 0

    @property
    def workers(self) -> int:
        """How many workers train now."""
        return self._group.world

    @property
    def steps(self) -> int:
        """Global batches committed so far, over all epochs."""
        return self._state.steps

    @property
    def samples(self) -> int:
        """Samples committed so far, over all epochs."""
        return self._state.samples

    @property
    def epoch(self) -> int:
        """The epoch, from 0, of the last committed batch."""
        return self._state.epoch

    def __iter__(self) -> Iterator[Share]:
        """Yields shares until every batch is committed; each must be answered by one call of `step`.

        Raises:
            SystemExit: this worker was told to leave (SIGTERM) before the end; with code `LEFT`.
            OSError: the job folder cannot be written any more.
        """
        if self._final is not None and self._final.exists():
            _log.info("the training is finished already: its final model is in %s", self._here.job_dir)
            return
        with self._wishes.listening():
            self._begin()
            try:
                yield from self._shares()
                self._finish()
            finally:
                self._release()

    def step(self, loss: torch.Tensor) -> bool:
        """Backward pass, sum over all workers, update. True if the batch counts; else the loop yields it again.

        Args:
            loss: the mean over this share's samples, a scalar.
        """
        current, self._share = self._share, None
        if current is None:
            raise RuntimeError("call step(loss) once for each share that the loop yields")
        attempt = current.attempt
        weight = attempt.mine / attempt.count
        torch.autograd.backward(loss if attempt.world == 1 else loss * weight)
        value = float(loss.detach()) * weight  # on a GPU this waits for the backward pass too
        self._computed_s = time.perf_counter() - self._given_at
        current.committed = self._settle(attempt, value)
        return current.committed

    def log(self, **values: float) -> None:
        """Records values of the present state, like the accuracy, for the report and the progress display."""
        plain = {name: float(value) for name, value in values.items()}
        self._state.metrics.update(plain)
        self._journal.metric(self._state, samples=self.samples, epoch=self.epoch, values=plain)

    def checkpoint(self) -> None:
        """Asks for a checkpoint after the next step; the first worker writes it. SIGUSR1 does the same."""
        self._wishes.save = True

    # ------------------------------------------------------------------ the loop

    @property
    def _finished(self) -> bool:
        return self._state.finished

    @property
    def _batch(self) -> int:
        """Samples in the global batch of as many workers as there are."""
        return self._plan.batch

    def _shares(self) -> Iterator[Share]:
        while True:
            not_yet_joined = self._group.rendezvous == ""
            if not self._finished and (self._parting or (self._wishes.leave and not_yet_joined)):
                self._leave()
            if self._finished:
                if self._silent_since is not None:
                    return
                # One more agreement, so that whoever missed the last step takes the state from those who have it.
                self._must_renew = True
            if self._must_renew and not self._renew():
                if self._finished:
                    return
                continue
            if self._finished:
                self._group.add([torch.zeros(1, device=self._gradients.device)])
                return
            current = self._next()
            self._state.optimizer.zero_grad(set_to_none=True)
            if len(current.ids) == 0:
                self._settle(current.attempt, 0.0)
                continue
            self._share, self._given_at = current, time.perf_counter()
            yield current
            if self._share is not None:
                raise RuntimeError("the share was not trained on: call step(loss) in the loop's body")

    def _renew(self) -> bool:
        step = -1 if self._stray else self.steps
        if not self._group.renew(step, patient=not self._finished):
            if self._wishes.leave and not self._parting:
                self._parting = True
                self._save(wait=True)  # whoever knew this state may be gone
            time.sleep(_BACKOFF_S)
            return False
        self._must_renew = self._stray = False
        return True

    def _next(self) -> Share:
        step, group = self.steps, self._group
        cursor = self._state.cursor
        part = cut(self._plan, cursor, self._batch, self._share_out, group.rank)
        attempt = Attempt(
            digest=ledger.attempt_digest(self._state.lineage, group.rendezvous, step),
            step=step,
            epoch=cursor.epoch,
            parent=self._state.lineage,
            world=group.world,
            rank=group.rank,
            rendezvous=group.rendezvous,
            counts=part.counts,
        )
        ids = part.ids(self._plan)
        self._journal.feed(attempt, ids[: attempt.mine])
        return Share(ids=ids.copy(), padding=part.padding, epoch=attempt.epoch, attempt=attempt, last=part.last)

    def _share_out(self, count: int) -> list[int]:
        world = self._group.world
        if self._here.settings.sharding == "proportional":
            return self._state.pace.shares(count, rendezvous=self._group.rendezvous, world=world)
        return apportion(count, [1.0] * world)

    def _settle(self, attempt: Attempt, loss: float) -> bool:
        """Sums, and commits or discards; decides, as every worker does, what comes next."""
        row = Row(
            state=Row.state_of(self._state.lineage),
            flags=self._flags(),
            silent_s=self._silent_s(),
            count=attempt.mine,
            loss=loss,
            node=self._node,
            summed_s=self._summed_s,
            worker=self._worker,
            computed_s=self._computed_s,
        )
        began = time.perf_counter()
        total = self._gradients.total(
            row.numbers(), attempt.rank, attempt.world, self._group.add, lengths=attempt.step % noise.EVERY == 0
        )
        self._summed_s = time.perf_counter() - began
        rows = [Row.of(values) for values in total.rows] if total else []
        reason = Row.disagreement(rows, attempt.counts)
        if reason:
            self._stray = bool(rows) and rows[0].state != row.state
            self._discard(attempt, reason)
            return False
        self._group.settle(ok=True)
        self._commit(attempt, rows, total)
        self._decide(rows)
        return True

    def _flags(self) -> Flag:
        flags = Flag(0)
        if self._wishes.leave:
            flags |= Flag.LEAVING
        if self._group.rank == 0 and self._group.due():
            flags |= Flag.RENEW
        overdue = time.monotonic() - self._saved_at >= self._here.settings.checkpoint_every_s
        if self._wishes.save or (self._group.rank == 0 and overdue):
            flags |= Flag.SAVE
        return flags

    def _silent_s(self) -> float:
        return 0.0 if self._silent_since is None else time.monotonic() - self._silent_since

    def _commit(self, attempt: Attempt, rows: list[Row], total: Total | None) -> None:
        now, loss = time.time(), sum(row.loss for row in rows)
        samples = self._plan.samples(self._plan.after(self._state.cursor, attempt.count))
        lineage = self._journal.commit(attempt, loss=loss, samples=samples, at=now)
        lr = self._set_lr()
        self._state.optimizer.step()
        self._state.committed(attempt, lineage, rows, total, batch=self._batch, at=now)
        if self.first and self._reporter is not None and (self._reporter.due() or self._finished):
            self._reporter.offer(self._state.progress(workers=self.workers, batch=self._batch, loss=loss, lr=lr))

    def _discard(self, attempt: Attempt, reason: str) -> None:
        _log.info("step %d is done again: %s", attempt.step, reason)
        self._journal.discard(attempt, reason)
        self._state.history.discard()
        self._group.settle(ok=False, reason=reason)
        self._must_renew = True
        self._parting = self._silent_since is not None

    def _decide(self, rows: list[Row]) -> None:
        decision = Decision.of(rows, silence_s=SILENCE_S)
        if Flag.LEAVING in rows[self._group.rank].flags:
            self._parting = decision.part
            if not decision.part and self._silent_since is None:
                self._group.fall_silent()
                self._silent_since = time.monotonic()
        self._must_renew = decision.renew
        if decision.save:
            self._saved_at = time.monotonic()
            self._wishes.save = False
            if self.first:
                self._save(wait=decision.everyone)

    def _set_lr(self) -> float:
        if self._lr is not None:
            base = self._lr(self.samples) if callable(self._lr) else self._lr
            lr = scale("constant", batch=self._plan.batch, lr=base, workers=self.workers).lr
            for group in self._state.optimizer.param_groups:
                group["lr"] = lr
        return float(self._state.optimizer.param_groups[0]["lr"])

    def _save(self, *, wait: bool) -> None:
        if self._checkpoints is not None:
            state = copy_to_cpu(self._state.state_dict())
            started = self._checkpoints.save(state, self._state.about(), before=self._journal.sync, wait=wait)
            self._wishes.save = not started

    # ------------------------------------------------------------------ begin and end

    def _begin(self) -> None:
        here = self._here
        saved = None if self._checkpoints is None else self._checkpoints.newest()
        if saved is not None:
            self._state.load_state_dict(saved)
            _log.info("going on from the checkpoint after step %d", self.steps)
        self._journal.start(self._plan, self._state)
        if here.coordinator is not None:
            self._reporter = Reporter(here.coordinator)
            self._group = ReplicaGroup(
                coordinator=here.coordinator,
                address=here.address,
                name=here.pod,
                state=self._state.state_dict,
                load=self._state.load_state_dict,
                cuda=self._gradients.device.type == "cuda",
                gone=lambda: self._wishes.leave,
            )

    def _leave(self) -> None:
        self._journal.leave(self.steps, "SIGTERM")
        _log.info("left after step %d", self.steps)
        raise SystemExit(LEFT)

    def _finish(self) -> None:
        """Leaves the final model behind, once: the first worker writes it, the next one where it does not come."""
        self._group.close()
        if self._final is not None and not self._final.wait(_FINAL_PATIENCE_S * self._group.rank):
            self._journal.sync()
            self._final.write(self._state.model, self._state.about(final=True))
        self._journal.leave(self.steps, "finished")

    def _release(self) -> None:
        self._group.close()
        if self._reporter is not None:
            self._reporter.close()
        self._journal.close()
