"""How fast a Job would train with a number of workers, from how fast it did. Pure.

The model is Pollux's (Qiao et al., OSDI'21, equations 7 to 11), for training that accumulates no gradients (s = 0):

    T_grad(m)    = a + b*m                       seconds to compute the gradients of m samples, on each worker
    T_sync(K, N) = 0                             K = 1 worker
                 = a_local + b_local*(K - 2)     K workers on N = 1 node
                 = a_nodes + b_nodes*(K - 2)     on more
    T_iter       = (T_grad^y + T_sync^y)^(1/y)   seconds of a step; y = 1: one after the other, 10: side by side

Its parameters are fitted in two stages, so that the Jobs of a large queue are fitted within milliseconds each:

1. For y = 1 the model is linear in all others, and so is fitted exactly, as non-negative least squares of the relative
   errors: one small problem with one answer, no start and no iteration count. Training that waits for its gradients,
   as `elastic.runtime` does, is of this kind.
2. Only where that leaves errors above `TOLERANCE`, because computing and sending overlap, all parameters are refined
   from there by L-BFGS-B on Pollux's own objective (`goodput.py` of adaptdl): RMSLE(T_grad) + RMSLE(T_iter)
   + 1e-3*(y - 1)^2 + 1e-2*((b_local/a_local)^2 + (b_nodes/a_nodes)^2), its gradient written out.

What was never seen is thought well of, as there: a faint ridge on every overhead leaves what the observations do not
tell apart to the samples' own time, so that a Job which has been seen at one size only is expected to scale perfectly;
and several nodes, never seen, are expected to cost a tenth more than one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import Bounds, minimize, nnls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from kfp_volcano.elastic.policies.snapshot import Measured

__all__ = ["TOLERANCE", "Observation", "StepTime", "fit", "observed"]

TOLERANCE = 0.02
"""Root mean square of the logarithmic errors that is left as it is: twice what observations are rounded by."""

_GRAIN = 0.01
"""Observed times are rounded to steps of 1 %: a reading that trembles is then the same observation, and its Job keeps
its model, and its size."""
_LEAST = 1e-8
_MOST_OVERLAP = 10.0
_RIDGE = 1e-2
"""Weight of the optimism beside an observation: biases a coefficient that was well observed by a ten-thousandth."""
_NODES_OVER_LOCAL = 1.1
_ENOUGH = 4
"""Observations without which an overlap is not told apart from the rest, and stage 1 is the answer."""
_STOP = {"maxiter": 40, "ftol": 1e-6}
"""Of L-BFGS-B: a millionth of the error is far below what observations are rounded by."""
_COLUMNS = 6


@dataclass(frozen=True, slots=True, order=True)
class Observation:
    """How long a step took with a number of workers."""

    workers: int
    nodes: int
    batch: int
    """Samples in the global batch."""
    step_s: float
    compute_s: float | None = None
    """What of it a worker computed for, where training told."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """A fitted model: seconds of a step."""

    base_s: float
    sample_s: float
    """Per sample of one worker's share."""
    local_s: float = 0.0
    local_more_s: float = 0.0
    """For each worker above two on one node."""
    nodes_s: float = 0.0
    nodes_more_s: float = 0.0
    overlap: float = 1.0
    """1 to 10: how far computing and sending go on side by side."""
    least_workers: int = 1
    """The fewest that were seen: a slope that several sizes show says nothing of fewer workers than those."""

    def step_s(self, workers: int, nodes: int, batch: float) -> float:
        """Seconds of a step with a global batch of so many samples.

        With fewer workers than were ever seen, no less than with those.
        """
        seconds = self._step_s(workers, nodes, batch)
        if workers < self.least_workers:
            seconds = max(seconds, self._step_s(self.least_workers, nodes, batch))
        return max(seconds, _LEAST)

    def _step_s(self, workers: int, nodes: int, batch: float) -> float:
        compute = self.base_s + self.sample_s * batch / workers
        sync = self.sync_s(workers, nodes)
        if sync <= 0:
            return compute
        longer, shorter = max(compute, sync), min(compute, sync)
        return longer * math.pow(1 + math.pow(shorter / longer, self.overlap), 1 / self.overlap)

    def sync_s(self, workers: int, nodes: int) -> float:
        """Seconds to sum gradients."""
        if workers == 1:
            return 0.0
        if nodes > 1:
            return self.nodes_s + self.nodes_more_s * (workers - 2)
        return self.local_s + self.local_more_s * (workers - 2)

    def throughput(self, workers: int, nodes: int, batch: float) -> float:
        """Samples a second."""
        return batch / self.step_s(workers, nodes, batch)


