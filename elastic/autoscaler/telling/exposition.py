# SPDX-License-Identifier: Apache-2.0
"""The autoscaler's address for those who watch it: `/metrics`, `/healthz` and `/readyz`.

Metrics of several processes are served as one page: each series has the label `actor`, so that no two are the same,
and one that starts again from zero is a counter's reset, as Prometheus knows it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Protocol

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["ACTOR", "Health", "Serving", "Watched", "merged", "serve"]

ACTOR = "actor"
"""The label that tells actors apart."""

_LOOK_S = 0.1
"""How long its end may take to be noticed, seconds."""
_OK, _NOT_FOUND, _UNWELL = 200, 404, 503


class Health(Protocol):
    """How those who ask are answered."""

    def unwell(self) -> str:
        """Why the process should be started again; empty while it should not."""
        ...

    def unready(self) -> str:
        """Why it does no work yet; empty while it does, or stands by for one that does."""
        ...


class Watched(Collector):
    """A collector of what others have collected.

    Args:
        read: The families of each actor, by its name; called for each scrape.
    """

    def __init__(self, read: Callable[[], Mapping[str, Iterable[Metric]]]) -> None:
        self._read = read

    def describe(self) -> Iterable[Metric]:
        """Nothing: names are known when there are actors."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Every actor's families, as one."""
        return merged(self._read())


def merged(families: Mapping[str, Iterable[Metric]]) -> list[Metric]:
    """Families of the same name in one, each series with the name of its actor."""
    found: dict[str, Metric] = {}
    for actor, its in families.items():
        for family in its:
            into = found.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            into.samples += [
                Sample(each.name, {**each.labels, ACTOR: actor}, each.value, each.timestamp, each.exemplar)
                for each in family.samples
            ]
    return [found[name] for name in sorted(found)]


@dataclass(frozen=True, slots=True)
class Serving:
    """A page that is served."""

    server: ThreadingHTTPServer
    thread: threading.Thread

    @property
    def port(self) -> int:
        """Where it answers."""
        return int(self.server.server_address[1])

    def stop(self) -> None:
        """End it."""
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def serve(port: int, registry: CollectorRegistry, health: Health, host: str = "") -> Serving:
    """Answer at a port (0: any) of all interfaces, or of one. Raises OSError where it is taken."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                encode, content_type = choose_encoder(self.headers.get("Accept", ""))
                self._answer(_OK, encode(registry), content_type)
            elif path in {"/healthz", "/readyz"}:
                why = health.unwell() if path == "/healthz" else health.unready()
                self._answer(_UNWELL if why else _OK, f"{why or 'ok'}\n".encode(), "text/plain; charset=utf-8")
            else:
                self._answer(_NOT_FOUND, b"/metrics, /healthz, /readyz\n", "text/plain; charset=utf-8")

        def _answer(self, status: int, body: bytes, content_type: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Probes are no news."""

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(_LOOK_S,), name="metrics", daemon=True)
    thread.start()

    return Serving(server, thread)
