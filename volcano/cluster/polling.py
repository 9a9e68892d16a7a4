# SPDX-License-Identifier: Apache-2.0
"""A watch made of polls that each wait for the next changes, and a stream of a log made of readings."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, TypeAlias

from kfp_volcano.errors import NotFoundError
from kfp_volcano.volcano.cluster.base import Event
from kfp_volcano.volcano.model.objects import has_ended

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from kfp_volcano.volcano.cluster.base import Cluster

__all__ = ["Events", "Poll", "follow_logs_by_reading", "watch_by_polling"]

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 1.0
"""Between two readings of a log that says nothing new."""

Events: TypeAlias = list[Event]


class Poll(Protocol):
    """Waits for changes of a kind; returns them and the version to go on from."""

    def __call__(self, kind: str, namespace: str, *, resource_version: str, timeout_s: float) -> tuple[Events, str]:
        """Return at the first changes after a version, or with none when the time is up."""
        ...


def watch_by_polling(
    poll: Poll, kind: str, namespace: str, *, resource_version: str, timeout_s: float
) -> Iterator[Event]:
    """What `Cluster.watch` promises, by way of polls."""
    deadline = time.monotonic() + timeout_s
    while True:
        left = max(0.0, deadline - time.monotonic())
        events, resource_version = poll(kind, namespace, resource_version=resource_version, timeout_s=left)
        yield from events
        if not events and left <= 0:
            yield Event("BOOKMARK", {"kind": kind, "metadata": {"resourceVersion": resource_version}})
            return


def follow_logs_by_reading(
    cluster: Cluster, pod: str, namespace: str, *, after: str, stop: threading.Event
) -> Iterator[tuple[str, str]]:
    """What `Cluster.follow_logs` promises, by way of `logs`."""
    pause_s = _FIRST_PAUSE_S
    while not stop.is_set():
        try:
            ended = has_ended(cluster.get("Pod", pod, namespace))
        except NotFoundError:
            ended = True
        text, after = cluster.logs(pod, namespace, after=after)
        if text:
            yield text, after
        if ended:
            return
        stop.wait(pause_s)
        pause_s = _FIRST_PAUSE_S if text else min(2 * pause_s, _LONGEST_PAUSE_S)
