# SPDX-License-Identifier: Apache-2.0
"""What the cluster complains of about a Job and its pods: its Events of type Warning, each told once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kfp_volcano.errors import ForbiddenError, UnavailableError
from kfp_volcano.volcano.model.objects import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest
    from kfp_volcano.volcano.launcher.reference import JobRef

__all__ = ["Complaints", "last_complaints"]

_LOOK_S = 30.0
"""How often Events are read, seconds."""
_MOST = 50
"""Different ones told of a Job: after so many there is nothing new in them."""
_TOLD_ELSEWHERE = frozenset({"FailedScheduling", "Unschedulable"})
"""Why a gang waits is told as long as it does, not when it is noted."""


class Complaints:
    """Tells what is new among the Warnings about one Job: of its object, its PodGroup and its pods.

    Those from before a step began are left to the steps before it.
    """

    def __init__(
        self, cluster: Cluster, ref: JobRef, *, clock: Callable[[], float], say: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._ref = ref
        self._clock = clock
        self._say = say
        self._since = clock() - _LOOK_S
        self._look_at = -math.inf
        self._told: set[tuple[str, str]] = set()

    def look(self) -> None:
        """Read the Events if it is time to, and tell the news. Without the right to read them this does nothing."""
        if self._clock() < self._look_at or len(self._told) >= _MOST:
            return
        self._look_at = self._clock() + _LOOK_S
        try:
            found, _ = self._cluster.list("Event", self._ref.namespace, fields={"type": "Warning"})
        except ForbiddenError:
            self._look_at = math.inf
            return
        except UnavailableError:
            return  # said where it matters
        for event in sorted(found, key=_at):
            self._tell(event)

    def _tell(self, event: Manifest) -> None:
        reason, name, message = _said(event)
        if not _concerns(event, self._ref) or reason in _TOLD_ELSEWHERE or _at(event) < self._since:
            return
        # Many pods have the same trouble, and say so with their own names in it.
        key = (reason, message.replace(name, "*"))
        if key in self._told or len(self._told) >= _MOST:
            return
        self._told.add(key)
        self._say(_told(event))


def last_complaints(cluster: Cluster, ref: JobRef, *, count: int = 3) -> list[str]:
    """The latest Warnings about a Job and its pods that the cluster still has, oldest first, each kind once."""
    try:
        found, _ = cluster.list("Event", ref.namespace, fields={"type": "Warning"})
    except (ForbiddenError, UnavailableError):
        return []
    latest: dict[str, Manifest] = {}
    for event in sorted(found, key=_at):
        reason, _, _ = _said(event)
        if _concerns(event, ref) and reason not in _TOLD_ELSEWHERE:
            latest.pop(reason, None)
            latest[reason] = event
    return [_told(event) for event in [*latest.values()][-count:]]


def _said(event: Manifest) -> tuple[str, str, str]:
    """Reason, the name of what it is about, and the message."""
    about = event.get("involvedObject") or {}
    return str(event.get("reason") or ""), str(about.get("name") or ""), str(event.get("message") or "").strip()


def _concerns(event: Manifest, ref: JobRef) -> bool:
    about = event.get("involvedObject") or {}
    name = str(about.get("name") or "")
    return about.get("kind") in {"Job", "PodGroup", "Pod"} and f"{name}-".startswith(f"{ref.name}-")


def _told(event: Manifest) -> str:
    reason, name, message = _said(event)
    return f"{event['involvedObject']['kind']} {name}: {reason}: {message}"


def _at(event: Manifest) -> float:
    """When it was last seen, Unix seconds; 0 where it says nothing of time."""
    series = event.get("series") or {}
    text = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    text = text or event["metadata"].get("creationTimestamp")
    return parse_time(str(text)) if text else 0.0
