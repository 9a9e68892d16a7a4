"""The autoscaler as a Ray actor: named, detached, and started again by Ray whenever its process dies.

On the embedded cluster it lives in the Ray of the cluster's host, in a pod in a small Ray of that pod. It holds no
state: a new process goes on from what the cluster holds, under the same identity, so that it takes up its own Leases.
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Any

import ray

from kfp_volcano.elastic.autoscaler.fleet import Fleet
from kfp_volcano.elastic.autoscaler.queue_log import QueueLog
from kfp_volcano.elastic.policies.guards import Guarded
from kfp_volcano.elastic.policies.threshold import Threshold
from kfp_volcano.errors import ClusterError
from kfp_volcano.schemas.names import ENV_CLUSTER, SYSTEM_NAMESPACE
from kfp_volcano.volcano.cluster.connect import connect

__all__ = ["RAY_NAMESPACE", "QueueAutoscalerActor", "sidecar_name", "start_sidecar"]

RAY_NAMESPACE = "kfp-volcano"

RETRY_S = 2.0
"""Before the next try after a failure that was not expected, seconds."""
START_S = 120.0
_OBJECT_STORE_BYTES = 80 * 2**20  # Ray's least

_log = logging.getLogger(__name__)


class QueueAutoscalerActor:
    """Runs one `Fleet` beside one Job, until that Job has ended.

    Args:
        cluster: Which one, in the terms of `connect`.
        queue: The Job's queue.
        job: The Job, as namespace/name.
        folder: Where the queue's timeline is written; None for nowhere.
    """

    def __init__(self, *, cluster: str, queue: str, job: str, folder: str | None) -> None:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
        self._cluster = cluster
        self._queue = queue
        self._job = job
        self._log = QueueLog(Path(folder)) if folder else None
        threading.Thread(target=self._run, name="autoscaler", daemon=True).start()

    def pid(self) -> int:
        """The process it runs in: an answer says that it runs."""
        return os.getpid()

    def _run(self) -> None:
        again = threading.Event()
        while True:
            try:
                self._autoscaler().run()
            except ClusterError as error:
                _log.warning("the cluster cannot be reached: %s", error)
            except Exception:  # noqa: BLE001 - whatever it was, the queue must not be left without its autoscaler
                _log.exception("the autoscaler failed and starts again")
            else:
                break
            again.wait(RETRY_S)
        # A way out that Ray does not take for a crash.
        ray.kill(ray.get_runtime_context().current_actor, no_restart=True)

    def _autoscaler(self) -> Fleet:
        policy = Guarded(Threshold())
        return Fleet(
            connect(self._cluster),
            queues=lambda _: (self._queue,),
            policies=lambda _: policy,
            identity=f"sidecar:{self._job}",
            namespace=self._job.partition("/")[0],
            log=self._log,
            shared_namespace=SYSTEM_NAMESPACE,
            only_for=self._job,
        )


def sidecar_name(job: str) -> str:
    """The Ray name of the actor beside a Job (namespace/name)."""
    return f"autoscaler:{job}"


def start_sidecar(*, queue: str, job: str, folder: Path | None) -> Any:
    """Have the autoscaler run beside a Job: the handle of its actor, started if there is none.

    Which Ray: that of the embedded cluster's host, where `KFP_VOLCANO_CLUSTER` names one, else one that this process
    starts. Raises an error of Ray's, a RuntimeError mostly, where it does not start.
    """
    cluster = os.environ.get(ENV_CLUSTER, "")
    _join_ray(cluster)
    actor = (
        ray.remote(QueueAutoscalerActor)
        .options(
            name=sidecar_name(job),
            namespace=RAY_NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=-1,
            max_task_retries=-1,
            num_cpus=0,
        )
        .remote(cluster=cluster, queue=queue, job=job, folder=str(folder) if folder else None)
    )
    ray.get(actor.pid.remote(), timeout=START_S)
    return actor


def _join_ray(cluster: str) -> None:
    if ray.is_initialized():
        return
    if cluster.startswith("embedded:"):
        ray.init(address=cluster.removeprefix("embedded:"), namespace=RAY_NAMESPACE, log_to_driver=False)
    else:
        ray.init(
            address="local",
            namespace=RAY_NAMESPACE,
            num_cpus=1,
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
        )
