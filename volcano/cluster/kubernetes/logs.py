# SPDX-License-Identifier: Apache-2.0
"""What a pod prints, as the kubelet tells it: by container and by time.

The kubelet keeps the output of a container's present run and of the one before, each line with the time at which it
was printed, and can be asked for what came since a second. So a place in a pod's log is a container, a time to the
nanosecond, and how many lines of just that time have been told. What is read again is dropped by comparing times, so
nothing has to be known of restarts: the runs of a container follow each other in time.

Two runs that both end between two readings lose the output of the earlier one: the kubelet does not have it any more.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from kfp_volcano.errors import InvalidError
from kfp_volcano.volcano.cluster.base import KINDS
from kfp_volcano.volcano.cluster.kubernetes.connection import Silence
from kfp_volcano.volcano.cluster.kubernetes.request import Request
from kfp_volcano.volcano.model.objects import container_statuses

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kfp_volcano.volcano.cluster.base import Manifest
    from kfp_volcano.volcano.cluster.kubernetes.api import Api

__all__ = ["LogReader", "Place"]

_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_STAMPED = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d) ?")
_LONGEST_LINE = 64 * 1024
"""Bytes; what prints more without ending its line, as progress bars do, is told in pieces of this length."""
_PATIENCE_S = 10.0
"""How long to try again; a stream that is followed is left to whoever follows it."""

Instant: TypeAlias = tuple[int, str]
"""Unix seconds, and the digits behind the point."""

_NEVER: Instant = (0, "")


@dataclass(frozen=True, slots=True)
class Place:
    """Behind the last line that was told. As text it can be kept and used by another process."""

    pod: str
    """Its uid: another pod of the same name begins anew."""
    container: str = ""
    time: str = ""
    """As the kubelet writes it; empty: the container's beginning."""
    told: int = 0
    """How many lines of that time have been told."""

    def __str__(self) -> str:
        return " ".join((self.pod, self.container, self.time, str(self.told)))

    @classmethod
    def parse(cls, text: str, pod: str) -> Place:
        """The place in the log of a pod that a text names; its beginning where the text names none."""
        uid, _, rest = text.partition(" ")
        container, time, told = rest.split(" ") if uid == pod else ("", "", "0")
        return cls(pod, container, time, int(told))


class LogReader:
    """Reads the log of one pod from a place on."""

    def __init__(self, api: Api, pod: Manifest, after: str, *, tail: int | None = None) -> None:
        self._api = api
        self._pod = pod
        self._tail = tail
        self.place = Place.parse(after, pod["metadata"]["uid"])
        """Where the next reading goes on; moves as lines are told."""
        self.broken_off = False
        """Whether the kubelet fell silent in the midst of what it had to say."""

    def lines(self, *, follow: bool = False) -> Iterator[str]:
        """What has been printed and not been told, by one container after the other; each with its line's end.

        With `follow`, also what a container prints from now on, until it ends. Ends early where the kubelet falls
        silent: the next reading goes on there.
        """
        containers = _containers(self._pod)
        begin = containers.index(self.place.container) if self.place.container in containers else 0
        try:
            for container in containers[begin:]:
                if container != self.place.container:
                    self.place = Place(self.place.pod, container)
                yield from self._runs(container, follow=follow)
                if not _has_succeeded(self._pod, container):
                    return
        except Silence:
            self.broken_off = True

    def _runs(self, container: str, *, follow: bool) -> Iterator[str]:
        """The run before the present one, and the present one.

        The present one's stream is opened first: from then on it stays that run's, and what came before it can only be
        the run that is read as the one before.
        """
        with ExitStack() as stack:
            present = self._open(stack, container, follow=follow)
            with ExitStack() as ended:
                yield from self._new(self._open(ended, container, previous=True), over=True)
            yield from self._new(present, over=_has_ended(self._pod, container))

    def _open(
        self, stack: ExitStack, container: str, *, previous: bool = False, follow: bool = False
    ) -> Iterator[bytes]:
        """The output of a run; none where there has been no such run."""
        query = {"container": container, "timestamps": "true"}
        if previous:
            query["previous"] = "true"
        if follow:
            query["follow"] = "true"
        if self.place.time:
            query["sinceTime"] = self.place.time
        if self._tail is not None:
            query["tailLines"] = str(self._tail)
        metadata = self._pod["metadata"]
        request = Request("get", KINDS["Pod"], metadata["namespace"], metadata["name"], "log", query=query)
        silence_s = self._api.patience.answer_s
        patience_s = 0.0 if follow else _PATIENCE_S
        try:
            return stack.enter_context(self._api.stream(request, silence_s=silence_s, patience_s=patience_s))
        except InvalidError:  # 400: it waits to start, or there is no run before
            return iter(())

    def _new(self, chunks: Iterator[bytes], *, over: bool) -> Iterator[str]:
        """The lines that have not been told, of a run that may be over; the place moves with them."""
        since, known = _instant(self.place.time), self.place.told
        for stamp, text in _stamped(chunks, over=over):
            if since is not _NEVER:
                at = _instant(stamp)
                if at < since:
                    continue
                if at == since and known:
                    known -= 1
                    continue
                since = _NEVER  # from here on all is new, wherever a clock may be set to
            told = self.place.told + 1 if stamp == self.place.time else 1
            self.place = Place(self.place.pod, self.place.container, stamp, told)
            yield f"{text}\n"