def observed(measured: Iterable[Measured]) -> tuple[Observation, ...]:
    """What a Job has measured, rounded, in an order of its own: the key under which its model is kept."""
    return tuple(
        sorted(
            {
                Observation(
                    workers=each.workers,
                    nodes=min(each.nodes, 2),
                    batch=each.batch,
                    step_s=_rounded(each.batch / each.throughput),
                    compute_s=None if each.compute_s is None else _rounded(each.compute_s),
                )
                for each in measured
                if each.throughput > 0 and each.batch > 0 and each.workers > 0
            },
            key=lambda each: (each.workers, each.nodes, each.batch, each.step_s, each.compute_s or 0.0),
        )
    )


@lru_cache(maxsize=8192)
def fit(observations: tuple[Observation, ...]) -> StepTime:
    """The model that explains at least one observation best; equal observations give equal models.

    Raises:
        ValueError: there is no observation.
    """
    if not observations:
        raise ValueError("nothing was observed")
    model = _linear(observations)
    if len(observations) >= _ENOUGH and _error(model, observations) > TOLERANCE:
        model = min((model, _refined(observations, model)), key=lambda each: _error(each, observations))
    if all(each.nodes <= 1 for each in observations):
        nodes_s, more_s = _NODES_OVER_LOCAL * model.local_s, _NODES_OVER_LOCAL * model.local_more_s
        model = replace(model, nodes_s=nodes_s, nodes_more_s=more_s)
    return replace(model, least_workers=min(each.workers for each in observations))


def _rounded(seconds: float) -> float:
    return math.exp(round(math.log(max(seconds, _LEAST)) / _GRAIN) * _GRAIN)


def _columns(observations: tuple[Observation, ...]) -> NDArray[np.float64]:
    """What each parameter but the overlap is multiplied with, by observation."""
    rows = []
    for each in observations:
        local, nodes = each.workers > 1 and each.nodes <= 1, each.workers > 1 and each.nodes > 1
        more = each.workers - 2
        rows.append([1, each.batch / each.workers, local, local * more, nodes, nodes * more])
    return np.asarray(rows, dtype=np.float64)


def _linear(observations: tuple[Observation, ...]) -> StepTime:
    """Stage 1."""
    columns = _columns(observations)
    steps = np.array([each.step_s for each in observations])
    # Each row divided by its time: errors count relative to it, and rows of computing beside those of whole steps.
    known = [index for index, each in enumerate(observations) if each.compute_s is not None]
    compute = np.array([observations[index].compute_s for index in known], dtype=np.float64).reshape(-1, 1)
    rows = columns / steps[:, None]
    computing = columns[known] * [1, 1, 0, 0, 0, 0] / np.maximum(compute, _LEAST)
    system = np.vstack([rows, computing])
    scale = np.sqrt((system**2).sum(axis=0))
    scale[scale == 0] = 1.0
    # The ridge, in units of a column's own size: on all but the time of a sample.
    ridge = np.diag([_RIDGE, 0, _RIDGE, _RIDGE, _RIDGE, _RIDGE])
    target = np.concatenate([np.ones(len(system)), np.zeros(_COLUMNS)])
    solution, _ = nnls(np.vstack([system / scale, ridge]), target)
    base, sample, local, local_more, nodes, nodes_more = (float(value) for value in solution / scale)
    return StepTime(base, sample, local, local_more, nodes, nodes_more)


