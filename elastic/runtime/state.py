"""What all workers share: handed to newcomers, written to checkpoints."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Protocol

from kfp_volcano.elastic.runtime.noise import NoiseScale
from kfp_volcano.elastic.runtime.progress import History
from kfp_volcano.elastic.runtime.trend import Trend
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
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, others: Mapping[str, Stateful], lineage: str
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.lineage = lineage
        """Digest of all attempts that led here (`elastic.ledger`)."""
        self.steps = 0
        """Global batches committed: the cursor."""
        self.metrics: dict[str, float] = {}
        """The latest values logged."""
        self.history = History()
        self.noise = NoiseScale()
        self.trend = Trend()
        self._others = dict(others)

    def committed(
        self, attempt: Attempt, lineage: str, rows: Sequence[Row], total: Total | None, *, plan: Plan, at: float
    ) -> None:
        """Counts a step that all workers have committed, and keeps what it tells."""
        if total is not None and total.parts:
            self.noise.add([row.count for row in rows], total.parts, total.whole)
        self.steps, self.lineage = attempt.step + 1, lineage
        self.trend.add(sum(row.loss for row in rows))
        self.history.commit(
            step=self.steps,
            samples=plan.samples(self.steps),
            workers=attempt.world,
            at=at,
            batch=attempt.count if attempt.count == plan.batch else None,
            nodes=len({row.node for row in rows}),
            summed_s=min(row.summed_s for row in rows),
        )

    def progress(self, plan: Plan, *, workers: int, loss: float, lr: float) -> Progress:
        """Where training stands."""
        return Progress(
            step=self.steps,
            total_steps=plan.steps,
            samples=plan.samples(self.steps),
            epoch=plan.epoch(max(0, self.steps - 1)),
            throughput=self.history.throughput,
            workers=workers,
            batch=plan.batch,
            lr=lr,
            at=time.time(),
            loss=loss if math.isfinite(loss) else None,
            metrics=dict(self.metrics),
            changes=self.history.changes,
            measured=self.history.measured,
            noise_scale=self.noise.samples,
            trend=self.trend.told,
        )

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
                "lineage": self.lineage,
                "metrics": dict(self.metrics),
                "history": self.history.state_dict(),
                "noise": self.noise.state_dict(),
                "trend": self.trend.state_dict(),
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
        self.metrics = dict(training["metrics"])
        self.history.load_state_dict(training["history"])
        for name, part in (("noise", self.noise), ("trend", self.trend)):
            if name in training:  # not in older checkpoints
                part.load_state_dict(training[name])
