# SPDX-License-Identifier: Apache-2.0
"""An API server over the embedded cluster's objects, and kubelets as far as their logs go: requests in, answers out."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from kfp_volcano.errors import ClusterError, ConflictError, InvalidError, NotFoundError
from kfp_volcano.volcano.cluster.kubernetes.request import Request
from kfp_volcano.volcano.cluster.store import Store

__all__ = ["Reply", "Run", "Server", "Stream"]

Reply = tuple[int, bytes]
"""Status and body."""


@dataclass
class Run:
    """What one run of a container has printed: Unix nanoseconds and a line each."""

    lines: list[tuple[int, str]] = field(default_factory=list)
    over: bool = False


@dataclass
class Stream:
    """An answer that is still coming."""

    number: int
    request: Request
    ends_at: float
    version: str = ""
    position: int = 0
    told: bool = False
    """Whether its reader has been told of news and has not read them yet."""
    silent: bool = False
    """Nothing comes any more, and no end either."""
    cut_after: int | None = None
    """Pieces until the connection is reset."""
    run: Run | None = None
    """Of a log: it stays that run's, whatever the container does."""


class Server:
    """Answers requests as an API server does."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.runs: dict[str, list[Run]] = {}
        """By the uid of the pod."""

    def answer(self, request: Request) -> Reply:
        """Do what is asked."""
        try:
            return 200, json.dumps(self._do(request)).encode()
        except NotFoundError as error:
            return _status(404, str(error), details={"name": request.name})
        except ConflictError as error:
            # A JSON Patch whose test fails is answered so, and without a cause.
            return _status(422 if request.verb == "patch" else 409, str(error))
        except InvalidError as error:
            return _status(422, str(error), details={"causes": [{"field": "spec", "message": str(error)}]})
        except ClusterError as error:
            return _status(500, str(error))

    def open(self, request: Request, number: int, now: float) -> Stream | Reply:
        """Begin an answer that comes piece by piece."""
        stream = Stream(number, request, ends_at=now + float(request.query.get("timeoutSeconds", math.inf)))
        if request.verb == "watch":
            stream.version = request.query["resourceVersion"]
            try:
                self.store.poll(request.kind.name, request.namespace, resource_version=stream.version, timeout_s=0)
            except ConflictError as error:
                return _status(410, str(error))
            return stream
        try:
            pod = self.store.get("Pod", request.name, request.namespace)
        except NotFoundError as error:
            return _status(404, str(error), details={"name": request.name})
        stream.run = self._run(pod["metadata"]["uid"], request)
        return _status(400, "there is no such run of the container") if stream.run is None else stream

    def has_news(self, stream: Stream, now: float) -> bool:
        """Whether `read` would say something."""
        if stream.silent:
            return False
        if stream.request.verb == "watch":
            return now >= stream.ends_at or str(self.store.version) != stream.version
        run = stream.run
        return run is None or run.over or stream.position < len(run.lines) or not stream.request.query.get("follow")

    def read(self, stream: Stream, now: float) -> bytes | None:
        """What comes next; empty where nothing does yet, None at the end."""
        if stream.silent:
            return b""
        return self._read_watch(stream, now) if stream.request.verb == "watch" else self._read_log(stream)

    def _do(self, request: Request) -> dict[str, Any]:
        kind, name, namespace = request.kind.name, request.name, request.namespace
        match request.verb:
            case "get":
                return self.store.get(kind, name, namespace)
            case "list":
                labels = dict(pair.split("=", 1) for pair in request.query.get("labelSelector", "").split(",") if pair)
                items, version = self.store.list(kind, namespace, labels)
                fields = dict(pair.split("=", 1) for pair in request.query.get("fieldSelector", "").split(",") if pair)
                items = [item for item in items if all(item.get(key) == value for key, value in fields.items())]
                return {"items": items, "metadata": {"resourceVersion": version}}
            case "create":
                return self.store.create(request.body)
            case "patch":
                return self.store.patch(kind, name, namespace, request.body)
            case "delete":
                uid = (request.body.get("preconditions") or {}).get("uid", "")
                grace = request.body.get("gracePeriodSeconds")
                self.store.delete(kind, name, namespace, grace_s=grace, uid=uid)
                return {"kind": "Status", "status": "Success"}
        raise InvalidError(f"no such verb: {request.verb}")

    def _read_watch(self, stream: Stream, now: float) -> bytes | None:
        kind = stream.request.kind.name
        try:
            events, stream.version = self.store.poll(
                kind, stream.request.namespace, resource_version=stream.version, timeout_s=0
            )
        except ConflictError as error:
            return _event("ERROR", json.loads(_status(410, str(error))[1]))
        if events:
            return b"".join(_event(event.type, event.object) for event in events)
        if now < stream.ends_at:
            return b""
        if stream.position:  # the bookmark was the last
            return None
        stream.position = 1
        return _event("BOOKMARK", {"kind": kind, "metadata": {"resourceVersion": stream.version}})

    def _run(self, uid: str, request: Request) -> Run | None:
        runs = self.runs.get(uid, [])
        back = 2 if request.query.get("previous") else 1
        return runs[-back] if len(runs) >= back else None

    def _read_log(self, stream: Stream) -> bytes | None:
        run = stream.run
        if run is None:
            return None
        since = stream.request.query.get("sinceTime", "")[:19]
        lines = run.lines[stream.position :]
        stream.position = len(run.lines)
        told = [f"{stamp} {text}\n".encode() for at, text in lines if (stamp := _stamp(at))[:19] >= since]
        if "tailLines" in stream.request.query:
            told = told[-int(stream.request.query["tailLines"]) :]
        if told:
            return b"".join(told)
        return None if run.over or not stream.request.query.get("follow") else b""


def _stamp(nanos: int) -> str:
    seconds, rest = divmod(nanos, 10**9)
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def _event(kind: str, manifest: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": manifest}).encode() + b"\n"


def _status(code: int, message: str, details: dict[str, Any] | None = None) -> Reply:
    status = {"kind": "Status", "apiVersion": "v1", "code": code, "message": message, "details": details or {}}
    return code, json.dumps(status).encode()
