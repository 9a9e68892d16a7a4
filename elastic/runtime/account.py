# SPDX-License-Identifier: Apache-2.0
"""What a training's state says of itself to others: in the progress record, and in manifests."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic import ledger
from kfp_volcano.schemas.records import Progress, Watched

if TYPE_CHECKING:
    from kfp_volcano.elastic.runtime.state import State

__all__ = ["about", "progress"]


def progress(state: State, *, workers: int, batch: int, loss: float, lr: float, at: float) -> Progress:
    """Where training stands, for the record on the Job.

    Args:
        state: the training's.
        workers: that train.
        batch: samples of the last step.
        loss: of the last step.
        lr: learning rate of the last step.
        at: Unix seconds.
    """
    return Progress(
        step=state.steps,
        total_steps=state.steps + state.plan.steps_left(state.cursor, batch),
        samples=state.samples,
        epoch=state.epoch,
        throughput=state.history.throughput,
        workers=workers,
        batch=batch,
        lr=lr,
        at=at,
        loss=loss if math.isfinite(loss) else None,
        metrics=dict(state.metrics),
        changes=state.history.changes,
        measured=state.history.measured,
        noise_scale=state.noise.samples,
        trend=state.trend.told,
        watched=_watched(state),
    )


def _watched(state: State) -> Watched | None:
    """What the watch has done; None where that is nothing."""
    done = state.watch.measures
    if not (done.rollbacks or done.growth_stopped or done.size or done.lr_factor < 1):
        return None
    return Watched(
        rollbacks=done.rollbacks,
        lr_factor=done.lr_factor,
        growth_stopped=done.growth_stopped,
        size=done.size,
        size_asked_at=done.size_asked_at,
    )


def about(state: State, *, final: bool = False) -> dict[str, Any]:
    """What a manifest says of a state; that of the final model also which samples were due more often than others."""
    order = state.plan.order
    due = order.due(state.plan.seed, state.plan.epochs) if final and order is not None else None
    return {
        "lineage": state.lineage,
        "step": state.steps,
        "samples": state.samples,
        "epochs": state.plan.epochs,
        "size": state.plan.size,
        "batch": state.plan.batch,
        "seed": state.plan.seed,
        "last": state.plan.last,
        "metrics": dict(state.metrics),
        "logged": dict(state.logged),
        "cursor": {"epoch": state.cursor.epoch, "position": state.cursor.position},
        "lr": [float(group["lr"]) for group in state.optimizer.param_groups],
        "lr_basis": state.learning.basis(state.samples),
        **({} if state.scale.value == 1.0 else {"loss_scale": state.scale.value}),
        "workers": state.history.workers,
        "changes": [asdict(change) for change in state.history.changes],
        **({"stopped_early": state.stopped_early} if state.stopped_early else {}),
        **({} if due is None else {"due": ledger.due_text(due)}),
    }
