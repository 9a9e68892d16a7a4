# SPDX-License-Identifier: Apache-2.0
"""What each worker really fed to the model, step by step, and the audit that adds it up.

A ledger is JSON lines, one file a process, each line written before the work it speaks of. `step` counts the steps
committed before the one a line speaks of, so a step's lines carry the index of its global batch.

======== ============================================================================================================
start    the process begins at `step`, on the state with digest `lineage`
feed     the samples this worker feeds in an *attempt* at a step; `parent` is the state the attempt starts from
commit   the attempt counted: the state with digest `lineage` follows `parent`; every worker that committed writes it
discard  the attempt did not commit here; another worker may still have committed it
rollback training went back: the state with digest `lineage` is the earlier state `to`, and follows `parent`
skip     samples that are passed over on purpose: the state with digest `lineage` is `parent` with a later cursor
metric   what the training code logged, in the state `lineage`
leave    the process ends on purpose
======== ============================================================================================================

An attempt is one try at one step by one set of workers: `attempt_digest` of the state before it, the rendezvous of the
workers' process group and the step. Equal on all who take part, never equal for two tries. `lineage` chains the
attempts that count, from `genesis`. The audit walks back from the final weights' lineage, so that work which did not
lead to them (redone steps, what came after the checkpoint a restart began with) is never mistaken for what they saw.
"""

from __future__ import annotations

from kfp_volcano.elastic.ledger.auditing import Audit, Lost, audit, commits
from kfp_volcano.elastic.ledger.due import due_text
from kfp_volcano.elastic.ledger.entries import (
    Commit,
    Discard,
    Entry,
    Feed,
    Leave,
    Metric,
    Rollback,
    Skip,
    Start,
    attempt_digest,
    genesis,
    lineage_digest,
    rollback_digest,
    skip_digest,
    to_line,
)

__all__ = [
    "Audit",
    "Commit",
    "Discard",
    "Entry",
    "Feed",
    "Leave",
    "Lost",
    "Metric",
    "Rollback",
    "Skip",
    "Start",
    "attempt_digest",
    "audit",
    "commits",
    "due_text",
    "genesis",
    "lineage_digest",
    "rollback_digest",
    "skip_digest",
    "to_line",
]