def _error(model: StepTime, observations: tuple[Observation, ...]) -> float:
    """Root mean square of the logarithmic errors of the steps' times."""
    logs = (
        math.log(max(model.step_s(each.workers, each.nodes, each.batch), _LEAST) / each.step_s) for each in observations
    )
    return math.sqrt(sum(log * log for log in logs) / len(observations))


def _refined(observations: tuple[Observation, ...], start: StepTime) -> StepTime:
    """Stage 2. Parameters are counted in units of their share of a typical step, so that all are near 1."""
    columns = _columns(observations)
    steps = np.array([each.step_s for each in observations])
    compute = np.array([math.nan if each.compute_s is None else each.compute_s for each in observations])
    biggest = columns.max(axis=0)
    units = np.median(steps) / np.where(biggest > 0, biggest, 1.0)
    seen = biggest > 0
    lower = np.append(_LEAST / units, 1.0)
    upper = np.append(np.where(seen, np.inf, lower[:-1]), _MOST_OVERLAP)
    linear = (start.base_s, start.sample_s, start.local_s, start.local_more_s, start.nodes_s, start.nodes_more_s)
    guess = np.append(np.array(linear) / units, 1.0 + 1e-3)
    # A parameter that stage 1 put to nothing is given a little, for at its bound it has no slope to leave it by.
    guess[:-1] = np.where(seen, np.maximum(guess[:-1], 1e-3), lower[:-1])
    found = minimize(
        _objective,
        np.clip(guess, lower, upper),
        args=(columns * units, steps, compute, units),
        jac=True,
        bounds=Bounds(lower, upper),
        method="L-BFGS-B",
        options=_STOP,
    )
    base, sample, local, local_more, nodes, nodes_more = (float(value) for value in found.x[:-1] * units)
    return StepTime(base, sample, local, local_more, nodes, nodes_more, float(found.x[-1]))


def _objective(
    scaled: NDArray[np.float64],
    columns: NDArray[np.float64],
    steps: NDArray[np.float64],
    compute: NDArray[np.float64],
    units: NDArray[np.float64],
) -> tuple[float, NDArray[np.float64]]:
    """Pollux's objective, and its gradient by the scaled parameters."""
    values, overlap = scaled[:-1], scaled[-1]
    grad = np.maximum(columns[:, :2] @ values[:2], _LEAST)
    sync = np.maximum(columns[:, 2:] @ values[2:], _LEAST)
    log_grad, log_sync = np.log(grad), np.log(sync)
    log_step = np.logaddexp(overlap * log_grad, overlap * log_sync) / overlap
    # How much of a step's logarithm hangs on each of its two parts; the two sum to 1.
    part = np.exp(overlap * (log_grad - log_step))
    error, pull = _rmse(log_step - np.log(steps))
    gradient = np.zeros_like(scaled)
    gradient[:2] = (pull * part / grad) @ columns[:, :2]
    gradient[2:-1] = (pull * (1 - part) / sync) @ columns[:, 2:]
    gradient[-1] = pull @ ((part * log_grad + (1 - part) * log_sync - log_step) / overlap)
    known = ~np.isnan(compute)
    if known.any():
        more, pull = _rmse(log_grad[known] - np.log(compute[known]))
        error += more
        gradient[:2] += (pull / grad[known]) @ columns[known, :2]
    error += 1e-3 * (overlap - 1) ** 2
    gradient[-1] += 2e-3 * (overlap - 1)
    for first in (2, 4):
        ratio = values[first + 1] * units[first + 1] / (values[first] * units[first])
        error += 1e-2 * ratio**2
        gradient[first] -= 2e-2 * ratio**2 / values[first]
        gradient[first + 1] += 2e-2 * ratio**2 / values[first + 1]
    return float(error), gradient


def _rmse(errors: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    """Root mean square, and its gradient by each error; never quite 0, where it has no gradient."""
    value = math.sqrt(float(errors @ errors) / len(errors) + 1e-12)
    return value, errors / (len(errors) * value)
