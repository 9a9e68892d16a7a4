# SPDX-License-Identifier: Apache-2.0
"""What a pod asks for, in Kubernetes' words: requests, limits, and claims of devices that lie close to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas import names
from kfp_volcano.schemas.quantities import quantity

if TYPE_CHECKING:
    from kfp_volcano.schemas.pods import Devices
    from kfp_volcano.schemas.training_job import Resources

__all__ = ["CLAIM", "claim_template", "container_resources", "whole_cpus", "whole_gpus"]

CLAIM = "devices"
"""A pod's name for its claim."""
_ATTRIBUTES = {"pcie": "resource.kubernetes.io/pcieRoot", "numa": "dra.net/numaNode"}
_MIB = 2**20


def container_resources(resources: Resources, devices: Devices | None) -> dict[str, Any]:
    """Requests and limits of a container whose `devices` (None: none) may come through a claim instead."""
    claimed = devices.joint if devices and devices.claimed else ()
    counted = {
        **(_gpus(resources) if "gpu" not in claimed else {}),
        **({resources.rdma_resource: str(resources.rdma)} if resources.rdma and "rdma" not in claimed else {}),
        **{f"hugepages-{size}": amount for size, amount in resources.hugepages.items()},
        **resources.extra,
    }
    requests = {"cpu": resources.cpu, "memory": resources.memory}
    # Kubernetes wants the limit of such a resource to equal its request; cpu and memory may be used beyond theirs.
    limits = {**(requests if resources.reserved else resources.limits), **counted}
    return {
        "requests": {**requests, **counted},
        **({"limits": limits} if limits else {}),
        **({"claims": [{"name": CLAIM}]} if claimed else {}),
    }


def _gpus(resources: Resources) -> dict[str, str]:
    if not resources.gpu:
        return {}
    share = resources.gpu_share
    if share is None:
        return {names.GPU: str(resources.gpu)}
    return {
        names.VGPU_NUMBER: str(resources.gpu),
        **({names.VGPU_MEMORY: str(int(quantity(share.memory) / _MIB))} if share.memory else {}),
        **({names.VGPU_CORES: str(share.cores)} if share.cores else {}),
    }


def whole_gpus(resources: Resources) -> int:
    """How many GPUs a program may take for its own."""
    return resources.gpu if resources.gpu_share is None else 0


def whole_cpus(resources: Resources) -> int:
    """How many CPUs a program may count on, at least one."""
    return max(1, int(quantity(resources.cpu)))


def claim_template(resources: Resources, devices: Devices) -> dict[str, Any]:
    """The spec of the ResourceClaimTemplate (resource.k8s.io/v1) for a pod's joint devices: a claim's within its own.

    One claim: each NIC with its share of the GPUs (or the other way round) is a pair of requests whose devices agree
    in one attribute, for all the devices of a machine never lie below one PCIe root.
    """
    counts = {"gpu": resources.gpu, "rdma": resources.rdma}
    classes = {"gpu": devices.gpu_class, "rdma": devices.rdma_class}
    groups = min(counts[kind] for kind in devices.joint) if len(devices.joint) > 1 else 1
    attribute = devices.attribute or _ATTRIBUTES[devices.within]
    requests, constraints = [], []
    for group in range(groups):
        ending = f"-{group}" if groups > 1 else ""
        requests += [
            {
                "name": kind + ending,
                "exactly": {
                    "deviceClassName": classes[kind],
                    "allocationMode": "ExactCount",
                    "count": counts[kind] // groups,
                },
            }
            for kind in devices.joint
        ]
        constraints.append({"requests": [kind + ending for kind in devices.joint], "matchAttribute": attribute})
    return {"spec": {"spec": {"devices": {"requests": requests, "constraints": constraints}}}}
