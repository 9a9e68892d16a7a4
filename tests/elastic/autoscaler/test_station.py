# SPDX-License-Identifier: Apache-2.0
"""What runs in an actor: a fleet that leads what it is told to, made anew when it fails, and measured."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kfp_volcano.elastic.autoscaler import station as module
from kfp_volcano.elastic.autoscaler.station import Access, Measuring, Orders, State, Station
from kfp_volcano.elastic.autoscaler.telling.telemetry import PREFIX
from kfp_volcano.errors import UnavailableError
from kfp_volcano.schemas.names import SYSTEM_NAMESPACE
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster

PATIENCE_S = 60.0
EXTERNAL = """
apiVersion: kfp-volcano/v1
kind: Policy
metadata: {name: follow}
spec:
  queues: [research]
  policy: hpa
  hpa:
    metrics:
      - {type: External, external: {metric: {name: depth}, target: {type: Value, value: "5"}}}
      - {type: External, external: {metric: {name: waiting}, target: {type: Value, value: "5"}}}
      - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}
"""


@pytest.fixture(name="cluster")
def _cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    cluster = EmbeddedCluster(tmp_path / "cluster", nodes="1x4", queues=("research", "vision"), workdir=tmp_path)
    yield cluster
    cluster.shutdown(0)


@pytest.fixture(name="run")
def _run(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Station]]:
    """A station of an embedded cluster in this process; `failures` of the first connections come to nothing."""
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    made: list[Station] = []

    def run(*queues: str, failures: int = 0, **orders: Any) -> Station:
        left = [failures]

        class Reached(Access):
            def connect(self) -> Any:
                left[0] -= 1
                if left[0] >= 0:
                    raise UnavailableError("no answer")
                return cluster

        wanted = {
            "access": Reached(),
            "identity": "me",
            "home": SYSTEM_NAMESPACE,
            "queues": frozenset(queues),
            **orders,
        }
        station = Station(Orders(**wanted))
        made.append(station)
        station.start()
        return station

    yield run
    for each in made:
        assert each.stop(PATIENCE_S)


def until(station: Station, queues: frozenset[str], done: Callable[[State], object]) -> State:
    """Tend it, as a supervisor does, until it is so."""
    again = threading.Event()
    for _ in range(1200):
        state = station.tend(queues)
        if done(state):
            return state
        again.wait(0.05)
    raise AssertionError(state)


def leading(station: Station) -> dict[str, float]:
    """What it shows of who leads."""
    [family] = [each for each in station.families() if each.name == f"{PREFIX}_queue_leading"]
    return {sample.labels["queue"]: sample.value for sample in family.samples}


def test_it_leads_what_it_is_told_to(run: Callable[..., Station]) -> None:
    """From the start, after a change, and what is not there not at all."""
    station = run("research")
    state = until(station, frozenset({"research"}), lambda state: state.led == {"research"})
    assert (state.ready, state.trouble, leading(station)) == (True, "", {"research": 1})
    assert state.memory_bytes > 2**20
    both = frozenset({"vision", "nowhere"})
    until(station, both, lambda state: state.led == {"vision"})
    assert leading(station) == {"vision": 1, "nowhere": 0}


def test_it_stands_by_for_another_and_leads_after_it(run: Callable[..., Station]) -> None:
    """One that is stopped gives its Leases back."""
    queues = frozenset({"research"})
    one = run("research", identity="one")
    until(one, queues, lambda state: state.led)
    two = run("research", identity="two")
    assert until(two, queues, lambda state: state.ready).led == frozenset()
    assert one.stop(PATIENCE_S)
    until(two, queues, lambda state: state.led)


def test_it_tries_again_until_the_cluster_answers(
    run: Callable[..., Station], caplog: pytest.LogCaptureFixture
) -> None:
    """What is in the way is its trouble, and told once."""
    station = run("research", failures=5)
    until(station, frozenset({"research"}), lambda state: state.led)
    assert caplog.text.count("the autoscaler cannot work: no answer") == 1


def test_external_metrics_are_the_policys(run: Callable[..., Station], tmp_path: Path) -> None:
    """By name, as the queries that the autoscaler was started with; a name that none was given for is one itself."""
    file = tmp_path / "policies.yaml"
    file.write_text(EXTERNAL)
    station = run("research", policies=file, measuring=Measuring(queries={"depth": "sum(queue_depth)"}))
    until(station, frozenset({"research"}), lambda state: state.ready)
    assert station._named_queries("research") == {"depth": "sum(queue_depth)", "waiting": "waiting"}
    assert station._named_queries("vision") == {}


def test_decisions_and_timeline_go_to_their_folders(run: Callable[..., Station], tmp_path: Path) -> None:
    """Where they are wanted."""
    station = run("research", decisions=tmp_path / "decisions", timeline=tmp_path / "timeline")
    until(station, frozenset({"research"}), lambda state: state.led)
    assert station.stop(PATIENCE_S)
    assert (tmp_path / "timeline" / "queue.jsonl").exists()
