# SPDX-License-Identifier: Apache-2.0
"""Changing a Job's priority class, and noting on it why: for a person, or for a policy.

Both are one JSON Patch that tests what it was made from, so that the class never stands there without its reason.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.contracts import read_list, spec_of
from kfp_volcano.errors import ConflictError, NotFoundError, SpecError
from kfp_volcano.schemas.names import CLASSES
from kfp_volcano.schemas.records import ClassChange, dump
from kfp_volcano.volcano.cluster.annotations import annotation, annotation_patch
from kfp_volcano.volcano.manifests.priority import priority_change

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kfp_volcano.elastic.policies.priorities import RankChange
    from kfp_volcano.volcano.cluster.base import Cluster, Manifest
    from kfp_volcano.volcano.manifests.priority import PriorityChange

__all__ = ["PERSON", "Ranker", "base_class", "class_changes", "rank"]

PERSON = "Person"
"""Reason code of what a person chose."""
MOST_CHANGES = 20

_log = logging.getLogger(__name__)


def class_changes(job: Manifest) -> list[ClassChange]:
    """How a Job's class was changed, newest last."""
    return read_list(ClassChange, annotation(job, CLASSES))


def base_class(job: Manifest) -> str | None:
    """The class that a Job starts from: the last that a person chose, else its spec's; None where it is not ours."""
    spec = spec_of(job)
    if spec is None:
        return None
    chosen = [change.to_class for change in class_changes(job) if change.reason == PERSON]
    return chosen[-1] if chosen else spec.priority or ""


def rank(cluster: Cluster, job: Manifest, record: ClassChange, values: Mapping[str, int]) -> PriorityChange:
    """Give a Job, as just read from the cluster, a class, and note it if the Job is ours.

    Args:
        cluster: Where.
        job: The Job.
        record: The class, and why.
        values: The cluster's PriorityClasses, name to value.

    Raises:
        SpecError: It cannot have that class.
        ClusterError: It has changed in between, or is gone.
    """
    change = priority_change(job, record.to_class, values)
    patch = list(change.patch)
    if spec_of(job) is not None:
        patch += annotation_patch(job, CLASSES, dump([*class_changes(job), record][-MOST_CHANGES:]))
    if patch:
        cluster.patch("Job", job["metadata"]["name"], job["metadata"]["namespace"], patch)
    return change


class Ranker:
    """Carries out what a policy of priorities decides.

    Args:
        cluster: Where the Jobs are.
        identity: Who this is, for the record.
    """

    def __init__(self, cluster: Cluster, *, identity: str) -> None:
        self._cluster = cluster
        self._identity = identity
        self._said: dict[str, str] = {}

    def carry_out(
        self, changes: Iterable[RankChange], values: Mapping[str, int], now: float
    ) -> Iterator[tuple[str, ClassChange]]:
        """Make the changes, and tell of each that was made; one whose Job is another by now is left for later."""
        for change in changes:
            namespace, _, name = change.job.partition("/")
            record = ClassChange(
                from_class=change.from_class,
                to_class=change.to_class,
                reason=change.reason.value,
                explanation=change.explanation,
                by=self._identity,
                at=now,
            )
            try:
                job = self._cluster.get("Job", name, namespace)
                if str(job["spec"].get("priorityClassName") or "") != change.from_class:
                    continue
                rank(self._cluster, job, record, values)
            except (ConflictError, NotFoundError):
                continue
            except SpecError as error:
                if self._said.get(change.job) != str(error):
                    self._said[change.job] = str(error)
                    _log.warning("%s keeps its class: %s", change.job, error)
            else:
                yield change.job, record
