# SPDX-License-Identifier: Apache-2.0
"""A Job that goes when its run is terminated, for a step that has no exit task beside it.

Terminate reaches a step as SIGTERM, and so does the loss of its pod, after which the Job has to train on. Which it is
the Workflow says: KFP terminates a run by setting its `activeDeadlineSeconds` to 0
(backend/src/common/util/execution_spec.go). A step has from 0 to 1 s before it is killed, mostly enough for two
requests; a Job that they miss is left to `kfp-volcano reap`.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from kfp_volcano.errors import ClusterError, NotFoundError
from kfp_volcano.volcano.launcher.step_pod import run_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest
    from kfp_volcano.volcano.launcher.reference import JobRef

__all__ = ["ended_with_its_run", "is_terminated"]


def is_terminated(workflow: Manifest) -> bool:
    """Whether a run was told to end."""
    return workflow["spec"].get("activeDeadlineSeconds") == 0 or "deletionTimestamp" in workflow["metadata"]


@contextmanager
def ended_with_its_run(connect: Callable[[], Cluster], ref: JobRef, pod: Manifest | None) -> Iterator[None]:
    """While the block runs, let a SIGTERM that comes of the run's termination delete the Job.

    The requests are made by a thread with a connection of its own, which is open by then: the one that the signal
    interrupts may hold any lock. Nothing is printed, for whoever reads the output is dead already.

    Args:
        connect: Gives the cluster.
        ref: The Job.
        pod: The step's own, if it is in one. Where that does not know its run, a SIGTERM is as ever.
    """
    run = run_of(pod)
    if pod is None or run is None:
        yield
        return
    place = (run["name"], pod["metadata"]["namespace"])
    ear, mouth = os.pipe()
    waiting = threading.Thread(target=_wait, args=(ear, connect(), ref, place), daemon=True)
    waiting.start()
    before = signal.signal(signal.SIGTERM, lambda *_: _told(mouth, waiting))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        os.close(mouth)  # the thread reads the end of the pipe
        waiting.join()
        os.close(ear)


def _wait(ear: int, cluster: Cluster, ref: JobRef, run: tuple[str, str]) -> None:
    with suppress(ClusterError):
        cluster.get("Workflow", *run)  # opens the connection
    if os.read(ear, 1):
        with suppress(ClusterError):
            if _is_over(cluster, run):
                cluster.delete("Job", ref.name, ref.namespace)


def _is_over(cluster: Cluster, run: tuple[str, str]) -> bool:
    try:
        return is_terminated(cluster.get("Workflow", *run))
    except NotFoundError:  # deleted
        return True


def _told(mouth: int, waiting: threading.Thread) -> None:
    os.write(mouth, b"!")
    waiting.join()
    os._exit(128 + signal.SIGTERM)
