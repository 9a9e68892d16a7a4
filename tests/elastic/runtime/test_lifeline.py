# SPDX-License-Identifier: Apache-2.0
"""What the lighthouse's status page says, read from a real one."""

from __future__ import annotations

import socket
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from kfp_volcano.elastic.runtime.lifeline import Lifeline, Standing
from kfp_volcano.elastic.runtime.lighthouse import lighthouse

if TYPE_CHECKING:
    from collections.abc import Iterator

torchft = pytest.importorskip("torchft._torchft")


@pytest.fixture
def port() -> Iterator[int]:
    """Of a lighthouse."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = int(probe.getsockname()[1])
    server = lighthouse("127.0.0.1", free)
    yield free
    server.shutdown()


def test_it_names_the_quorum_and_how_long_its_members_are_silent(port: int) -> None:
    """A quorum's number and members are read as the lighthouse counts them; whoever is in none is no member."""
    lifeline = Lifeline("127.0.0.1", port, timeout_s=5)
    assert lifeline.ask() == Standing(quorum=0, silent_s={})
    client = torchft.LighthouseClient(f"http://127.0.0.1:{port}", timedelta(seconds=5))
    client.quorum("w-0:a", timedelta(seconds=5), address="http://a:1", store_address="a:2", step=0, world_size=1)
    client.heartbeat("w-1:b")
    standing = lifeline.ask()
    assert standing is not None
    assert standing.quorum == 1
    assert list(standing.silent_s) == ["w-0:a"]
    assert 0 <= standing.silent_s["w-0:a"] < 60
    assert lifeline.whole()
    lifeline.close()


def test_its_clock_orders_the_workers(port: int) -> None:
    """Workers are as old as the lighthouse's clock says, not as their own, which may be wrong by hours."""
    lifeline = Lifeline("127.0.0.1", port, timeout_s=5)
    assert abs(lifeline.born - time.time()) < 60
    lifeline.close()


def test_a_lighthouse_that_is_silent_gives_no_answer() -> None:
    """A port that takes connections and says nothing is as good as none."""
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        with pytest.raises(OSError, match="timed out"):
            Lifeline("127.0.0.1", mute.getsockname()[1], timeout_s=0.1)
