# SPDX-License-Identifier: Apache-2.0
"""How many equal pods would fit as Jobs give: what a `Draft` would say, without placing anything. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.draft import Spot
from kfp_volcano.elastic.policies.snapshot import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kfp_volcano.elastic.policies.draft import Draft

__all__ = ["Tally"]


class Tally:
    """Counts for pods of one shape and so many GPUs, in the end; not `own`: beside this queue's limit."""

    def __init__(self, draft: Draft, shape: str, gpus: int, *, own: bool) -> None:
        self._shape = shape
        self._gpus = gpus
        self._own = own
        self._spots = draft.named
        self._later: dict[str, int] = {}
        """GPUs in the end, of nodes that are short of nothing else and have changed."""
        self._fitting = draft.workers(shape, gpus, later=True, own=False)
        self._limit = draft.limit_later

    @property
    def workers(self) -> int:
        """How many fit."""
        return min(self._fitting, max(0, self._limit) // self._gpus) if self._own else self._fitting

    def give(self, nodes: Iterable[str], gpus: int, shape: str) -> None:
        """As `Draft.give`."""
        self._leave(nodes, gpus, shape, 1)

    def give_back(self, nodes: Iterable[str], gpus: int, shape: str) -> None:
        """As `Draft.give_back`."""
        self._leave(nodes, gpus, shape, -1)

    def _leave(self, nodes: Iterable[str], gpus: int, shape: str, sign: int) -> None:
        each, more = self._gpus, sign * gpus
        for node in nodes:
            if node == NOWHERE:
                continue
            self._limit += more
            later = self._later.get(node)
            if later is None:
                spot = self._spots.get(node)
                if spot is None:
                    continue
                if spot.fits:
                    self._leave_tight(node, spot, more, shape, sign)
                    continue
                later = spot.later
            self._later[node] = later + more
            self._fitting += (later + more) // each - later // each

    def _leave_tight(self, node: str, spot: Spot, more: int, shape: str, sign: int) -> None:
        """A node that is short of something else than GPUs."""
        fits = tuple((name, most + sign * (name == shape)) for name, most in spot.fits)
        after = Spot(spot.now, spot.later + more, fits, spot.gpu_class)
        self._spots[node] = after
        self._fitting += after.pods(self._shape, self._gpus, later=True)
        self._fitting -= spot.pods(self._shape, self._gpus, later=True)
