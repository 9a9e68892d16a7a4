# SPDX-License-Identifier: Apache-2.0
"""What would keep a valid Job from running on a real cluster, found before it is created.

What this process may not read it does not judge: a step's service account need not see quotas. Nor does it judge
nodes: a cluster may add some for a gang that waits.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kfp_volcano.errors import ForbiddenError, NotFoundError
from kfp_volcano.volcano.cluster.preflight import limit_problems, priority_problems, queue_problems
from kfp_volcano.volcano.model.objects import key_of
from kfp_volcano.volcano.model.resources import add, format_quantity, pod_request, resources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.volcano.cluster.base import Cluster, Findings, Manifest

__all__ = ["findings"]


def findings(cluster: Cluster, job: Manifest) -> Findings:
    """All that was found, each as (path in the Job, what, remedy)."""
    found: Findings = []
    with suppress(ForbiddenError):
        queues = {key_of(queue): queue for queue in cluster.list("Queue")[0]}
        found += [*queue_problems(job, {"Queue": queues}), *limit_problems(job, {"Queue": queues})]
    with suppress(ForbiddenError):
        classes = {key_of(each): each for each in cluster.list("PriorityClass")[0]}
        found += priority_problems(job, {"PriorityClass": classes})
    for path, kind, name, remedy in dict.fromkeys(_references(job)):
        with suppress(ForbiddenError):
            try:
                cluster.get(kind, name, job["metadata"]["namespace"])
            except NotFoundError as error:
                found.append((path, str(error), remedy))
    with suppress(ForbiddenError):
        found += _quota_problems(job, cluster.list("ResourceQuota", job["metadata"]["namespace"])[0])
    return found


def _references(job: Manifest) -> Iterator[tuple[str, str, str, str]]:
    """What has to be there for the pods to start: (path in the Job, kind, name, remedy) each."""
    for index, task in enumerate(job["spec"]["tasks"]):
        at, spec = f"spec.tasks[{index}].template.spec", task["template"]["spec"]
        if spec.get("serviceAccountName"):
            yield f"{at}.serviceAccountName", "ServiceAccount", spec["serviceAccountName"], "create it in the namespace"
        for number, secret in enumerate(spec.get("imagePullSecrets") or ()):
            remedy = f"kubectl create secret docker-registry {secret['name']} in the Job's namespace"
            yield f"{at}.imagePullSecrets[{number}]", "Secret", secret["name"], remedy
        for number, volume in enumerate(spec.get("volumes") or ()):
            claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if claim:
                yield f"{at}.volumes[{number}]", "PersistentVolumeClaim", claim, "create the claim, or name another"


def _quota_problems(job: Manifest, quotas: list[Manifest]) -> Iterator[tuple[str, str, str]]:
    """A quota that the gang would exceed even if nothing else ran in the namespace."""
    needed: dict[str, int] = {}
    pods = 0
    for task in job["spec"]["tasks"]:
        least = task.get("minAvailable", task["replicas"])
        needed = add(needed, pod_request(task["template"]["spec"]), times=least)
        pods += least
    asked = {f"requests.{name}": amount for name, amount in needed.items()}
    asked |= {name: needed[name] for name in ("cpu", "memory") if name in needed}
    asked |= resources({"pods": pods, "count/pods": pods})
    for quota in quotas:
        if quota["spec"].get("scopes") or quota["spec"].get("scopeSelector"):
            continue  # it is about some pods only
        hard = resources(quota["spec"].get("hard"))
        for name in sorted(each for each in asked if each in hard and asked[each] > hard[each]):
            allowed = f"quota {quota['metadata']['name']} allows {format_quantity(hard[name])}"
            message = f"the gang needs {format_quantity(asked[name])} {name}; {allowed}"
            yield "spec.minAvailable", message, "ask for fewer workers, or have the quota raised"
