"""The program of the coordinator pod: `python -m kfp_volcano.elastic.autoscaler.coordinator`.

First what workers wait for (the lighthouse and the receiver of their progress), then, as often as it takes, what needs
the cluster: publishing progress, and the autoscaler beside the Job. That the cluster does not answer never stops
training. It keeps nothing: killed and started again it goes on from the Job's annotations.

Exit codes: 0 after SIGTERM or SIGINT, 2 where the environment is not a coordinator pod's or a port is taken.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.publishing import ProgressPublisher
from kfp_volcano.elastic.runtime.coordinator import Coordinator
from kfp_volcano.errors import KfpVolcanoError, UnavailableError
from kfp_volcano.schemas import names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfp_volcano.volcano.cluster.base import Cluster

__all__ = ["main"]

RETRY_S = 5.0
"""Before the next try to start what needs the cluster, seconds."""

_log = logging.getLogger(__name__)


def main(environment: Mapping[str, str] = os.environ) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    stopped = threading.Event()
    _stop_on_signals(stopped)
    missing = [name for name in (names.ENV_JOB, names.ENV_POD_IP) if not environment.get(name)]
    if missing:
        _log.error("this is the program of a Job's coordinator pod: not set: %s", " and ".join(missing))
        return 2
    link = _Link()
    namespace, _, name = environment[names.ENV_JOB].partition("/")
    publisher = ProgressPublisher(link.cluster, namespace, name)
    try:
        coordinator = Coordinator(environment[names.ENV_POD_IP], on_progress=publisher.offer)
    except OSError as error:
        _log.error("%s", error)
        return 2
    _log.info("coordinating %s on %s", environment[names.ENV_JOB], environment[names.ENV_POD_IP])
    while not stopped.is_set() and not _attend(environment, link):
        _stop_on_signals(stopped)
        stopped.wait(RETRY_S)
    # Again, because Ray has put its own handler in place of ours.
    _stop_on_signals(stopped)
    stopped.wait()
    publisher.close()
    coordinator.stop()
    return 0


class _Link:
    """The connection to the cluster: made by the main thread, for Ray meddles with signals, and used by all."""

    def __init__(self) -> None:
        self._cluster: Cluster | None = None

    def connect(self) -> Cluster:
        # Imported on use: clients take seconds to import, and workers wait for the lighthouse.
        from kfp_volcano.volcano.cluster.connect import connect  # noqa: PLC0415

        self._cluster = self._cluster or connect()
        return self._cluster

    def cluster(self) -> Cluster:
        if self._cluster is None:
            raise UnavailableError("there is no connection to the cluster yet")
        return self._cluster


def _attend(environment: Mapping[str, str], link: _Link) -> bool:
    """See that the autoscaler beside the Job runs; False if that is to be tried again."""
    try:
        cluster = link.connect()
        from kfp_volcano.elastic.autoscaler.actor import start_sidecar  # noqa: PLC0415 - as above

        namespace, _, name = environment[names.ENV_JOB].partition("/")
        queue = str(cluster.get("Job", name, namespace)["spec"].get("queue") or "default")
        folder = environment.get(names.ENV_JOB_DIR)
        start_sidecar(queue=queue, job=environment[names.ENV_JOB], folder=Path(folder) if folder else None)
    except (KfpVolcanoError, RuntimeError, OSError, ValueError) as error:
        _log.warning("the autoscaler is not running yet: %s", error)
        return False
    return True


def _stop_on_signals(stopped: threading.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())


if __name__ == "__main__":
    sys.exit(main())
