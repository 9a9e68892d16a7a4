"""What all workers share: handed to newcomers, written to checkpoints."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Protocol

from kfp_volcano.elastic import ledger
from kfp_volcano.elastic.runtime.noise import NoiseScale
from kfp_volcano.elastic.runtime.progress import History
from kfp_volcano.elastic.runtime.trend import Trend
from kfp_volcano.elastic.sharding import Cursor, Pace
from kfp_volcano.elastic.tally import due_text
from kfp_volcano.schemas.records import Progress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from kfp_volcano.elastic.runtime.gradients import Total
    from kfp_volcano.elastic.runtime.message import Row
    from kfp_volcano.elastic.runtime.share import Attempt
    from kfp_volcano.elastic.sharding import Plan

__all__ = ["State", "Stateful"]


class Stateful(Protocol):
    """Anything with a state to hand over, like a learning rate scheduler."""

    def state_dict(self) -> dict[str, Any]:
        """The state, of tensors and plain values."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over a state."""


class State:
    """The model, its optimizer and how far training has come."""

    def __init__(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, others: Mapping[str, Stateful], plan: Plan
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.plan = plan
        self.lineage = ledger.genesis(seed=plan.seed, size=plan.size, batch=plan.batch, epochs=plan.epochs)
        """Digest of all attempts that led here (`elastic.ledger`)."""
        self.steps = 0
        """Global batches committed."""
        self.cursor = Cursor()
        self.metrics: dict[str, float] = {}
        """The latest values logged."""
        self.history = History()
        self.noise = NoiseScale()
        self.trend = Trend()
        self.pace = Pace()
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
        return self.plan.finished(self.cursor)

    def committed(
        self, attempt: Attempt, lineage: str, rows: Sequence[Row], total: Total | None, *, batch: int, at: float
    ) -> None:
        """Counts a step that all workers have committed, and keeps what it tells."""
        if total is not None and total.parts:
            self.noise.add([row.count for row in rows], total.parts, total.whole)
        self.steps, self.lineage = attempt.step + 1, lineage
        self.cursor = self.plan.after(self.cursor, attempt.count)
        self.trend.add(sum(row.loss for row in rows))
        self.pace.committed(attempt.rendezvous, [(row.worker, row.count, row.computed_s) for row in rows])
        self.history.commit(
            step=self.steps,
            samples=self.samples,
            workers=attempt.world,
            at=at,
            batch=attempt.count if attempt.count == batch else None,
            nodes=len({row.node for row in rows}),
            summed_s=min(row.summed_s for row in rows),
        )

    def progress(self, *, workers: int, batch: int, loss: float, lr: float) -> Progress:
        """Where training stands."""
        return Progress(
            step=self.steps,
            total_steps=self.steps + self.plan.steps_left(self.cursor, batch),
            samples=self.samples,
            epoch=self.epoch,
            throughput=self.history.throughput,
            workers=workers,
            batch=batch,
            lr=lr,
            at=time.time(),
            loss=loss if math.isfinite(loss) else None,
            metrics=dict(self.metrics),
            changes=self.history.changes,
            measured=self.history.measured,
            noise_scale=self.noise.samples,
            trend=self.trend.told,
        )

    def about(self, *, final: bool = False) -> dict[str, Any]:
        """What a manifest says of it; that of the final model also which samples were due more often than others."""
        order = self.plan.order
        due = order.due(self.plan.seed, self.plan.epochs) if final and order is not None else None
        told = {} if due is None else {"due": due_text(due)}
        return {
            "lineage": self.lineage,
            "step": self.steps,
            "samples": self.samples,
            "epochs": self.plan.epochs,
            "size": self.plan.size,
            "batch": self.plan.batch,
            "seed": self.plan.seed,
            "last": self.plan.last,
            "metrics": self.metrics,
            **told,
        }

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
                "history": self.history.state_dict(),
                "noise": self.noise.state_dict(),
                "trend": self.trend.state_dict(),
                "pace": self.pace.state_dict(),
            },
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over another worker's state, or a checkpoint's."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        for name, other in self._others.items():
            other.load_state_dict(state["others"][name])
        training = state["training"]
        self.steps, self.lineage = training["steps"], training["lineage"]
        # Checkpoints of versions before 0.2 count steps alone, all of one size.
        self.cursor = Cursor(*training["cursor"]) if "cursor" in training else self.plan.after_steps(self.steps)
        self.metrics = dict(training["metrics"])
        self.history.load_state_dict(training["history"])
        for name, part in (("noise", self.noise), ("trend", self.trend), ("pace", self.pace)):
            if name in training:  # not in older checkpoints
                part.load_state_dict(training[name])
