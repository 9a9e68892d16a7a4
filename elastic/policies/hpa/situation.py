# SPDX-License-Identifier: Apache-2.0
"""What a turn of the policy came to for the whole queue, before each Job's windows and rates. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfp_volcano.elastic.policies.gangs import Service
    from kfp_volcano.elastic.policies.hpa.metrics import Proposal
    from kfp_volcano.elastic.policies.hpa.queue_metrics import Allowance
    from kfp_volcano.elastic.policies.hpa.replicas import Settings
    from kfp_volcano.elastic.policies.snapshot import QueueSnapshot
    from kfp_volcano.schemas.hpa import HpaSpec

__all__ = ["Situation"]


@dataclass(frozen=True, kw_only=True)
class Situation:
    """Everything that decisions about single Jobs, and their explanations, draw on; mappings are by a Job's key."""

    spec: HpaSpec
    settings: Settings
    snapshot: QueueSnapshot
    service: Service
    allowed: Allowance
    ranges: Mapping[str, tuple[int, int]]
    """The sizes between which each Job may be."""
    proposals: Mapping[str, Proposal | None]
    """What the metrics of each Job's workers call for; None where there are none."""
    wishes: Mapping[str, int]
    """The size each Job would have if there were room."""
    plan: Mapping[str, int]
    """The size of each Job that is to change."""
    by_queue: frozenset[str]
    """Jobs that are to shrink because the queue's metrics say so, not their own."""
