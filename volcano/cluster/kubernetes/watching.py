# SPDX-License-Identifier: Apache-2.0
"""A watch that goes on over dropped, silent and broken streams."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import ConflictError, UnavailableError
from kfp_volcano.volcano.cluster.base import Event
from kfp_volcano.volcano.cluster.kubernetes.connection import Answer, Silence
from kfp_volcano.volcano.cluster.kubernetes.refusals import refusal
from kfp_volcano.volcano.cluster.kubernetes.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kfp_volcano.volcano.cluster.base import Kind, Manifest
    from kfp_volcano.volcano.cluster.kubernetes.api import Api

__all__ = ["watch"]

_REOPEN_S = 5.0
"""How long to try to take a stream up again before whoever watches is told that there is no answer."""


def watch(
    api: Api,
    kind: Kind,
    namespace: str,
    *,
    resource_version: str,
    timeout_s: float,
    tidy: Callable[[Manifest, Kind], Manifest],
) -> Iterator[Event]:
    """See `Cluster.watch`; `tidy` gives each object its final form.

    A stream that ends before its time is taken up where it ended: nothing is lost and nothing comes twice.
    """
    patience = api.patience
    ends_at = patience.clock() + timeout_s
    drops = 0
    while True:
        left_s = max(0.0, ends_at - patience.clock())
        request = _request(kind, namespace, resource_version, left_s)
        try:
            for event in _events(api, request, tidy, silence_s=left_s + patience.late_s):
                drops = 0
                resource_version = event.resource_version
                yield event
        except Silence:
            pass  # half a line, or none for too long
        if patience.clock() >= ends_at:
            yield Event("BOOKMARK", {"kind": kind.name, "metadata": {"resourceVersion": resource_version}})
            return
        drops += 1
        patience.sleep(min(patience.pause_s(drops), max(0.0, ends_at - patience.clock())))


def _request(kind: Kind, namespace: str, resource_version: str, left_s: float) -> Request:
    query = {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "resourceVersion": resource_version,
        "timeoutSeconds": str(max(1, math.ceil(left_s))),  # 0 would be the server's default, half an hour or more
    }
    return Request("watch", kind, namespace, query=query)


def _events(
    api: Api, request: Request, tidy: Callable[[Manifest, Kind], Manifest], *, silence_s: float
) -> Iterator[Event]:
    with api.stream(request, silence_s=silence_s, patience_s=_REOPEN_S) as chunks:
        for line in _lines(chunks):
            found = _parsed(line)
            if found["type"] == "ERROR":
                _raise(request, found["object"])
            yield Event(found["type"], tidy(found["object"], request.kind))


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError as error:
        raise Silence(f"a watch's line is no JSON: {error}", sent=True) from error
    return found


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Whole lines; what follows the last line's end was cut off and is dropped."""
    rest: list[bytes] = []
    for chunk in chunks:
        first, *more = chunk.split(b"\n")
        rest.append(first)
        for piece in more:
            yield b"".join(rest)
            rest = [piece]


def _raise(request: Request, status: dict[str, Any]) -> None:
    """The error that an ERROR event means."""
    error = refusal(request, Answer(int(status.get("code") or 500), {}, json.dumps(status).encode()))
    if isinstance(error, UnavailableError):
        raise Silence(str(error), sent=True)
    raise error or ConflictError(f"{request}: the stream was ended: {status}")
