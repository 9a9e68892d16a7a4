# SPDX-License-Identifier: Apache-2.0
"""Policies that other packages bring: Python entry points in the group `kfp_volcano.policies`.

An entry point names what makes a policy: a function, or a class, that takes the block `settings` of a Policy as a
mapping and returns an object with `name` and `decide` (`elastic.policies.policy.Policy`).
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfp_volcano.elastic.policies.choice import Factory
    from kfp_volcano.elastic.policies.policy import Policy

__all__ = ["GROUP", "own_policies"]

GROUP = "kfp_volcano.policies"


class _Entry:
    """An entry point that is loaded when it is needed: one that is broken harms no other."""

    def __init__(self, point: Any) -> None:
        self._point = point

    def __call__(self, settings: Mapping[str, Any]) -> Policy:
        try:
            factory = self._point.load()
        except Exception as error:
            what = f"cannot be loaded from {self._point.value}: {type(error).__name__}: {error}"
            raise SpecError(what, source=f"policy {self._point.name}") from error
        policy: Policy = factory(settings)
        return policy


def own_policies() -> dict[str, Factory]:
    """What makes each policy that installed packages bring, by its name."""
    return {point.name: _Entry(point) for point in entry_points(group=GROUP)}
