"""What the Job's pods print, interleaved and prefixed, going on where an earlier segment stopped."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from queue import Empty, Queue
from typing import TYPE_CHECKING

from kfp_volcano.errors import ConflictError, NotFoundError, UnavailableError
from kfp_volcano.schemas.names import labels_for
from kfp_volcano.volcano.launcher.log_follower import LogFollower, Piece
from kfp_volcano.volcano.model.objects import container_statuses, reference_to

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest
    from kfp_volcano.volcano.launcher.reference import JobRef

__all__ = ["LogTail", "last_lines"]

_AHEAD = 256
"""Pieces of output that may wait to be printed, of all pods together; they are not read faster than that."""
_SAVE_S = 10.0
"""How much output, in time, is printed again by the step that comes after one that was killed."""
_FINISH_S = 10.0
_LOOK_S = 0.2


class LogTail:
    """Prints each line of each pod once.

    Pods that have started are followed by a thread each, so that a node that does not answer holds up nobody else. How
    far each pod has been printed is kept in the ConfigMap `<job>-logs`, so that the next step of the DAG, in another
    process, neither repeats nor skips a line.
    """

    def __init__(
        self,
        cluster: Cluster,
        job: Manifest,
        ref: JobRef,
        say: Callable[[str], None],
        *,
        clock: Callable[[], float],
        remembers: bool = True,
    ) -> None:
        self._cluster = cluster
        self._job = job
        self._ref = ref
        self._say = say
        self._clock = clock
        self._remembers = remembers
        self._places = self._load() if remembers else {}
        self._saved, self._saved_at = dict(self._places), clock()
        self._pieces: Queue[Piece] = Queue(_AHEAD)
        self._stop = threading.Event()
        self._followers: dict[str, LogFollower] = {}
        """The latest of each pod's name."""

    def pump(self, pods: Iterable[Manifest]) -> None:
        """Print what has come, and follow pods that have started since."""
        for pod in pods:
            self._follow(pod)
        self._print()
        if self._remembers and self._places != self._saved and self._clock() >= self._saved_at + _SAVE_S:
            self.save()

    def finish(self, pods: Iterable[Manifest]) -> None:
        """Print what pods that are done or going have still to say, for at most some seconds."""
        self.pump(pods)
        ends_at = self._clock() + _FINISH_S
        while any(follower.reads for follower in self._followers.values()) and self._clock() < ends_at:
            self._print(wait_s=_LOOK_S)
        self._print()

    def save(self) -> None:
        """Note how far the logs have been printed, for the next step."""
        self._saved, self._saved_at = dict(self._places), self._clock()
        name, data = f"{self._ref.name}-logs", {"places": json.dumps(self._places)}
        try:
            self._cluster.create(
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {
                        "name": name,
                        "namespace": self._ref.namespace,
                        "labels": labels_for(self._ref.name),
                        "ownerReferences": [reference_to(self._job)],
                    },
                    "data": data,
                }
            )
        except ConflictError:
            patch = [{"op": "replace", "path": "/data", "value": data}]
            self._cluster.patch("ConfigMap", name, self._ref.namespace, patch)

    def close(self) -> None:
        """Print no more; what is read ahead is left to the next step."""
        self._stop.set()

    def _follow(self, pod: Manifest) -> None:
        """See to it that a pod is read: it, and not one of the same name that went before it."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        before = self._followers.get(name)
        if not _has_started(pod) or (before is not None and (before.reads or before.uid == uid)):
            return
        place = self._places.get(name, "") if before is None else before.place
        self._followers[name] = LogFollower(self._cluster, pod, place, self._pieces, self._stop)

    def _print(self, *, wait_s: float = 0.0) -> None:
        """Print what waits for it, at most as much as may wait; `wait_s` is how long to wait for the first piece."""
        with suppress(Empty):
            for number in range(_AHEAD):
                piece = self._pieces.get(timeout=wait_s) if wait_s and not number else self._pieces.get_nowait()
                short = piece.pod.removeprefix(self._ref.name + "-")
                if piece.note:
                    self._say(f"the log of {short} {piece.note}")
                for line in piece.text.split("\n")[:-1]:
                    self._say(f"{short} | {line}")
                self._places[piece.pod] = piece.place

    def _load(self) -> dict[str, str]:
        try:
            stored = self._cluster.get("ConfigMap", f"{self._ref.name}-logs", self._ref.namespace)
        except NotFoundError:
            return {}
        places: dict[str, str] = json.loads(stored["data"]["places"])
        return places


def _has_started(pod: Manifest) -> bool:
    """Whether one of its containers runs or has run: before, there is no log."""
    return any(
        not (each.get("state") or {}).get("waiting") or each.get("lastState") for each in container_statuses(pod)
    )


def last_lines(cluster: Cluster, pod: str, namespace: str, *, count: int = 15) -> list[str]:
    """The last lines a pod printed, none where it printed nothing or its log is gone or cannot be read."""
    try:
        text, _ = cluster.logs(pod, namespace, tail=count)
    except (NotFoundError, UnavailableError):
        return []
    return text.rstrip("\n").split("\n") if text.strip() else []
