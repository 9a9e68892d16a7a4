# SPDX-License-Identifier: Apache-2.0
"""Finished Jobs whose time is over (pkg/controllers/garbagecollector, Volcano 1.15.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.volcano.model.job_phases import FINISHED
from kfp_volcano.volcano.model.objects import Delete, Key, Objects, parse_time, status_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["collect", "next_expiry"]


def collect(objects: Objects, now: float) -> list[Delete]:
    """The Jobs that go at this time."""
    return [Delete("Job", key) for key, at in _expiries(objects) if at <= now]


def next_expiry(objects: Objects) -> float | None:
    """When the next Job goes, in Unix seconds."""
    return min((at for _, at in _expiries(objects)), default=None)


def _expiries(objects: Objects) -> Iterator[tuple[Key, float]]:
    for key, job in objects.get("Job", {}).items():
        state, keep_s = status_of(job).get("state", {}), job["spec"].get("ttlSecondsAfterFinished")
        if keep_s is not None and state.get("phase") in FINISHED:
            yield key, parse_time(state["lastTransitionTime"]) + keep_s
