# SPDX-License-Identifier: Apache-2.0
"""Lists in pages, and watches that nothing on the way can break."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from apiserver.faults import Cut, Fault, FaultyProxy, Refuse, Reset, Seen, Stall
from apiserver.server import ApiServer
from kfp_volcano.errors import ConflictError, UnavailableError
from kfp_volcano.volcano.cluster.base import Event, Manifest
from kfp_volcano.volcano.cluster.informer import Informer
from kfp_volcano.volcano.cluster.kubernetes import cluster as adapter
from kfp_volcano.volcano.cluster.kubernetes.api import Patience, Reply
from kfp_volcano.volcano.cluster.kubernetes.cluster import KubernetesCluster
from kfp_volcano.volcano.cluster.kubernetes.connection import from_kubeconfig
from kfp_volcano.volcano.cluster.kubernetes.request import Request
from kfp_volcano.volcano.model.objects import key_of

pytestmark = pytest.mark.cluster


OURS = {"made-by": "test"}
"""Unlike the ConfigMap that Kubernetes puts into each namespace."""


def config(namespace: str, name: str, **data: str) -> Manifest:
    metadata = {"name": name, "namespace": namespace, "labels": OURS}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def watching(seen: Seen) -> bool:
    return "watch=1" in seen.path


def paging(seen: Seen) -> bool:
    return "continue=" in seen.path


def named(events: Iterator[Event], count: int) -> list[str]:
    """The names of the next objects of ours that a watch tells of."""
    told = (event for event in events if ours(event))
    return [next(told).object["metadata"]["name"] for _ in range(count)]


def ours(event: Event) -> bool:
    """Whether an event tells of an object that a test made."""
    return event.type != "BOOKMARK" and event.object["metadata"].get("labels") == OURS


def compact(apiserver: ApiServer, newest: Manifest) -> None:
    """Have etcd forget all that was before an object's version."""
    request = urllib.request.Request(
        f"{apiserver.etcd_url}/v3/kv/compaction",
        json.dumps({"revision": newest["metadata"]["resourceVersion"], "physical": True}).encode(),
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200


def restart(apiserver: ApiServer) -> None:
    """It comes back with nothing remembered but what etcd has."""
    apiserver.apiserver.stop()
    apiserver.apiserver.start()
    apiserver.apiserver.wait_until(apiserver.admin.ready, timeout_s=60.0)


@pytest.fixture(name="quick")
def _quick(proxy: FaultyProxy, tmp_path: Path) -> KubernetesCluster:
    """The API server through the proxy, with pauses and silences that are short."""
    patience = Patience(first_s=0.01, longest_s=0.02, answer_s=1.0, late_s=0.2)
    return KubernetesCluster(from_kubeconfig(proxy.kubeconfig(tmp_path)), patience=patience)


@pytest.fixture(name="five")
def _five(through: KubernetesCluster, namespace: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Five objects, and pages of two."""
    monkeypatch.setattr(adapter, "_PAGE", 2)
    return [through.create(config(namespace, name))["metadata"]["name"] for name in "abcde"]


def test_a_list_comes_in_pages(proxy: FaultyProxy, through: KubernetesCluster, namespace: str, five: list[str]) -> None:
    """All of it, each object once and with its kind, and one version for the whole."""
    found, version = through.list("ConfigMap", namespace, OURS)
    assert [each["metadata"]["name"] for each in found] == five
    assert {(each["apiVersion"], each["kind"]) for each in found} == {("v1", "ConfigMap")}
    assert not any("managedFields" in each["metadata"] for each in found)
    assert int(version) >= int(found[-1]["metadata"]["resourceVersion"])
    assert sum(map(paging, proxy.seen)) == 2


def test_pages_that_are_gone_are_read_anew(
    proxy: FaultyProxy, through: KubernetesCluster, namespace: str, five: list[str]
) -> None:
    """Where the server does not keep the version any more between two pages, all is read at once, nothing twice."""
    proxy.plan(Refuse(410, "expired"), when=paging)
    assert [each["metadata"]["name"] for each in through.list("ConfigMap", namespace, OURS)[0]] == five
    assert "limit" not in proxy.seen[-1].path


def test_pages_whose_version_etcd_forgets_are_whole(
    apiserver: ApiServer, through: KubernetesCluster, namespace: str, five: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compaction and a restart between two pages: each object is told once all the same."""
    ask, forgotten = through.api.ask, []

    def late(request: Request) -> Reply:
        if "continue" in request.query and not forgotten:
            forgotten.append(request)
            compact(apiserver, apiserver.admin.create(config(namespace, "f")).expect())
            restart(apiserver)
        return ask(request)

    monkeypatch.setattr(through.api, "ask", late)
    found = [each["metadata"]["name"] for each in through.list("ConfigMap", namespace, OURS)[0]]
    assert forgotten
    assert found in (five, [*five, "f"])


@pytest.mark.parametrize(
    "fault", [Cut(0), Cut(150), Stall(0), Stall(150), Reset(), Refuse(429, headers={"Retry-After": "0"}), Refuse(503)]
)
def test_a_watch_goes_on_over_what_breaks_it(
    proxy: FaultyProxy, quick: KubernetesCluster, namespace: str, fault: Fault
) -> None:
    """Each change is told once and in order, however often the stream breaks, within an event or between two."""
    _, version = quick.list("ConfigMap", namespace)
    for name in "abc":
        quick.create(config(namespace, name, text="x" * 300))
    proxy.plan(fault, fault, when=watching)
    told: list[str] = []
    while len(told) < 3:  # of a stream that falls silent one learns when its time is over
        for event in quick.watch("ConfigMap", namespace, resource_version=version, timeout_s=0.5):
            version = event.resource_version
            told += [event.object["metadata"]["name"]] if ours(event) else []
    assert told == ["a", "b", "c"]


def test_a_watch_ends_in_time_with_a_bookmark(quick: KubernetesCluster, namespace: str) -> None:
    """Where nothing happens the watch ends by itself, and another goes on from there."""
    _, version = quick.list("ConfigMap", namespace)
    *_, last = quick.watch("ConfigMap", namespace, resource_version=version, timeout_s=0.5)
    assert last.type == "BOOKMARK"
    quick.create(config(namespace, "later"))
    assert named(quick.watch("ConfigMap", namespace, resource_version=last.resource_version), 1) == ["later"]


def test_a_watch_that_cannot_be_taken_up_says_so(
    proxy: FaultyProxy, through: KubernetesCluster, namespace: str
) -> None:
    """Whoever watches learns within seconds that there is no answer."""
    proxy.plan(*[Refuse(503, "away")] * 50, when=watching)
    with pytest.raises(UnavailableError, match=r"watch ConfigMap .*: 503 away"):
        list(through.watch("ConfigMap", namespace, resource_version="1", timeout_s=30))


def test_a_watch_outlives_the_api_server(apiserver: ApiServer, quick: KubernetesCluster, namespace: str) -> None:
    """The API server is killed and starts anew: the watch goes on where it was."""
    patient = KubernetesCluster(quick.api._connection)
    _, version = patient.list("ConfigMap", namespace)
    events = patient.watch("ConfigMap", namespace, resource_version=version, timeout_s=60)
    patient.create(config(namespace, "before"))
    assert named(events, 1) == ["before"]
    apiserver.apiserver.kill()
    apiserver.apiserver.start()
    patient.create(config(namespace, "after"))  # tried again until it is there
    assert named(events, 1) == ["after"]


def test_a_version_that_is_compacted_away_is_a_conflict(
    apiserver: ApiServer, quick: KubernetesCluster, namespace: str
) -> None:
    """410: after etcd's compaction and a restart nobody knows what came after that version. List again."""
    _, version = quick.list("ConfigMap", namespace)
    created = quick.create(config(namespace, "a"))
    compact(apiserver, created)
    restart(apiserver)
    with pytest.raises(ConflictError, match=r"too old resource version|compacted"):
        list(quick.watch("ConfigMap", namespace, resource_version=version, timeout_s=5))


def test_an_informer_follows_over_compaction_and_restart(
    apiserver: ApiServer, quick: KubernetesCluster, namespace: str
) -> None:
    """What it missed is neither there for ever nor never: it lists anew where it cannot go on."""
    informer = Informer(quick, ("ConfigMap",), namespace=namespace)
    informer.start()
    try:
        quick.create(config(namespace, "a"))
        restart(apiserver)
        apiserver.admin.delete("v1", "ConfigMap", "a", namespace).expect()
        compact(apiserver, apiserver.admin.create(config(namespace, "b")).expect())
        restart(apiserver)
        apiserver.admin.create(config(namespace, "c")).expect()

        def there() -> set[str]:
            return {each["metadata"]["name"] for each in informer.objects("ConfigMap") if key_of(each)[1] in {*"abc"}}

        apiserver.apiserver.wait_until(lambda: there() == {"b", "c"}, timeout_s=60.0)
        apiserver.apiserver.wait_until(lambda: informer.stale_since is None, timeout_s=60.0)
    finally:
        informer.stop()
