# SPDX-License-Identifier: Apache-2.0
"""What the Job's pods print, interleaved and prefixed, going on where an earlier segment stopped."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from kfp_volcano.errors import ConflictError, NotFoundError, UnavailableError
from kfp_volcano.volcano.launcher.backlog import Backlog, Piece
from kfp_volcano.volcano.launcher.log_follower import LogFollower
from kfp_volcano.volcano.model.objects import container_statuses, has_ended

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest
    from kfp_volcano.volcano.launcher.log_record import LogRecord
    from kfp_volcano.volcano.launcher.reference import JobRef

__all__ = ["LogTail", "last_lines"]

PRINT_S = 2.0
"""How often lines are printed, each time after it was written to the cluster how many: that limits the writes."""
_FINISH_S = 10.0
"""How long to wait for a line of a pod that has not ended, when the Job has."""
_UNREADABLE_S = 30.0
"""How long to wait for the last lines of a pod whose node does not answer."""
_SILENT_S = 90.0
"""How long to wait for those of a pod that has ended: a connection that has died is found out after a minute."""
_LOOK_S = 0.2


class LogTail:
    """Prints each line of each pod once, over all steps of the DAG and all their attempts.

    Pods that have started are followed by a thread each, so that a node that does not answer holds up nobody else. How
    far each pod has been printed is kept in `record`; without one all is printed from the beginning. A line that a step
    may have printed just before it was killed is printed again, marked with `(again?)`.
    """

    def __init__(
        self,
        cluster: Cluster,
        ref: JobRef,
        record: LogRecord | None,
        say: Callable[[str], None],
        *,
        clock: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        """`wake` is called when there is something to be pumped."""
        self._cluster = cluster
        self._ref = ref
        self._record = record
        self._say = say
        self._clock = clock
        self._print_at = clock()
        self._backlog = Backlog(wake)
        self._batch: list[Piece] = []
        self._stop = threading.Event()
        self._followers: dict[str, LogFollower] = {}
        """The latest of each pod's name."""

    def pump(self, pods: Iterable[Manifest]) -> None:
        """Print what has come, and follow pods that have started since. Raises UnavailableError; then call it again."""
        if self._stop.is_set():
            return
        if self._record:
            self._record.take_over()
        for pod in pods:
            self._follow(pod)
        if self._clock() >= self._print_at or self._backlog.presses:
            self._print()

    def finish(self, pods: Iterable[Manifest]) -> None:
        """Print what pods that are done or going have still to say, as long as something comes. Raises as `pump`."""
        pods = list(pods)
        self.pump(pods)
        ended = {pod["metadata"]["uid"] for pod in pods if has_ended(pod)}
        heard_at = self._clock()
        while not self._stop.is_set() and self._may_say_more(ended, quiet_s=self._clock() - heard_at):
            self._stop.wait(_LOOK_S)
            if self._print():
                heard_at = self._clock()
        self._print()
        self.settle()

    def settle(self) -> None:
        """Note that all is printed that was announced, for the next step. Raises UnavailableError."""
        if self._record and not self._stop.is_set() and not self._record.settle():
            self._fall_silent()

    def close(self) -> None:
        """Print no more; what is read ahead is left to the next step."""
        with suppress(ConflictError, UnavailableError):  # the next step prints the last lines again, marked
            self.settle()
        self._stop.set()
        self._backlog.close()

    def _follow(self, pod: Manifest) -> None:
        """See to it that a pod is read: it, and not one of the same name that went before it."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        before = self._followers.get(name)
        if not _has_started(pod) or (before is not None and (before.reads or before.uid == uid)):
            return
        known = self._record.places if self._record else {}
        place = known.get(name, "") if before is None else before.place
        self._followers[name] = LogFollower(self._cluster, pod, place, self._backlog, self._stop)

    def _may_say_more(self, ended: Container[str], *, quiet_s: float) -> bool:
        """Whether to wait for more: for pods that may have more to say, each for its time."""

        def patience_s(follower: LogFollower) -> float:
            if follower.unanswered:
                return _UNREADABLE_S
            return _SILENT_S if follower.uid in ended else _FINISH_S

        return any(each.reads and quiet_s < patience_s(each) for each in self._followers.values())

    def _print(self) -> bool:
        """Announce what waits to be printed, and print it; whether there was anything."""
        if self._stop.is_set():
            return False
        self._batch = self._batch or self._backlog.take()
        if self._batch:  # else the first line that comes need not wait
            self._print_at = self._clock() + PRINT_S
        lines = Counter({piece.pod: 0 for piece in self._batch})
        for piece in self._batch:
            lines[piece.pod] += piece.text.count("\n")
        if self._record and not self._record.announce(lines):
            self._fall_silent()
            return False
        doubtful = Counter(self._record.doubtful if self._record else {})
        for piece in self._batch:
            self._print_piece(piece, doubtful)
        if self._record:
            self._record.printed({piece.pod: piece.place for piece in self._batch}, lines)
        printed, self._batch = bool(self._batch), []
        return printed

    def _print_piece(self, piece: Piece, doubtful: Counter[str]) -> None:
        short = piece.pod.removeprefix(self._ref.name + "-")
        if piece.note:
            self._say(f"the log of {short} {piece.note}")
        for line in piece.text.split("\n")[:-1]:
            mark = " (again?)" if doubtful[piece.pod] > 0 else ""
            doubtful[piece.pod] -= 1
            self._say(f"{short}{mark} | {line}")

    def _fall_silent(self) -> None:
        self._say("another attempt of this step prints the logs from here on")
        self._stop.set()
        self._backlog.close()


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
