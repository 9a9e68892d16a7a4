# SPDX-License-Identifier: Apache-2.0
"""What a report of progress tells of earlier times, and what was known of them before. Pure.

Training that was started again from a checkpoint, a first worker that began anew and a coordinator that did, each know
less than what was told before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfp_volcano.schemas.records import Progress

__all__ = ["CHANGES_KEPT", "SIZES_KEPT", "with_former"]

CHANGES_KEPT = 20
SIZES_KEPT = 16
"""So many sizes' throughput is kept, the latest."""


def with_former(progress: Progress, former: Progress | None) -> Progress:
    """The progress with those changes of membership and measured sizes too that a former one told of."""
    if former is None:
        return progress
    changes = {
        (change.step, change.from_workers, change.to_workers): change for change in (*former.changes, *progress.changes)
    }
    kept = sorted(changes.values(), key=lambda change: change.at)[-CHANGES_KEPT:]
    newest = {(each.workers, each.nodes, each.batch): each for each in progress.measured}
    older = [each for each in former.measured if (each.workers, each.nodes, each.batch) not in newest]
    measured = (*older, *progress.measured)[-SIZES_KEPT:]
    return replace(progress, changes=tuple(kept), measured=measured)
