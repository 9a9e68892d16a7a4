# SPDX-License-Identifier: Apache-2.0
"""Batch and learning rate at each size, from the ledgers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kfp_volcano.elastic.ledger import Commit
from kfp_volcano.volcano.launcher.batches import batches


def commit(step: int, world: int, samples: int, lr: float | None) -> Commit:
    texts: dict[str, Any] = dict.fromkeys(("attempt", "parent", "lineage"), "")
    return Commit(step=step, epoch=0, world=world, loss=1.0, samples=samples, time=float(step), lr=lr, **texts)


def test_each_size_has_its_batch_and_learning_rates() -> None:
    """A short last batch of an epoch does not count for the batch; a size that comes back is told again."""
    found = batches(
        [
            commit(0, 2, 16, 0.1),
            commit(1, 4, 48, 0.2),
            commit(2, 4, 80, 0.15),
            commit(3, 4, 90, 0.14),
            commit(4, 2, 106, 0.07),
        ]
    )
    assert found == [
        {"samples": 0, "workers": 2, "batch": 16, "lr": [0.1, 0.1]},
        {"samples": 16, "workers": 4, "batch": 32, "lr": [0.2, 0.14]},
        {"samples": 90, "workers": 2, "batch": 16, "lr": [0.07, 0.07]},
    ]


def test_samples_that_were_passed_over_are_in_no_batch() -> None:
    """After a rollback some are: the step that comes then does not follow from the one before."""
    fed = [commit(step, 2, 10 * (step + 1), 0.1) for step in range(6)]
    passed_over = [replace(each, samples=each.samples + 40) for each in fed[3:]]
    passed_over[0] = replace(passed_over[0], parent="skipped")
    assert [each["batch"] for each in batches([*fed[:3], *passed_over])] == [10]


def test_without_commits_there_is_none() -> None:
    """A training that never came to a step had no batch."""
    assert batches([]) == []
