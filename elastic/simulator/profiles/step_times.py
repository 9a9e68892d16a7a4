# SPDX-License-Identifier: Apache-2.0
"""How long a step of an application takes, by where its workers are and how much each has to do. Pure.

As the simulator of Pollux does it (OSDI'21 artifact, `simulator/applications.py`): a placement that was profiled, or
one that is the same but for where it begins, is interpolated between its own batches; any other between the numbers of
nodes and GPUs and the batches of all that was profiled, by Delaunay triangles that are not rescaled.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from kfp_volcano.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scipy.interpolate import LinearNDInterpolator

__all__ = ["Placed", "Scaled", "Step", "StepTimes"]

_MOST_NODES = 16
"""More nodes than these were not profiled, and count as so many."""


class Step(NamedTuple):
    """Seconds of a step."""

    step_s: float
    sync_s: float
    """Of it, what the workers wait for each other's gradients."""

    @property
    def compute_s(self) -> float:
        """What each worker computes for."""
        return self.step_s - self.sync_s


@dataclass(frozen=True, slots=True)
class Placed:
    """A row of `placements.csv`."""

    gpus: tuple[int, ...]
    """By node, in the rotation that is the smallest."""
    local_batch: int
    """Samples of each worker."""
    step: Step


@dataclass(frozen=True, slots=True)
class Scaled:
    """A row of `scalability.csv`."""

    nodes: int
    gpus: int
    local_batch: int
    step: Step


class StepTimes:
    """What was profiled of an application, to be looked up at placements and batches in between; remembers answers."""

    def __init__(self, application: str, placed: Sequence[Placed], scaled: Sequence[Scaled]) -> None:
        self._application = application
        self._placed = placed
        self._scaled = scaled
        self._rows: dict[tuple[int, ...], list[tuple[int, Step]]] = {}
        for row in placed:
            self._rows.setdefault(row.gpus, []).append((row.local_batch, row.step))
        for rows in self._rows.values():
            rows.sort()
        self._between: LinearNDInterpolator | None = None
        self._known: dict[tuple[tuple[int, ...], int], Step] = {}
        self.least_local = min(row.local_batch for row in placed)
        self.most_local = max(row.local_batch for row in placed)

    def at(self, gpus: tuple[int, ...], local_batch: int) -> Step:
        """A step with these GPUs on the nodes, and a batch of each; none of `gpus` is zero.

        Raises:
            SpecError: The profile does not reach so far.
        """
        found = self._known.get((gpus, local_batch))
        if found is None:
            found = self._known[gpus, local_batch] = self._looked_up(gpus, local_batch)
        return found

    def _looked_up(self, gpus: tuple[int, ...], local_batch: int) -> Step:
        rows = self._rows.get(smallest_rotation(gpus))
        step = self._in_space(gpus, local_batch) if rows is None else _on_line(rows, local_batch)
        if step is None:
            where = "+".join(map(str, gpus))
            what = f"was not profiled with {local_batch} samples each on {where} GPUs, nor with less and more"
            raise SpecError(what, source=f"application {self._application}")
        return step

    def _in_space(self, gpus: tuple[int, ...], local_batch: int) -> Step | None:
        if self._between is None:
            self._between = self._triangulated()
        step_s, sync_s = self._between([min(len(gpus), _MOST_NODES), sum(gpus), local_batch])[0].tolist()
        return Step(step_s, sync_s) if step_s == step_s else None  # noqa: PLR0124 - NaN: outside of all triangles

    def _triangulated(self) -> LinearNDInterpolator:
        """The interpolation over all rows, in the published order: Delaunay's answer on a lattice depends on it."""
        from scipy.interpolate import LinearNDInterpolator  # noqa: PLC0415 - a quarter of a second, and 30 MB

        groups: dict[tuple[int, int, int], list[Step]] = {}
        for row in self._placed:
            groups.setdefault((len(row.gpus), sum(row.gpus), row.local_batch), []).append(row.step)
        points = [*sorted(groups), *((row.nodes, row.gpus, row.local_batch) for row in self._scaled)]
        means = [tuple(fmean(column) for column in zip(*groups[point], strict=True)) for point in sorted(groups)]
        return LinearNDInterpolator(points, [*means, *(tuple(row.step) for row in self._scaled)])


def smallest_rotation(gpus: tuple[int, ...]) -> tuple[int, ...]:
    """The same placement, begun where it is the smallest: a ring of workers has no first node."""
    return min(gpus[start:] + gpus[:start] for start in range(len(gpus)))


def _on_line(rows: list[tuple[int, Step]], local_batch: int) -> Step | None:
    """Between the two batches next to it; None outside of all."""
    above = bisect_left(rows, local_batch, key=lambda row: row[0])
    if above == len(rows) or (above == 0 and rows[0][0] != local_batch):
        return None
    (high, after), (low, before) = rows[above], rows[max(above - 1, 0)]
    if high == local_batch:
        return after
    part = (local_batch - low) / (high - low)
    return Step(*(first + part * (second - first) for first, second in zip(before, after, strict=True)))
