# SPDX-License-Identifier: Apache-2.0
"""The embedded cluster's store, served to another process over a socket, and the Cluster port there.

So the process that is measured holds the autoscaler and nothing else, as it would beside an API server.
"""

from __future__ import annotations

import pickle
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from multiprocessing.connection import Client, Listener
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import ClusterError
from kfp_volcano.volcano.cluster.polling import watch_by_polling

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from multiprocessing.connection import Connection

    from kfp_volcano.volcano.cluster.base import Event, Manifest, Page, Patch
    from kfp_volcano.volcano.cluster.polling import Events
    from kfp_volcano.volcano.cluster.store import Store

__all__ = ["ServedCluster", "serving"]

_PAGE = 500


@contextmanager
def serving(store: Store, address: str) -> Iterator[None]:
    """Answer meanwhile, each connection by a thread of its own."""
    listener = Listener(address, "AF_UNIX")

    def accept() -> None:
        with suppress(OSError):  # closed
            while True:
                connection = listener.accept()
                threading.Thread(target=_answer, args=(store, connection), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield
    listener.close()


def _answer(store: Store, connection: Connection) -> None:
    kept: list[Manifest] = []
    while True:
        try:
            method, args, more = connection.recv()
        except (EOFError, OSError):
            return
        try:
            if method == "page":
                kind, start = args
                if not start:
                    with store.transaction() as (world, _):
                        kept, version = list(world.objects.get(kind, {}).values()), str(world.version)
                answer: Any = (kept[start : start + _PAGE], version, start + _PAGE < len(kept))
            else:
                answer = getattr(store, method)(*args, **more)
        except ClusterError as error:
            answer = error
        with suppress(OSError):  # nobody waits for it any more
            connection.send_bytes(pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL))


class ServedCluster:
    """Implements the part of the Cluster port that the autoscaler uses, and counts the calls."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._local = threading.local()
        self.calls: Counter[str] = Counter()
        """By method and kind; a watch is one stream however many changes come through it, and is not counted."""

    def create(self, manifest: Manifest) -> Manifest:
        """See `Cluster.create`."""
        return self._call("create", manifest["kind"], manifest)

    def get(self, kind: str, name: str, namespace: str = "") -> Manifest:
        """See `Cluster.get`."""
        return self._call("get", kind, kind, name, namespace)

    def list(
        self,
        kind: str,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
        *,
        fields: Mapping[str, str] | None = None,
    ) -> Page:
        """See `Cluster.list`."""
        return self._call("list", kind, kind, namespace, labels, fields=fields)

    def pages(self, kind: str, namespace: str = "") -> Iterator[Page]:
        """See `Cluster.pages`."""
        assert not namespace  # noqa: S101 - not served
        start, more = 0, True
        while more:
            objects, version, more = self._call("page", kind, kind, start)
            start += _PAGE
            yield objects, version

    def patch(self, kind: str, name: str, namespace: str, patch: Patch) -> Manifest:
        """See `Cluster.patch`."""
        return self._call("patch", kind, kind, name, namespace, patch)

    def delete(self, kind: str, name: str, namespace: str = "", *, grace_s: float | None = None, uid: str = "") -> None:
        """See `Cluster.delete`."""
        self._call("delete", kind, kind, name, namespace, grace_s=grace_s, uid=uid)

    def watch(
        self, kind: str, namespace: str = "", *, resource_version: str, timeout_s: float = 30.0
    ) -> Iterator[Event]:
        """See `Cluster.watch`."""
        return watch_by_polling(self._poll, kind, namespace, resource_version=resource_version, timeout_s=timeout_s)

    def _poll(self, kind: str, namespace: str, *, resource_version: str, timeout_s: float) -> tuple[Events, str]:
        return self._ask("poll", kind, namespace, resource_version=resource_version, timeout_s=timeout_s)

    def _call(self, method: str, kind: str, *args: Any, **more: Any) -> Any:
        self.calls[f"{method} {kind}"] += 1
        return self._ask(method, *args, **more)

    def _ask(self, method: str, *args: Any, **more: Any) -> Any:
        if not hasattr(self._local, "connection"):
            self._local.connection = Client(self._address, "AF_UNIX")
        self._local.connection.send((method, args, more))
        answer = pickle.loads(self._local.connection.recv_bytes())  # noqa: S301 - from the parent process
        if isinstance(answer, ClusterError):
            raise answer
        return answer
