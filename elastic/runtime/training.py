# SPDX-License-Identifier: Apache-2.0
"""A training loop whose workers come and go: what `elastic.runtime` gives to user code."""

from __future__ import annotations

import logging
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from kfp_volcano.elastic.runtime import draws, noise
from kfp_volcano.elastic.runtime.accumulation import Accumulation
from kfp_volcano.elastic.runtime.contract import check, checked_loss
from kfp_volcano.elastic.runtime.crew import Crew
from kfp_volcano.elastic.runtime.dealing import Dealer
from kfp_volcano.elastic.runtime.evaluation import Evaluation
from kfp_volcano.elastic.runtime.events import Events, Kind
from kfp_volcano.elastic.runtime.gradients import Gradients
from kfp_volcano.elastic.runtime.journal import Journal
from kfp_volcano.elastic.runtime.learning import Learning
from kfp_volcano.elastic.runtime.loading import Loader
from kfp_volcano.elastic.runtime.lookout import Lookout
from kfp_volcano.elastic.runtime.loss_scale import LossScale
from kfp_volcano.elastic.runtime.membership import Membership
from kfp_volcano.elastic.runtime.monitor import Monitor
from kfp_volcano.elastic.runtime.progress import Reporter
from kfp_volcano.elastic.runtime.replica_group import ReplicaGroup
from kfp_volcano.elastic.runtime.saving import saving
from kfp_volcano.elastic.runtime.settling import Settler
from kfp_volcano.elastic.runtime.shards import sharded
from kfp_volcano.elastic.runtime.state import State
from kfp_volcano.elastic.runtime.summing import exchanged
from kfp_volcano.elastic.runtime.surroundings import Surroundings, cpu_share, end_script_with_exit_code
from kfp_volcano.elastic.runtime.wishes import LEFT, Wishes
from kfp_volcano.elastic.sharding import Data, samples_of
from kfp_volcano.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch.optim.lr_scheduler import LRScheduler

    from kfp_volcano.elastic.runtime.share import Share
    from kfp_volcano.elastic.runtime.state import Stateful
    from kfp_volcano.elastic.scaling import Rule
    from kfp_volcano.elastic.sharding import Last, Order
    from kfp_volcano.schemas.batch import Batch

__all__ = ["Training"]

_FINAL_PATIENCE_S = 10.0

_log = logging.getLogger(__name__)


