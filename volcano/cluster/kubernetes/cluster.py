# SPDX-License-Identifier: Apache-2.0
"""The Cluster port over a Kubernetes API server."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError
from kfp_volcano.volcano.cluster.base import KINDS
from kfp_volcano.volcano.cluster.json_patch import apply_patch
from kfp_volcano.volcano.cluster.kubernetes import own_pod, preflight
from kfp_volcano.volcano.cluster.kubernetes.api import Api, Patience, checked
from kfp_volcano.volcano.cluster.kubernetes.logs import LogReader
from kfp_volcano.volcano.cluster.kubernetes.request import Request
from kfp_volcano.volcano.cluster.kubernetes.watching import watch
from kfp_volcano.volcano.model.objects import has_ended, holds

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from kfp_volcano.volcano.cluster.base import Event, Findings, Kind, Manifest, Page, Patch
    from kfp_volcano.volcano.cluster.kubernetes.connection import Connection

__all__ = ["KubernetesCluster"]

_PAGE = 500
_CONFLICT, _GONE, _NOT_FOUND, _UNPROCESSABLE = 409, 410, 404, 422
_WHO = {"fieldManager": "kfp-volcano"}


class _TooOldError(ConflictError):
    """Between two pages the server has forgotten the version that they were read at."""


class KubernetesCluster:
    """A cluster behind an API server. Threads may share it.

    Args:
        connection: The way there.
        patience: How long a request is tried again while there is no answer.
        pod: The pod of this cluster that this process is in (`own_pod.named`), if it is in one.
    """

    def __init__(
        self, connection: Connection, *, patience: Patience | None = None, pod: Manifest | None = None
    ) -> None:
        self.api = Api(connection, patience or Patience())
        self._pod = pod

    def create(self, manifest: Manifest) -> Manifest:
        """See `Cluster.create`.

        Where an earlier try got no answer and the object is there now as it was meant, that try has created it.
        """
        kind = _kind(str(manifest.get("kind")))
        metadata = manifest.get("metadata") or {}
        if not metadata.get("name"):
            raise InvalidError(f"{kind.name}: metadata.name is required")
        namespace = _namespace(kind, str(metadata.get("namespace") or ""))
        request = Request("create", kind, namespace, query=_WHO, body=manifest)
        reply = self.api.ask(request)
        if reply.answer.status == _CONFLICT and reply.doubtful:
            found = self.get(kind.name, metadata["name"], namespace)
            if holds(found, manifest):
                return found
        return _tidy(checked(request, reply.answer), kind)

    def get(self, kind: str, name: str, namespace: str = "") -> Manifest:
        """See `Cluster.get`."""
        known = _kind(kind)
        return _tidy(self.api.read(Request("get", known, _namespace(known, namespace), _named(known, name))), known)

    def list(
        self,
        kind: str,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
        *,
        fields: Mapping[str, str] | None = None,
    ) -> tuple[list[Manifest], str]:
        """See `Cluster.list`."""
        query = {
            selector: ",".join(f"{key}={value}" for key, value in wanted.items())
            for selector, wanted in (("labelSelector", labels), ("fieldSelector", fields))
            if wanted
        }
        try:
            pages = list(self._pages(kind, namespace, query))
        except _TooOldError:  # paging took longer than the server keeps its past: read anew, and at once
            pages = list(self._pages(kind, namespace, query, whole=True))
        return [each for objects, _ in pages for each in objects], pages[-1][1]

    def pages(self, kind: str, namespace: str = "") -> Iterator[Page]:
        """See `Cluster.pages`."""
        return self._pages(kind, namespace, {})

    def _pages(self, kind: str, namespace: str, query: Mapping[str, str], *, whole: bool = False) -> Iterator[Page]:
        known = _kind(kind)
        page = {} if whole else {"limit": str(_PAGE)}
        while True:
            request = Request("list", known, namespace, query={**query, **page})
            answer = self.api.ask(request).answer
            if answer.status == _GONE and "continue" in page:
                raise _TooOldError(f"{request}: what was being read page by page is too old by now")
            content = checked(request, answer)
            metadata = content["metadata"]
            yield [_tidy(each, known) for each in content.get("items") or ()], str(metadata["resourceVersion"])
            if not metadata.get("continue"):
                return
            page = {"limit": str(_PAGE), "continue": metadata["continue"]}

    def patch(self, kind: str, name: str, namespace: str, patch: Patch) -> Manifest:
        """See `Cluster.patch`.

        A patch whose earlier try got no answer meets its own change, if that was carried out: the test that it holds
        fails then, and the caller reads again, as after any other conflict.
        """
        known = _kind(kind)
        request = Request(
            "patch", known, _namespace(known, namespace), _named(known, name), query=_WHO, body=list(patch)
        )
        answer = self.api.ask(request).answer
        if answer.status == _UNPROCESSABLE and not _causes(answer.json):
            # The server does not say which operation failed, nor that it was a test: the patch is tried on a copy.
            apply_patch(self.get(kind, name, namespace), patch)
            raise ConflictError(f"{request}: the object has changed meanwhile")
        return _tidy(checked(request, answer), known)

    def delete(self, kind: str, name: str, namespace: str = "", *, grace_s: float | None = None, uid: str = "") -> None:
        """See `Cluster.delete`."""
        known = _kind(kind)
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = math.ceil(grace_s)
        if uid:
            options["preconditions"] = {"uid": uid}
        request = Request("delete", known, _namespace(known, namespace), _named(known, name), body=options)
        reply = self.api.ask(request)
        if not (reply.doubtful and reply.answer.status == _NOT_FOUND):
            checked(request, reply.answer)

    def watch(
        self, kind: str, namespace: str = "", *, resource_version: str, timeout_s: float = 30.0
    ) -> Iterator[Event]:
        """See `Cluster.watch`."""
        known = _kind(kind)
        return watch(self.api, known, namespace, resource_version=resource_version, timeout_s=timeout_s, tidy=_tidy)

    def logs(self, pod: str, namespace: str, *, after: str = "", tail: int | None = None) -> tuple[str, str]:
        """See `Cluster.logs`."""
        reader = LogReader(self.api, self.get("Pod", pod, namespace), after, tail=tail)
        lines = list(reader.lines())
        kept = lines if tail is None else lines[-tail:] if tail else []
        return "".join(kept), str(reader.place)

    def follow_logs(
        self, pod: str, namespace: str, *, after: str = "", stop: threading.Event
    ) -> Iterator[tuple[str, str]]:
        """See `Cluster.follow_logs`."""
        patience = self.api.patience
        while not stop.is_set():
            manifest = self.get("Pod", pod, namespace)
            ended = has_ended(manifest)
            reader = LogReader(self.api, manifest, after)
            for line in reader.lines(follow=not ended):
                yield line, str(reader.place)
                if stop.is_set():
                    return
            after = str(reader.place)
            if ended and not reader.broken_off:
                return
            patience.sleep(patience.pause_s(1))

    def volume(self, namespace: str, claim: str) -> Path | None:
        """See `Cluster.volume`: a pod mounts claims of its own namespace only."""
        pod = self.own_pod()
        if pod is None or pod["metadata"]["namespace"] != namespace:
            return None
        return own_pod.mounted(pod, claim)

    def own_pod(self) -> Manifest | None:
        """See `Cluster.own_pod`."""
        if self._pod is None:
            return None
        try:
            return self.get("Pod", self._pod["metadata"]["name"], self._pod["metadata"]["namespace"])
        except (ForbiddenError, NotFoundError):
            return self._pod

    def preflight(self, job: Manifest) -> Findings:
        """See `Cluster.preflight`."""
        return preflight.findings(self, job)


def _kind(name: str) -> Kind:
    try:
        return KINDS[name]
    except KeyError:
        raise InvalidError(f"kfp-volcano knows no kind {name!r}; it knows {', '.join(KINDS)}") from None


def _named(kind: Kind, name: str) -> str:
    """The name of one object: without one the path would be that of all, and deleting would delete all."""
    if not name:
        raise NotFoundError(f"there is no {kind.name} without a name")
    return name


def _namespace(kind: Kind, namespace: str) -> str:
    return (namespace or "default") if kind.namespaced else ""


def _tidy(found: Manifest, kind: Kind) -> Manifest:
    """The object as it looks everywhere.

    The items of a list lack their kind. Who wrote which field takes more room than the object, and nobody asks for it.
    """
    found = {"apiVersion": kind.api_version, "kind": kind.name, **found}
    found["metadata"].pop("managedFields", None)
    return found


def _causes(status: Mapping[str, Any]) -> bool:
    return bool((status.get("details") or {}).get("causes"))
