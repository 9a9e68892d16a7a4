# SPDX-License-Identifier: Apache-2.0
"""Coordinator pods run as the account that is installed for them, and as no other that a spec did not name."""

from __future__ import annotations

from typing import Any

import pytest

from kfp_volcano.errors import ForbiddenError
from kfp_volcano.schemas.names import COORDINATOR_ACCOUNT
from kfp_volcano.volcano.cluster.store import Store
from kfp_volcano.volcano.launcher.coordinator_account import give_account
from pipeline_runs import NS, Refusing


def tasks(**coordinator: str) -> list[dict[str, Any]]:
    return [
        {"name": "coordinator", "template": {"spec": dict(coordinator)}},
        {"name": "core", "template": {"spec": {}}},
    ]


@pytest.fixture(name="store")
def _store() -> Store:
    store = Store()
    metadata = {"name": COORDINATOR_ACCOUNT, "namespace": NS}
    store.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    return store


def test_the_account_that_is_there_is_used(store: Store) -> None:
    """By the coordinator alone: workers get no token."""
    given = tasks()
    give_account(store, NS, given)  # type: ignore[arg-type]
    assert given == tasks(serviceAccountName=COORDINATOR_ACCOUNT)


def test_an_account_that_the_spec_names_stays(store: Store) -> None:
    """Whoever wrote the spec knows better."""
    given = tasks(serviceAccountName="own")
    give_account(store, NS, given)  # type: ignore[arg-type]
    assert given == tasks(serviceAccountName="own")


def test_without_one_the_pod_has_the_default(store: Store) -> None:
    """None is there, or nobody may look: a pod with an account that is not there would never be made."""
    given = tasks()
    give_account(store, "elsewhere", given)  # type: ignore[arg-type]
    give_account(Refusing(store, lambda *_: ForbiddenError("no")), NS, given)
    assert given == tasks()
