# SPDX-License-Identifier: Apache-2.0
"""Waiting for what the cluster shows: found, not found in time, and over watches that are too old."""

from __future__ import annotations

from typing import Any

from kfp_volcano.errors import ConflictError
from kfp_volcano.volcano.cluster.awaiting import until


class Reads:
    """A cluster whose pods are so many with each reading, and whose watches may be too old."""

    def __init__(self, *counts: int, forgets: bool = False) -> None:
        self.counts, self.forgets, self.watches = list(counts), forgets, 0

    def list(self, kind: str, namespace: str) -> tuple[list[dict[str, Any]], str]:
        assert (kind, namespace) == ("Pod", "ml")
        return [{}] * (self.counts.pop(0) if len(self.counts) > 1 else self.counts[0]), "1"

    def watch(self, *_where: str, resource_version: str, timeout_s: float) -> Any:
        assert resource_version == "1"
        assert timeout_s > 0
        self.watches += 1
        if self.forgets:
            raise ConflictError("410")
        return iter([{}])


def three(pods: list[Any]) -> int | None:
    return len(pods) if len(pods) == 3 else None


def test_it_is_looked_again_with_each_change() -> None:
    """Until something is found, which is returned."""
    cluster = Reads(0, 1, 3)
    assert until(cluster, "Pod", "ml", three, patience_s=60) == 3  # type: ignore[arg-type]
    assert cluster.watches == 2


def test_a_watch_that_is_too_old_only_has_it_read_again() -> None:
    """That a version is forgotten says nothing of what is waited for."""
    assert until(Reads(0, 3, forgets=True), "Pod", "ml", three, patience_s=60) == 3  # type: ignore[arg-type]


def test_without_patience_it_is_looked_once() -> None:
    """And what is there by then counts."""
    assert until(Reads(3), "Pod", "ml", three, patience_s=0) == 3  # type: ignore[arg-type]
    assert until(Reads(0), "Pod", "ml", three, patience_s=0) is None  # type: ignore[arg-type]
