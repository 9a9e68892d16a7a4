# SPDX-License-Identifier: Apache-2.0
"""The ConfigMap from which autoscalers of a namespace take their Policies, each key that ends in .yaml a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from kfp_volcano.elastic.autoscaler.own_policies import own_policies
from kfp_volcano.errors import ConflictError, NotFoundError, Problem, SpecError
from kfp_volcano.schemas.documents import parse, parse_all
from kfp_volcano.schemas.names import MANAGED_LABEL, MANAGER, POLICIES_CONFIG
from kfp_volcano.schemas.policy_validation import policies

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfp_volcano.volcano.cluster.base import Cluster

__all__ = ["put_policy", "with_policy"]

_ATTEMPTS = 5
"""For others may write at the same time."""


def put_policy(cluster: Cluster, namespace: str, text: str) -> str:
    """Put a Policy in place of the one of its name, or beside the others; returns the key that it is under.

    The ConfigMap is made if it is not there. What autoscalers would refuse is not written.

    Args:
        cluster: Which.
        namespace: The autoscaler's.
        text: A Policy document.

    Raises:
        SpecError: It is no Policy, or does not go with those that are there.
        ConflictError: Others write all the time.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return _put(cluster, namespace, text)
        except ConflictError:  # noqa: PERF203 - once in a while
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError


def with_policy(data: Mapping[str, str], text: str) -> tuple[str, str]:
    """The key that changes, and its new text.

    Args:
        data: The ConfigMap's.
        text: A Policy document.

    Raises:
        SpecError: All together would be refused: everything that is wrong.
    """
    document = parse(text, source="the Policy")
    name = str((document.get("metadata") or {}).get("name"))
    files = {key: parse_all(each, source=key) for key, each in data.items() if key.endswith(".yaml")}
    key = next((key for key, found in files.items() if any(_name(each) == name for each in found)), f"{name}.yaml")
    there = files.get(key, [])
    if key in files and not any(_name(each) == name for each in there):
        what = f"the key {key} of ConfigMap {POLICIES_CONFIG} holds another Policy"
        raise SpecError([Problem("metadata.name", what, "another name")], source="the Policy")
    files[key] = [document if _name(each) == name else each for each in there] or [document]
    named = [(f"{file} ({_name(each)})", each) for file, found in files.items() for each in found]
    policies(named, source=f"ConfigMap {POLICIES_CONFIG}", own=own_policies())
    if len(files[key]) == 1:
        return key, text if text.endswith("\n") else f"{text}\n"
    return key, yaml.safe_dump_all(files[key], sort_keys=False, allow_unicode=True)


def _put(cluster: Cluster, namespace: str, text: str) -> str:
    try:
        there = cluster.get("ConfigMap", POLICIES_CONFIG, namespace)
    except NotFoundError:
        key, new = with_policy({}, text)
        metadata = {"name": POLICIES_CONFIG, "namespace": namespace, "labels": {MANAGED_LABEL: MANAGER}}
        cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {key: new}})
        return key
    data = there.get("data") or {}
    key, new = with_policy(data, text)
    patch: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": there["metadata"]["resourceVersion"]},
        {"op": "add", "path": f"/data/{key}", "value": new}
        if data
        else {"op": "add", "path": "/data", "value": {key: new}},
    ]
    cluster.patch("ConfigMap", POLICIES_CONFIG, namespace, patch)
    return key


def _name(document: Mapping[str, Any]) -> str:
    return str((document.get("metadata") or {}).get("name"))
