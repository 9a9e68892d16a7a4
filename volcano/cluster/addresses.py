"""Loopback addresses for pods: every pod its own, stable under its name, different on every cluster of the machine.

A cluster takes one of the networks 127.16.0.0/16 … 127.254.0.0/16 by binding a socket in Linux's abstract namespace
(`kfp-volcano-127.N`): the kernel lets one process hold a name, and frees it when that process ends, however it does.
"""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

from kfp_volcano.errors import UnavailableError

if TYPE_CHECKING:
    from kfp_volcano.volcano.model.objects import Key

__all__ = ["AddressBook"]

_NETWORKS = range(16, 255)
_HOSTS = range(1, 255)


class AddressBook:
    """The addresses of one cluster's pods. An address belongs to a pod's name, before and after the pod is there."""

    def __init__(self) -> None:
        self._network, self._claim = _claim_network()
        self._lock = threading.Lock()
        self._known: dict[Key, str] = {}

    def address(self, pod: Key) -> str:
        """The address of a pod of this name."""
        with self._lock:
            number = len(self._known)
            return self._known.setdefault(
                pod, f"127.{self._network}.{number // len(_HOSTS)}.{number % len(_HOSTS) + 1}"
            )

    def close(self) -> None:
        """Let another cluster have the network."""
        self._claim.close()


def _claim_network() -> tuple[int, socket.socket]:
    for network in _NETWORKS:
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0kfp-volcano-127.{network}")
        except OSError:
            claim.close()
            continue
        return network, claim
    raise UnavailableError(f"all {len(_NETWORKS)} loopback networks are taken by other embedded clusters")
