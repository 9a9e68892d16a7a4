# SPDX-License-Identifier: Apache-2.0
"""Where on an unknown cluster a test's pods may run, and what they can do there: found by looking and trying."""

from __future__ import annotations

import re
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import ClusterError, InvalidError, NotFoundError
from kfp_volcano.schemas.names import GPU
from kfp_volcano.volcano.model.objects import container_statuses, has_ended
from kfp_volcano.volcano.model.resources import pod_request, resources

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from anywhere.nodes import SimulatedNodes
    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["Place", "real_place", "simulated_place"]

FALLBACK_IMAGE = "busybox:1.36"
_WORD = "a-shell-that-prints"
_PROBE_S = 90.0
_PULLING_S = 60.0
"""How long an image may take to come from a registry."""
_PRETENDED_S = 15.0
"""A pod that still runs by then, though its program ends at once, has no program."""
_MOST_PROBES = 6
_SHELLS = ("busybox", "alpine", "debian", "ubuntu", "python", "bash")
_SHELL_LESS = ("pause", "kube-", "etcd", "coredns", "/vc-", "distroless", "csi-")


@dataclass(frozen=True, slots=True)
class Place:
    """Some nodes, and what pods need to come there."""

    name: str
    gpus: int
    """How many are free; 0: use none."""
    affinity: dict[str, Any]
    tolerations: list[dict[str, Any]]
    image: str = "none"
    runs: bool = False
    """Whether containers really run a shell there, and what they print can be read."""
    simulated: SimulatedNodes | None = field(default=None, compare=False)


def simulated_place(nodes: SimulatedNodes) -> Place:
    """The nodes that the tests have made."""
    toleration = {"operator": "Exists", "effect": "NoSchedule"}
    return Place(
        name="simulated",
        gpus=nodes.gpus * len(nodes.names),
        affinity=_on("kubernetes.io/hostname", nodes.names),
        tolerations=[toleration],
        simulated=nodes,
    )


def real_place(cluster: Cluster, namespace: str, *, image: str | None = None) -> Place | str:
    """The cluster's own nodes; a sentence where they cannot be used.

    An image that the nodes hold already and that has a shell is looked for, by trying: without a registry no other can
    be had. `image` is tried alone.
    """
    nodes = [node for node in cluster.list("Node")[0] if _is_usable(node)]
    if not nodes:
        return "no node of this cluster is ready and takes pods"
    held = {each["metadata"]["name"]: _images(each) for each in nodes}
    candidates = [image] if image else _candidates(held.values())
    tried = {}
    for candidate in [*candidates[:_MOST_PROBES], *([] if image else [FALLBACK_IMAGE])]:
        where = [name for name, images in held.items() if candidate in images] or list(held)
        tried[candidate] = _probe(cluster, namespace, candidate, where[0], pull=candidate not in held[where[0]])
        if tried[candidate] in {"runs", "pretends"}:
            break
    else:
        words = "; ".join(f"{name}: {what}" for name, what in tried.items())
        return f"no image with a shell runs on this cluster's nodes ({words}); name one by --test-image"
    chosen = [node for node in nodes if node["metadata"]["name"] in where]
    return Place(
        name="real",
        gpus=_free_gpus(cluster, chosen),
        affinity=_on(
            "kubernetes.io/hostname", [node["metadata"]["labels"]["kubernetes.io/hostname"] for node in chosen]
        ),
        tolerations=[{"key": GPU, "operator": "Exists"}],
        image=candidate,
        runs=tried[candidate] == "runs",
    )


def _is_usable(node: Manifest) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    taints = [each for each in node["spec"].get("taints") or () if each["effect"] != "PreferNoSchedule"]
    kept_away = any(each["key"] != GPU for each in taints) or node["spec"].get("unschedulable")
    linux = node["metadata"].get("labels", {}).get("kubernetes.io/os", "linux") == "linux"
    return ready and linux and not kept_away


def _images(node: Manifest) -> list[str]:
    """What the node holds, by names that a pod may use."""
    named = [
        sorted(each.get("names") or (), key=lambda name: "@" in name) for each in node["status"].get("images") or ()
    ]
    return [names[0] for names in named if names]


def _candidates(held: Iterable[Sequence[str]]) -> list[str]:
    """Images that may have a shell, likely ones first; those on many nodes before others."""
    count: dict[str, int] = {}
    for images in held:
        for image in images:
            count[image] = count.get(image, 0) + 1
    fit = [image for image in count if not any(word in image for word in _SHELL_LESS)]

    def rank(image: str) -> tuple[int, int, str]:
        likely = next((at for at, word in enumerate(_SHELLS) if re.search(rf"(^|/){word}\b", image)), len(_SHELLS))
        return -count[image], likely, image

    return sorted(fit, key=rank)


def _free_gpus(cluster: Cluster, nodes: list[Manifest]) -> int:
    free = 0
    bound = [pod for pod in cluster.list("Pod")[0] if pod["spec"].get("nodeName") and not has_ended(pod)]
    for node in nodes:
        there = [pod for pod in bound if pod["spec"]["nodeName"] == node["metadata"]["name"]]
        taken = sum(pod_request(pod["spec"]).get(GPU, 0) for pod in there)
        free += resources(node["status"].get("allocatable")).get(GPU, 0) - taken
    return free // resources({GPU: 1})[GPU]


def _on(label: str, values: list[str]) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": label, "operator": "In", "values": values}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def _probe(cluster: Cluster, namespace: str, image: str, node: str, *, pull: bool) -> str:
    """Run a shell there: `runs`, `pretends` where the node only says so, else what was in the way."""
    name = f"probe-{uuid.uuid4().hex[:8]}"
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent" if pull else "Never",
        "command": ["sh", "-c", f"echo {_WORD}"],
    }
    spec = {
        "nodeName": node,
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}
    cluster.create(pod)
    try:
        return _watched(cluster, namespace, name, patience_s=_PULLING_S if pull else _PROBE_S)
    finally:
        with suppress(NotFoundError):
            cluster.delete("Pod", name, namespace, grace_s=0)


def _watched(cluster: Cluster, namespace: str, name: str, *, patience_s: float) -> str:
    ends_at, runs_since = time.monotonic() + patience_s, None
    while True:
        pod, version = cluster.get("Pod", name, namespace), cluster.list("Pod", namespace)[1]
        state: dict[str, Any] = next((each.get("state") or {} for each in container_statuses(pod)), {})
        now = time.monotonic()
        if has_ended(pod):
            return _outcome(cluster, namespace, name, state)
        if "running" in state:
            runs_since = runs_since or now
            if now >= runs_since + _PRETENDED_S:
                return "pretends"
        reason = str((state.get("waiting") or {}).get("reason") or "")
        if reason.startswith(("ErrImageNeverPull", "ImagePullBackOff", "InvalidImage", "CreateContainerError")):
            return reason
        if now >= ends_at:
            return reason or "it did not start"
        next(iter(cluster.watch("Pod", namespace, resource_version=version, timeout_s=1.0)), None)


def _outcome(cluster: Cluster, namespace: str, name: str, state: dict[str, Any]) -> str:
    try:
        text, _ = cluster.logs(name, namespace)
    except (ClusterError, InvalidError) as error:
        return f"its log cannot be read: {error}"
    ended = state.get("terminated") or {}
    return "runs" if text.strip() == _WORD else str(ended.get("message") or ended.get("reason") or "it printed nothing")
