# SPDX-License-Identifier: Apache-2.0
"""`deploy/` as it is applied to a real API server, where Kubeflow's namespace is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apiserver.argo import install_workflows
from apiserver.server import ApiServer
from kustomized import build

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
NAMESPACE = "kubeflow"
RUNNER = "pipeline-runner"


def apply(server: ApiServer, manifest: dict[str, Any]) -> None:
    """Apply an object on the server's side, with every field known to it."""
    admin = server.admin
    path = admin.path(manifest, manifest["metadata"]["name"])
    query = {"fieldManager": "tests", "fieldValidation": "Strict"}
    answer = admin.request("PATCH", path, manifest, query=query, content_type="application/apply-patch+yaml")
    answer.expect()
    assert answer.warnings == ()


@pytest.fixture(scope="session")
def deployed(apiserver: ApiServer) -> ApiServer:
    """A cluster with KFP's account in `kubeflow`, Workflows, and this project's `base` and `kubeflow` applied."""
    install_workflows(apiserver)
    apiserver.create_namespace(NAMESPACE)
    apiserver.create_service_account(RUNNER, NAMESPACE)
    for folder in ("base", "kubeflow"):
        for manifest in build(DEPLOY / folder):
            apply(apiserver, manifest)
    return apiserver
