# SPDX-License-Identifier: Apache-2.0
"""Why the losses of a rehearsal are not those of one worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kfp_volcano.elastic.checking.codes import Finding
from kfp_volcano.volcano.launcher.rehearsal.live import reasons_to_differ

if TYPE_CHECKING:
    from collections.abc import Sequence


def found(*codes: str) -> Sequence[Finding]:
    return [Finding(path="train.py", line=line, code=code, what="dropout") for line, code in enumerate(codes, 1)]


@pytest.mark.parametrize(
    ("codes", "words", "excused"),
    [
        (("KV101",), "the rate is computed from its last value (train.py:1)", False),
        (("KV102",), "the rate follows the size (train.py:1)", False),
        (("KV302", "KV601"), "batch norm keeps statistics by worker (train.py:2)", False),
        (("KV602", "KV304"), "random numbers follow the rank (train.py:2)", False),
        (("KV602",), "dropout (train.py:1), which is no mistake", True),
        (("KV302",), "depends on the worker", False),
        ((), "depends on the worker", False),
    ],
)
def test_a_difference_is_put_down_to_what_was_read(codes: tuple[str, ...], words: str, excused: bool) -> None:
    """With its place; noise alone is no mistake, and where nothing was found it is said what it may be."""
    reasons, no_mistake = reasons_to_differ(found(*codes))
    assert words in "; ".join(reasons)
    assert no_mistake is excused
