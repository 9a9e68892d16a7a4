# SPDX-License-Identifier: Apache-2.0
"""The integer programme of one priority: its rows, its relaxation and its exact solution, by HiGHS. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csr_array

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from kfp_volcano.elastic.policies.goodput.capacity import Capacity, Kind
    from kfp_volcano.elastic.policies.goodput.choices import Choice, Option

__all__ = ["Bounded", "Programme", "Relaxed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """How much effort an exact answer is worth."""

    nodes: int = 1000
    """Of HiGHS' branch and bound, for each priority."""
    gap: float = 1e-6
    """Relative: an answer that is known to be so near to the best one is taken for it."""
    seconds: float = 10.0
    """For each priority; the last resort."""


@dataclass(frozen=True, slots=True)
class Relaxed:
    """The best answer that may take parts of options."""

    cost: float
    """No whole answer costs less."""
    parts: NDArray[np.float64]
    """Of each option, by column."""
    extra: NDArray[np.float64]
    """By how much more, at least, every answer costs that takes this option: the reduced costs."""


class Programme:
    """Filled by its constructor, then solved."""

    def __init__(
        self, level: Sequence[Choice], others: Sequence[Choice], taken: Mapping[str, Option], capacity: Capacity
    ) -> None:
        rows = _Rows(capacity)
        for choice in others:
            rows.fixed(choice.kind, taken[choice.key])
        self._level = level
        self._columns = [(number, option) for number, choice in enumerate(level) for option in choice.options]
        for column, (number, option) in enumerate(self._columns):
            rows.variable(column, number, level[number].kind, option)
        self._matrix, self._low, self._high = rows.filled(len(self._columns), len(level))
        self._costs = np.zeros(self._matrix.shape[1])
        self._costs[: len(self._columns)] = [option.cost for _, option in self._columns]

    def relaxed(self, seconds: float) -> Relaxed | None:
        """The relaxation's answer; None where HiGHS has none."""
        equal = self._low == self._high
        result = linprog(
            self._costs,
            A_ub=self._matrix[~equal],
            b_ub=self._high[~equal],
            A_eq=self._matrix[equal],
            b_eq=self._high[equal],
            method="highs-ds",
            options={"time_limit": seconds},
        )
        if result.status != 0:
            return None
        options = len(self._columns)
        return Relaxed(float(result.fun), result.x[:options], result.lower.marginals[:options])

    def whole(self, wanted: NDArray[np.bool_], bounded: Bounded) -> tuple[dict[str, Option], float] | None:
        """The best answer among the wanted options, and how far from the best it may be, relative.

        None where HiGHS has none, or has run out of time.
        """
        kept = np.append(np.flatnonzero(wanted), np.arange(len(self._columns), self._matrix.shape[1]))
        result = milp(
            self._costs[kept],
            constraints=LinearConstraint(self._matrix[:, kept], self._low, self._high),
            integrality=np.ones(len(kept)),
            bounds=Bounds(0, np.inf),
            options={"node_limit": bounded.nodes, "mip_rel_gap": bounded.gap, "time_limit": bounded.seconds},
        )
        if result.x is None or "time limit reached" in str(result.message).lower().replace("or time limit", ""):
            return None
        parts = np.zeros(len(self._columns))
        parts[kept[kept < len(self._columns)]] = result.x[: int(wanted.sum())]
        return self.largest(parts), max(0.0, float(result.mip_gap or 0.0))

    def largest(self, parts: NDArray[np.float64]) -> dict[str, Option]:
        """Of each Job the option of which most is taken; the smaller one where they are equal."""
        found: dict[str, tuple[float, Option]] = {}
        for (number, option), part in zip(self._columns, parts.tolist(), strict=True):
            key = self._level[number].key
            if key not in found or part > found[key][0]:
                found[key] = part, option
        return {key: option for key, (_, option) in found.items()}


class _Rows:
    """The constraints' rows as they are filled; what is fixed goes to the right-hand side."""

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._limit = float(capacity.limit)
        self._fixed_flow: dict[tuple[Kind, tuple[int, ...]], int] = defaultdict(int)
        self._given: dict[tuple[Kind, int], int] = defaultdict(int)
        self._entries: list[tuple[str, object, int, float]] = []

    def fixed(self, kind: Kind, option: Option) -> None:
        """An option that is taken."""
        self._limit -= option.gpus
        if option.adds:
            self._fixed_flow[kind, option.pools] += option.adds
        for pool, count in option.gives:
            self._given[kind, pool] += count

    def variable(self, column: int, job: int, kind: Kind, option: Option) -> None:
        """An option that may be taken."""
        self._entries.append(("job", job, column, 1.0))
        if option.gpus:
            self._entries.append(("limit", None, column, option.gpus))
        if option.adds:
            self._entries.append(("flow", (kind, option.pools), column, option.adds))
            self._fixed_flow.setdefault((kind, option.pools), 0)
        for pool, count in option.gives:
            self._place(kind, pool, column, -count)

    def _place(self, kind: Kind, pool: int, column: int, count: float) -> None:
        for level in range(len(self._capacity.levels)):
            if weight := self._capacity.weight(kind.gpus, level):
                self._entries.append(("places", (pool, level), column, weight * count))
        if kind in self._capacity.pools[pool].most:
            self._entries.append(("most", (pool, kind), column, count))

    def filled(self, columns: int, jobs: int) -> tuple[csr_array, NDArray[np.float64], NDArray[np.float64]]:
        """The matrix, with columns too for the pods that go to pools, and the bounds of its rows."""
        for flow in sorted(self._fixed_flow):
            kind, pools = flow
            for pool in pools:
                self._entries.append(("flow", flow, columns, -1.0))
                self._place(kind, pool, columns, 1.0)
                columns += 1
        bounds: dict[tuple[str, object], tuple[float, float]] = {("job", job): (1.0, 1.0) for job in range(jobs)}
        bounds["limit", None] = (-np.inf, self._limit)
        bounds.update({("flow", flow): (-count, -count) for flow, count in self._fixed_flow.items()})
        for number, nodes in enumerate(self._capacity.pools):
            for level, places in enumerate(nodes.places):
                given = sum(
                    count * self._capacity.weight(kind.gpus, level)
                    for (kind, at), count in self._given.items()
                    if at == number
                )
                bounds["places", (number, level)] = (-np.inf, places + given)
            for kind, most in nodes.most.items():
                bounds["most", (number, kind)] = (-np.inf, most + self._given.get((kind, number), 0))
        numbers = {row: number for number, row in enumerate(bounds)}
        at = [numbers[row, name] for row, name, _, _ in self._entries]
        matrix = csr_array(
            ([entry[3] for entry in self._entries], (at, [entry[2] for entry in self._entries])),
            shape=(len(bounds), columns),
        )
        low, high = np.array(list(bounds.values())).T
        return matrix, low, high
