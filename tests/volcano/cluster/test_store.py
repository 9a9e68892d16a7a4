# SPDX-License-Identifier: Apache-2.0
"""The store keeps versions, bounds its history, and hands out copies."""

from __future__ import annotations

import contextlib
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfp_volcano.errors import ConflictError, InvalidError, NotFoundError
from kfp_volcano.volcano.cluster.polling import watch_by_polling
from kfp_volcano.volcano.cluster.store import Store


def config(name: str, value: int = 0) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}}


def set_value(value: int) -> list[dict[str, object]]:
    return [{"op": "replace", "path": "/data/value", "value": value}]


def test_history_is_bounded() -> None:
    """A version from before what is remembered is too old to go on from."""
    store = Store(history=3)
    store.create(config("a"))
    _, version = store.list("ConfigMap")
    for value in range(1, 4):
        store.patch("ConfigMap", "a", "", set_value(value))
    events, _ = store.poll("ConfigMap", "", resource_version=version, timeout_s=0)
    assert len(events) == 3
    store.patch("ConfigMap", "a", "", set_value(9))
    with pytest.raises(ConflictError, match="too old"):
        store.poll("ConfigMap", "", resource_version="0", timeout_s=0)


def test_what_is_handed_out_is_a_copy() -> None:
    """A caller's later changes do not reach the store."""
    store = Store()
    given = config("a")
    created = store.create(given)
    created["data"]["value"] = given["data"] = "spoilt"
    store.list("ConfigMap")[0][0]["data"]["value"] = "spoilt"
    assert store.get("ConfigMap", "a")["data"]["value"] == 0


def test_a_poll_is_woken_by_the_change() -> None:
    """Whoever waits for changes gets the first one without asking again."""
    store = Store()
    found: list[object] = []
    reader = threading.Thread(
        target=lambda: found.extend(store.poll("ConfigMap", "", resource_version="0", timeout_s=30)[0])
    )
    reader.start()
    store.create(config("a"))
    reader.join(30)
    assert len(found) == 1


def test_generation_counts_changes_of_what_is_asked_for() -> None:
    """Metadata and status do not raise an object's generation, everything else does."""
    store = Store()
    store.create(config("a"))
    labelled = store.patch("ConfigMap", "a", "", [{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}])
    assert labelled["metadata"]["generation"] == 1
    assert store.patch("ConfigMap", "a", "", set_value(1))["metadata"]["generation"] == 2


def test_a_change_that_changes_nothing_has_no_version() -> None:
    """A patch that leaves the object as it is wakes nobody."""
    store = Store()
    created = store.create(config("a"))
    assert store.patch("ConfigMap", "a", "", set_value(0)) == created


@pytest.mark.parametrize(
    "patch",
    [
        [{"op": "replace", "path": "/metadata/name", "value": "b"}],
        [{"op": "remove", "path": "/data/absent"}],
        [{"op": "replace", "path": "/absent/deep", "value": 1}],
        [{"op": "invent", "path": "/data"}],
    ],
)
def test_an_impossible_patch_is_invalid(patch: list[dict[str, object]]) -> None:
    """A patch that makes no sense is refused and changes nothing."""
    store = Store()
    created = store.create(config("a"))
    with pytest.raises(InvalidError):
        store.patch("ConfigMap", "a", "", patch)
    assert store.get("ConfigMap", "a") == created


def test_an_unknown_kind_is_refused() -> None:
    """The kinds that are served are named in the refusal."""
    with pytest.raises(InvalidError, match="PodGroup"):
        Store().list("Gadget")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["create", "patch", "delete"]), st.integers(0, 3))))
def test_a_watch_from_the_beginning_rebuilds_the_store(steps: list[tuple[str, str, int]]) -> None:
    """Whoever applies every event in order holds what a list gives, with strictly rising versions."""
    store = Store()
    for name, verb, value in steps:
        with contextlib.suppress(ConflictError, NotFoundError):
            if verb == "create":
                store.create(config(name, value))
            elif verb == "patch":
                store.patch("ConfigMap", name, "", set_value(value))
            else:
                store.delete("ConfigMap", name)
    copy = {}
    versions = []
    for event in watch_by_polling(store.poll, "ConfigMap", "", resource_version="0", timeout_s=0):
        if event.type == "BOOKMARK":
            continue
        versions.append(int(event.resource_version))
        copy[event.object["metadata"]["name"]] = event.object
        if event.type == "DELETED":
            del copy[event.object["metadata"]["name"]]
    assert versions == sorted(set(versions))
    assert sorted(copy) == sorted(each["metadata"]["name"] for each in store.list("ConfigMap")[0])
    assert all(each in store.list("ConfigMap")[0] for each in copy.values())
