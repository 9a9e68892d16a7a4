# SPDX-License-Identifier: Apache-2.0
"""What all workers share: handed to newcomers, written to checkpoints."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

from kfp_volcano.elastic import ledger
from kfp_volcano.elastic.monitoring import Evaluations, Watch
from kfp_volcano.elastic.runtime import shards
from kfp_volcano.elastic.runtime.checkpoints.pieces import put_back
from kfp_volcano.elastic.runtime.noise import NoiseScale
from kfp_volcano.elastic.runtime.progress import History
from kfp_volcano.elastic.runtime.trend import Trend
from kfp_volcano.elastic.sharding import Cursor, Pace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from kfp_volcano.elastic.runtime.accumulation import FirstPart
    from kfp_volcano.elastic.runtime.gradients import Total
    from kfp_volcano.elastic.runtime.learning import Learning
    from kfp_volcano.elastic.runtime.loss_scale import LossScale
    from kfp_volcano.elastic.runtime.message import Row
    from kfp_volcano.elastic.runtime.share import Attempt
    from kfp_volcano.elastic.sharding import Plan
    from kfp_volcano.schemas.monitor import Monitor

__all__ = ["State", "Stateful"]


class Stateful(Protocol):
    """Anything with a state to hand over, like a learning rate scheduler."""

    def state_dict(self) -> dict[str, Any]:
        """The state, of tensors and plain values."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over a state."""


class _Part(Protocol):
    """A part of the state that takes over another worker's."""

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


_ROLLBACK = 1 << 40
"""By which a rollback raises the version: more than a training has steps."""


