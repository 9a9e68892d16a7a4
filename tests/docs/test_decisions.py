# SPDX-License-Identifier: Apache-2.0
"""The page of decisions says all there is to say of reasons, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from kfp_volcano.elastic.policies.policy import Reason

PAGE = (Path(__file__).parents[2] / "docs" / "decisions.md").read_text(encoding="utf-8")


def test_every_reason_has_a_row_and_every_row_is_a_reason() -> None:
    """With what it means and what to do."""
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)
    assert sorted(code for code, _, _ in rows) == sorted(reason.value for reason in Reason)


def test_reasons_are_not_named_that_are_none() -> None:
    """What looks like a code is one."""
    kinds = {"Guarded", "Threshold", "ElasticJob", "NodeState", "PendingGang", "QueueSnapshot"}
    named = set(re.findall(r"`([A-Z][a-z]+[A-Za-z]*)`", PAGE))
    assert named - kinds <= {reason.value for reason in Reason}