def _containers(pod: Manifest) -> list[str]:
    """The containers whose output is the pod's, in the order in which they run: no sidecars."""
    spec, annotations = pod["spec"], pod["metadata"].get("annotations") or {}
    before = [each["name"] for each in spec.get("initContainers") or () if each.get("restartPolicy") != "Always"]
    return [*before, str(annotations.get(_DEFAULT_CONTAINER) or spec["containers"][0]["name"])]


def _has_succeeded(pod: Manifest, container: str) -> bool:
    """Whether an init container is done, so that the next one may have printed something."""
    return _terminated(pod, container).get("exitCode") == 0 and _is_init(pod, container)


def _has_ended(pod: Manifest, container: str) -> bool:
    """Whether the container's present run is over, so that nothing can be added to its last line."""
    return bool(_terminated(pod, container))


def _is_init(pod: Manifest, container: str) -> bool:
    return any(each["name"] == container for each in pod["spec"].get("initContainers") or ())


def _terminated(pod: Manifest, container: str) -> Mapping[str, Any]:
    """How a container's present run has ended; empty where it has not."""
    statuses = container_statuses(pod)
    state = next((each.get("state") or {} for each in statuses if each["name"] == container), {})
    return state.get("terminated") or {}


def _stamped(chunks: Iterator[bytes], *, over: bool) -> Iterator[tuple[str, str]]:
    """Lines, each with its time; a last one that is not ended yet is left out, unless all is over.

    Left out is also what has no time: the container did not print it, it is the kubelet's word on why it cannot read.
    """
    rest = b""
    stamp = ""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield from _told(line, stamp)
            stamp = ""
        while len(rest) > _LONGEST_LINE:
            for stamp, text in _told(rest[:_LONGEST_LINE], stamp):  # noqa: B020  # its other pieces have it too
                yield stamp, text
            rest = rest[_LONGEST_LINE:]
    if over and rest:
        yield from _told(rest, stamp)


def _told(line: bytes, stamp: str) -> Iterator[tuple[str, str]]:
    """A line with its time, or with that of the piece before it; nothing where it has none."""
    if stamp:
        yield stamp, line.decode(errors="replace")
        return
    found = _STAMPED.match(line)
    if found is not None:
        yield found[0].decode().rstrip(), line[found.end() :].decode(errors="replace")


def _instant(stamp: str) -> Instant:
    """A time that can be compared, whatever time zone the node is in."""
    found = _STAMPED.match(stamp.encode())
    if found is None:
        return _NEVER
    seconds, digits, zone = (part.decode() for part in found.groups(default=b""))
    offset = "+00:00" if zone == "Z" else zone
    return int(datetime.fromisoformat(seconds + offset).timestamp()), digits.rstrip("0")
