# SPDX-License-Identifier: Apache-2.0
"""What a cluster has and lacks for trainings, and how to get it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.errors import ForbiddenError, NotFoundError, UnavailableError
from kfp_volcano.schemas.names import COORDINATOR_ACCOUNT, GPU, surplus_priority
from kfp_volcano.volcano.cluster.base import KINDS
from kfp_volcano.volcano.cluster.kubernetes.discovery import Discovery
from kfp_volcano.volcano.cluster.kubernetes.refusals import INSTALL, rule
from kfp_volcano.volcano.cluster.kubernetes.request import Request
from kfp_volcano.volcano.cluster.preflight import usable_queues
from kfp_volcano.volcano.launcher.doctor import Finding, version_of
from kfp_volcano.volcano.launcher.permissions import COORDINATOR, STEPS, Need
from kfp_volcano.volcano.model.objects import key_of
from kfp_volcano.volcano.model.resources import format_quantity, resources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kfp_volcano.volcano.cluster.kubernetes.cluster import KubernetesCluster

__all__ = ["examine_cluster"]

_OLDEST_KUBERNETES = (1, 29)
_OLDEST_VOLCANO = (1, 15)
_UNKNOWN = (0, 0)
_KINDS = ("Job", "PodGroup", "Queue", "Command")
_PARTS = ("volcano-controller", "volcano-scheduler", "volcano-admission")
"""Labels `app` of Volcano's Deployments."""


def examine_cluster(cluster: KubernetesCluster, namespace: str, account: str | None = None) -> Iterator[Finding]:
    """Look at a cluster; nothing is changed.

    Args:
        cluster: Where to look.
        namespace: Where trainings are to run.
        account: The service account of the pipeline's steps there; by default whoever asks.

    Raises UnavailableError where nothing answers.
    """
    discovery = Discovery(cluster.api)
    yield _version(discovery)
    there = _visible("namespace", lambda _: _namespace(cluster, namespace), cluster)
    yield there
    usable = there.ok or not there.required  # who may not see it may still work in it
    if account and usable:
        yield _visible("account", lambda _: _account(cluster, namespace, account), cluster)
    absent = [KINDS[name] for name in _KINDS if not discovery.serves(KINDS[name])]
    if absent:
        names = ", ".join(f"{kind.plural}.{kind.api_version.partition('/')[0]}" for kind in absent)
        yield Finding("volcano's CRDs", f"no {names}", ok=False, remedy=f"install Volcano: {INSTALL}")
    else:
        yield Finding("volcano's CRDs", ", ".join(_KINDS), ok=True)
        yield _visible("volcano", _volcano, cluster)
        yield _visible("queues", _queues, cluster)
        if usable:
            yield _visible("admission", lambda _: _admission(discovery, namespace), cluster)
    yield _visible("priorities", _priorities, cluster)
    yield _visible("gpus", _gpus, cluster)
    served = discovery.serves(KINDS["ResourceClaimTemplate"])
    remedy = "joint devices by claims need Kubernetes 1.34 or newer"
    yield Finding("device claims", "served" if served else "not served", served, remedy, required=False)
    yield from _permissions(discovery, namespace, account)
    if account and usable:
        yield _visible("autoscaler", lambda _: _autoscaler(cluster, discovery, namespace), cluster)


def _visible(what: str, check: Callable[[KubernetesCluster], Finding], cluster: KubernetesCluster) -> Finding:
    """What a check finds, or that it may not look."""
    try:
        return check(cluster)
    except ForbiddenError as error:
        return Finding(what, "not visible", ok=False, remedy=str(error), required=False)


def _version(discovery: Discovery) -> Finding:
    found = discovery.version()
    oldest = ".".join(map(str, _OLDEST_KUBERNETES))
    return Finding(
        "kubernetes", found, (version_of(found) or _UNKNOWN) >= _OLDEST_KUBERNETES, f"use Kubernetes {oldest} or newer"
    )


def _namespace(cluster: KubernetesCluster, name: str) -> Finding:
    try:
        found = cluster.get("Namespace", name)
    except NotFoundError:
        return Finding("namespace", f"no {name}", ok=False, remedy=f"kubectl create namespace {name}")
    phase = str((found.get("status") or {}).get("phase", "Active"))
    remedy = "it is being deleted: nothing can be created in it"
    return Finding("namespace", name if phase == "Active" else f"{name} is {phase}", phase == "Active", remedy)


def _account(cluster: KubernetesCluster, namespace: str, name: str) -> Finding:
    try:
        cluster.get("ServiceAccount", name, namespace)
    except NotFoundError:
        remedy = f"kubectl -n {namespace} create serviceaccount {name}, or say the one that the pipeline's steps run as"
        return Finding("account", f"no {namespace}/{name}", ok=False, remedy=remedy)
    return Finding("account", f"{namespace}/{name}", ok=True)


