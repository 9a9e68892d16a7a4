# SPDX-License-Identifier: Apache-2.0
"""How close the pods of a job have to be: Volcano's NetworkTopologySpec.

Source: volcano.sh/apis, pkg/apis/batch/v1alpha1/job.go and pkg/apis/scheduling/v1beta1/types.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kfp_volcano.volcano.manifests.convert.source import View

__all__ = ["read_topology"]


def read_topology(view: View) -> dict[str, Any]:
    """Read a networkTopology as `spec.placement.topology`; empty where there is none."""
    place = "spec.placement.topology"
    mode = view.text("mode", to=place)
    tier = view.number("highestTierAllowed", to=place)
    name = view.text("highestTierName", to=place)
    found = {"mode": mode, "tier": tier, "tierName": name}
    return {key: value for key, value in found.items() if value is not None}
