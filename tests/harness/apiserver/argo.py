# SPDX-License-Identifier: Apache-2.0
"""Argo's Workflows, as far as this project looks at them: any Workflow, without the program that would run it."""

from __future__ import annotations

from apiserver.server import ApiServer

__all__ = ["install_workflows"]

_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_SCHEMA = {"type": "object", "properties": {"spec": _ANYTHING, "status": _ANYTHING}}
_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "workflows.argoproj.io"},
    "spec": {
        "group": "argoproj.io",
        "names": {"kind": "Workflow", "listKind": "WorkflowList", "plural": "workflows", "singular": "workflow"},
        "scope": "Namespaced",
        "versions": [{"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _SCHEMA}}],
    },
}
_CONFLICT = 409


def install_workflows(server: ApiServer) -> None:
    """Have the API server serve Workflows; nothing happens where it does already."""
    created = server.admin.create(_CRD)
    assert created.accepted or created.status == _CONFLICT, created.message
    path = "/apis/argoproj.io/v1alpha1/workflows"
    server.apiserver.wait_until(lambda: server.admin.request("GET", path).accepted, timeout_s=60.0)
