# SPDX-License-Identifier: Apache-2.0
"""Change the priority of a Job that lives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.ranking import PERSON, rank
from kfp_volcano.schemas.records import ClassChange
from kfp_volcano.volcano.cluster.awaiting import until
from kfp_volcano.volcano.model.objects import is_owned_by

if TYPE_CHECKING:
    from kfp_volcano.volcano.cluster.base import Cluster, Manifest
    from kfp_volcano.volcano.manifests.priority import PriorityChange

__all__ = ["change_priority", "followed"]

PATIENCE_S = 10.0
"""How long Volcano's controller may take to bring a PodGroup in line; it does so within a second or two."""


def change_priority(
    cluster: Cluster, name: str, namespace: str, to: str, *, by: str, now: float, why: str = ""
) -> PriorityChange:
    """Give a Job the priority class that a person chose; see `priority_change` for what that reaches.

    It is noted on the Job, also where the Job has that class already: the autoscaler starts from it from then on.

    Raises:
        SpecError: The Job cannot have that class.
        ClusterError: There is no such Job, or it has changed in between: call again.
    """
    job = cluster.get("Job", name, namespace)
    values = {each["metadata"]["name"]: int(each["value"]) for each in cluster.list("PriorityClass")[0]}
    before = str(job["spec"].get("priorityClassName") or "")
    said = f"{by} chose {to}" + (f": {why}" if why else "")
    record = ClassChange(from_class=before, to_class=to, reason=PERSON, explanation=said, by=by, at=now)
    return rank(cluster, job, record, values)


def followed(cluster: Cluster, name: str, namespace: str, to: str, *, patience_s: float = PATIENCE_S) -> bool | None:
    """Whether a Job's PodGroup has the class `to`, once it has or time is over; None where there is no PodGroup.

    A suspended Job has none; the next one is made with the Job's class.
    """
    uid = cluster.get("Job", name, namespace)["metadata"]["uid"]

    def look(groups: list[Manifest]) -> tuple[bool | None] | None:
        group = next((each for each in groups if is_owned_by(each, uid)), None)
        if group is None:
            return (None,)
        return (True,) if group["spec"].get("priorityClassName") == to else None

    found = until(cluster, "PodGroup", namespace, look, patience_s=patience_s)
    return found[0] if found else False
