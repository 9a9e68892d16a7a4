# SPDX-License-Identifier: Apache-2.0
"""What Kubeflow Pipelines is configured to do on a cluster, against what trainings need of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from kfp_volcano.errors import ForbiddenError, NotFoundError
from kfp_volcano.volcano.launcher.doctor import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["examine_kfp"]

_CONFIG = "workflow-controller-configmap"
_PARTS = ("ml-pipeline", "ml-pipeline-persistenceagent", "ml-pipeline-scheduledworkflow", "workflow-controller")
_RETRY = "spec: {templateDefaults: {retryStrategy: {limit: '2', retryPolicy: OnError}}}"
_SET = f"in ConfigMap {_CONFIG}, key workflowDefaults: {_RETRY}; then restart the Deployment workflow-controller"
_POLICIES = {
    "OnError": (True, "a step whose pod is lost is tried again, one whose program failed is not", ""),
    "Always": (
        True,
        "steps are tried again, also those whose program failed: a failed training is looked at again for nothing",
        "",
    ),
    "OnFailure": (
        False,
        "a step whose program failed is tried again, but one whose pod is lost (eviction, node) fails the run",
        _SET,
    ),
    "OnTransientError": (False, "a step whose pod is lost (eviction, node) fails the run", _SET),
}
"""Measured on KFP 2.17 with Argo 4.0.5: these defaults win over what `set_retry` writes, which names no policy."""


def examine_kfp(cluster: Cluster, namespace: str = "kubeflow") -> Iterator[Finding]:
    """Look at the KFP that is installed in a namespace; nothing is changed."""
    checks: tuple[tuple[str, Callable[[Cluster, str], Finding]], ...] = (
        ("kfp parts", _parts),
        ("kfp retries", _retries),
        ("kfp keeps runs", _time_to_live),
        ("kfp time zone", _time_zone),
    )
    for what, check in checks:
        yield _visible(what, check, cluster, namespace)


def _visible(what: str, check: Callable[[Cluster, str], Finding], cluster: Cluster, namespace: str) -> Finding:
    """What a check finds, or why it finds nothing."""
    try:
        return check(cluster, namespace)
    except NotFoundError as error:
        remedy = "where KFP is installed: --kfp-namespace"
        return Finding(what, f"not in {namespace}: {error}", ok=False, remedy=remedy, required=False)
    except ForbiddenError as error:
        return Finding(what, "not visible", ok=False, remedy=str(error), required=False)


def _parts(cluster: Cluster, namespace: str) -> Finding:
    idle = [
        name
        for name in _PARTS
        if not (cluster.get("Deployment", name, namespace).get("status") or {}).get("readyReplicas")
    ]
    found = f"{', '.join(idle)} not ready" if idle else "all ready"
    return Finding("kfp parts", found, not idle, f"kubectl -n {namespace} get pods")


def _retries(cluster: Cluster, namespace: str) -> Finding:
    """Without a policy Argo takes OnFailure; without a strategy only what `set_retry` asks for is tried again."""
    strategy = (_defaults(cluster, namespace).get("templateDefaults") or {}).get("retryStrategy")
    if strategy is None:
        found = "a step whose pod is lost (eviction, node) fails its run, and its training is deleted"
        return Finding("kfp retries", found, ok=False, remedy=_SET)
    policy = str(strategy.get("retryPolicy") or "OnFailure")
    ok, found, remedy = _POLICIES.get(policy, (False, f"the policy {policy!r} is not known here", _SET))
    limit = str(strategy.get("limit", "")) or "any number of times"
    return Finding("kfp retries", f"{policy}, limit {limit}: {found}", ok, remedy)


def _time_to_live(cluster: Cluster, namespace: str) -> Finding:
    """A run's Workflow owns its Jobs: they go with it."""
    strategy = _defaults(cluster, namespace).get("ttlStrategy") or {}
    after = strategy.get("secondsAfterCompletion", strategy.get("secondsAfterSuccess"))
    if after is None:
        found = "Workflows stay until their runs are deleted, and with them the Jobs that succeeded"
    else:
        found = f"{after} s after its end a run's Workflow goes, and with it its Jobs, whatever faults.keepFor says"
    return Finding("kfp keeps runs", found, ok=True)


def _time_zone(cluster: Cluster, namespace: str) -> Finding:
    controller = cluster.get("Deployment", "ml-pipeline-scheduledworkflow", namespace)
    zone = _environment(cluster, controller).get("CRON_SCHEDULE_TIMEZONE") or "UTC"
    said = "" if zone == "UTC" else f": say --backend-time-zone {zone} with kfp-volcano schedule"
    return Finding("kfp time zone", f"schedules are read in {zone}{said}", ok=True)


def _defaults(cluster: Cluster, namespace: str) -> dict[str, Any]:
    """The spec that every Workflow is given."""
    text = (cluster.get("ConfigMap", _CONFIG, namespace).get("data") or {}).get("workflowDefaults") or ""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}
    spec = value.get("spec") if isinstance(value, dict) else None
    return spec if isinstance(spec, dict) else {}


def _environment(cluster: Cluster, deployment: Manifest) -> dict[str, str]:
    """The variables of its first container, also those from ConfigMaps."""
    found = {}
    for each in deployment["spec"]["template"]["spec"]["containers"][0].get("env") or ():
        key = (each.get("valueFrom") or {}).get("configMapKeyRef")
        if key:
            data = cluster.get("ConfigMap", key["name"], deployment["metadata"]["namespace"]).get("data") or {}
            found[each["name"]] = str(data.get(key["key"], ""))
        else:
            found[each["name"]] = str(each.get("value", ""))
    return found
