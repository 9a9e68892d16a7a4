# SPDX-License-Identifier: Apache-2.0
"""Loopback addresses for pods: every pod its own, stable under its name, different on every cluster of the machine.

A pod has a port of its own, too, for programs that listen on all addresses of a machine, where pods have only one.

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
_FIRST_PORT, _LAST_PORT = 20000, 32000
"""Below the ports that Linux gives to connections."""
_PORTS_A_NETWORK = 50
"""A cluster looks for ports from another place on than its neighbours do."""


class AddressBook:
    """The addresses of one cluster's pods. An address belongs to a pod's name, before and after the pod is there."""

    def __init__(self) -> None:
        self._network, self._claim = _claim_network()
        self._lock = threading.Lock()
        self._known: dict[Key, str] = {}
        self._ports: dict[Key, int] = {}

    def address(self, pod: Key) -> str:
        """The address of a pod of this name."""
        with self._lock:
            number = len(self._known)
            return self._known.setdefault(
                pod, f"127.{self._network}.{number // len(_HOSTS)}.{number % len(_HOSTS) + 1}"
            )

    def port(self, pod: Key) -> int:
        """A port for a pod of this name that nobody else on the machine listened on when it was first asked for."""
        with self._lock:
            if pod not in self._ports:
                first = _FIRST_PORT + (self._network - _NETWORKS.start) * _PORTS_A_NETWORK
                taken = set(self._ports.values())
                candidates = (*range(first, _LAST_PORT), *range(_FIRST_PORT, first))
                free = next((port for port in candidates if port not in taken and _is_free(port)), None)
                if free is None:
                    raise UnavailableError(f"no port from {_FIRST_PORT} to {_LAST_PORT} is free")
                self._ports[pod] = free
            return self._ports[pod]

    def close(self) -> None:
        """Let another cluster have the network."""
        self._claim.close()


def _is_free(port: int) -> bool:
    with socket.socket() as trial:
        try:
            trial.bind(("", port))
        except OSError:
            return False
    return True


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