class State:
    """The model, its optimizer and how far training has come."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        others: Mapping[str, Stateful],
        plan: Plan,
        learning: Learning,
        monitor: Monitor,
        scale: LossScale,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.plan = plan
        self.learning = learning
        self.lineage = ledger.genesis(seed=plan.seed, size=plan.size, batch=plan.batch, epochs=plan.epochs)
        """Digest of all attempts that led here (`elastic.ledger`)."""
        self.steps = 0
        """Global batches committed."""
        self.cursor = Cursor()
        self.metrics: dict[str, float] = {}
        """The latest values logged."""
        self.logged: dict[str, int] = {}
        """After which step each of them was."""
        self.history = History()
        self.noise = NoiseScale()
        self.trend = Trend()
        self.pace = Pace()
        self.watch = Watch(monitor)
        self.evaluations = Evaluations(monitor.evaluate)
        self.stopped_early = ""
        """Why nothing more is to be committed before all epochs are; empty otherwise."""
        self.scale = scale
        self._others = dict(others)

    @property
    def samples(self) -> int:
        """Samples committed, over all epochs."""
        return self.plan.samples(self.cursor)

    @property
    def epoch(self) -> int:
        """The epoch, from 0, of the last committed batch."""
        return self.cursor.epoch - 1 if self.cursor.position == 0 and self.steps else self.cursor.epoch

    @property
    def finished(self) -> bool:
        """Whether nothing is left to commit."""
        return bool(self.stopped_early) or self.plan.finished(self.cursor)

    @property
    def version(self) -> int:
        """Grows with each step and each rollback: whoever has the lower one takes the other's state."""
        return self.watch.measures.rollbacks * _ROLLBACK + self.steps

    def committed(
        self,
        attempt: Attempt,
        lineage: str,
        rows: Sequence[Row],
        total: Total | None,
        *,
        first: FirstPart | None,
        batch: int,
        at: float,
    ) -> None:
        """Counts a step that all workers have committed, and keeps what it tells."""
        if total is not None and total.parts and total.whole is not None:
            each = len(rows) // len(total.parts)  # one part is of a worker where its processes share the gradient
            counts = [sum(row.count for row in rows[start : start + each]) for start in range(0, len(rows), each)]
            self.noise.add(counts, total.parts, total.whole)
        elif first is not None and total is not None and total.whole is not None:
            self.noise.add_first(first.count, attempt.count, first.square, total.whole)
        self.steps, self.lineage = attempt.step + 1, lineage
        self.cursor = self.plan.after(self.cursor, attempt.count)
        self.trend.add(sum(row.loss for row in rows))
        self.pace.committed(attempt.rendezvous, [(row.worker, row.count, row.computed_s) for row in rows])
        self.history.commit(
            step=self.steps,
            samples=self.samples,
            workers=attempt.workers,
            at=at,
            batch=attempt.count if attempt.count == batch else None,
            nodes=len({row.node for row in rows}),
            summed_s=min(row.summed_s for row in rows),
        )

    def log(self, values: Mapping[str, float]) -> None:
        """Notes values of the present state."""
        self.metrics.update(values)
        self.logged.update(dict.fromkeys(values, self.steps))

    def state_dict(self) -> dict[str, Any]:
        """All of it; shares the tensors that only an update changes."""
        model = dict(self.model.state_dict())
        # A forward pass changes buffers, and may run while a newcomer fetches them.
        for name, buffer in self.model.named_buffers():
            if name in model:
                model[name] = buffer.detach().clone()
        return {
            "model": model,
            "optimizer": self.optimizer.state_dict(),
            "others": {name: other.state_dict() for name, other in self._others.items()},
            "training": {
                "steps": self.steps,
                "cursor": [self.cursor.epoch, self.cursor.position],
                "lineage": self.lineage,
                "metrics": dict(self.metrics),
                "logged": dict(self.logged),
                "history": self.history.state_dict(),
                "noise": self.noise.state_dict(),
                "trend": self.trend.state_dict(),
                "pace": self.pace.state_dict(),
                "watch": self.watch.state_dict(),
                "evaluations": self.evaluations.state_dict(),
                "stopped_early": self.stopped_early,
                "learning": self.learning.state_dict(),
                "scale": self.scale.state_dict(),
            },
        }

    def warm_start(self, state: dict[str, Any]) -> None:
        """Takes over another training's model, and of the optimizer and the rest what is there; not how far it came."""
        own = self.optimizer.state_dict()
        model, optimizer = shards.fitted(state["model"], state.get("optimizer", own), self.model, self.optimizer)
        self.model.load_state_dict(model)
        if "optimizer" in state:
            self.optimizer.load_state_dict(optimizer)
        for name, other in self._others.items():
            if name in state.get("others", {}):
                other.load_state_dict(state["others"][name])

    def filled(self, frame: dict[str, Any], fill: Callable[[Mapping[str, torch.Tensor]], None]) -> dict[str, Any]:
        """A sharded checkpoint's state for `load_state_dict` and `warm_start`.

        Args:
            frame: the state without what is sharded.
            fill: reads that into tensors by name; this process takes what it needs.
        """
        tensors: dict[str, torch.Tensor] = {}
        state: dict[str, Any] = put_back(frame, shards.room(self.model, self.optimizer), tensors)
        fill(tensors)
        return state

    def part(self) -> dict[str, Any]:
        """What a process of the same rank in another worker needs of it."""
        return shards.to_local(self.state_dict())  # type: ignore[no-any-return]

    def whole(self) -> dict[str, Any]:
        """All of it, without shards; the processes of a worker have to ask for it together."""
        return shards.to_whole(self.state_dict())  # type: ignore[no-any-return]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what another worker's process has, or a checkpoint."""
        model, optimizer = shards.fitted(state["model"], state["optimizer"], self.model, self.optimizer)
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)
        for name, other in self._others.items():
            other.load_state_dict(state["others"][name])
        training = state["training"]
        self.steps, self.lineage = training["steps"], training["lineage"]
        # Checkpoints of versions before 0.2 count steps alone, all of one size.
        self.cursor = Cursor(*training["cursor"]) if "cursor" in training else self.plan.after_steps(self.steps)
        self.metrics = dict(training["metrics"])
        self.logged = dict(training.get("logged", {}))  # not in older checkpoints, as those below
        self.history.load_state_dict(training["history"])
        self.stopped_early = training.get("stopped_early", "")
        parts: dict[str, _Part] = {"noise": self.noise, "trend": self.trend, "learning": self.learning}
        parts |= {"watch": self.watch, "evaluations": self.evaluations, "pace": self.pace}
        parts["scale"] = self.scale
        for name, part in parts.items():
            if name in training:  # not in older checkpoints
                part.load_state_dict(training[name])

    def take_over(self, state: dict[str, Any]) -> None:
        """Takes over another worker's present state; its clock may differ from this one's."""
        self.load_state_dict(state)
        self.history.shift(time.time() - state["training"]["history"]["told_at"])
