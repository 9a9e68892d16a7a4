# SPDX-License-Identifier: Apache-2.0
"""On a real API server with the CRDs of KubeRay and of Prometheus' operator: `deploy/` is valid to them."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from apiserver.go_modules import KUBERAY, PROMETHEUS_OPERATOR, Published, install_crds
from apiserver.server import ApiServer
from kustomized import build

pytestmark = pytest.mark.cluster

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CRDS = {
    "kuberay": (KUBERAY, "ray.io_rayclusters.yaml"),
    "monitoring": (
        PROMETHEUS_OPERATOR,
        "monitoring.coreos.com_servicemonitors.yaml",
        "monitoring.coreos.com_prometheusrules.yaml",
    ),
}


@pytest.fixture(name="served", params=CRDS)
def _served(deployed: ApiServer, request: pytest.FixtureRequest) -> tuple[ApiServer, str]:
    published: Published
    published, *names = CRDS[request.param]
    install_crds(deployed, *published.files(*names))
    return deployed, request.param


def test_each_object_is_valid_to_its_kind(served: tuple[ApiServer, str]) -> None:
    """The server takes each with every field in it, and has nothing to remark."""
    server, folder = served
    for manifest in build(DEPLOY / folder):
        answer = server.admin.create(manifest, dry_run=True, strict=True)
        assert answer.accepted, answer.message
        assert answer.warnings == ()


def test_a_field_too_many_is_refused(served: tuple[ApiServer, str]) -> None:
    """So that the test above can fail."""
    server, folder = served
    for manifest in build(DEPLOY / folder):
        if manifest["apiVersion"].startswith(("ray.io", "monitoring")):
            wrong = copy.deepcopy(manifest)
            wrong["spec"]["nonsense"] = True
            answer = server.admin.create(wrong, dry_run=True, strict=True)
            assert "nonsense" in answer.message
