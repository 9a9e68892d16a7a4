"""What all workers share: handed to newcomers, written to checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from kfp_volcano.elastic.runtime.progress import History

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

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
        self._others = dict(others)

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
