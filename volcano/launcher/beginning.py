# SPDX-License-Identifier: Apache-2.0
"""The first seconds of a Job: what fails at once, before the step that follows it is there.

A program that cannot begin, for a wrong argument or a missing file, fails in seconds, a few times over; then Volcano
ends the Job and takes its pods and their logs away. On a backend the step that follows the Job starts a minute after
the one that creates it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.errors import UnavailableError
from kfp_volcano.schemas.names import INSTANCE_LABEL
from kfp_volcano.volcano.launcher.ending import Failures
from kfp_volcano.volcano.model.objects import status_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.volcano.cluster.base import Cluster
    from kfp_volcano.volcano.launcher.reference import JobRef

__all__ = ["failed_at_once"]

LONGEST_S = 20.0
"""A gang that waits longer than this is left to the step that follows the Job."""
STEADY_LOOKS = 5
LOOK_S = 1.0
LONGEST_WORDS = 2000
"""What is kept on the Job, in characters."""


def failed_at_once(cluster: Cluster, ref: JobRef, *, clock: Callable[[], float], sleep: Callable[[float], None]) -> str:
    """Look on until all pods of the Job have run for a few seconds; returns what failed first, in words, or nothing."""
    failures, steady, ends = Failures(cluster, ref.namespace), 0, clock() + LONGEST_S
    while steady < STEADY_LOOKS and not failures.words and clock() < ends:
        try:
            pods, _ = cluster.list("Pod", ref.namespace, {INSTANCE_LABEL: ref.name})
            failures.look(pods)
        except UnavailableError:
            return ""
        begun = pods and all(status_of(pod).get("phase") in {"Running", "Succeeded"} for pod in pods)
        steady = steady + 1 if begun else 0
        sleep(LOOK_S)
    return failures.words[:LONGEST_WORDS]
