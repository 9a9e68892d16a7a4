"""Reads what one pod prints, in a thread of its own."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from dataclasses import dataclass
from queue import Full, Queue
from typing import TYPE_CHECKING

from kfp_volcano.errors import ClusterError, NotFoundError

if TYPE_CHECKING:
    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["LogFollower", "Piece"]

_log = logging.getLogger(__name__)

_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole lines of a pod, and the place behind them."""

    pod: str
    text: str
    place: str


class LogFollower:
    """Puts the output of a pod into a queue, piece by piece; waits while the queue is full."""

    def __init__(
        self, cluster: Cluster, pod: Manifest, place: str, pieces: Queue[Piece], stop: threading.Event
    ) -> None:
        self._cluster = cluster
        self._namespace = str(pod["metadata"]["namespace"])
        self._pod = str(pod["metadata"]["name"])
        self.uid = str(pod["metadata"]["uid"])
        self._pieces = pieces
        self._stop = stop
        self.place = place
        """Behind what has been put into the queue."""
        self.told = False
        """The pod has ended or is gone, and everything it printed is in the queue."""
        self._thread = threading.Thread(target=self._run, name=f"logs-{self._pod}", daemon=True)
        self._thread.start()

    @property
    def reads(self) -> bool:
        """Whether it still does. One that does not, and has not told everything, got no answer: begin another."""
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            for text, place in self._cluster.follow_logs(self._pod, self._namespace, after=self.place, stop=self._stop):
                if not self._put(Piece(self._pod, text, place)):
                    return
                self.place = place
            self.told = not self._stop.is_set()
        except NotFoundError:
            self.told = True
        except ClusterError as error:
            _log.warning("the log of %s cannot be read at the moment: %s", self._pod, error)

    def _put(self, piece: Piece) -> bool:
        while not self._stop.is_set():
            with suppress(Full):
                self._pieces.put(piece, timeout=_LOOK_S)
                return True
        return False
