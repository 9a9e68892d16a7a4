# SPDX-License-Identifier: Apache-2.0
"""Process groups that are laid anew for each quorum."""

from __future__ import annotations

import threading

from kfp_volcano.elastic.runtime.crew import Crew
from kfp_volcano.elastic.runtime.process_group import process_group

PATIENCE_S = 30.0


class Closing:
    """Connections that take until they are let."""

    def __init__(self) -> None:
        self.let, self.closed = threading.Event(), False

    def abort(self) -> None:
        self.closed = self.let.wait(PATIENCE_S)


def test_who_ends_waits_for_its_connections_to_be_closed() -> None:
    """Python that ends under a thread in C++ would take the process with it, and its exit code."""
    group = process_group("127.0.0.1", Crew(0, 1), flat=True, cuda=False, stale=lambda: False)
    group._pg = connections = Closing()
    group.abort()
    assert not connections.closed
    threading.Timer(0.2, connections.let.set).start()
    group.end()
    assert connections.closed
    assert not [thread for thread in threading.enumerate() if thread.name == "gloo abort"]
