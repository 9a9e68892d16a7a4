# SPDX-License-Identifier: Apache-2.0
"""Addresses and ports of pods that share a machine."""

from __future__ import annotations

import socket
from contextlib import suppress

from kfp_volcano.volcano.cluster.addresses import AddressBook


def test_a_port_is_a_pods_own_and_was_free() -> None:
    """It stays the pod's; no other pod of any cluster has it; what somebody listens on is passed over."""
    first, second = AddressBook(), AddressBook()
    try:
        ports = [book.port(("ml", f"job-{index}")) for book in (first, second) for index in range(3)]
        assert len({*ports}) == 6
        assert first.port(("ml", "job-0")) == ports[0]
        with socket.socket() as taken:
            with suppress(OSError):  # somebody else on this machine has it, which serves as well
                taken.bind(("", ports[2] + 1))
            assert first.port(("ml", "job-3")) > ports[2] + 1
    finally:
        first.close()
        second.close()
