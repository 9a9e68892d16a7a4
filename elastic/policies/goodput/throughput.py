# SPDX-License-Identifier: Apache-2.0
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
2. Only where that leaves errors above `TOLERANCE`, because computing and sending overlap, some overlaps y are tried,
   each by a few Gauss-Newton steps: the model's logarithm is made linear where it stands, and that is a least-squares
   problem as before. What is made small is Pollux's RMSLE(T_grad) + RMSLE(T_iter) + 1e-3*(y - 1)^2; the L-BFGS-B that
   is used there comes to the same errors, but its small matrices wake all cores, which takes long where these are
   busy.

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
from scipy.optimize import nnls

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
_RIDGE = 1e-2
"""Weight of the optimism beside an observation: biases a coefficient that was well observed by a ten-thousandth."""
_STEEP = 4e-2
"""The same on what each worker more costs: what one number of workers shows is put down to being several, rather than
to being so many (in Pollux, the regularisation of these slopes)."""
_NODES_OVER_LOCAL = 1.1
_ENOUGH = 4
"""Observations without which an overlap is not told apart from the rest, and stage 1 is the answer."""
_OVERLAPS = (1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0)
"""Those that are tried: the error changes little between one and the next."""
_OVERLAP_COSTS = 1e-3
"""Pollux' regularisation of the overlap."""
_PATIENCE = 2
"""So many in a row that are no better end the search: the error has one valley."""
_STEPS = 6
_SOMEWHAT = 1e-3
_PROGRESS = 1e-3
"""What a step must improve the error by, relative, for another one."""
_COLUMNS = 6
_COMPUTING = np.array([1.0, 1.0, 0.0, 0.0, 0.0, 0.0])
"""The parameters of the time to compute."""


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
    seen = _Seen(observations)
    overlap, values = 1.0, _linear(seen)
    if len(observations) >= _ENOUGH and seen.error(values, 1.0) > TOLERANCE:
        overlap, values = _overlapping(seen, values)
    base, sample, local, local_more, nodes, nodes_more = values.tolist()
    model = StepTime(base, sample, local, local_more, nodes, nodes_more, overlap)
    if all(each.nodes <= 1 for each in observations):
        nodes_s, more_s = _NODES_OVER_LOCAL * model.local_s, _NODES_OVER_LOCAL * model.local_more_s
        model = replace(model, nodes_s=nodes_s, nodes_more_s=more_s)
    return replace(model, least_workers=min(each.workers for each in observations))


def _rounded(seconds: float) -> float:
    return math.exp(round(math.log(max(seconds, _LEAST)) / _GRAIN) * _GRAIN)


def _linear(seen: _Seen) -> NDArray[np.float64]:
    """Stage 1: both parts of a step add up. Errors count relative to what was observed."""
    return _least(np.vstack([seen.columns / seen.steps[:, None], seen.computing]), np.ones(seen.rows))


def _overlapping(seen: _Seen, start: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    """Stage 2: the overlap and the parameters with the least error; see the module's text."""
    best, values, worse = (seen.error(start, 1.0), 1.0, start), start, 0
    for overlap in _OVERLAPS:
        error, values = _descended(seen, values, overlap)
        better = error < best[0]
        best, worse = ((error, overlap, values), 0) if better else (best, worse + 1)
        if worse == _PATIENCE:
            break
    return best[1], best[2]


def _descended(seen: _Seen, start: NDArray[np.float64], overlap: float) -> tuple[float, NDArray[np.float64]]:
    """The least error for an overlap, and where it is: Gauss-Newton steps, shortened where they lead too far."""
    cost = _OVERLAP_COSTS * (overlap - 1) ** 2
    error, values = seen.error(start, overlap) + cost, start
    for _ in range(_STEPS):
        # Where a part is nothing it has no slope to be given more by.
        somewhat = np.where(seen.told, np.maximum(values, _SOMEWHAT * seen.typical), 0.0)
        wanted = _least(*seen.tangent(somewhat, overlap))
        before = error
        for part in (1.0, 0.5, 0.25):
            tried = somewhat + part * (wanted - somewhat)
            there = seen.error(tried, overlap) + cost
            if there < error:
                error, values = there, tried
                break
        if error > before * (1 - _PROGRESS):
            break
    return error, values


def _least(rows: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """Parameters of at least nothing that make `rows` come closest to `target`; overheads no larger than they need."""
    scale = np.sqrt((rows**2).sum(axis=0))
    scale[scale == 0] = 1.0
    # The ridge, in units of a column's own size: on all but the time of a sample.
    ridge = np.diag([_RIDGE, 0, _RIDGE, _STEEP, _RIDGE, _STEEP])
    solution, _ = nnls(np.vstack([rows / scale, ridge]), np.concatenate([target, np.zeros(_COLUMNS)]))
    return np.asarray(solution / scale)


class _Seen:
    """Observations as arrays."""

    def __init__(self, observations: tuple[Observation, ...]) -> None:
        rows = []
        for each in observations:
            local, nodes = each.workers > 1 and each.nodes <= 1, each.workers > 1 and each.nodes > 1
            more = each.workers - 2
            rows.append([1, each.batch / each.workers, local, local * more, nodes, nodes * more])
        self.columns = np.asarray(rows, dtype=np.float64)
        """What each parameter but the overlap is multiplied with, by observation."""
        self.steps = np.array([each.step_s for each in observations])
        known = [index for index, each in enumerate(observations) if each.compute_s is not None]
        compute = np.array([observations[index].compute_s for index in known], dtype=np.float64)
        only = self.columns[known] * _COMPUTING
        self.computing = only / np.maximum(compute, _LEAST)[:, None]
        """Rows that say what computing takes: each 1."""
        self.rows = len(observations) + len(known)
        self.told = self.columns.max(axis=0) > 0
        """The parameters that some observation hangs on."""
        biggest = np.where(self.told, self.columns.max(axis=0), 1.0)
        self.typical = np.median(self.steps) / biggest

    def _parts(self, values: NDArray[np.float64], overlap: float) -> tuple[NDArray[np.float64], ...]:
        """Seconds of computing, of summing and of the step, by observation."""
        grad = np.maximum(self.columns[:, :2] @ values[:2], _LEAST)
        sync = np.maximum(self.columns[:, 2:] @ values[2:], _LEAST)
        return grad, sync, np.exp(np.logaddexp(overlap * np.log(grad), overlap * np.log(sync)) / overlap)

    def error(self, values: NDArray[np.float64], overlap: float) -> float:
        """Root mean squares of the logarithmic errors of steps, and of computing where it is known, summed."""
        error = _rms(np.log(self._parts(values, overlap)[2] / self.steps))
        if len(self.computing):
            error += _rms(np.log(np.maximum(self.computing @ values, _LEAST)))
        return error

    def tangent(self, values: NDArray[np.float64], overlap: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The logarithm of the steps' times as if it were linear: rows, and what they are to come to.

        A part's share of d log T_iter is its share of T_iter^y, and the shares sum to 1.
        """
        grad, sync, step = self._parts(values, overlap)
        share = (grad / step) ** overlap
        rows = np.hstack(
            [self.columns[:, :2] * (share / grad)[:, None], self.columns[:, 2:] * ((1 - share) / sync)[:, None]]
        )
        target = 1 + np.log(self.steps / step)
        return np.vstack([rows, self.computing]), np.concatenate([target, np.ones(len(self.computing))])


def _rms(errors: NDArray[np.float64]) -> float:
    return math.sqrt(float(errors @ errors) / len(errors))
