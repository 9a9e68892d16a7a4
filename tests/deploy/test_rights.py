# SPDX-License-Identifier: Apache-2.0
"""On a real API server: the accounts of `deploy/` may do what they need, and nothing else of all that there is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from apiserver.server import ApiServer
from kfp_volcano.schemas.names import SYSTEM_NAMESPACE
from kfp_volcano.volcano.cluster.base import KINDS
from kfp_volcano.volcano.launcher import permissions
from kfp_volcano.volcano.launcher.permissions import Need
from kustomized import build

pytestmark = pytest.mark.cluster

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
HOME, ELSEWHERE = "kubeflow", "default"
ACCOUNTS = {
    (HOME, "pipeline-runner"): permissions.STEPS,
    (HOME, "kfp-volcano-coordinator"): permissions.COORDINATOR,
    (SYSTEM_NAMESPACE, "kfp-volcano-autoscaler"): permissions.AUTOSCALER,
    (SYSTEM_NAMESPACE, "kfp-volcano-reaper"): permissions.REAPER,
}
LOOK_ASIDE = Need("Lease", ("get",), "what coordinators look at, who may be any account", where="system")
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
ESCALATING = (
    ("rbac.authorization.k8s.io", "clusterroles", "bind"),
    ("rbac.authorization.k8s.io", "clusterroles", "escalate"),
    ("", "serviceaccounts", "impersonate"),
    ("", "users", "impersonate"),
    ("", "groups", "impersonate"),
)
Question = tuple[str, str, str, str]
"""Namespace (empty: none, or all), group, resource, verb."""


def resources(server: ApiServer) -> Iterator[tuple[str, str, bool]]:
    """All that the server serves, subresources too: group, resource, whether it is in namespaces."""
    groups = server.admin.request("GET", "/apis").expect()["groups"]
    versions = [
        ("", "/api/v1"),
        *((each["name"], f"/apis/{each['preferredVersion']['groupVersion']}") for each in groups),
    ]
    for group, path in versions:
        for each in server.admin.request("GET", path).expect()["resources"]:
            yield group, each["name"], each["namespaced"]


def questions(server: ApiServer) -> list[Question]:
    """Each verb on each resource, in each place where there is a difference."""
    found = [("", group, resource, verb) for group, resource, verb in ESCALATING]
    for group, resource, namespaced in resources(server):
        places = (HOME, ELSEWHERE, SYSTEM_NAMESPACE) if namespaced else ("",)
        found += [(place, group, resource, verb) for place in places for verb in VERBS]
    return found


def allowed(server: ApiServer, asked: list[Question], user: str, groups: list[str]) -> set[Question]:
    """Those of the questions that the server answers with yes for a user."""

    def ask(question: Question) -> bool:
        place, group, resource, verb = question
        plural, _, sub = resource.partition("/")
        attributes = {"namespace": place, "group": group, "resource": plural, "subresource": sub, "verb": verb}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "groups": groups, "resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool(server.admin.request("POST", path, review).expect()["status"]["allowed"])

    with ThreadPoolExecutor(4) as pool:
        return {question for question, yes in zip(asked, pool.map(ask, asked), strict=True) if yes}


def granted(needs: tuple[Need, ...]) -> set[Question]:
    """What the code says that an account needs, as questions."""
    found = set()
    for need in needs:
        kind = KINDS[need.kind]
        resource = f"{kind.plural}/{need.subresource}" if need.subresource else kind.plural
        places: Mapping[str, tuple[str, ...]] = {
            "namespace": (HOME,),
            "system": (SYSTEM_NAMESPACE,),
            "everywhere": (HOME, ELSEWHERE, SYSTEM_NAMESPACE) if kind.namespaced else ("",),
        }
        group = kind.api_version.rpartition("/")[0]
        found |= {(place, group, resource, verb) for place in places[need.where] for verb in need.verbs}
    return found


@pytest.fixture(scope="module", name="asked")
def _asked(deployed: ApiServer) -> list[Question]:
    return questions(deployed)


@pytest.fixture(scope="module", name="anybody")
def _anybody(deployed: ApiServer, asked: list[Question]) -> set[Question]:
    """What Kubernetes lets anybody do who has a name."""
    return allowed(deployed, asked, "somebody", ["system:authenticated"])


@pytest.mark.parametrize("account", ACCOUNTS, ids=lambda account: account[1])
def test_an_account_may_do_what_it_needs_and_nothing_else(
    deployed: ApiServer, asked: list[Question], anybody: set[Question], account: tuple[str, str]
) -> None:
    """Every verb on every kind that the server has: allowed if and only if it is listed."""
    namespace, name = account
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    may = allowed(deployed, asked, f"system:serviceaccount:{namespace}:{name}", groups)
    wanted = granted((*ACCOUNTS[account], LOOK_ASIDE))
    assert wanted <= set(asked)
    assert may - anybody == wanted - anybody


@pytest.mark.parametrize("folder", ["priorities", "profile", "network", "autoscaler"])
def test_the_other_folders_are_valid_too(deployed: ApiServer, folder: str) -> None:
    """The server takes each object with every field in it, and has nothing to remark."""
    for manifest in build(DEPLOY / folder):
        if "namespace" in manifest["metadata"] or folder == "network":
            manifest["metadata"]["namespace"] = HOME
        answer = deployed.admin.create(manifest, dry_run=True, strict=True)
        assert answer.accepted or answer.status == 409, answer.message
        assert answer.warnings == ()
