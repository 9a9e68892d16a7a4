# SPDX-License-Identifier: Apache-2.0
"""An autoscaler as a service: a supervisor with its actors, an address to watch it at, and an end on SIGTERM."""

from __future__ import annotations

import logging
import os
import signal
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.actor import Crew
from kfp_volcano.elastic.autoscaler.home import make_home
from kfp_volcano.elastic.autoscaler.policy_file import PolicyFile
from kfp_volcano.elastic.autoscaler.supervisor import RayDiedError, Supervisor
from kfp_volcano.elastic.autoscaler.telling.exposition import serve
from kfp_volcano.elastic.autoscaler.telling.narration import log_to
from kfp_volcano.elastic.autoscaler.telling.printed import Printed
from kfp_volcano.errors import SpecError, UnavailableError
from kfp_volcano.volcano.cluster.connect import EMBEDDED
from kfp_volcano.volcano.cluster.informer import Informer
from kfp_volcano.volcano.model.queues import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from kfp_volcano.elastic.autoscaler.station import Orders
    from kfp_volcano.elastic.autoscaler.telling.exposition import Serving
    from kfp_volcano.elastic.autoscaler.telling.narration import LogFormat
    from kfp_volcano.volcano.cluster.base import Cluster

__all__ = ["METRICS_PORT", "run_service"]

METRICS_PORT = 8080

_log = logging.getLogger(__name__)


def run_service(
    orders: Orders,
    *,
    queues: Collection[str],
    selector: Mapping[str, str] | None,
    actors: int,
    port: int | None,
    log_format: LogFormat,
) -> None:
    """Lead queues until SIGTERM or SIGINT; then the Leases have been given back. To be called from the main thread.

    Where Ray itself dies under it, this process begins anew: the same program with the same arguments.

    Args:
        orders: Of each actor, but for its number and its queues.
        queues: Their names.
        selector: Labels; the queues that have them are led too, as they come and go. Empty: all; None: no more.
        actors: The most there are to be.
        port: Where metrics, health and readiness are served; None for `METRICS_PORT`, or any where that is taken.
        log_format: Of the lines on standard error.

    Raises:
        SpecError: The Policies are wrong, the port is taken, or there is no place for the Leases.
        ClusterError: The cluster does not answer, or refuses; Ray did not start.
    """
    log_to(None, log_format)
    PolicyFile(orders.policies)
    cluster = orders.access.connect()
    if not orders.access.target.startswith(EMBEDDED):
        make_home(cluster, orders.home or orders.namespace)
    there = {str(queue["metadata"]["name"]) for queue in cluster.list("Queue")[0]}
    for name in sorted(set(queues) - there):
        _log.warning("there is no queue %s: it is led as soon as there is", name, extra={"queue": name})
    crew = Crew(orders, log_format)
    followed = _followed(cluster, selector) if selector is not None else frozenset
    supervisor = Supervisor(crew, queues=lambda: {*queues, *followed()}, actors=actors)
    serving = _serve(port, supervisor)
    try:
        with redirect_stdout(Printed()):
            _join(crew)
            # After Ray, which puts handlers of its own in place.
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: supervisor.stop())
            _log.info("%s leads, or stands by; metrics at port %d", orders.identity, serving.port)
            supervisor.run()
    except RayDiedError as error:
        _log.error("%s: beginning anew", error)
        crew.abandon()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - the same program again
    finally:
        serving.stop()
        crew.leave()
    _log.info("ended: what was led is free for others")


def _serve(port: int | None, supervisor: Supervisor) -> Serving:
    """Serve at the port that was named, else at the usual one or, where another replica has that, at any."""
    try:
        return serve(METRICS_PORT if port is None else port, supervisor.registry(), supervisor)
    except OSError as error:
        if port is not None:
            raise SpecError(f"port {port} cannot be served: {error.strerror}", source="--metrics-port") from error
        return serve(0, supervisor.registry(), supervisor)


def _join(crew: Crew) -> None:
    try:
        crew.join()
    except (RuntimeError, OSError, ValueError) as error:
        raise UnavailableError(f"Ray, in which the actors live, cannot be joined: {error}") from error


def _followed(cluster: Cluster, selector: Mapping[str, str]) -> Callable[[], frozenset[str]]:
    """The names of the queues that have some labels, as last seen; Volcano's root, which takes no Jobs, is none.

    Raises a ClusterError where they cannot be seen.
    """
    informer = Informer(cluster, ("Queue",))
    informer.start()
    return lambda: frozenset(
        str(queue["metadata"]["name"])
        for queue in informer.objects("Queue")
        if queue["metadata"]["name"] != ROOT and selector.items() <= (queue["metadata"].get("labels") or {}).items()
    )