def _volcano(cluster: KubernetesCluster) -> Finding:
    """Its programs, by their Deployments; that they work, queues and admission tell."""
    found = {
        str(each["metadata"]["labels"]["app"]): each
        for part in _PARTS
        for each in cluster.list("Deployment", labels={"app": part})[0]
    }
    if not found:
        remedy = "its Deployments were looked for by the label app=volcano-…"
        return Finding("volcano", "version unknown", ok=False, remedy=remedy, required=False)
    idle = [part for part in _PARTS if not (found.get(part, {}).get("status") or {}).get("readyReplicas")]
    images = {each["spec"]["template"]["spec"]["containers"][0]["image"].rpartition(":")[2] for each in found.values()}
    versions = ", ".join(sorted(images))
    if idle:
        remedy = f"kubectl -n {next(iter(found.values()))['metadata']['namespace']} get pods"
        return Finding("volcano", f"{versions}; {', '.join(idle)} not ready", ok=False, remedy=remedy)
    new_enough = min(version_of(image) or _UNKNOWN for image in images) >= _OLDEST_VOLCANO
    remedy = f"this version was made for Volcano {'.'.join(map(str, _OLDEST_VOLCANO))}"
    return Finding("volcano", versions, new_enough, remedy, required=False)


def _queues(cluster: KubernetesCluster) -> Finding:
    usable = usable_queues({"Queue": {key_of(queue): queue for queue in cluster.list("Queue")[0]}})
    remedy = "if there are queues, Volcano's controllers do not run; to make some: kfp-volcano queues apply TREE.yaml"
    return Finding("queues", ", ".join(usable) or "none is open", bool(usable), remedy)


def _admission(discovery: Discovery, namespace: str) -> Finding:
    """Ask whether a Job that Volcano's webhook has to refuse would be taken."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none", "command": ["true"]}]}
    job = {
        "apiVersion": KINDS["Job"].api_version,
        "kind": "Job",
        "metadata": {"name": "kfp-volcano-doctor", "namespace": namespace},
        "spec": {
            "queue": "kfp-volcano-doctor",
            "minAvailable": 1,
            "tasks": [{"name": "main", "replicas": 1, "template": {"spec": pod}}],
        },
    }
    try:
        admitted = discovery.admits(Request("create", KINDS["Job"], namespace, body=job))
    except UnavailableError as error:
        return Finding("admission", "its webhook fails", ok=False, remedy=str(error))
    found = "takes a Job for a queue that is not there" if admitted else "checks Jobs"
    remedy = "install volcano-admission with its webhook configurations: wrong Jobs would wait for ever"
    return Finding("admission", found, not admitted, remedy)


def _priorities(cluster: KubernetesCluster) -> Finding:
    """Elastic Jobs with a priority need a second one, for their surplus."""
    values = {each["metadata"]["name"]: int(each.get("value", 0)) for each in cluster.list("PriorityClass")[0]}
    pairs = [name for name in sorted(values) if values.get(surplus_priority(name), values[name]) < values[name]]
    remedy = (
        f"for spec.priority NAME create the PriorityClasses NAME and, with a lower value, {surplus_priority('NAME')}"
    )
    return Finding("priorities", ", ".join(pairs) or "none with a surplus class", bool(pairs), remedy, required=False)


def _gpus(cluster: KubernetesCluster) -> Finding:
    amounts = [resources((node.get("status") or {}).get("allocatable")).get(GPU, 0) for node in cluster.list("Node")[0]]
    count = sum(map(bool, amounts))
    found = f"{format_quantity(sum(amounts))} {GPU} on {count} node{'' if count == 1 else 's'}"
    return Finding("gpus", found, any(amounts), "install the device plugin of your GPUs", required=False)


def _permissions(discovery: Discovery, namespace: str, account: str | None) -> Iterator[Finding]:
    """One finding for what every run needs and one for what it can do without; each rule that is missing is told."""
    who = f"{namespace}/{account}" if account else None
    for required, what in ((True, "permissions"), (False, "may look at")):
        needs = [need for need in STEPS if need.required is required]
        rules = [text for need in needs for text in _missing(discovery, need, namespace, who)]
        found = "all" if not rules else f"{len(rules)} missing"
        yield Finding(what, found, not rules, "".join(f"\n    {text}" for text in rules), required=required)


def _autoscaler(cluster: KubernetesCluster, discovery: Discovery, namespace: str) -> Finding:
    """Whether coordinator pods would find an account with which they can resize Jobs."""
    remedy = "bind it as deploy/ does; without it Jobs train, and are resized by hand"
    try:
        cluster.get("ServiceAccount", COORDINATOR_ACCOUNT, namespace)
    except NotFoundError:
        found = f"no account {namespace}/{COORDINATOR_ACCOUNT}"
        return Finding("autoscaler", found, ok=False, remedy=remedy, required=False)
    who = f"{namespace}/{COORDINATOR_ACCOUNT}"
    needs = [need for need in COORDINATOR if need.where != "system"]
    rules = [text for need in needs for text in _missing(discovery, need, namespace, who)]
    found = f"{COORDINATOR_ACCOUNT} may do all" if not rules else f"{COORDINATOR_ACCOUNT} lacks {len(rules)} rules"
    remedy += "".join(f"\n    {text}" for text in rules)
    return Finding("autoscaler", found, not rules, remedy, required=False)


def _missing(discovery: Discovery, need: Need, namespace: str, who: str | None) -> Iterator[str]:
    scope = "" if need.where == "everywhere" else namespace
    for verb in need.verbs:
        request = Request(verb, KINDS[need.kind], scope, subresource=need.subresource)
        if not discovery.allows(request, account=who):
            where = "ClusterRole" if need.where == "everywhere" else f"Role in {namespace}"
            yield f"{where}: {rule(request)}  # {need.why}"
