# SPDX-License-Identifier: Apache-2.0
"""What a training learned with at each size it had: the batch and the learning rate."""

from __future__ import annotations

from itertools import groupby, pairwise
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.elastic.ledger import Commit

__all__ = ["batches"]


def batches(commits: Sequence[Commit]) -> list[dict[str, Any]]:
    """One entry for each time that the number of workers stayed the same, oldest first.

    `samples` are committed before it; `batch` is the largest of its steps, for an epoch's last may be shorter; `lr` are
    the learning rates of its first and last step, None where the ledgers do not tell.
    """
    counts = [commits[0].samples if commits[0].step == 0 else 0] if commits else []
    counts += [after.samples - before.samples for before, after in pairwise(commits)]
    # Between a step and one that does not follow from it samples may have been passed over.
    follow = [True, *(after.parent == before.lineage for before, after in pairwise(commits))]
    found = []
    for workers, steps in groupby(zip(commits, counts, follow, strict=False), key=lambda step: step[0].workers):
        those = list(steps)
        (first, count, _), (last, *_) = those[0], those[-1]
        whole = [number for _, number, follows in those if follows] or [number for _, number, _ in those]
        found.append(
            {
                "samples": first.samples - count,
                "workers": workers,
                "batch": max(whole),
                "lr": [lr if lr is not None and isfinite(lr) else None for lr in (first.lr, last.lr)],
            }
        )
    return found
