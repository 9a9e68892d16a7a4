# SPDX-License-Identifier: Apache-2.0
"""The namespace of the Leases, where it is missing."""

from __future__ import annotations

import pytest

from kfp_volcano.elastic.autoscaler.home import make_home
from kfp_volcano.errors import ForbiddenError, SpecError
from kfp_volcano.schemas.names import SYSTEM_NAMESPACE


def test_the_shared_namespace_is_made_once(cluster):
    """By whoever comes first; whoever comes later finds it."""
    for _ in range(2):
        make_home(cluster, SYSTEM_NAMESPACE)
    assert [each["metadata"]["name"] for each in cluster.list("Namespace")[0]] == [SYSTEM_NAMESPACE]


def test_a_users_namespace_is_not_made(cluster):
    """It may be a slip of the pen: the error says what can be done."""
    with pytest.raises(SpecError, match=r"no namespace visoin .*--namespace"):
        make_home(cluster, "visoin")
    assert cluster.list("Namespace")[0] == []


def test_who_may_not_make_it_is_told(cluster, monkeypatch):
    """What makes it; who may not even look goes on, and finds out by the Leases."""

    def refuse(*_):
        raise ForbiddenError("no")

    monkeypatch.setattr(cluster, "create", refuse)
    with pytest.raises(SpecError, match="kubectl apply -k deploy/base"):
        make_home(cluster, SYSTEM_NAMESPACE)
    monkeypatch.setattr(cluster, "get", refuse)
    make_home(cluster, SYSTEM_NAMESPACE)
