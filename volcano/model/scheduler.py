# SPDX-License-Identifier: Apache-2.0
"""One cycle of the scheduler: its actions in the configured order, then what came of them.

Source: runOnce (pkg/scheduler/scheduler.go), Volcano 1.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.volcano.model.allocate import allocate, backfill
from kfp_volcano.volcano.model.configuration import CLASSIC, Configuration
from kfp_volcano.volcano.model.enqueue import enqueue
from kfp_volcano.volcano.model.gang_eviction import gangpreempt, gangreclaim
from kfp_volcano.volcano.model.outcome import changes
from kfp_volcano.volcano.model.preempt import preempt
from kfp_volcano.volcano.model.reclaim import reclaim
from kfp_volcano.volcano.model.session import open_session

if TYPE_CHECKING:
    from kfp_volcano.volcano.model.objects import Change, Objects

__all__ = ["cycle"]

_ACTIONS = {
    "enqueue": enqueue,
    "allocate": allocate,
    "backfill": backfill,
    "reclaim": reclaim,
    "preempt": preempt,
    "gangreclaim": gangreclaim,
    "gangpreempt": gangpreempt,
}


def cycle(objects: Objects, now: float, configuration: Configuration = CLASSIC) -> list[Change]:
    """What one scheduling cycle changes: pods' nodes and ends, PodGroups' phases, queues' allocations."""
    session = open_session(objects, configuration)
    for name in configuration.actions:
        _ACTIONS[name](session)
    return list(changes(session, objects, now))