class Training:
    """Iterates over this process' shares of all global batches that are still to be committed.

    All workers run the same script with the same arguments. What they share is the model's and the optimizer's state,
    the cursor and what `state` names; a newcomer takes it from a peer, a restarted Job from the newest checkpoint.
    Buffers that a forward pass changes (batch norm's statistics) are each worker's own, and go to newcomers.

    Args:
        model: the module that is trained; on CUDA devices its gradients travel over NCCL, else over gloo.
        optimizer: over the parameters whose gradients are summed. Clip gradients in a hook of it
            (`optimizer.register_step_pre_hook`): they are whole only then.
        size: samples in the dataset; needed where there is no `order`.
        batch: samples in a global batch, or all there is to say of it; the TrainingJob's `elasticity.batch` comes
            before it.
        epochs: how often each sample is fed.
        lr: learning rate at the base batch, a function from samples committed to it, or a scheduler built on the
            optimizer, which takes a step for each `batch` samples; None leaves the optimizer's as it is.
        rule: how learning rate and betas follow the batch, a function of its argument alone (`elasticity.batch.rule:
            custom`).
        seed: fixes the order of the samples, with the epoch; and what is drawn at random while a share is trained.
        order: another than each sample once, shuffled (`elastic.sharding`: `blocks`, `Files`, `Mixture`, `Sequential`).
        last: what becomes of an epoch's incomplete batch: `keep`, `drop`, or `pad` (see `Share.mean`).
        reseed: whether generators are set anew before each share, so that what it draws (dropout, augmentation) does
            not depend on what was drawn before, and a run that is taken up again draws it too.
        scaler: scales the loss, for gradients in float16; `step` is given the plain loss. Gradients are divided when
            all workers' are summed; where they had overflowed, all leave that update out alike.
        state: further objects whose state belongs to the training.
        job_dir: where checkpoints, ledgers and the final model go outside a Job; None: nowhere.
        evaluate: called as `monitor.evaluate` says (by default every epoch), the model in evaluation mode and without
            gradients; returns metrics by name. Given indices below `evaluation_size` it returns means over these, and
            the workers share the work; without that size it is given nothing, and the first worker calls it.
        evaluation_size: samples of the evaluation data.

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
        batch: int | Batch | None = None,
        lr: float | Callable[[int], float] | LRScheduler | None = None,
        rule: Rule | None = None,
        seed: int = 0,
        order: Order | None = None,
        last: Last = "keep",
        reseed: bool = True,
        scaler: torch.amp.GradScaler | None = None,
        state: Mapping[str, Stateful] | None = None,
        job_dir: str | Path | None = None,
        evaluate: Callable[..., Mapping[str, float]] | None = None,
        evaluation_size: int | None = None,
    ) -> None:
        try:
            self._here = here = Surroundings.read(os.environ, job_dir=Path(job_dir) if job_dir else None)
            check(optimizer, lr, state or {})
            settings, data = here.settings, Data(samples_of(size, order), epochs, seed, last, order)
            learning = Learning(optimizer, lr, said=batch, settings=settings, rule=rule, data=data)
            self._plan = learning.plan
            self._crew = Crew(here.rank, here.processes)
            self._flat = not sharded(model, optimizer, self._crew.size)
        except SpecError:
            end_script_with_exit_code()
            raise
        if (threads := cpu_share(here, os.environ)) is not None:
            torch.set_num_threads(threads)
        self._gradients = Gradients(p for group in optimizer.param_groups for p in group["params"])
        scale = LossScale(scaler, self._gradients.device)
        self._state = State(model, optimizer, state or {}, self._plan, learning, settings.monitor, scale)
        self._parts = Accumulation()
        self._wishes = Wishes()
        self._membership = Membership(self._crew, self._wishes)
        self._dealer = Dealer(
            self._state, learning.sizing, self._membership, settings.sharding, self._crew.size, flat=self._flat
        )
        self._journal = Journal(here)
        self._events = Events(here.job_dir, owner=here.owner, position=lambda: (self.steps, self.samples))
        self._saving = saving(
            here, self._state, self._crew, self._events, sync=self._journal.sync, sharded=not self._flat
        )
        evaluation = Evaluation(evaluate, evaluation_size, together=1 if self._flat else self._crew.size)
        self._monitor = Monitor(self._state, here, self._crew, self._journal, self._saving, evaluation, self._events)
        self._lookout = Lookout(here, self._wishes, self._events, group=lambda: self._membership.group)
        self._settler = Settler(
            here,
            self._state,
            self._crew,
            self._membership,
            self._gradients,
            self._parts,
            flat=self._flat,
            journal=self._journal,
            events=self._events,
            saving=self._saving,
            monitor=self._monitor,
            lookout=self._lookout,
            wishes=self._wishes,
        )
        self._share: Share | None = None
        self._reseed = reseed

    @property
    def first(self) -> bool:
        """Whether this process is the one that evaluates, logs and prints. Changes when its worker leaves."""
        return self._membership.first

    @property
    def workers(self) -> int:
        """How many workers train now."""
        return self._membership.workers

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
            TrainingStoppedError: the watch on convergence ended the training.
            OSError: the job folder cannot be written any more.
        """
        if self._crew.any(self._saving.finished):
            _log.info("the training is finished already: its final model is in %s", self._here.job_dir)
            self._crew.part()
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

        Of a share that is fed in parts only the last one's call sums and updates; the others return False.

        Args:
            loss: the mean over this share's samples, a scalar.

        Raises:
            TypeError: the loss is no tensor.
            ValueError: it is not one number, or has nothing to do with the optimizer's parameters.
        """
        current, self._share = self._share, None
        self._lookout.answered()
        if current is None:
            raise RuntimeError("call step(loss) once for each share that the loop yields")
        self._saving.computing()
        self._parts.add(current, checked_loss(loss), self._state.scale)
        if not self._gradients.present:
            raise ValueError("the loss has a gradient, but no parameter of the optimizer has: is it of another model?")
        if not current.closes:
            if current.opens and current.attempt.world == 1 and noise.looks(current.attempt.step):
                self._parts.look(current, self._gradients.square() / self._state.scale.value**2)
            return False
        current.committed = self._settler.settle(current.attempt)
        return current.committed

    def loader(
        self,
        dataset: Any,
        *,
        workers: int = 2,
        collate: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool | None = None,
        prefetch: int = 2,
    ) -> Loader:
        """Iterates as the training itself does, over each share with its samples, fetched ahead: see `Loader`."""
        return Loader(
            self,
            dataset,
            self._plan,
            coming=self._dealer.ahead,
            seed=self._plan.seed if self._reseed else None,
            device=self._gradients.device,
            workers=workers,
            collate=collate,
            pin_memory=pin_memory,
            prefetch=prefetch,
        )

    def log(self, **values: float) -> None:
        """Records values of the present state, like the accuracy, for the report and the progress display."""
        plain = {name: float(value) for name, value in values.items()}
        self._state.log(plain)
        self._journal.metric(self._state, samples=self.samples, epoch=self.epoch, values=plain)
        self._saving.logged(plain)

    def checkpoint(self) -> None:
        """Asks for a checkpoint after the next step; the first worker writes it. SIGUSR1 does the same."""
        self._wishes.save = True

    # ------------------------------------------------------------------ the loop

    @property
    def _finished(self) -> bool:
        return self._state.finished

    def _shares(self) -> Iterator[Share]:
        here = self._membership
        while True:
            self._saving.at_rest(first=here.leads)
            self._monitor.check()
            if not self._finished and here.leaves:
                self._leave()
            if self._finished:
                if here.silent:
                    return
                # One more agreement, so that whoever missed the last step takes the state from those who have it.
                here.must_renew = True
            if here.must_renew and not self._renew():
                if self._finished:
                    return
                continue
            if self._finished:
                self._end_together()
                return
            current = self._next()
            self._state.optimizer.zero_grad(set_to_none=True)
            self._parts.begin()
            if len(current.ids) == 0:  # never where the model is sharded
                self._settler.settle(current.attempt)
                continue
            yield from self._parts_of(current)

    def _parts_of(self, current: Share) -> Iterator[Share]:
        for part in self._dealer.parts(current):
            self._share = part
            if self._reseed:
                draws.reseed(self._plan.seed, current.attempt.samples, part.ids)
            self._lookout.given()
            yield part
            if self._share is not None:
                raise RuntimeError("the share was not trained on: call step(loss) in the loop's body")

    def _end_together(self) -> None:
        """The last thing that workers do together: what the model that came out is like."""
        device = self._gradients.device
        exchange = partial(exchanged, group=self._membership.group, crew=self._crew, flat=self._flat, device=device)
        if self._monitor.last(self._membership.group, exchange) and self._membership.leads:
            self._saving.now(best=True)

    def _renew(self) -> bool:
        # Whoever else knew this state may be gone when this worker leaves instead.
        return self._membership.renew(self._state.version, finished=self._finished, parting=self._saving.now)

    def _next(self) -> Share:
        current = self._dealer.deal()
        self._monitor.told(current.attempt)  # an evaluation that is due goes before the step's own work
        self._journal.feed(current.attempt, current.ids[: current.fed])
        self._settler.given()
        return current

    # ------------------------------------------------------------------ begin and end

    def _begin(self) -> None:
        self._monitor.begin()
        here = self._here
        self._events.add(Kind.STARTED, f"{here.pod or 'a worker outside any Job'} begins to train")
        if not self._saving.restore() and self._flat:
            self._crew.level(self._state.state_dict, self._state.load_state_dict)
        self._journal.start(self._plan, self._state)
        if here.coordinator is not None:
            self._settler.reporter = Reporter(here.coordinator)
            self._membership.group = ReplicaGroup(
                crew=self._crew,
                flat=self._flat,
                coordinator=here.coordinator,
                address=here.address,
                name=here.pod,
                state=self._state.part,
                load=self._state.take_over,
                cuda=self._gradients.device.type == "cuda",
                gone=lambda: self._wishes.leave,
                events=self._events,
            )

    def _leave(self) -> None:
        self._journal.leave(self.steps, "SIGTERM")
        self._events.add(Kind.LEFT, f"left after step {self.steps}, as it was told to")
        self._crew.part()
        raise SystemExit(LEFT)

    def _finish(self) -> None:
        """Leaves the final model behind, once: the first worker writes it, the next one where it does not come."""
        group = self._membership.group
        group.close()
        self._saving.finish(_FINAL_PATIENCE_S * (group.rank // self._crew.size))
        self._journal.leave(self.steps, "finished")
        self._events.add(Kind.FINISHED, f"nothing is left to train after step {self.steps}")
        self._crew.part()

    def _release(self) -> None:
        self._membership.group.close()
        self._saving.close()
        self._lookout.close()
        if self._settler.reporter is not None:
            self._settler.reporter.close()
        self._journal.close()
        self._events.close()
