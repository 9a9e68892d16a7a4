# SPDX-License-Identifier: Apache-2.0
"""The program of the coordinator pod: `python -m kfp_volcano.elastic.autoscaler.coordinator`.

First what workers wait for (the receiver of their progress, and the lighthouse, or with strategy `restart` the
generations), then, as often as it takes, what needs the cluster: publishing progress, and the autoscaler beside the
Job. That the cluster does not answer never stops training. It keeps nothing: killed and started again it goes on from
the Job's annotations, and from what the agents tell it.

Exit codes: 0 after SIGTERM or SIGINT, 2 where the environment is not a coordinator pod's or a port is taken.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kfp_volcano.elastic.autoscaler.publishing import ProgressPublisher
from kfp_volcano.elastic.coordination.generations import GenerationService
from kfp_volcano.elastic.coordination.progress import ProgressReceiver
from kfp_volcano.elastic.generations import Generations
from kfp_volcano.elastic.runtime.coordinator import Coordinator
from kfp_volcano.errors import ForbiddenError, KfpVolcanoError, UnavailableError
from kfp_volcano.schemas import names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kfp_volcano.schemas.records import Progress
    from kfp_volcano.volcano.cluster.base import Cluster

__all__ = ["main"]

ENDING = (signal.SIGTERM, signal.SIGINT)
RETRY_S = 5.0
"""Before the next try to start what needs the cluster, seconds."""
REFUSED_S = 60.0
"""The same where the cluster has answered, and will answer the same until somebody changes its mind."""

_log = logging.getLogger(__name__)


def main(environment: Mapping[str, str] = os.environ) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    stopped = threading.Event()
    # Held back in all threads to come; `_listen` lets them through in this one.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    missing = [name for name in (names.ENV_JOB, names.ENV_POD_IP) if not environment.get(name)]
    if missing:
        _log.error("this is the program of a Job's coordinator pod: not set: %s", " and ".join(missing))
        return 2
    link = _Link()
    namespace, _, name = environment[names.ENV_JOB].partition("/")
    publisher = ProgressPublisher(link.cluster, namespace, name)
    try:
        services = _serve(environment, publisher.offer)
    except (OSError, ValueError) as error:
        _log.error("%s", error)
        return 2
    _log.info("coordinating %s on %s", environment[names.ENV_JOB], environment[names.ENV_POD_IP])
    said = ""
    while (trouble := _attend(environment, link)) is not None:
        if str(trouble) != said:
            said = str(trouble)
            _log.warning("the autoscaler is not running yet: %s", said)
        if _listen(stopped, REFUSED_S if isinstance(trouble, ForbiddenError) else RETRY_S):
            break
    else:
        _listen(stopped, None)
    publisher.close()
    for service in services:
        service.stop()
    return 0


class _Service(Protocol):
    """Something that workers connect to."""

    def stop(self) -> None: ...


def _serve(environment: Mapping[str, str], on_progress: Callable[[Progress], None]) -> Sequence[_Service]:
    """Open the ports. Raises OSError where one is taken, ValueError where the environment is not a coordinator's."""
    host = environment[names.ENV_POD_IP]
    roles = environment.get(names.ENV_ROLES)
    if roles is None:
        return [Coordinator(host, on_progress)]
    generations = Generations(json.loads(roles), names.WORKER, int(environment.get(names.ENV_LEAST) or 1))
    receiver = ProgressReceiver(host, on_progress)
    try:
        return [receiver, GenerationService(host, generations)]
    except OSError:
        receiver.stop()
        raise


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


def _attend(environment: Mapping[str, str], link: _Link) -> Exception | None:
    """See that the autoscaler beside the Job runs; what is in the way if that is to be tried again."""
    try:
        cluster = link.connect()
        from kfp_volcano.elastic.autoscaler.actor import start_sidecar  # noqa: PLC0415 - as above

        namespace, _, name = environment[names.ENV_JOB].partition("/")
        queue = str(cluster.get("Job", name, namespace)["spec"].get("queue") or "default")
        folder, policies = (
            Path(found) if (found := environment.get(name)) else None
            for name in (names.ENV_JOB_DIR, names.ENV_POLICIES)
        )
        start_sidecar(queue=queue, job=environment[names.ENV_JOB], folder=folder, policies=policies)
    except (KfpVolcanoError, RuntimeError, OSError, ValueError) as error:
        return error
    return None


def _listen(stopped: threading.Event, seconds: float | None) -> bool:
    """Wait for a signal to end; whether one came, also while Ray had put its own handlers in place of ours."""
    for number in ENDING:
        signal.signal(number, lambda *_: stopped.set())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    stopped.wait(seconds)
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    return stopped.is_set()


if __name__ == "__main__":
    sys.exit(main())
