"""What is measured outside of the cluster's objects, as the autoscaler asks for it.

Whoever implements it reads in its own time; that something is asked for is how it learns what to read. What is old
counts as missing, never as zero: a policy that is told 0 % of use would shrink what it cannot see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfp_volcano.elastic.policies.snapshot import Sample

__all__ = [
    "CPU",
    "GPU_UTIL",
    "MEMORY",
    "NETWORK_RECEIVE",
    "NETWORK_TRANSMIT",
    "Metrics",
    "utilisation",
]

GPU_UTIL = "DCGM_FI_DEV_GPU_UTIL"
"""Mean utilisation of a pod's GPUs, percent."""
CPU = "cpu"
"""Cores in use."""
MEMORY = "memory"
"""Working set, bytes."""
NETWORK_RECEIVE = "network_receive"
"""Bytes per second."""
NETWORK_TRANSMIT = "network_transmit"
"""Bytes per second."""


class Metrics(Protocol):
    """The last measurements. Never waits, never raises; to be called from one thread."""

    def of_pod(self, pod: str) -> Mapping[str, Sample]:
        """What is measured of a pod (namespace/name), by the names above; empty where nothing is."""
        ...

    def value(self, query: str) -> float | None:
        """A value from outside: the sum of what an instant query in PromQL finds, such as `depth{queue="a"}`."""
        ...


def utilisation(pods: Mapping[str, Mapping[str, Sample]]) -> float | None:
    """Mean utilisation of the GPUs of some pods, 0 to 1; None where none of them is measured."""
    values = [samples[GPU_UTIL].value / 100 for samples in pods.values() if GPU_UTIL in samples]
    return sum(values) / len(values) if values else None
