# SPDX-License-Identifier: Apache-2.0
"""An informer's copy follows the cluster, through refusals and interruptions."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from kfp_volcano.errors import ConflictError, ForbiddenError, UnavailableError
from kfp_volcano.volcano.cluster.base import Event
from kfp_volcano.volcano.cluster.informer import Informer
from kfp_volcano.volcano.cluster.polling import watch_by_polling
from kfp_volcano.volcano.cluster.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kfp_volcano.errors import ClusterError
    from kfp_volcano.volcano.cluster.base import Manifest, Page

PATIENCE_S = 30.0


class Flaky:
    """A store as a cluster whose next lists or watches can be made to fail."""

    def __init__(self) -> None:
        self.store = Store()
        self.list_failures: list[ClusterError] = []
        self.watch_failures: list[ClusterError] = []
        self.lists = 0

    def list(
        self, kind: str, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> tuple[list[Manifest], str]:
        self.lists += 1
        if self.list_failures:
            raise self.list_failures.pop(0)
        return self.store.list(kind, namespace, labels)

    def pages(self, kind: str, namespace: str = "") -> Iterator[Page]:
        yield self.list(kind, namespace)

    def watch(
        self, kind: str, namespace: str = "", *, resource_version: str, timeout_s: float = 30.0
    ) -> Iterator[Event]:
        if self.watch_failures:
            raise self.watch_failures.pop(0)
        yield from watch_by_polling(
            self.store.poll, kind, namespace, resource_version=resource_version, timeout_s=min(timeout_s, 0.05)
        )

    def config(self, name: str) -> None:
        self.store.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}})


@pytest.fixture
def flaky() -> Flaky:
    return Flaky()


@pytest.fixture
def informer(flaky: Flaky) -> Iterator[Informer]:
    informer = Informer(flaky, ["ConfigMap", "Pod"], jitter=lambda: 0.0, clock=lambda: 42.0)  # type: ignore[arg-type]
    yield informer
    informer.stop()


def names(informer: Informer) -> list[str]:
    return [each["metadata"]["name"] for each in informer.objects("ConfigMap")]


def follow(informer: Informer, expected: list[str]) -> None:
    """Wait, by the informer's own means, until its copy holds what is expected."""
    version = 0
    for _ in range(100):
        if names(informer) == expected:
            return
        version = informer.wait(version, PATIENCE_S)
    pytest.fail(f"{names(informer)} never became {expected}")


def test_a_copy_starts_whole_and_follows(flaky: Flaky, informer: Informer) -> None:
    """After start the copy holds what there is; later changes arrive."""
    flaky.config("a")
    informer.start()
    assert names(informer) == ["a"]
    flaky.config("b")
    follow(informer, ["a", "b"])
    flaky.store.delete("ConfigMap", "a", "n")
    follow(informer, ["b"])
    assert informer.stale_since is None


def test_wait_returns_with_the_change(flaky: Flaky, informer: Informer) -> None:
    """A waiting reader is woken by the change, and one with an old version does not wait at all."""
    informer.start()
    version = informer.wait(0, PATIENCE_S)
    assert informer.wait(version, 0.0) == version
    seen: list[int] = []
    reader = threading.Thread(target=lambda: seen.append(informer.wait(version, PATIENCE_S)))
    reader.start()
    flaky.config("a")
    reader.join(PATIENCE_S)
    assert seen
    assert seen[0] > version


def test_a_version_that_is_too_old_leads_to_a_new_list(flaky: Flaky, informer: Informer) -> None:
    """On ConflictError everything is read anew, and nothing is lost."""
    informer.start()
    before = flaky.lists
    flaky.watch_failures = [ConflictError("too old"), ConflictError("too old")]
    flaky.config("a")
    follow(informer, ["a"])
    assert flaky.lists > before or flaky.watch_failures


def test_a_silent_cluster_makes_the_copy_stale(flaky: Flaky, informer: Informer) -> None:
    """While there is no answer the copy stays, says since when it is stale, and goes on afterwards."""
    flaky.config("a")
    informer.start()
    flaky.watch_failures = [UnavailableError("gone")] * 4
    version = 0
    while informer.stale_since is None:
        version = informer.wait(version, PATIENCE_S)
    assert informer.stale_since == 42.0
    assert names(informer) == ["a"]
    flaky.config("b")
    follow(informer, ["a", "b"])
    while informer.stale_since is not None:
        version = informer.wait(version, PATIENCE_S)


def test_start_waits_for_a_cluster_that_is_not_there_yet(flaky: Flaky, informer: Informer) -> None:
    """Lists that get no answer are tried again."""
    flaky.config("a")
    flaky.list_failures = [UnavailableError("not yet"), UnavailableError("not yet")]
    informer.start()
    assert names(informer) == ["a"]


def test_a_refusal_is_told_at_the_start(flaky: Flaky, informer: Informer) -> None:
    """What no retry can help is raised by start."""
    flaky.list_failures = [ForbiddenError("no permission"), ForbiddenError("no permission")]
    with pytest.raises(ForbiddenError, match="no permission"):
        informer.start()


def test_a_list_that_breaks_off_between_pages_is_read_anew(flaky: Flaky, informer: Informer) -> None:
    """Readers see the old copy until the new one is whole, and nothing of the pages that were given up."""
    for name in ("a", "b"):
        flaky.config(name)
    seen: list[list[str]] = []
    whole = flaky.pages

    def pages(kind: str, namespace: str = "") -> Iterator[Page]:
        for objects, version in whole(kind, namespace):
            yield objects[:1], version
            seen.append(names(informer))
            if kind == "ConfigMap" and len(seen) == 1:
                flaky.store.delete("ConfigMap", "a", "n")
                raise ConflictError("too old")
            yield objects[1:], version

    flaky.pages = pages  # type: ignore[method-assign]
    informer.start()
    assert seen[0] == []
    assert names(informer) == ["b"]
