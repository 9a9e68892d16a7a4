# SPDX-License-Identifier: Apache-2.0
"""The supervisor: actors know what is theirs, and whoever asks learns how they are."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping

import pytest
from prometheus_client import CollectorRegistry, Counter, Metric
from prometheus_client.parser import text_string_to_metric_families

from kfp_volcano.elastic.autoscaler.station import State
from kfp_volcano.elastic.autoscaler.supervisor import SILENT_S, RayDiedError, Supervisor
from kfp_volcano.elastic.autoscaler.telling.exposition import serve
from kfp_volcano.elastic.autoscaler.telling.telemetry import PREFIX
from kfp_volcano.errors import UnavailableError


class Actors:
    """A crew that does nothing but remember."""

    def __init__(self) -> None:
        self.told: Mapping[int, frozenset[str]] = {}
        self.states: dict[int, State] = {}
        """Instead of a good one."""
        self.silent: set[int] = set()
        self.counted: dict[int, list[Metric]] = {}
        self.stopped = False
        self.dead = ""

    def tend(self, assignment: Mapping[int, frozenset[str]]) -> dict[int, State]:
        self.told = assignment
        good = {number: State(pid=100 + number, led=of, ready=True) for number, of in assignment.items()}
        return {number: state for number, state in {**good, **self.states}.items() if number not in self.silent}

    def families(self) -> Mapping[int, list[Metric]]:
        return self.counted

    def died(self) -> str:
        return self.dead

    def stop(self) -> None:
        self.stopped = True


class Watch:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(name="crew")
def _crew() -> Actors:
    return Actors()


@pytest.fixture(name="queues")
def _queues() -> set[str]:
    return {"a", "b"}


@pytest.fixture(name="watch")
def _watch() -> Watch:
    return Watch()


@pytest.fixture(name="supervisor")
def _supervisor(crew: Actors, queues: set[str], watch: Watch) -> Supervisor:
    return Supervisor(crew, queues=lambda: queues, actors=2, clock=watch)


@pytest.fixture(name="ask")
def _ask(supervisor: Supervisor) -> Iterator:
    """Asks over HTTP: status and text."""
    serving = serve(0, supervisor.registry(), supervisor, "127.0.0.1")

    def ask(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{serving.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    yield ask
    serving.stop()


def test_actors_are_told_each_round_what_is_theirs(supervisor: Supervisor, crew: Actors, queues: set[str]) -> None:
    """Queues come and go; one that is told nothing new is told the same again."""
    supervisor.round()
    assert crew.told == {0: {"a"}, 1: {"b"}}
    queues ^= {"a", "c"}
    supervisor.round()
    assert crew.told == {0: {"c"}, 1: {"b"}}


def test_it_is_ready_when_all_of_its_actors_are(supervisor: Supervisor, crew: Actors, ask) -> None:
    """Not before the first round, not while one is silent or sees nothing; the answer says why."""
    assert ask("/readyz") == (503, "starting\n")
    crew.silent, crew.states = {0}, {1: State(pid=1, trouble="the cluster is being read")}
    supervisor.round()
    assert ask("/readyz") == (503, "actor 0 does not answer; actor 1: the cluster is being read\n")
    crew.silent, crew.states = set(), {}
    supervisor.round()
    assert ask("/readyz") == (200, "ok\n")


def test_it_is_well_until_an_actor_is_silent_for_long(supervisor: Supervisor, crew: Actors, watch: Watch, ask) -> None:
    """One that answers that the API server does not is no reason to start anything again."""
    crew.states = {0: State(pid=1, trouble="the cluster has not been seen for 300 s")}
    watch.now += 10 * SILENT_S
    supervisor.round()
    assert ask("/healthz") == (200, "ok\n")
    crew.silent = {1}
    watch.now += SILENT_S
    supervisor.round()
    assert ask("/healthz")[0] == 200
    watch.now += 1
    assert ask("/healthz") == (503, f"an actor has not answered for {SILENT_S + 1:.0f} s\n")


def test_it_ends_when_it_is_not_well_any_more(supervisor: Supervisor, crew: Actors, watch: Watch) -> None:
    """Ray itself has died: whoever runs the process is to start it again, with a probe or without."""
    crew.silent = {0, 1}
    watch.now += SILENT_S + 1
    with pytest.raises(UnavailableError, match="has to be started again"):
        supervisor.run()
    assert crew.stopped


def test_it_ends_at_once_where_ray_has_died(supervisor: Supervisor, crew: Actors) -> None:
    """Nothing is asked of actors then: Ray would wait a minute for itself, and end the process."""
    crew.dead = "gcs_server"
    with pytest.raises(RayDiedError, match="gcs_server has died"):
        supervisor.run()
    assert not crew.stopped


def test_one_page_has_the_metrics_of_all(supervisor: Supervisor, crew: Actors, ask) -> None:
    """Series of the same name are told apart by their actor; restarts are seen."""
    for number in (0, 1):
        registry = CollectorRegistry()
        counter = Counter(f"{PREFIX}_decisions", "All.", ["queue"], registry=registry)
        counter.labels("a").inc(number + 1)
        crew.counted[number] = list(registry.collect())
    supervisor.round()
    crew.states = {1: State(pid=7, ready=True, memory_bytes=5)}
    supervisor.round()
    families = list(text_string_to_metric_families(ask("/metrics")[1]))
    assert len(families) == len({family.name for family in families})
    shown = {(each.name, *sorted(each.labels.items())): each.value for family in families for each in family.samples}
    name = f"{PREFIX}_decisions_total"
    assert shown[name, ("actor", "0"), ("queue", "a")] == 1
    assert shown[name, ("actor", "1"), ("queue", "a")] == 2
    assert shown[f"{PREFIX}_actor_up", ("actor", "1")] == 1
    assert shown[f"{PREFIX}_actor_restarts_total", ("actor", "0")] == 0
    assert shown[f"{PREFIX}_actor_restarts_total", ("actor", "1")] == 1
    assert shown[f"{PREFIX}_actor_memory_bytes", ("actor", "1")] == 5
    assert ("process_resident_memory_bytes",) in shown


def test_what_is_not_served_is_not_found(ask) -> None:
    """And the answer says what is."""
    assert ask("/") == (404, "/metrics, /healthz, /readyz\n")


def test_the_end_gives_everything_back(supervisor: Supervisor, crew: Actors) -> None:
    """Stopped before it began, too."""
    supervisor.stop()
    supervisor.run()
    assert crew.stopped
