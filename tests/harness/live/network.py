# SPDX-License-Identifier: Apache-2.0
"""Addresses for the pods of a Job on one machine, and networks that can be cut in two."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Loopback", "Namespaces", "Network", "enter"]

_numbers = count(1)
_CLONE_NEWNET = 0x40000000


class Network(Protocol):
    """Where pods are."""

    def address(self, index: int) -> str:
        """Of a pod; 1 is the coordinator's."""

    def namespace(self, index: int) -> Path | None:
        """The network namespace its process has to enter; None: this one."""

    def close(self) -> None:
        """Takes it away."""


class Loopback:
    """Addresses of 127/8, each pod's its own. They cannot be cut off."""

    def __init__(self) -> None:
        self._net = f"127.{64 + os.getpid() % 128}.{next(_numbers) % 250}"

    def address(self, index: int) -> str:
        """See Network."""
        return f"{self._net}.{index}"

    def namespace(self, index: int) -> Path | None:
        """See Network."""
        del index

    def close(self) -> None:
        """See Network."""


class Namespaces:
    """A network namespace for each pod, all on one bridge; needs root, `ip` and `iptables`.

    Packets between two sides are dropped, not refused: as where a cable is out.
    """

    def __init__(self) -> None:
        self._name = f"kv{os.getpid() % 100000}x{next(_numbers)}"
        self._made: set[int] = set()
        _run("ip", "netns", "add", f"{self._name}-hub")
        _run("ip", "-n", f"{self._name}-hub", "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", f"{self._name}-hub", "link", "set", "bridge", "up")

    @staticmethod
    def available() -> bool:
        """Whether this process may make one."""
        if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("iptables"):
            return False
        probe = f"kv{os.getpid() % 100000}probe"
        try:
            _run("ip", "netns", "add", probe)
            _run("ip", "netns", "exec", probe, "iptables", "-A", "INPUT", "-s", "10.77.0.1", "-j", "DROP")
        except subprocess.CalledProcessError:
            return False
        finally:
            subprocess.run(["ip", "netns", "del", probe], check=False, capture_output=True)
        return True

    def address(self, index: int) -> str:
        """See Network."""
        return f"10.77.0.{index}"

    def namespace(self, index: int) -> Path | None:
        """See Network."""
        name, hub = f"{self._name}-{index}", f"{self._name}-hub"
        if index not in self._made:
            self._made.add(index)
            _run("ip", "netns", "add", name)
            _run("ip", "-n", hub, "link", "add", f"pod{index}", "type", "veth", "peer", "name", "eth0", "netns", name)
            _run("ip", "-n", hub, "link", "set", f"pod{index}", "master", "bridge", "up")
            _run("ip", "-n", name, "link", "set", "lo", "up")
            _run("ip", "-n", name, "addr", "add", f"{self.address(index)}/24", "dev", "eth0")
            _run("ip", "-n", name, "link", "set", "eth0", "up")
        return Path("/var/run/netns") / name

    def cut(self, one: Iterable[int], other: Iterable[int]) -> None:
        """No packet goes from a pod of one side to one of the other any more."""
        for here in one:
            for there in other:
                for pod, peer in ((here, there), (there, here)):
                    self._iptables(pod, "-A", "INPUT", "-s", self.address(peer), "-j", "DROP")

    def heal(self) -> None:
        """All packets go again."""
        for index in self._made:
            self._iptables(index, "-F", "INPUT")

    def close(self) -> None:
        """See Network."""
        for index in self._made:
            _run("ip", "netns", "del", f"{self._name}-{index}")
        _run("ip", "netns", "del", f"{self._name}-hub")

    def _iptables(self, index: int, *arguments: str) -> None:
        self.namespace(index)
        _run("ip", "netns", "exec", f"{self._name}-{index}", "iptables", *arguments)


def enter(namespace: Path | None) -> None:
    """Moves this process, which must have one thread only, into a network namespace."""
    if namespace is not None:
        libc = ctypes.CDLL(None, use_errno=True)
        file = os.open(namespace, os.O_RDONLY)
        if libc.setns(file, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
        os.close(file)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
