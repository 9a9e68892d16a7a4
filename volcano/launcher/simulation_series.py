# SPDX-License-Identifier: Apache-2.0
"""GPUs of a simulation over time: what each team held, and what waited. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfp_volcano.elastic.simulator.outcome import Outcome

__all__ = ["MOST_STEPS", "GpusHeld", "gpus_held"]

MOST_STEPS = 2000
"""Changes up to which a series is exact; of more, it holds the means of so many equal times."""

_Floats: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.float64]]"


@dataclass(frozen=True, slots=True)
class GpusHeld:
    """Steps: the values at an index hold from its time until the next one's, the last ones for no time."""

    times: list[float]
    """Seconds from the scenario's beginning, ascending."""
    bands: list[list[float]]
    """GPUs held, of each band at each time."""
    waiting: list[float]
    """GPUs that jobs asked for which had been submitted, had not ended and held none."""
    exact: bool
    """Each change is there; else values are means over equal times."""


def gpus_held(outcome: Outcome, bands: Mapping[str, int], *, begin: float, end: float) -> GpusHeld:
    """What was held over time.

    Args:
        outcome: Of which simulation.
        bands: The band that each team counts for; a team that is missing counts for the last one.
        begin: From when, seconds.
        end: Until when; at least `begin`.
    """
    count = max(bands.values(), default=0) + 1
    moments, rows, changes = [begin], [count], [0.0]
    for job in outcome.jobs:
        band = bands.get(job.team, count - 1)
        over = outcome.ended_at if job.ended_at is None else job.ended_at
        moments += (job.submitted_at, max(over, job.submitted_at))
        rows += (count, count)
        changes += (job.asked_gpus, -job.asked_gpus)
        for span in job.spans:
            moments += (span.begin, span.end, span.begin, span.end)
            rows += (band, band, count, count)
            changes += (span.gpus, -span.gpus, -job.asked_gpus, job.asked_gpus)
    times, places = np.unique(np.clip(moments, begin, end), return_inverse=True)
    table = np.zeros((count + 1, len(times)))
    np.add.at(table, (np.array(rows), places.ravel()), np.array(changes, dtype=float))
    values = np.cumsum(table, axis=1)
    exact = len(times) <= MOST_STEPS
    if not exact:
        edges = np.linspace(begin, end, MOST_STEPS + 1)
        values = np.array([_means(times, row, edges) for row in values])
        times = edges
    kept = np.round(np.maximum(values, 0.0), 2).tolist()
    return GpusHeld(times.tolist(), kept[:count], kept[count], exact)


def _means(times: _Floats, values: _Floats, edges: _Floats) -> _Floats:
    """The mean of a step function between each two edges, and zero at the last."""
    area = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(times))])
    means: _Floats = np.append(np.diff(np.interp(edges, times, area)) / np.diff(edges), 0.0)
    return means
