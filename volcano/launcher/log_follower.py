# SPDX-License-Identifier: Apache-2.0
"""Reads what one pod prints, in a thread of its own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kfp_volcano.errors import ClusterError, NotFoundError, UnavailableError
from kfp_volcano.volcano.launcher.backlog import Backlog, Piece

if TYPE_CHECKING:
    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["LogFollower"]

_LONGEST_PAUSE_S = 10.0
"""Between attempts to read from a node that does not answer."""


class LogFollower:
    """Puts the output of a pod into the backlog, piece by piece."""

    def __init__(self, cluster: Cluster, pod: Manifest, place: str, backlog: Backlog, stop: threading.Event) -> None:
        self._cluster = cluster
        self._namespace = str(pod["metadata"]["namespace"])
        self._pod = str(pod["metadata"]["name"])
        self.uid = str(pod["metadata"]["uid"])
        self._backlog = backlog
        self._stop = stop
        self.place = place
        """Behind what has been put into the backlog."""
        self.unanswered = False
        """Whether its node did not answer when it was asked last."""
        self._thread = threading.Thread(target=self._run, name=f"logs-{self._pod}", daemon=True)
        self._thread.start()

    @property
    def reads(self) -> bool:
        """Whether there may be more: the pod has not ended, or not everything it printed is in the backlog."""
        return self._thread.is_alive()

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            place = self.place
            try:
                self._read()
            except NotFoundError:
                return
            except UnavailableError as error:
                failures = 1 if self.place != place else failures + 1
                if failures == 1:
                    self._backlog.put(Piece(self._pod, "", self.place, f"cannot be read at the moment: {error}"))
                self.unanswered = True
                self._stop.wait(min(_LONGEST_PAUSE_S, 2.0 ** min(failures - 1, 10)))
            except ClusterError as error:
                self._backlog.put(Piece(self._pod, "", self.place, f"cannot be read: {error}"))
                return
            else:
                return

    def _read(self) -> None:
        for text, place in self._cluster.follow_logs(self._pod, self._namespace, after=self.place, stop=self._stop):
            self.unanswered = False
            if not self._backlog.put(Piece(self._pod, text, place)):
                return
            self.place = place
